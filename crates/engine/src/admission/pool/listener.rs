//! The count of a pool's listener (`pool_mode = auto`).

use super::{Gate, ListenerPlace, OPENING_MAX, Pool};

impl<T> Pool<T> {
    /// May the listener be opened now? If so, it is counted from now on.
    pub fn reserve_listener(&mut self) -> bool {
        let is_there = self.listener != ListenerPlace::None;
        let open = !is_there && self.opening < OPENING_MAX && self.gate == Gate::Open;
        if open {
            self.reserve_unasked();
            self.listener = ListenerPlace::Opening;
        }
        open
    }

    /// Counts the listener as logged in, with this epoch.
    pub fn listener_opened(&mut self, epoch: u64) {
        self.opening -= 1;
        self.current += u32::from(epoch == self.epoch);
        self.listener = ListenerPlace::Open(epoch);
    }

    /// Frees the listener's place, before the server is counted as closed.
    pub fn listener_gone(&mut self) {
        self.listener = ListenerPlace::None;
    }

    /// Returns the number of servers without the listener.
    pub fn places(&self) -> u32 {
        self.servers - u32::from(self.listener != ListenerPlace::None)
    }

    pub(super) fn places_opening(&self) -> u32 {
        self.opening - u32::from(self.listener == ListenerPlace::Opening)
    }

    /// Is no server logged in that a client could get? Servers of earlier epochs do not count.
    pub fn has_none_open(&self) -> bool {
        self.current == u32::from(self.listener == ListenerPlace::Open(self.epoch))
    }
}
