//! Backends that keep a client between its transactions.

use std::sync::atomic::Ordering;

use super::{Room, backend, header, layout};
use crate::lobby::layout::activity;

impl Room {
    /// Does the backend wait for the client that it has, which may ask for a number?
    pub(in crate::lobby) fn holds(&self, line: u32) -> bool {
        self.activity(line).load(Ordering::SeqCst) == activity::HOLDING
    }

    /// Is the state of the client that the backend keeps too large for its place?
    pub(in crate::lobby) fn is_too_large(&self, line: u32) -> bool {
        let at = layout::backend_line(line) + backend::TOO_LARGE;
        self.memory.word32(at).load(Ordering::SeqCst) != 0
    }

    /// Returns how many backends there are, how many of them keep a client between its transactions,
    /// and how many of those do so because the client's state is too large.
    pub(in crate::lobby) fn kept(&self) -> (usize, usize, usize) {
        let all = 0..self.memory.word32(header::LINES).load(Ordering::SeqCst).min(self.backends);
        let is_there = |line: &u32| self.activity(*line).load(Ordering::SeqCst) != activity::ABSENT;
        let keeping = all.clone().filter(|line| self.keeps(*line));
        let large = keeping.clone().filter(|line| self.is_too_large(*line));
        (all.filter(is_there).count(), keeping.count(), large.count())
    }
}
