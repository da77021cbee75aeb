//! Steps that only a lobby of a process that was killed needs (`service/repair.rs`).

use std::sync::atomic::Ordering;

use super::{ARMED, Room, event_of};
use crate::lobby::layout::{State, Word, activity};

impl Room {
    /// The backend of this line is not in the lobby, as far as is known.
    pub(in crate::lobby) fn leave(&self, line: u32) {
        self.activity(line).store(activity::ABSENT, Ordering::SeqCst);
    }

    /// Arms a client at rest that may not be in the set, or may have lost its event.
    pub(in crate::lobby) fn arm_anew(&self, place: u32) {
        let event = event_of(place, self.word(place).generation());
        if self.set.add(self.socket(place), ARMED, event).is_err() {
            let _ = self.set.modify(self.socket(place), ARMED, event);
        }
    }

    /// Frees a place whose client nobody knows, whatever its state is.
    pub(in crate::lobby) fn free(&self, place: u32) {
        loop {
            let word = self.word(place);
            let taken = Word::new(State::Taken, None, word.generation());
            if self.swap(place, word, taken) {
                break;
            }
        }
        self.vacate(place);
    }

    /// Closes the socket of a place whose client has left.
    pub(in crate::lobby) fn clear(&self, place: u32) {
        self.numbers.clear(place);
    }
}
