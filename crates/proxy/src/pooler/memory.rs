//! Memory that many clients have used goes back to the system when they have left. The allocator
//! keeps what was freed between things that stay, and the process would stay as large as it ever was.

use std::time::Duration;

use tokio::time::sleep;

use crate::{controller::Controller, sys::process};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(1);
/// What fewer clients have used is not worth the time.
const CROWD_MIN: u32 = 1_000;

/// Looks for ever.
pub(super) async fn keep(controller: Controller) {
    let mut crowd = Crowd::default();
    loop {
        sleep(LOOK).await;
        if crowd.has_left(controller.0.shared.clients()) {
            process::give_memory_back();
        }
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
    fn a_crowd_has_left_once_and_when_all_who_leave_are_gone() {
        let mut crowd = Crowd::default();
        let seen = [0, 4_000, 3_000, 1_900, 50, 40, 40, 40, 900, 10, 10, 1_200, 1_200, 0, 0];
        let left = seen.map(|clients| crowd.has_left(clients));
        let when: Vec<_> = (0..seen.len()).filter(|&at| left[at]).collect();
        assert_eq!(when, [6, 14]);
    }
}
