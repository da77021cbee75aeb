//! The servers that an order for a pool concerns.

use crate::server::{Server, ServerPhase, ServerPurpose};

/// The state of a server that belongs to its pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not logged in. `listens`: it is to be the pool's listener.
    Login {
        listens: bool,
    },
    LoggedIn,
}

impl Standing {
    /// Returns None for a login for one client alone: it belongs to the client.
    pub(crate) fn of(server: &Server) -> Option<Self> {
        match &*server.phase {
            ServerPhase::Connecting(login) | ServerPhase::Login(login) => match login.purpose {
                None | Some(ServerPurpose::Attend { .. }) => Some(Self::Login { listens: false }),
                Some(ServerPurpose::Listen) => Some(Self::Login { listens: true }),
                Some(
                    ServerPurpose::Proof { .. }
                    | ServerPurpose::Settings { .. }
                    | ServerPurpose::Replication { .. },
                ) => None,
            },
            ServerPhase::Parked
            | ServerPhase::Preparing(_)
            | ServerPhase::Linked
            | ServerPhase::Finishing
            | ServerPhase::Settling(_)
            | ServerPhase::Listening
            | ServerPhase::Attending { .. } => Some(Self::LoggedIn),
        }
    }
}
