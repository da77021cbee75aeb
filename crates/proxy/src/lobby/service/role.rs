//! The connections of backends, and their parts in the lobbies.

use std::os::fd::OwnedFd;

use engine::shell::Attending;
use net::sys::process::Process;

use super::holding::Home;

/// A connection of a backend.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) fd: OwnedFd,
    pub(super) process: Option<Process>,
    /// Set when it has shown its ticket.
    pub(super) role: Option<Role>,
}

#[derive(Debug)]
pub(super) struct Role {
    pub(super) server: Attending,
    pub(super) room: usize,
    pub(super) line: u32,
    /// The number of the first client whose descriptor it was not given with another's.
    pub(super) next_seating: u64,
    /// It is in the lobby, and the engine knows it.
    pub(super) came: bool,
    /// It could not be told yet that it is to leave.
    pub(super) leaves: bool,
    /// It leaves with its client.
    pub(super) departs: bool,
    /// It has left the lobby, and the engine was told so.
    pub(super) has_left: bool,
    /// The engine has closed its server.
    pub(super) is_closed: bool,
    /// It has got the lobby.
    pub(super) is_welcome: bool,
    /// Its messages about clients that it does not have may be for a process that was killed, which
    /// has dealt with them. An online restart does not hand this over: only the pooler in the server
    /// has a holder and can follow a killed process, and it cannot be restarted online.
    pub(super) is_inherited: bool,
    pub(super) home: Home,
}

impl Role {
    pub(super) fn new(server: Attending, room: usize, line: u32) -> Self {
        Self {
            server,
            room,
            line,
            next_seating: 0,
            came: false,
            leaves: false,
            departs: false,
            has_left: false,
            is_closed: false,
            is_welcome: false,
            is_inherited: false,
            home: Home::Unknown,
        }
    }
}
