//! The end of a lobby that no process can take over. Its clients at rest are told so. A backend that
//! serves one finishes the client's transaction, and ends with it when the control socket is closed.

use std::{os::fd::RawFd, sync::atomic::Ordering};

use config::ErrorCodes;
use engine::{own_error::Cause, records::LobbyRecord};
use net::sys::{process, shared_memory::SharedMemory, socket};

use super::{
    guests::tell,
    layout::{self, State, Word, place},
};

/// Disconnects the clients. `memory`: the lobby's file. The descriptors of the clients are those of
/// their places.
pub(crate) fn disconnect(lobby: &LobbyRecord, memory: RawFd) {
    if lobby.layout != layout::LAYOUT {
        return;
    }
    let size = layout::size(lobby.backends, lobby.places);
    let file = process::duplicate(memory).ok();
    let opened = file.zip(size).and_then(|(file, size)| SharedMemory::open(file, size).ok());
    let Some(memory) = opened else { return };
    for guest in &lobby.guests {
        let at = layout::place_line(lobby.backends, guest.place) + place::WORD;
        let word = memory.word64(at);
        let was = word.load(Ordering::SeqCst);
        let taken = Word::new(State::Taken, None, Word(was).generation()).0;
        let is_at_rest = matches!(Word(was).state(), State::Armed | State::Taken);
        if is_at_rest
            && word.compare_exchange(was, taken, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            let fd = (lobby.base + guest.place).cast_signed();
            let codes = ErrorCodes::of_word(&guest.codes).unwrap_or_default();
            let why = "the pooler has been restarted and cannot go on with this session";
            tell(fd, Cause::ServerUnreachable, why, codes);
            socket::shutdown(fd, false);
        }
    }
}
