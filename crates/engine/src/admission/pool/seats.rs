//! The lobby's part in the competition of pools for seats (`admission/limits.rs`): the seat that its
//! pool can spare, and the seat that it lacks.

use super::lobby::TRIAL_MAX;
use super::{Idlest, Pool};
use crate::ids::Micros;

/// The time for which a lobby that has asked for a server counts as a lobby that needs one. While it
/// does, it asks again every 20 ms.
const ASKED_MAX: Micros = 1_000_000;

impl<T> Pool<T> {
    /// Notes the lobby's server that has been idle for longest, if one is idle.
    pub fn note_idlest(&mut self, idlest: Option<Idlest>) {
        self.attendance.idlest = idlest;
        if idlest.is_some() {
            self.lobby_wants_no_seat();
        }
    }

    pub fn idlest(&self) -> Option<Idlest> {
        self.attendance.idlest
    }

    /// Returns the serial number of the latest claim of a pool that starves for this pool's servers;
    /// 0 = none.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// A server is to be opened for the lobby, or for its trial, and may find no seat.
    pub fn note_lobby_wants_seat(&mut self, now: Micros) {
        let patience = if self.tries_lobby() { TRIAL_MAX } else { ASKED_MAX };
        self.attendance.starves_until = now + patience;
    }

    /// It has a seat, or is not needed any more.
    pub fn lobby_wants_no_seat(&mut self) {
        self.attendance.starves_until = 0;
    }

    /// Does the lobby lack a server that found no seat?
    pub fn lobby_wants_seat(&self, now: Micros) -> bool {
        now < self.attendance.starves_until
    }

    /// Does a client wait that needs another server, in the queue or in the lobby?
    pub fn needs_seat(&self, now: Micros) -> bool {
        self.waiting_total() > 0 || self.lobby_wants_seat(now)
    }
}
