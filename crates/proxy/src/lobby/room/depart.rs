//! A client that leaves the lobby with its backend (`extension/depart.c`).

use std::sync::atomic::Ordering;

use net::sys::shared_memory;

use super::{Room, Word, field, header, layout};
use crate::lobby::layout::State;

impl Room {
    /// Tells the backends whether clients that listen leave the lobby.
    pub(in crate::lobby) fn set_gives_up(&self, gives_up: bool) {
        self.memory.word32(header::GIVES_UP).store(gives_up.into(), Ordering::SeqCst);
    }

    /// Returns the line of the backend that has returned this client to leave with it.
    pub(in crate::lobby) fn leaver(&self, place: u32) -> Option<u32> {
        let leaver = self.memory.word32(self.of_place(place, field::LEAVER));
        let is_returned = self.word(place).state() == State::Taken;
        leaver.load(Ordering::SeqCst).checked_sub(1).filter(|_| is_returned)
    }

    /// Returns the state of a client, and the channels to which it listens if it leaves.
    pub(in crate::lobby) fn state_of(&self, place: u32) -> (Vec<u8>, Vec<u8>) {
        let len = |field| self.memory.word32(self.of_place(place, field)).load(Ordering::SeqCst);
        let len = |field| (len(field) as usize).min(layout::STATE);
        let (state, channels) = (len(field::WINDOW_LEN), len(field::CHANNELS_LEN));
        let channels = channels.min(layout::STATE - state);
        let window = layout::window(self.backends, self.places, place);
        (self.memory.read(window, state), self.memory.read(window + state, channels))
    }

    /// TAKEN → FREE, without an end of the connection: another part of Weir has a copy of its
    /// descriptor.
    pub(in crate::lobby) fn let_go(&self, place: u32) -> bool {
        let word = self.word(place);
        let generation = word.generation();
        if word != Word::new(State::Taken, None, generation) {
            return false;
        }
        let _ = self.set.delete(self.socket(place));
        self.numbers.clear(place);
        let window = layout::window(self.backends, self.places, place);
        let _ = shared_memory::punch(&self.memory, window, layout::WINDOW);
        self.swap(place, word, Word::new(State::Free, None, generation))
    }
}
