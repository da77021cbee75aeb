//! The soak's length, and the servers and clients that it is played with.

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use testkit::{Dice, Version};

/// The short form, a part of `make verify`.
const SECONDS: u64 = 20;
/// Memory is compared from here on; a shorter soak is over before the caches are full.
const WARM_UP_MAX: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seconds: Duration,
    /// The time before the first sample of the memory.
    pub(crate) warm_up: Duration,
    pub(crate) sample_every: Duration,
    pub(crate) order_every: Duration,
    /// The longest pause of a client between two requests. 0: none.
    pause: Duration,
    pub(crate) sessions: u32,
    pub(crate) visitors: u32,
    pub(crate) version: Version,
    /// Weir's `data_path`.
    pub(crate) data_path: String,
}

impl Plan {
    /// Reads `SOAK_SECONDS`, `SOAK_PAUSE_MS`, `SOAK_POSTGRES` (15 or 18) and `SOAK_DATA_PATH`
    /// (`direct` or `proxy`).
    pub(crate) fn from_environment() -> Self {
        let seconds = Duration::from_secs(variable("SOAK_SECONDS", SECONDS));
        Self {
            seconds,
            warm_up: (seconds / 10).min(WARM_UP_MAX),
            sample_every: (seconds / 10).min(Duration::from_mins(1)),
            order_every: (seconds / 20).min(Duration::from_secs(20)),
            pause: Duration::from_millis(variable("SOAK_PAUSE_MS", 5)),
            sessions: 40,
            visitors: 12,
            version: match variable("SOAK_POSTGRES", 15) {
                15 => Version::Installed,
                18 => Version::Eighteen,
                other => panic!("SOAK_POSTGRES={other}: expected 15 or 18"),
            },
            data_path: variable("SOAK_DATA_PATH", "direct".to_owned()),
        }
    }

    /// Draws how long a client does nothing.
    pub(crate) fn a_pause(&self, dice: &mut Dice) -> Duration {
        let micros = self.pause.as_micros() as usize;
        Duration::from_micros(dice.below(micros + 1) as u64)
    }
}

fn variable<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e:?}")),
        Err(_) => default,
    }
}
