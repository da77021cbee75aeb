//! Returns memory to the system after many clients have left. The allocator keeps freed memory
//! between live allocations, so the process would stay as large as it ever was.

use std::time::Duration;

use tokio::time::sleep;

use crate::cold::controller::Controller;
use net::sys::process;

/// The interval of checks of the memory.
const LOOK: Duration = Duration::from_secs(1);
/// Memory of fewer clients is not worth the time.
const CROWD_MIN: u32 = 1_000;
/// The allocator is asked at every tenth check only, and only in a process of this size.
const ALLOCATOR_LOOKS: u32 = 10;
const RESIDENT_MIN: u64 = 32 << 20;
/// This much unused resident memory is returned, in bytes.
const WASTE_MAX: u64 = 12 << 20;

/// Checks memory forever.
pub(super) async fn keep(controller: Controller) {
    let (mut crowd, mut waste) = (Crowd::default(), Waste::default());
    for look in 1_u32.. {
        sleep(LOOK).await;
        if look % ALLOCATOR_LOOKS == 0 {
            waste.look(&controller);
        }
        if crowd.has_left(controller.0.shared.clients()) {
            process::give_memory_back();
        }
    }
}

/// Unused memory that no crowd of clients explains, such as that of many statements.
#[derive(Debug, Default)]
struct Waste {
    /// Bytes that could not be returned the last time.
    stays: u64,
}

impl Waste {
    fn look(&mut self, controller: &Controller) {
        let resident = process::resident_bytes();
        if resident < RESIDENT_MIN {
            return;
        }
        if self.is_too_much(resident, process::allocated_bytes()) {
            controller.0.shared.hub.forget_unused_statements();
            process::give_memory_back();
            self.stays = process::resident_bytes().saturating_sub(process::allocated_bytes());
        }
    }

    /// Is resident memory much larger than the memory in use, and than what could not be returned?
    fn is_too_much(&mut self, resident: u64, allocated: u64) -> bool {
        let wasted = resident.saturating_sub(allocated);
        self.stays = self.stays.min(wasted);
        wasted > self.stays + WASTE_MAX
    }
}

/// The highest number of clients since memory was last returned.
#[derive(Debug, Default)]
struct Crowd {
    most: u32,
    /// The number at the last check.
    last: u32,
}

impl Crowd {
    /// Have at least half of them left, and are no more leaving?
    fn has_left(&mut self, clients: u32) -> bool {
        let is_steady = clients >= self.last;
        self.last = clients;
        self.most = self.most.max(clients);
        let has_left = self.most >= CROWD_MIN && clients <= self.most / 2 && is_steady;
        if has_left {
            self.most = clients;
        }
        has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_returned_is_not_tried_again() {
        let mut waste = Waste::default();
        assert!(!waste.is_too_much(WASTE_MAX + 5, 5));
        assert!(waste.is_too_much(WASTE_MAX + 6, 5));
        waste.stays = WASTE_MAX;
        assert!(!waste.is_too_much(WASTE_MAX * 2, 0));
        assert!(waste.is_too_much(WASTE_MAX * 2 + 1, 0));
    }

    #[test]
    fn a_crowd_has_left_once_and_when_all_who_leave_are_gone() {
        let mut crowd = Crowd::default();
        let seen = [0, 4_000, 3_000, 1_900, 50, 40, 40, 40, 900, 10, 10, 1_200, 1_200, 0, 0];
        let left = seen.map(|clients| crowd.has_left(clients));
        let when: Vec<_> = (0..seen.len()).filter(|&at| left[at]).collect();
        assert_eq!(when, [6, 14]);
    }
}
