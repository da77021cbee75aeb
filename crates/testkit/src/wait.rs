//! Waits for a state by checking it repeatedly; the only sleep in the tests.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);
/// The pause for states that take no longer than a thread's time slice.
const SHORT_PAUSE: Duration = Duration::from_micros(50);

/// Calls `look` until it returns a value, and returns that; panics after `limit`.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    match poll_until(limit, look) {
        Some(value) => value,
        None => panic!("waited {limit:?} in vain until {what}"),
    }
}

/// Like [`eventually`], but `None` once `limit` has passed.
pub fn poll_until<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    poll(limit, PAUSE, look)
}

/// Like [`poll_until`], for states that are checked thousands of times and come almost at once.
pub(crate) fn poll_often<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    poll(limit, SHORT_PAUSE, look)
}

fn poll<T>(limit: Duration, pause: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = look() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
    }
}
