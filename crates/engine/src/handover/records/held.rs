//! The records that a process notes while it serves, so that the next process can take the clients of
//! direct pools over if this one is killed. These are the records of an online restart, one by one.

use serde::{Deserialize, Serialize};

use super::{GuestRecord, LineRecord, LobbyRecord, Malformed, PoolRecord, WorkerRecords};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HeldRecord {
    Process(ProcessRecord),
    /// A lobby without its lines and guests.
    Lobby {
        lobby: LobbyRecord,
        pool: Box<PoolRecord>,
    },
    /// A backend, with the only server of `server`. None if the next process cannot have the server:
    /// Weir has closed it, or its connection is encrypted.
    Line {
        line: LineRecord,
        server: Option<Box<WorkerRecords>>,
    },
    Guest(Box<GuestRecord>),
}

/// The process itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub seed: [u8; 32],
    /// Its clock minus the system's monotonic clock.
    pub ahead: i64,
    /// The names of the tracked parameters.
    pub names: Vec<String>,
    /// See [`super::HandoverState::deaths`].
    pub deaths: u32,
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
