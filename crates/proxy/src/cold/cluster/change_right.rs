//! The right to change the primaries of clusters. One process has it: a process that hands over has
//! no change under way, and begins none afterwards.

use std::sync::{Arc, Mutex};

use crate::exchange::hub::lock;

#[derive(Debug, Default)]
pub(super) struct ChangeRight {
    rights: Mutex<Rights>,
}

#[derive(Debug, Default)]
struct Rights {
    /// Changes that are under way, with what is done after them.
    under_way: u32,
    /// Another process has the right.
    is_ceded: bool,
}

impl ChangeRight {
    /// Cedes the right to another process, if no change is under way.
    pub(super) fn cede(&self) -> bool {
        let mut rights = lock(&self.rights);
        rights.is_ceded |= rights.under_way == 0;
        rights.is_ceded
    }

    /// Takes the right back: the other process has not taken over.
    pub(super) fn take_back(&self) {
        lock(&self.rights).is_ceded = false;
    }

    pub(super) fn is_ceded(&self) -> bool {
        lock(&self.rights).is_ceded
    }

    pub(super) fn is_unused(&self) -> bool {
        lock(&self.rights).under_way == 0
    }

    fn begin(&self) -> bool {
        let mut rights = lock(&self.rights);
        let may_begin = !rights.is_ceded;
        rights.under_way += u32::from(may_begin);
        may_begin
    }

    fn end(&self) {
        lock(&self.rights).under_way -= 1;
    }
}

/// A change that is under way, until it is dropped.
pub(super) struct RunningChange(Arc<ChangeRight>);

impl RunningChange {
    /// Begins a change; None if another process has the right.
    pub(super) fn begin(right: &Arc<ChangeRight>) -> Option<Self> {
        right.begin().then(|| Self(Arc::clone(right)))
    }
}

impl Drop for RunningChange {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_is_ceded_when_nothing_is_under_way_and_for_good() {
        let right = ChangeRight::default();
        assert!(right.begin());
        assert!(!right.cede() && !right.is_unused());
        right.end();
        assert!(right.cede() && right.is_unused());
        assert!(!right.begin());
        assert!(right.cede());
        right.take_back();
        assert!(right.begin());
    }
}
