//! The idle backends of a lobby: `server_idle_timeout`, and the one that has been idle for longest,
//! whose seat another pool may need. A backend's line shows whether it runs a
//! transaction, and the number of its last one. The thread of the lobbies looks at it a few times a
//! second, so a transaction costs nothing more.
//!
//! When the last backend has left, the thread's epoll set has the lobby's own. So a client's next
//! request wakes the thread, which has a server opened at once.

use std::os::fd::AsRawFd as _;

use engine::{
    ids::Micros,
    pool::Idlest,
    shell::{Attending, Mail},
};
use net::sys::epoll;

use super::{Lobby, Service};
use crate::exchange::hub::lock;

/// A part of the token of a lobby's epoll set.
pub(super) const UNATTENDED: u64 = 1 << 61;

/// The times for which the backends of a lobby have been idle.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// By line: the last observation of its backend.
    lines: Vec<Seen>,
    /// The thread's epoll set has the lobby's.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The number of its transaction, the last one or the running one.
    transaction: u64,
    /// Since when it has been idle; 0 = it is not.
    since: Micros,
    /// It was asked to leave.
    is_asked: bool,
}

impl Idle {
    /// The backend of this line has ended.
    pub(super) fn forget(&mut self, line: u32) {
        if let Some(seen) = self.lines.get_mut(line as usize) {
            *seen = Seen::default();
        }
    }

    /// Notes what the backend of a line does. `is_idle`: it runs no transaction, and keeps no client.
    fn note(&mut self, line: u32, is_idle: bool, transaction: u64, now: Micros) {
        let at = line as usize;
        if self.lines.len() <= at {
            self.lines.resize(at + 1, Seen::default());
        }
        let seen = &mut self.lines[at];
        if !is_idle {
            seen.since = 0;
        } else if seen.since == 0 || seen.transaction != transaction {
            seen.since = now;
        }
        seen.transaction = transaction;
    }

    /// Returns the line of the backend that has been idle for longest, and since when, of those that
    /// were not asked to leave. `may_leave`: it holds no client.
    fn longest(&self, may_leave: impl Fn(u32) -> bool) -> Option<(u32, Micros)> {
        let lines = self.lines.iter().enumerate().map(|(line, seen)| (line as u32, seen));
        let idle =
            lines.filter(|(line, seen)| seen.since != 0 && !seen.is_asked && may_leave(*line));
        idle.min_by_key(|(_, seen)| seen.since).map(|(line, seen)| (line, seen.since))
    }

    /// The backend of this line was asked to leave.
    pub(super) fn note_asked(&mut self, line: u32) {
        if let Some(seen) = self.lines.get_mut(line as usize) {
            seen.is_asked = true;
        }
    }

    /// Returns the lines of the backends that are to leave, those that have been idle for longest
    /// first. `spare`: so many backends may leave, with those that were asked already.
    fn expired(&mut self, limit: Micros, spare: u32, now: Micros) -> Vec<u32> {
        let asked = self.lines.iter().filter(|seen| seen.is_asked).count();
        let is_over = |seen: &Seen| seen.since != 0 && now.saturating_sub(seen.since) > limit;
        let due = |seen: &Seen| !seen.is_asked && is_over(seen);
        let lines = self.lines.iter().enumerate().filter(|(_, seen)| due(seen));
        let mut lines: Vec<_> = lines.map(|(line, _)| line as u32).collect();
        lines.sort_by_key(|line| self.lines[*line as usize].since);
        lines.truncate((spare as usize).saturating_sub(asked));
        lines.iter().for_each(|line| self.lines[*line as usize].is_asked = true);
        lines
    }
}

impl Service {
    /// Notes which backends are idle. Has the engine ask those to leave that have been idle for too
    /// long, and tells the pool of the one that has been idle for longest.
    pub(super) fn release_idle(&mut self, at: usize, now: Micros) {
        let Lobby { lines, idle, room, .. } = &mut self.lobbies[at];
        let used = lines.iter().enumerate().filter(|(_, number)| number.is_some());
        for line in used.map(|(line, _)| line as u32) {
            let is_idle = room.sleeps(line) || room.lingers(line);
            idle.note(line, is_idle, room.transaction(line), now);
        }
        let longest = idle.longest(|line| !room.holds(line));
        let idlest = longest.and_then(|(line, since)| {
            let Attending { server, serial, worker, .. } = *self.server_of(at, line)?;
            Some(Idlest { since, server, serial, worker })
        });
        let Lobby { pool, key, .. } = &self.lobbies[at];
        let slots = self.shared.hub.slots();
        let Some(slot) = slots.get(pool.0 as usize).and_then(Option::as_ref) else { return };
        let (limit, spare) = {
            let mut pool = lock(slot);
            if pool.key != *key {
                return;
            }
            pool.note_idlest(idlest);
            (pool.settings.server_idle_timeout, pool.spare_servers())
        };
        if limit == 0 {
            return;
        }
        for line in self.lobbies[at].idle.expired(limit, spare, now) {
            if let Some(Attending { server, serial, worker, .. }) = self.server_of(at, line) {
                self.post(*worker, Mail::IdledInLobby { server: *server, serial: *serial });
            }
        }
    }

    /// Returns the server whose backend has this line.
    fn server_of(&self, at: usize, line: u32) -> Option<&Attending> {
        let number = self.lobbies[at].lines[line as usize]?;
        self.backends[number].role.as_ref().map(|role| &role.server)
    }

    /// Waits for a request of the clients of a lobby that has no backend.
    pub(super) fn watch(&mut self, at: usize) {
        let lobby = &mut self.lobbies[at];
        if !lobby.idle.is_watched {
            let set = lobby.room.set().as_raw_fd();
            let interest = epoll::READABLE | epoll::ONE_SHOT;
            lobby.idle.is_watched = self.own.add(set, interest, UNATTENDED | at as u64).is_ok();
        }
    }

    /// A client has sent a request, so the next look will find the lobby without a backend. Or the
    /// lobby ends.
    pub(super) fn unwatch(&mut self, at: usize) {
        let Some(lobby) = self.lobbies.get_mut(at) else { return };
        if std::mem::take(&mut lobby.idle.is_watched) {
            let _ = self.own.delete(lobby.room.set().as_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;

    #[test]
    fn idle_time_begins_with_the_last_transaction() {
        let mut idle = Idle::default();
        idle.note(1, true, 4, 10 * S);
        idle.note(1, true, 4, 14 * S);
        assert_eq!(idle.expired(5 * S, 9, 15 * S), [0; 0]);
        // Another one has come and gone between two looks.
        idle.note(1, true, 6, 15 * S);
        assert_eq!(idle.expired(5 * S, 9, 19 * S), [0; 0]);
        idle.note(1, false, 7, 19 * S);
        assert_eq!(idle.expired(5 * S, 9, 60 * S), [0; 0]);
        idle.note(1, true, 8, 60 * S);
        assert_eq!(idle.expired(5 * S, 9, 66 * S), [1]);
        assert_eq!(idle.expired(5 * S, 9, 67 * S), [0; 0], "it was asked");
    }

    #[test]
    fn the_backend_that_has_been_idle_for_longest_is_one_that_was_not_asked() {
        let mut idle = Idle::default();
        for (line, is_idle, since) in [(0, true, 30), (1, true, 10), (2, false, 5), (3, true, 20)] {
            idle.note(line, is_idle, 1, since * S);
        }
        assert_eq!(idle.longest(|_| true), Some((1, 10 * S)));
        assert_eq!(idle.longest(|line| line != 1), Some((3, 20 * S)));
        idle.note_asked(1);
        assert_eq!(idle.longest(|_| true), Some((3, 20 * S)));
        idle.forget(3);
        idle.forget(0);
        assert_eq!(idle.longest(|_| true), None);
    }

    #[test]
    fn the_next_backend_of_a_line_begins_anew() {
        let mut idle = Idle::default();
        idle.note(0, true, 4, 10 * S);
        assert_eq!(idle.expired(5 * S, 1, 16 * S), [0]);
        idle.forget(0);
        idle.note(0, true, 4, 17 * S);
        assert_eq!(idle.expired(5 * S, 1, 18 * S), [0; 0]);
        assert_eq!(idle.expired(5 * S, 1, 23 * S), [0]);
    }

    #[test]
    fn only_spare_backends_leave_and_the_longest_idle_first() {
        let mut idle = Idle::default();
        for (line, since) in [(0, 30), (1, 10), (2, 20), (3, 40)] {
            idle.note(line, true, 1, since * S);
        }
        assert_eq!(idle.expired(S, 2, 100 * S), [1, 2]);
        // These two are on their way.
        assert_eq!(idle.expired(S, 2, 101 * S), [0; 0]);
        // One of them has left: a spare one less, and one fewer that was asked.
        idle.forget(1);
        assert_eq!(idle.expired(S, 1, 102 * S), [0; 0]);
        assert_eq!(idle.expired(S, 2, 102 * S), [0]);
    }
}
