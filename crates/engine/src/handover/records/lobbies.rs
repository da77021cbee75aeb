//! The lobbies of direct pools (docs/direct.md). Most of their state is in the files that the
//! processes share; the records have the rest.

use serde::{Deserialize, Serialize};

use crate::ids::Micros;

/// A lobby. Its descriptors follow: the file, the epoll set, the sockets of its lines, and those of
/// its guests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LobbyRecord {
    /// Index into [`super::HandoverState::pools`].
    pub pool: u32,
    /// The version of the file's layout.
    pub layout: u32,
    /// The number of the descriptor of the first place.
    pub base: u32,
    pub backends: u32,
    pub places: u32,
    pub lines: Vec<LineRecord>,
    pub guests: Vec<GuestRecord>,
}

/// A backend in a lobby.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRecord {
    pub line: u32,
    /// The serial number of its server; 0 = Weir has closed it, and the backend is about to end.
    pub server: u64,
    /// Has the engine been told that the backend is in the lobby?
    pub came: bool,
    /// It could not be told yet that it is to leave.
    pub leaves: bool,
    /// It has left the lobby.
    pub has_left: bool,
    /// Is there a descriptor of the process behind that of the socket?
    pub has_process: bool,
}

/// A client of a direct pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRecord {
    pub place: u32,
    pub serial: u64,
    pub database: String,
    pub user: String,
    pub is_counted: bool,
    pub key: u64,
    pub tag: Vec<u8>,
    pub application_name: Vec<u8>,
    pub connected_at: Micros,
    pub idle_limit: Micros,
    pub wait_limit: Micros,
    /// The configuration's word for the codes of its errors.
    pub codes: String,
    /// The client's address, if the shell knows a better one than the socket's.
    pub address: Option<String>,
    /// When it came to the lobby.
    pub since: Micros,
    /// Since when it waits for a backend; 0 = it does not.
    pub waiting_since: Micros,
    /// The bytes received and sent before it came to the lobby.
    pub login_traffic: (u64, u64),
    /// The line of a backend that could not restore its state, and the number of its transactions
    /// then. The client waits until that backend has ended, if the line is known.
    pub refusal: Option<(Option<u32>, u64)>,
    pub ending: Option<DismissalRecord>,
}

/// The end of a client that a backend has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DismissalRecord {
    /// Index into [`crate::own_error::Cause::ALL`].
    pub cause: u32,
    pub reason: String,
    pub at_once: bool,
    pub since: Micros,
    pub is_ordered: bool,
}

impl LobbyRecord {
    /// Returns how many descriptors follow before those of the guests.
    pub fn head_len(&self) -> usize {
        let processes = self.lines.iter().filter(|line| line.has_process).count();
        2 + self.lines.len() + processes
    }

    /// Returns the serial numbers of the servers whose backends are in the lobby.
    pub fn servers(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().map(|line| line.server).filter(|serial| *serial != 0)
    }

    /// Limits all times to `now`.
    pub(super) fn date_back_to(&mut self, now: Micros) {
        for guest in &mut self.guests {
            guest.connected_at = guest.connected_at.min(now);
            guest.since = guest.since.min(now);
            guest.waiting_since = guest.waiting_since.min(now);
        }
    }
}
