//! The end of a lobby that no process can take over. Its clients at rest are told so. A backend that
//! serves one finishes the client's transaction, and ends with it when the control socket is closed.

use std::os::fd::RawFd;

use config::ErrorCodes;
use engine::{own_error::Cause, records::LobbyRecord};
use net::sys::{process, socket};
use room::Stranded;

use super::guests::tell;

/// Disconnects the clients. `memory`: the lobby's file. The descriptors of the clients are those of
/// their places.
pub(crate) fn disconnect(lobby: &LobbyRecord, memory: RawFd) {
    if lobby.layout != room::LAYOUT {
        return;
    }
    let file = process::duplicate(memory).ok();
    let opened = file.and_then(|file| Stranded::open(file, lobby.backends, lobby.places));
    let Some(stranded) = opened else { return };
    for guest in &lobby.guests {
        if stranded.take(guest.place) {
            let fd = (lobby.base + guest.place).cast_signed();
            let codes = ErrorCodes::of_word(&guest.codes).unwrap_or_default();
            let why = "the pooler has been restarted and cannot go on with this session";
            tell(fd, Cause::ServerUnreachable, why, codes);
            socket::shutdown(fd, false);
        }
    }
}
