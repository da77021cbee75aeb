//! Memory that many clients have used goes back to the system when they have left. The allocator
//! keeps what was freed between things that stay, and the process would stay as large as it ever was.

use std::time::Duration;

use tokio::time::sleep;

use crate::cold::controller::Controller;
use net::sys::process;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);
/// Memory that fewer clients have used is not worth the time.
const CROWD_MIN: u32 = 1_000;
/// The allocator is asked what it keeps at each look of so many, and only by a process of that size.
const ALLOCATOR_LOOKS: u32 = 10;
const RESIDENT_MIN: u64 = 32 << 20;
/// So much that is resident and not in use is given back.
const WASTE_MAX: u64 = 12 << 20;

/// Looks for ever.
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

/// Memory that a few clients have used, with many statements for example.
#[derive(Debug, Default)]
struct Waste {
    /// Bytes that could not be given back the last time.
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

    /// Is much more resident than what is in use, and than what cannot be helped?
    fn is_too_much(&mut self, resident: u64, allocated: u64) -> bool {
        let wasted = resident.saturating_sub(allocated);
        self.stays = self.stays.min(wasted);
        wasted > self.stays + WASTE_MAX
    }
}

/// How many clients there were when memory was last given back, or at any time since then.
#[derive(Debug, Default)]
struct Crowd {
    most: u32,
    /// At the last look.
    last: u32,
}

impl Crowd {
    /// Whether there are no more than half of them, and no more are leaving.
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
    fn what_cannot_be_given_back_is_not_tried_again() {
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
