//! The looks at the lobbies: is a backend missing, has a client's time run out?
//!
//! A look at a lobby takes time for each of its clients, so looks have a least distance.

use engine::ids::Micros;

use super::{super::control::ToBackend, Backend, Lobby, Service};

/// The pause between two looks in milliseconds: usually, while all backends are busy, while a backend
/// is coming, and after news.
pub(super) const LOOK_MS: i32 = 200;
pub(super) const BUSY_LOOK_MS: i32 = 20;
pub(super) const COMING_LOOK_MS: i32 = 2;
const NEWS_LOOK_MS: i32 = 2;

const MS: Micros = 1_000;

/// When the next look is due.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    looked_at: Micros,
    pause_ms: i32,
    has_news: bool,
}

impl Rhythm {
    /// Something has happened to which a look may have to react.
    pub(super) fn note_news(&mut self) {
        self.has_news = true;
    }

    /// A backend that was idle may serve a client now, so all of them may be busy soon.
    pub(super) fn note_need(&mut self) {
        self.pause_ms = self.pause_ms.min(BUSY_LOOK_MS);
    }

    /// Returns the milliseconds until the next look.
    fn left_ms(&self, now: Micros) -> i32 {
        let pause = if self.has_news { NEWS_LOOK_MS.min(self.pause_ms) } else { self.pause_ms };
        let left = (self.looked_at + pause as Micros * MS).saturating_sub(now);
        left.div_ceil(MS) as i32
    }

    fn looked(&mut self, now: Micros, pause_ms: i32) {
        *self = Self { looked_at: now, pause_ms, has_news: false };
    }
}

impl Lobby {
    /// Notes whether requests wait for a backend.
    fn note_starved(&mut self, is_starved: bool, now: Micros) {
        self.starved_since = match (is_starved, self.starved_since) {
            (false, _) => 0,
            (true, 0) => now,
            (true, since) => since,
        };
    }

    /// Are the clients' limits to be looked at?
    fn is_judgement_due(&mut self, now: Micros) -> bool {
        let is_due = now >= judgement_due(self.judged_at, self.starved_since);
        if is_due {
            self.judged_at = now;
        }
        is_due
    }

    /// Has the lobby waited for so long that another server is opened?
    fn needs_server(&self, now: Micros) -> bool {
        const PATIENCE: Micros = BUSY_LOOK_MS as Micros * MS;
        let is_unattended = self.lines.iter().all(Option::is_none);
        self.starved_since != 0
            && (is_unattended || now < self.short_until || now >= self.starved_since + PATIENCE)
            && now > self.asked_at + PATIENCE
    }
}

/// Returns when the clients' limits are to be looked at again. While the lobby is starved that takes a
/// system call for each client, so it is done less often as soon as it is known which clients wait.
fn judgement_due(judged_at: Micros, starved_since: Micros) -> Micros {
    let is_known = starved_since != 0 && judged_at >= starved_since;
    let pause = if is_known { LOOK_MS } else { BUSY_LOOK_MS };
    judged_at + pause as Micros * MS
}

impl Service {
    /// Looks at all lobbies if it is time. Returns the milliseconds until the next look.
    pub(super) fn look_if_due(&mut self) -> i32 {
        let now = self.shared.clock.now();
        if self.rhythm.left_ms(now) == 0 {
            let pause = self.look(now);
            self.rhythm.looked(now, pause);
        }
        self.rhythm.left_ms(now)
    }

    /// Returns the pause until the next look.
    fn look(&mut self, now: Micros) -> i32 {
        let mut pause = LOOK_MS;
        self.listen_again();
        self.look_at_name(now);
        self.take_returned(now);
        self.let_leave();
        if self.is_suspended {
            self.note_quiet();
            self.all().into_iter().for_each(|at| self.wake_recalled(at));
            return BUSY_LOOK_MS;
        }
        for at in self.all() {
            pause = pause.min(self.look_at(at, now));
        }
        self.repeat_leave();
        pause
    }

    /// Looks at one lobby. Returns the pause until the next look at it.
    fn look_at(&mut self, at: usize, now: Micros) -> i32 {
        let limits = self.limits(at);
        self.note_mode(at);
        self.release_idle(at, now);
        let lobby = &mut self.lobbies[at];
        if lobby.guests.count() == 0 {
            lobby.starved_since = 0;
            self.free_unused(at);
            return LOOK_MS;
        }
        let has_sleeper = lobby.has_sleeper();
        if has_sleeper {
            lobby.short_until = 0;
            lobby.unserved.end();
        }
        let is_starved = !has_sleeper && lobby.room.is_waited_for();
        lobby.note_starved(is_starved, now);
        if lobby.is_judgement_due(now) {
            let (guests, around) = self.guests_of(at);
            guests.expire(is_starved, &limits, &around);
            guests.keep_limits(&limits, &around);
        }
        let lobby = &self.lobbies[at];
        let is_unattended = lobby.lines.iter().all(Option::is_none);
        if lobby.needs_server(now) {
            self.ask_for_server(at);
        }
        if is_unattended && !is_starved {
            self.watch(at);
        }
        self.wake_recalled(at);
        let is_busy = !has_sleeper && (is_starved || !is_unattended);
        match is_busy {
            true if now < self.lobbies[at].short_until => COMING_LOOK_MS,
            true => BUSY_LOOK_MS,
            false => LOOK_MS,
        }
    }

    /// Tells backends to leave that could not be told before.
    fn repeat_leave(&mut self) {
        let due = |backend: &Backend| backend.role.as_ref().is_some_and(|role| role.leaves);
        let due: Vec<_> = self.backends.iter().filter(|(_, backend)| due(backend)).collect();
        let due: Vec<_> = due.into_iter().map(|(number, _)| number).collect();
        for number in due {
            let is_told = self.send(number, ToBackend::Leave, &[]);
            if let Some(role) = &mut self.backends[number].role {
                role.leaves = !is_told;
            }
        }
    }

    /// Wakes the backends that linger if one of them is to return its client.
    fn wake_recalled(&mut self, at: usize) {
        let (guests, around) = self.guests_of(at);
        if guests.has_ending() {
            guests.press_all(&around);
            self.wake_lingerers(at);
        }
        self.interrupt_ordered(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_have_a_pause_and_come_sooner_after_news() {
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.left_ms(5 * MS), 0, "the first look is due at once");
        rhythm.looked(1_000 * MS, LOOK_MS);
        assert_eq!(rhythm.left_ms(1_000 * MS), LOOK_MS);
        assert_eq!(rhythm.left_ms(1_150 * MS + 1), 50);
        rhythm.note_news();
        assert_eq!(rhythm.left_ms(1_000 * MS), NEWS_LOOK_MS);
        assert_eq!(rhythm.left_ms(1_150 * MS), 0);
        rhythm.looked(1_150 * MS, BUSY_LOOK_MS);
        assert_eq!(rhythm.left_ms(1_150 * MS), BUSY_LOOK_MS, "one look is enough for the news");
        assert_eq!(rhythm.left_ms(9_999 * MS), 0);
        rhythm.looked(2_000 * MS, LOOK_MS);
        rhythm.note_need();
        assert_eq!(rhythm.left_ms(2_000 * MS), BUSY_LOOK_MS, "many questions cause few looks");
        rhythm.looked(2_020 * MS, LOOK_MS);
        assert_eq!(rhythm.left_ms(2_020 * MS), LOOK_MS);
    }

    #[test]
    fn clients_that_begin_to_wait_are_noticed_soon() {
        assert_eq!(judgement_due(1_000 * MS, 0), 1_020 * MS);
        assert_eq!(judgement_due(1_000 * MS, 1_003 * MS), 1_020 * MS);
        assert_eq!(judgement_due(1_020 * MS, 1_003 * MS), 1_220 * MS);
    }
}
