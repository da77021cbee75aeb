//! Notices that a pool's servers are not what a new server would be: the role or the database was
//! renamed, or dropped and created again, or its stored settings have changed. Then all servers are
//! replaced ([decision 029](docs/decisions/029-servers-follow-their-role.md)).
//!
//! An idle server is asked, at most once in `role_check_interval`, and only after a client has logged
//! in or a server was opened. The supervisor of a built-in pooler tells of roles by itself
//! (`PoolSettings::role`).

use super::principals::{
    Answer, DISAGREEMENTS_MAX, LOSSES_MAX, Principals, ROLE_STEP, role_changes,
};
use super::{Gate, Parked, Pool};
use crate::ids::{Micros, WorkerId};
use crate::settings::PoolSettings;

impl<T> Pool<T> {
    /// Counts how often the pool's logins have begun to lead to another role. A client with another
    /// count has logged in as another role than the pool's servers.
    pub fn role_changes(&self) -> u16 {
        role_changes(self.epoch)
    }

    /// Returns this count of a server's epoch. A server that is replaced after an online restart has no
    /// epoch of this pool.
    pub fn role_changes_at(&self, epoch: u64) -> u16 {
        role_changes(if epoch == u64::MAX { self.epoch } else { epoch })
    }

    /// Returns the time from which a server may be asked; None: none is asked.
    fn may_ask_at(&self) -> Option<Micros> {
        let interval = self.settings.role_check_interval;
        let asks = interval > 0 && !self.principals.is_unable;
        asks.then(|| self.principals.asked_at.map_or(0, |at| at.saturating_add(interval)))
    }

    /// Notes that a client logs in, or that a server was opened: a server is to be asked.
    pub fn doubt_principal(&mut self, now: Micros) {
        if let Some(at) = self.may_ask_at() {
            self.principals.due_at = self.principals.due_at.min(at.max(now));
        }
    }

    /// Has the next free server asked, whenever the last one was.
    pub fn owe_check(&mut self, now: Micros) {
        self.principals.asked_at = None;
        self.doubt_principal(now);
    }

    /// The server that was asked is lost before it has answered. Another one is asked, unless the node
    /// ends each session that asks. `opened_at`: when the lost server was opened.
    pub fn ask_another(&mut self, opened_at: Micros, now: Micros) {
        self.principals.asked -= 1;
        // Older servers may have been lost together with the one before, and only the question shows it.
        self.principals.losses += u32::from(opened_at >= self.principals.lost_at);
        self.principals.lost_at = now;
        if self.principals.losses > LOSSES_MAX {
            self.principals.is_unable = true;
            return;
        }
        self.principals.asked_at = None;
        self.principals.due_at = 0;
    }

    /// Returns how many servers are being asked. They serve a client soon.
    pub(super) fn asked(&self) -> u32 {
        self.principals.asked
    }

    /// Is this free server to be asked? If so, the caller asks.
    #[inline]
    pub fn asks_free(&mut self, epoch: u64, now: Micros) -> bool {
        now >= self.principals.due_at && self.asks_now(epoch, now)
    }

    #[cold]
    fn asks_now(&mut self, epoch: u64, now: Micros) -> bool {
        let asks = self.may_ask_at().is_some();
        if !asks {
            self.principals.due_at = Micros::MAX;
        }
        let asks = asks && epoch == self.epoch && self.gate == Gate::Open;
        if asks {
            self.principals.asked_at = Some(now);
            self.principals.due_at = Micros::MAX;
            self.principals.asked += 1;
        }
        asks
    }

    /// Takes an idle server that is to be asked now. The caller asks.
    pub fn take_to_ask(&mut self, worker: WorkerId, now: Micros) -> Option<Parked<T>> {
        if now < self.principals.due_at || self.idle.iter().all(|idle| idle.is_empty()) {
            return None;
        }
        let epoch = self.epoch;
        if self.asks_free(epoch, now) { self.take_idle(worker, None) } else { None }
    }

    /// Must a server be opened to be asked? None is idle, and those of the lobby cannot be asked.
    pub fn reserve_to_ask(&mut self, now: Micros) -> bool {
        now >= self.principals.due_at
            && self.proxied().is_none()
            && self.opening == 0
            && self.has_room()
            && self.take_place(now)
    }

    /// Notes the answer of a server of this epoch; None: it cannot answer. Returns whether all
    /// servers are replaced.
    pub fn learn_principal(&mut self, epoch: u64, answer: Option<Answer>) -> bool {
        (self.principals.asked, self.principals.losses) = (self.principals.asked - 1, 0);
        if epoch != self.epoch {
            return false;
        }
        let Some(Answer { server, new }) = answer else {
            self.principals.is_unable |= self.principals.known.is_none();
            return false;
        };
        let agrees = new.as_ref().is_some_and(|new| (new.role, new.database) == server);
        self.principals.disagreements = if agrees { 0 } else { self.principals.disagreements + 1 };
        if self.principals.disagreements > DISAGREEMENTS_MAX {
            self.principals.is_unable = true;
            return false;
        }
        let known = self.principals.known.take();
        let role = new.as_ref().map_or(0, |new| new.role);
        let is_role = server.0 != role || known.as_ref().is_some_and(|known| known.role != role);
        let is_same = new.as_ref().is_some_and(|new| {
            server.1 == new.database && known.as_ref().is_none_or(|known| known == new)
        });
        if is_same && !is_role {
            self.principals.known = new;
            return false;
        }
        let asked_at = self.principals.asked_at;
        self.follow_role(is_role);
        (self.principals.known, self.principals.asked_at) = (new, asked_at);
        true
    }

    /// Replaces all servers. `is_role`: new ones have another role, as which the pool's clients have
    /// not logged in.
    pub fn follow_role(&mut self, is_role: bool) {
        self.replace_servers();
        self.failure = None;
        if is_role {
            self.epoch = self.epoch.wrapping_add(ROLE_STEP);
            self.proven = None;
        }
    }

    /// Replaces the servers that a standby may have logged in before it had the change that was noticed
    /// at this moment. It has the change now. Returns whether servers are replaced.
    pub fn keep_up(&mut self, changed_at: Micros) -> bool {
        let is_behind = self.is_behind(changed_at);
        if is_behind {
            self.follow_role(false);
            self.principals.as_of = changed_at;
        }
        is_behind
    }

    /// May servers be older than the change that was noticed at this moment?
    pub fn is_behind(&self, changed_at: Micros) -> bool {
        self.principals.as_of < changed_at
    }

    /// Forgets what a new server would be: all servers are replaced.
    pub(super) fn forget_principal(&mut self) {
        let Principals { told, asked, disagreements, losses, lost_at, as_of, .. } = self.principals;
        self.principals = Principals {
            told,
            asked,
            disagreements,
            losses,
            lost_at,
            as_of,
            ..Principals::default()
        };
    }

    /// Follows what the library in the server tells. A role that has gone leaves its servers as they
    /// are, as it leaves direct connections. Its name may get another role later.
    pub(super) fn review_principal(&mut self, settings: &PoolSettings) {
        self.principals.is_unable = false;
        (self.principals.disagreements, self.principals.losses) = (0, 0);
        let Some(role) = settings.role else { return };
        let known = self.principals.told.or(self.settings.role);
        self.principals.told = Some(role);
        if known.is_some_and(|known| known != role) {
            self.follow_role(true);
        }
    }
}
