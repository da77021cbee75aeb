//! A lobby of a process that was killed in the middle of something. Every state word is brought into
//! a state that this process would have left.
//!
//! | found | done |
//! |---|---|
//! | a place that is not free, without a client on the list | it is free; its socket is closed unless another lobby has the number |
//! | a client on the list, its place free | it has left |
//! | a client at rest | it is armed again: the process may have died between word and set |
//! | a client of a backend that is not on the list | the backend counts as dead |
//! | a client of a backend that is | it is put into the set again, and the backend gets the descriptor again |
//! | a client that a backend has just returned | after a second, the message counts as lost |
//! | a backend without its server | it is dismissed: it ends as soon as it has no client |
//! | a message about a client that its backend does not have any more | it is ignored: an earlier process has dealt with it |

use engine::ids::Micros;
use room::{Loss, State};

use super::{
    super::{
        control::{Reason, Seat},
        guests::Ending,
    },
    Service,
};

/// The time in which the message about a returned client must come.
const RETURN_MAX: Micros = 1_000_000;

/// A client that a backend had returned when the process before was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returning {
    at: usize,
    place: u32,
    line: u32,
    generation: u32,
    since: Micros,
}

impl Service {
    /// Call it when the lobby's clients and backends are imported.
    pub(super) fn repair(&mut self, at: usize) {
        let now = self.shared.clock.now();
        let lobby = &mut self.lobbies[at];
        let line_of = |line: u32| lobby.lines.get(line as usize).copied().flatten();
        for line in (0..lobby.room.backends()).filter(|line| line_of(*line).is_none()) {
            lobby.room.leave(line);
        }
        // Backends with clients that nobody knows.
        let mut strangers = Vec::new();
        for place in 0..lobby.room.places() {
            let lobby = &mut self.lobbies[at];
            let word = lobby.room.word(place);
            let number = |line: u32| lobby.lines.get(line as usize).copied().flatten();
            let owner = word.owner().map(|line| (line, number(line)));
            let is_seated = lobby.guests.at(place).is_some();
            match (word.state(), owner) {
                (State::Free, _) if is_seated => {
                    lobby.guests.forget(place, &self.shared);
                    lobby.room.clear(place);
                }
                (State::Free, _) => {}
                _ if !is_seated => {
                    strangers.extend(owner.and_then(|(_, number)| number));
                    let has_number = lobby.guests.claim(place);
                    lobby.room.free(place, has_number);
                }
                (State::Armed, _) => lobby.room.arm_anew(place),
                (_, Some((line, None))) => match lobby.room.reclaim(line, place) {
                    Loss::None => {}
                    Loss::Close => self.end(at, place, Ending::Lost),
                    Loss::Returned if lobby.room.leaver(place).is_some() => {
                        self.end(at, place, Ending::Lost);
                    }
                    Loss::Returned => self.admit(at, place),
                },
                (State::Owned, Some((_, Some(number)))) => {
                    lobby.room.arm_anew(place);
                    let (socket, generation) = (lobby.room.socket(place), word.generation());
                    self.give_again(number, Seat { place, generation }, socket);
                }
                (State::Taken, Some((line, Some(_)))) => {
                    let generation = word.generation();
                    self.returning.push(Returning { at, place, line, generation, since: now });
                }
                (State::Owned | State::Taken, None) => {}
            }
        }
        self.lobbies[at].guests.find_free_places();
        for number in self.lobbies[at].lines.iter().flatten() {
            if let Some(role) = &mut self.backends[*number].role {
                role.is_inherited = !strangers.contains(number);
            }
        }
        self.dismiss_closed(at);
    }

    /// Dismisses the backends whose servers this process does not have.
    fn dismiss_closed(&self, at: usize) {
        for number in self.lobbies[at].lines.iter().flatten() {
            let role = self.backends[*number].role.as_ref();
            if role.is_some_and(|role| role.is_closed && !role.has_left) {
                self.dismiss(*number);
            }
        }
    }

    /// Takes back the clients whose backends' messages were lost with the process before.
    pub(super) fn take_returned(&mut self, now: Micros) {
        let due: Vec<_> =
            self.returning.extract_if(.., |one| now > one.since + RETURN_MAX).collect();
        for Returning { at, place, line, generation, .. } in due {
            let Some(lobby) = self.lobbies.get(at) else { continue };
            let number = lobby.lines.get(line as usize).copied().flatten();
            if let Some(number) = number
                && lobby.room.acknowledge(place, line, generation)
            {
                let leaves = self.lobbies[at].room.leaver(place).is_some();
                let reason = if leaves { Reason::Listens } else { Reason::Recalled };
                self.take_back(at, place, reason, number);
            }
        }
    }
}
