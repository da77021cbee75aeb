//! Counts backends that end before they serve a client. A client may wait meanwhile, so each backend
//! would be replaced at once, by another login. In a crash of PostgreSQL, all backends of the lobby end
//! together. If more than these have ended, the lobby waits for `server_login_retry`, as a pool whose
//! logins fail.

use engine::ids::Micros;

use super::Service;
use crate::warning;

#[derive(Debug, Default)]
pub(super) struct Unserved {
    /// Backends that have ended since the last one that served or waited for clients, each soon after
    /// the one before.
    count: usize,
    last_at: Micros,
    /// No server is opened before.
    until: Micros,
}

impl Unserved {
    /// Another one has ended. `together`: so many may end at the same time, as in a crash of
    /// PostgreSQL. Returns whether a pause begins.
    fn note(&mut self, together: usize, pause: Micros, now: Micros) -> bool {
        if now.saturating_sub(self.last_at) > 2 * pause {
            self.count = 0;
        }
        (self.count, self.last_at) = (self.count + 1, now);
        let begins = self.count > together;
        if begins {
            self.until = now + pause;
        }
        begins
    }

    /// A backend has served a client, or waits for one.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    pub(super) fn pauses(&self, now: Micros) -> bool {
        now < self.until
    }
}

impl Service {
    /// A backend has logged in for this lobby, and has ended before it served a client.
    pub(super) fn note_unserved(&mut self, at: usize) {
        let lobby = &self.lobbies[at];
        let pause = self.pool(lobby.pool, |pool| pool.settings.server_login_retry);
        let (pause, now) = (pause.unwrap_or_default(), self.shared.clock.now());
        let lobby = &mut self.lobbies[at];
        let together = lobby.lines.len().max(1);
        if lobby.unserved.note(together, pause, now) {
            let (database, user) = (&lobby.key.database, &lobby.key.user);
            let pause = pause / 1_000_000;
            warning!(
                "the servers of the direct pool {database}/{user} end before they serve a client; \
                 the next one is opened in {pause} s (server_login_retry)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Micros = 15_000_000;

    #[test]
    fn servers_that_end_one_after_the_other_are_replaced_after_a_pause() {
        let mut unserved = Unserved::default();
        let mut now = 1_000_000;
        for _ in 0..3 {
            assert!(!unserved.note(3, PAUSE, now), "a crash may end all of them");
            assert!(!unserved.pauses(now));
        }
        for _ in 0..3 {
            assert!(unserved.note(3, PAUSE, now), "the next one has ended, too");
            assert!(unserved.pauses(now + PAUSE - 1));
            now += PAUSE;
            assert!(!unserved.pauses(now), "one attempt is made");
        }
        unserved.end();
        assert!(!unserved.note(3, PAUSE, now));
    }

    #[test]
    fn servers_that_end_now_and_then_are_replaced_at_once() {
        let mut unserved = Unserved::default();
        for minute in 1..10 {
            assert!(!unserved.note(3, PAUSE, minute * 60_000_000));
        }
    }
}
