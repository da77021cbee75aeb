//! The addresses of servers that do not accept connections: one log line when that begins, and one
//! when it ends. Attempts in between are counted.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use config::in_words;
use tokio::sync::Notify;

use super::hub::lock;
use crate::{log, warning};

/// Addresses that are remembered at most: names may resolve to ever new ones.
const ADDRESSES_MAX: usize = 1000;
/// The shortest time between two log lines about sockets that cannot be opened.
const SHORTAGE_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Outages {
    by_address: Mutex<HashMap<String, Outage>>,
    /// The number of entries, to be read without the lock.
    count: AtomicUsize,
    /// When the log last said that this process can open no socket.
    shortage: Mutex<Option<Instant>>,
    /// An outage has begun: the clusters' nodes are asked at once.
    pub(crate) evidence: Notify,
}

#[derive(Debug)]
struct Outage {
    began: Instant,
    attempts: u64,
}

impl Outages {
    /// Notes a failed attempt to connect to this address. Returns whether an outage begins.
    pub(crate) fn failed(&self, address: &dyn fmt::Display, why: &str) -> bool {
        let address = address.to_string();
        let is_new = self.count_attempt(&address);
        if is_new {
            self.evidence.notify_one();
            warning!(
                "server {address} is down: {why}; Weir tries again until it accepts connections"
            );
        }
        is_new
    }

    /// Notes that this process could open no socket for this address, which tells nothing about the
    /// server.
    #[cold]
    pub(crate) fn unable(&self, address: &dyn fmt::Display, error: &io::Error) {
        let mut said = lock(&self.shortage);
        if said.is_none_or(|at| at.elapsed() >= SHORTAGE_PAUSE) {
            *said = Some(Instant::now());
            warning!(
                "cannot open a socket for server {address}: {}; Weir tries again (see the limit of \
                 open files, and memory)",
                with_errno(error)
            );
        }
    }

    /// Returns whether an outage begins with this attempt.
    fn count_attempt(&self, address: &str) -> bool {
        let mut outages = lock(&self.by_address);
        if let Some(outage) = outages.get_mut(address) {
            outage.attempts += 1;
            return false;
        }
        let is_new = outages.len() < ADDRESSES_MAX;
        if is_new {
            outages.insert(address.to_owned(), Outage { began: Instant::now(), attempts: 1 });
            self.count.store(outages.len(), Ordering::Relaxed);
        }
        is_new
    }

    /// Notes that this address has accepted a connection. Returns whether an outage ends.
    #[inline]
    pub(crate) fn reached(&self, address: &dyn fmt::Display) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.end(&address.to_string())
    }

    #[cold]
    fn end(&self, address: &str) -> bool {
        let mut outages = lock(&self.by_address);
        let Some(Outage { began, attempts }) = outages.remove(address) else { return false };
        self.count.store(outages.len(), Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let plural = if attempts == 1 { "" } else { "s" };
        log!(
            "server {address} is up again after {seconds:.1} s and {attempts} failed attempt{plural}"
        );
        true
    }
}

/// Does this process, or its machine, lack descriptors or memory?
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}

/// Returns the error with its number: `Connection refused (errno 111)`.
pub(crate) fn with_errno(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{} (errno {number})", in_words(error)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_counts_its_attempts_and_ends_once() {
        let outages = Outages::default();
        assert!(outages.count_attempt("10.0.0.1:5432"));
        assert!(!outages.count_attempt("10.0.0.1:5432"));
        assert!(outages.count_attempt("10.0.0.2:5432"));
        assert_eq!(lock(&outages.by_address)["10.0.0.1:5432"].attempts, 2);
        outages.reached(&"10.0.0.3:5432");
        assert_eq!(outages.count.load(Ordering::Relaxed), 2);
        outages.reached(&"10.0.0.1:5432");
        outages.reached(&"10.0.0.1:5432");
        assert_eq!(outages.count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn addresses_that_are_remembered_have_a_limit() {
        let outages = Outages::default();
        let begun = (0..2 * ADDRESSES_MAX).filter(|at| outages.count_attempt(&at.to_string()));
        assert_eq!(begun.count(), ADDRESSES_MAX);
        assert_eq!(lock(&outages.by_address).len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_shortage_of_this_process_is_no_outage() {
        let error = io::Error::from_raw_os_error;
        assert!(is_shortage(&error(libc::EMFILE)) && is_shortage(&error(libc::ENFILE)));
        for number in [libc::ECONNREFUSED, libc::ETIMEDOUT, libc::EADDRNOTAVAIL, libc::ENOENT] {
            assert!(!is_shortage(&error(number)), "{number}");
        }
        let outages = Outages::default();
        outages.unable(&"10.0.0.1:5432", &error(libc::EMFILE));
        assert!(lock(&outages.by_address).is_empty());
    }

    #[test]
    fn an_error_of_the_system_has_its_number() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!(with_errno(&refused), "Connection refused (errno 111)");
    }
}
