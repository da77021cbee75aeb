//! How a pool counts the connection that listens for its clients (`pool_mode = auto`).

use super::{Gate, ListenerPlace, OPENING_MAX, Pool};

impl<T> Pool<T> {
    /// May the listener be opened now? It is counted from then on.
    pub fn reserve_listener(&mut self) -> bool {
        let is_there = self.listener != ListenerPlace::None;
        let open = !is_there && self.opening < OPENING_MAX && self.gate == Gate::Open;
        if open {
            self.reserve_unasked();
            self.listener = ListenerPlace::Opening;
        }
        open
    }

    /// The login to the listener, of that epoch, succeeded.
    pub fn listener_opened(&mut self, epoch: u64) {
        self.opening -= 1;
        self.current += u32::from(epoch == self.epoch);
        self.listener = ListenerPlace::Open(epoch);
    }

    /// It is about to be counted out.
    pub fn listener_gone(&mut self) {
        self.listener = ListenerPlace::None;
    }

    /// Servers for clients.
    pub fn places(&self) -> u32 {
        self.servers - u32::from(self.listener != ListenerPlace::None)
    }

    pub(super) fn places_opening(&self) -> u32 {
        self.opening - u32::from(self.listener == ListenerPlace::Opening)
    }

    /// No server is logged in that a client could get: those to be replaced serve nobody new.
    pub fn has_none_open(&self) -> bool {
        self.current == u32::from(self.listener == ListenerPlace::Open(self.epoch))
    }
}
