//! The records that a process notes while it serves, so that the next process can take the clients of
//! direct pools over if this one is killed. These are the records of an online restart, one by one.

use serde::{Deserialize, Serialize};

use super::{GuestRecord, LineRecord, LobbyRecord, Malformed, PoolRecord, WorkerRecords};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HeldRecord {
    /// The seed of the process, and its clock minus the system's monotonic clock.
    Process {
        seed: [u8; 32],
        ahead: i64,
    },
    /// A lobby without its lines and guests. `names`: those of the tracked parameters; none if they
    /// are not known.
    Lobby {
        lobby: LobbyRecord,
        pool: Box<PoolRecord>,
        names: Vec<String>,
    },
    /// A backend, with the only server of `server`. None if Weir has closed the server.
    Line {
        line: LineRecord,
        server: Option<Box<WorkerRecords>>,
        names: Vec<String>,
    },
    Guest(Box<GuestRecord>),
}

impl HeldRecord {
    /// # Errors
    /// Never in practice: it is all plain data.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Malformed> {
        postcard::to_stdvec(self).map_err(|error| Malformed(error.to_string()))
    }

    /// # Errors
    /// If the bytes were not written by [`HeldRecord::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        postcard::from_bytes(bytes).map_err(|error| Malformed(error.to_string()))
    }
}
