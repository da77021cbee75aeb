//! The states of a pool's lobby, and the ways of a client that logs in. `lobby.rs` changes them.

use config::Proxied;

use crate::ids::{Micros, ServerId, WorkerId};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lobby {
    #[default]
    Untried,
    /// A server of this epoch, or of a later one, was opened for it. `has_worked`: the pool is direct
    /// and had no server for a client that logged in.
    Trying {
        since: Micros,
        epoch: u64,
        has_worked: bool,
    },
    Works,
    Failed {
        why: Proxied,
        retry_at: Micros,
    },
    /// Another process has taken it over.
    Ceded,
}

/// The way of a client that has logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    Proxied,
    Direct,
    /// It waits for the trial. `open`: the caller opens a server for the trial.
    Trial {
        open: bool,
    },
}

/// The servers that serve the lobby, and the pauses between openings and between closings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attendance {
    /// Servers of the current epoch whose backend is in the lobby.
    pub(super) present: u32,
    /// No server is opened for the lobby before this time, since the last one has failed.
    pub(super) open_at: Micros,
    /// Servers that were asked to leave since `asked_at`, because clients wait for a place.
    pub(super) asked: u32,
    pub(super) asked_at: Micros,
    /// Its seat may go to another pool.
    pub(super) idlest: Option<Idlest>,
    /// Until then, a seat is wanted for a server of the lobby.
    pub(super) starves_until: Micros,
}

/// The server whose backend has been idle in the lobby for longest, as the thread of the lobbies has
/// last seen it. It has no client, and was not asked to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idlest {
    pub since: Micros,
    pub server: ServerId,
    pub serial: u64,
    pub worker: WorkerId,
}
