//! A moment by the pooler's clock and by wall-clock time.

use std::time::{SystemTime, UNIX_EPOCH};

use proxy::Controller;

/// One moment by both clocks: the pooler's own, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) micros: u64,
    /// Seconds since 1970.
    pub(crate) seconds: i64,
}

impl Moment {
    pub(crate) fn now(controller: &Controller) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        Self { micros: controller.now(), seconds }
    }

    /// Returns the seconds since 1970 of an earlier moment by the pooler's clock.
    pub(crate) fn wall(self, micros: u64) -> i64 {
        let ago = self.micros.saturating_sub(micros) / 1_000_000;
        self.seconds.saturating_sub_unsigned(ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_the_clock_on_the_wall() {
        let now = Moment { micros: 10_000_000, seconds: 1000 };
        assert_eq!(now.wall(10_000_000), 1000);
        assert_eq!(now.wall(7_400_000), 998);
        assert_eq!(now.wall(11_000_000), 1000);
    }
}
