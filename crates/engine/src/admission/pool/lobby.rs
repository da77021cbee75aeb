//! The knowledge about a pool's lobby: whether PostgreSQL's backends serve the clients' sockets
//! (docs/direct.md). A trial shows whether the server can do so.
//!
//! ```text
//!               ┌──────────┐ a client logs in, and the pool has no server
//!               ▼          │
//!  Untried ─► Trying ─┬─► Works ──┐  a server has failed, and no backend is left
//!     ▲               └─► Failed ◄┘
//!     │                     │
//!     └─ RECONNECT, RELOAD ─┘   (or another trial, some time later)
//!
//!  any ─► Ceded: an online restart has handed the lobby over
//! ```

use std::sync::Arc;

use config::Proxied;
use wire::error_fields::ErrorFields;

use super::trial::{Entrance, Lobby};
use super::{Gate, Next, Parked, Pool};
use crate::ids::{Micros, WorkerId};

/// The time after which a trial counts as failed, although nothing has ended it.
pub(super) const TRIAL_MAX: Micros = 30_000_000;
/// The pause before another server is opened for a lobby that goes on without the failed one.
const GROWTH_PAUSE: Micros = 5_000_000;
/// The time that servers have to leave before others are asked, too.
const LEAVING_PATIENCE: Micros = 1_000_000;

impl<T> Pool<T> {
    /// Returns why the pool is proxied; `None` if it is direct.
    pub fn proxied(&self) -> Option<Proxied> {
        self.settings.proxied.or(match self.lobby {
            Lobby::Untried | Lobby::Trying { has_worked: false, .. } | Lobby::Ceded => {
                Some(Proxied::NotTried)
            }
            Lobby::Works | Lobby::Trying { has_worked: true, .. } => None,
            Lobby::Failed { why, .. } => Some(why),
        })
    }

    /// Decides about a client that has logged in.
    pub fn entrance(&mut self, now: Micros) -> Entrance {
        if self.settings.proxied.is_some() {
            return Entrance::Proxied;
        }
        match self.lobby {
            // Its welcome needs a server, and it would keep to one that Weir uses itself.
            Lobby::Works if self.current_welcome().is_none() && self.opening == 0 => {
                self.begin_trial(true, now)
            }
            Lobby::Works => Entrance::Direct,
            Lobby::Trying { .. } => Entrance::Trial { open: false },
            Lobby::Failed { retry_at, .. } if now < retry_at => Entrance::Proxied,
            Lobby::Untried | Lobby::Failed { .. } if self.gate == Gate::Open => {
                self.begin_trial(false, now)
            }
            Lobby::Untried | Lobby::Failed { .. } | Lobby::Ceded => Entrance::Proxied,
        }
    }

    fn begin_trial(&mut self, has_worked: bool, now: Micros) -> Entrance {
        self.lobby = Lobby::Trying { since: now, epoch: self.epoch, has_worked };
        self.attendance.open_at = 0;
        Entrance::Trial { open: true }
    }

    /// Another process has taken the lobby over. Clients that log in later are proxied here.
    pub fn cede_lobby(&mut self) {
        self.lobby = Lobby::Ceded;
        self.note_idlest(None);
    }

    pub fn is_lobby_ceded(&self) -> bool {
        self.lobby == Lobby::Ceded
    }

    /// Is a trial under way?
    pub fn tries_lobby(&self) -> bool {
        matches!(self.lobby, Lobby::Trying { .. })
    }

    /// Has the trial taken so long that its server must be lost?
    pub fn trial_is_overdue(&self, now: Micros) -> bool {
        matches!(self.lobby, Lobby::Trying { since, .. } if now.saturating_sub(since) > TRIAL_MAX)
    }

    /// Does the trial under way depend on a server of this epoch?
    pub fn is_tried_by(&self, epoch: u64) -> bool {
        matches!(self.lobby, Lobby::Trying { epoch: since, .. } if epoch >= since)
    }

    /// The backend of a server of this epoch has come to the lobby.
    pub fn lobby_works(&mut self, epoch: u64) {
        if self.lobby != Lobby::Ceded {
            self.lobby = Lobby::Works;
        }
        self.attendance.present += u32::from(epoch == self.epoch);
    }

    /// A backend that had come to the lobby has ended, or leaves.
    pub fn attending_gone(&mut self, epoch: u64) {
        self.attendance.present -= u32::from(epoch == self.epoch);
    }

    /// Does a backend of the current epoch serve the lobby?
    pub fn is_attended(&self) -> bool {
        self.attendance.present > 0
    }

    /// Notes that a server could not serve clients. A lobby goes on if another backend serves it, or
    /// if nothing is known against the server: only the next opening waits.
    pub fn lobby_failed(&mut self, why: Proxied, now: Micros, pause: Micros) {
        if self.lobby == Lobby::Ceded {
            return;
        }
        self.lobby_wants_no_seat();
        let goes_on = self.is_attended() || why == Proxied::NotTried;
        if self.proxied().is_none() && goes_on {
            self.lobby = Lobby::Works;
            self.attendance.open_at = now + pause.min(GROWTH_PAUSE);
        } else {
            self.lobby = Lobby::Failed { why, retry_at: now + pause };
            self.attendance.open_at = now + pause;
        }
    }

    /// Has PostgreSQL refused a login, and has the pool no other server? Then new clients are proxied
    /// until the next attempt, and so refused as those of any other pool.
    pub fn lobby_is_refused(&mut self, now: Micros) -> bool {
        let refuses = self.refusal(now).is_some();
        let retry_at = self.failure.as_ref().map_or(now, |failure| failure.retry_at);
        if refuses && self.proxied().is_none() {
            self.lobby = Lobby::Failed { why: Proxied::NotTried, retry_at };
        }
        refuses
    }

    /// Returns PostgreSQL's error if it has refused the last login, no server is left, and the next
    /// attempt is not due. Clients of the lobby that wait get it.
    pub fn refusal(&self, now: Micros) -> Option<Arc<ErrorFields>> {
        let failure = self.failure.as_ref()?;
        let is_refused = self.has_none_open() && now < failure.retry_at;
        failure.refusal.clone().filter(|_| is_refused)
    }

    /// Forgets that a trial has failed.
    pub(super) fn try_lobby_again(&mut self) {
        if matches!(self.lobby, Lobby::Failed { .. }) {
            self.lobby = Lobby::Untried;
        }
        self.attendance.open_at = 0;
    }

    /// Is there a free place for a server that serves the lobby? If so, it is reserved. Clients
    /// that wait for an ordinary server come first.
    pub fn reserve_attending(&mut self, now: Micros) -> bool {
        self.waiting_total() == 0 && self.has_room() && self.take_place(now)
    }

    /// Decides about a server that a client has brought from the lobby, and that nobody needs. It goes
    /// back if another server is idle. One stays for clients that are proxied.
    pub fn next_of_lobby(&self) -> Next {
        let works = self.gate == Gate::Open && self.proxied().is_none();
        match works && self.idle.iter().any(|idle| !idle.is_empty()) {
            true => Next::Enlist,
            false => Next::Park,
        }
    }

    /// Takes an idle server whose backend can serve the lobby, preferably of this worker. While there
    /// is room for another server, one stays for clients that are proxied.
    pub fn take_for_lobby(&mut self, worker: WorkerId) -> Option<Parked<T>> {
        let idle: usize = self.idle.iter().map(|idle| idle.len()).sum();
        let stays = self.has_room() && idle == 1;
        if stays || self.gate != Gate::Open || self.proxied().is_some() {
            return None;
        }
        let may_serve = |parked: &Parked<T>| parked.server.session.ahead.is_some();
        let own = self.idle[usize::from(worker.0)].take(may_serve);
        own.or_else(|| self.idle.iter_mut().find_map(|idle| idle.take(may_serve)))
    }

    /// Returns how many servers the pool may lose for having been idle.
    pub fn spare_servers(&self) -> u32 {
        let open = self.places() - self.places_opening();
        open.saturating_sub(self.settings.min_size)
    }

    /// Must the lobby wait before another server is opened?
    pub fn pauses_attending(&self, now: Micros) -> bool {
        now < self.attendance.open_at
    }

    /// Does a client wait for an ordinary server that has no place, so that a server must leave the
    /// lobby? As many are asked as clients wait. Others follow if those do not leave in time.
    pub fn asks_to_leave(&mut self, now: Micros) -> bool {
        if self.has_room() {
            return false;
        }
        let waiting = self.waiting_total();
        let attendance = &mut self.attendance;
        if attendance.asked == 0 || now.saturating_sub(attendance.asked_at) > LEAVING_PATIENCE {
            (attendance.asked, attendance.asked_at) = (0, now);
        }
        let asks = attendance.asked < waiting;
        attendance.asked += u32::from(asks);
        asks
    }
}
