//! The count of a pool's listener (`pool_mode = auto`).

use super::relief::Relief;
use super::{Gate, ListenerPlace, OPENING_MAX, Outage, OutageKind, Pool};

impl<T> Pool<T> {
    /// May the listener be opened now? If so, it is counted from now on.
    pub fn reserve_listener(&mut self) -> bool {
        let is_there = self.listener != ListenerPlace::None;
        let open = !is_there && self.opening < OPENING_MAX && self.admits_listener();
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

    /// Is the listener to be opened now, before clients get servers?
    pub fn is_resuming(&self) -> bool {
        let is_resuming = |outage: &Outage| outage.kind == OutageKind::Resuming;
        self.gate == Gate::NoPrimary && self.outage.as_deref().is_some_and(is_resuming)
    }

    fn admits_listener(&self) -> bool {
        match self.gate {
            Gate::Open => true,
            Gate::NoPrimary => self.is_resuming(),
            Gate::Paused | Gate::Held | Gate::Closed(_) => false,
        }
    }

    /// Is the primary being changed by order? The listener then delivers what transactions notify that
    /// are still running.
    pub fn keeps_listener(&self) -> bool {
        self.gate == Gate::NoPrimary && self.outage.as_deref().is_some_and(Outage::is_ordered)
    }

    /// Has the listener end when it has read everything. No transaction may be running in the cluster.
    pub fn end_listener(&mut self) {
        if self.keeps_listener() && self.relief == Relief::None {
            self.relief = Relief::Ending;
        }
    }

    /// Is the listener to end when it has read everything?
    pub fn ends_listener(&self) -> bool {
        self.relief == Relief::Ending
    }

    /// Counts the listener as ended, or lost. `is_complete`: clients need another one, and this one has
    /// read everything.
    pub fn listener_ended(&mut self, is_complete: bool) {
        self.relief = match self.relief {
            Relief::Ending if is_complete => Relief::Ended,
            Relief::None | Relief::Ending | Relief::Ended | Relief::Done => Relief::None,
        };
    }

    /// The listener listens for all clients that have asked.
    pub fn listener_resumed(&mut self) {
        self.lacks_listener = false;
        if self.relief == Relief::Ended {
            self.relief = Relief::Done;
        }
    }

    /// Notes whether clients need another listener than the one that has ended.
    pub fn need_listener(&mut self, is_needed: bool) {
        self.lacks_listener = is_needed;
    }

    /// Do clients need a listener that does not listen for them yet? One at an earlier primary does
    /// not count.
    pub fn lacks_listener(&self) -> bool {
        let is_old = matches!(self.listener, ListenerPlace::Open(epoch) if epoch != self.epoch);
        self.lacks_listener || is_old
    }

    /// Does the pool wait for its listener at the new primary?
    pub fn awaits_listener(&self) -> bool {
        self.relief == Relief::Ended
    }

    /// Can no client have notified others since the last listener ended?
    pub fn is_silent_since(&self) -> bool {
        matches!(self.relief, Relief::Ended | Relief::Done)
    }

    /// Follows a change of the gate: clients may get servers now.
    pub(super) fn review_relief(&mut self) {
        if self.gate != Gate::NoPrimary {
            self.relief = Relief::None;
        }
    }

    /// Servers that are being opened or are with a client; without the one that listens.
    pub fn busy_servers(&self) -> u32 {
        let listeners = u32::from(self.listener != ListenerPlace::None);
        let parked = u32::try_from(self.parked().count()).unwrap_or(u32::MAX);
        self.servers.saturating_sub(parked).saturating_sub(listeners)
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
