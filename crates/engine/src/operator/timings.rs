//! The checkpoints of clients' connections (`connection_timings`), from the same clock as the stages of
//! transactions ([`Stages`](crate::operator::stages::Stages)):
//!
//! ```text
//!  accepted ─► startup ─► authenticated ─┬─► welcomed ──────────────────────────────┐
//!                                        └─► queued ─► linked ─► state applied ─┐   │
//!                                                                               ▼   ▼
//!                                                                               sent ─► first byte ─► done
//! ```
//!
//! `queued`, `linked` and `applied` are of the first server that the connection gets, `sent` and
//! `first_byte` of its first transaction. In session mode a client is welcomed when its server is
//! prepared, in other modes mostly before it asks for one.
//!
//! Invariant: all is recorded on cold paths. Without the key, a login looks at an option a few times.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::{Identity, Micros};
use crate::operator::transactions::Transaction;

/// The way in which a connection got its first server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// It got none.
    #[default]
    None,
    /// The server was opened while the client waited.
    New,
    /// As `New`, and for its seat an idle server of another pool was closed.
    Evicting,
    /// The server had served another client, or was opened earlier.
    Reused,
    /// As `Reused`, and it came from another worker.
    Stolen,
    /// PostgreSQL's own processes have served the client (a direct pool).
    Direct,
}

impl Choice {
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::New => "new",
            Self::Evicting => "evicting",
            Self::Reused => "reused",
            Self::Stolen => "stolen",
            Self::Direct => "direct",
        }
    }
}

/// A connection of a client that has logged in. A time of 0: it has not come so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The client's serial number.
    pub client: u64,
    pub identity: Arc<Identity>,
    pub accepted_at: Micros,
    /// Its startup packet was read. With TLS, that is after the handshake.
    pub startup_at: Micros,
    pub authenticated_at: Micros,
    /// It was told that it is logged in.
    pub welcomed_at: Micros,
    /// It asked for its first server.
    pub queued_at: Micros,
    pub linked_at: Micros,
    pub applied_at: Micros,
    /// The first message of its first transaction was sent to the server.
    pub sent_at: Micros,
    /// The server answered.
    pub first_byte_at: Micros,
    pub done_at: Micros,
    pub choice: Choice,
}

impl Connection {
    /// Returns a connection without checkpoints.
    fn new(client: u64, identity: Arc<Identity>) -> Self {
        Self {
            client,
            identity,
            accepted_at: 0,
            startup_at: 0,
            authenticated_at: 0,
            welcomed_at: 0,
            queued_at: 0,
            linked_at: 0,
            applied_at: 0,
            sent_at: 0,
            first_byte_at: 0,
            done_at: 0,
            choice: Choice::None,
        }
    }

    /// Its client is served by PostgreSQL's own processes from now on.
    pub fn is_direct(mut self) -> Self {
        self.choice = Choice::Direct;
        self
    }

    /// Its client has left.
    pub fn done(mut self, now: Micros) -> Self {
        self.done_at = now;
        self
    }
}

/// The connections of one worker's clients.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// By the clients' serial numbers.
    live: HashMap<u64, Connection, RandomState>,
}

impl Timings {
    /// Returns what the configuration asks for: `kept` connections, or none.
    pub(crate) fn configured(present: Option<Box<Self>>, kept: u32) -> Option<Box<Self>> {
        (kept != 0).then(|| present.unwrap_or_default())
    }

    /// A client enters its pool. It was authenticated now.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        client: u64,
        identity: Arc<Identity>,
        (accepted_at, startup_at): (Micros, Micros),
        now: Micros,
    ) {
        let begun = Connection { accepted_at, startup_at, ..Connection::new(client, identity) };
        self.live.insert(client, Connection { authenticated_at: now, ..begun });
    }

    /// The client comes back from its lobby.
    pub(crate) fn resume(&mut self, connection: Connection) {
        self.live.insert(connection.client, connection);
    }

    #[cold]
    pub(crate) fn welcome(&mut self, client: u64, now: Micros) {
        if let Some(connection) = self.live.get_mut(&client) {
            connection.welcomed_at = now;
        }
    }

    /// The client's server has its state. `assigned_at`: when the client asked for it and got it.
    /// Returns whether its first transaction is still to come.
    #[cold]
    pub(crate) fn apply(
        &mut self,
        client: u64,
        choice: Choice,
        assigned_at: (Micros, Micros),
        now: Micros,
    ) -> bool {
        let Some(connection) = self.live.get_mut(&client) else { return false };
        if connection.choice == Choice::None {
            connection.choice = choice;
            (connection.queued_at, connection.linked_at) = assigned_at;
            connection.applied_at = now;
        }
        connection.sent_at == 0
    }

    /// A transaction is over, whose stages were asked for.
    pub(crate) fn transaction(&mut self, over: &Transaction) {
        let Some(connection) = self.live.get_mut(&over.client) else { return };
        if connection.sent_at == 0 {
            connection.sent_at = over.queued_at + Micros::from(over.sent);
            connection.first_byte_at = match over.first_byte {
                0 => 0,
                first_byte => over.queued_at + Micros::from(first_byte),
            };
        }
    }

    pub(crate) fn of(&self, client: u64) -> Option<&Connection> {
        self.live.get(&client)
    }

    /// The client leaves this worker.
    #[cold]
    pub(crate) fn take(&mut self, client: u64) -> Option<Connection> {
        self.live.remove(&client)
    }
}

/// The last connections of the process that have ended.
#[derive(Debug, Default)]
pub struct EndedConnections {
    /// The oldest first.
    ended: VecDeque<Connection>,
    /// `connection_timings`.
    kept: usize,
}

impl EndedConnections {
    /// Keeps at most this many from now on.
    pub fn keep(&mut self, kept: u32) {
        self.kept = kept as usize;
        let surplus = self.ended.len().saturating_sub(self.kept);
        self.ended.drain(..surplus);
        self.ended.shrink_to(self.kept);
    }

    pub fn add(&mut self, connection: Connection) {
        self.ended.push_back(connection);
        if self.ended.len() > self.kept {
            self.ended.pop_front();
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.ended.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(client: u64) -> Connection {
        let identity = Identity { database: "shop".into(), user: "app".into() };
        Connection::new(client, Arc::new(identity))
    }

    fn clients(ended: &EndedConnections) -> Vec<u64> {
        ended.iter().map(|connection| connection.client).collect()
    }

    #[test]
    fn the_last_ones_are_kept() {
        let mut ended = EndedConnections::default();
        ended.add(connection(1));
        assert!(clients(&ended).is_empty(), "the key is 0");
        ended.keep(3);
        (2..=9).for_each(|client| ended.add(connection(client)));
        assert_eq!(clients(&ended), [7, 8, 9]);
        ended.keep(2);
        assert_eq!(clients(&ended), [8, 9]);
        ended.keep(0);
        assert!(clients(&ended).is_empty());
    }

    #[test]
    fn the_memory_is_what_the_documentation_says() {
        assert!(size_of::<Connection>() <= 104, "{} bytes", size_of::<Connection>());
    }
}
