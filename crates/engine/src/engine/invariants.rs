//! Invariants of the engine, for tests.

use config::PoolMode;

use super::look::Look;
use crate::client::ClientPhase;
use crate::server::ServerPhase;

impl Look<'_> {
    /// Checks what must hold between any two calls.
    pub fn check_invariants(&self) {
        assert!(self.work.is_empty(), "work is left: {:?}", self.work);
        for (id, client) in self.clients.iter() {
            match *client.phase {
                ClientPhase::Linked | ClientPhase::Preparing(_) => {
                    let on = client.server.expect("a linked client has a server");
                    let server = &*self.servers[on];
                    assert_eq!(*server.client, Some(id), "a one-sided link");
                }
                ClientPhase::Idle
                | ClientPhase::Waiting(_)
                | ClientPhase::Failed(_)
                | ClientPhase::Canceling { .. } => {
                    assert!(client.server.is_none(), "an unlinked client has a server");
                }
                ClientPhase::Login(_) => {}
            }
        }
        for (on, server) in self.servers.iter() {
            assert!(!matches!(*server.phase, ServerPhase::Parked), "a parked server in the table");
            server.ledger.check_invariants();
            let has_session = server.mode == PoolMode::Auto || server.has_traces();
            assert_eq!(server.session.get().is_some(), has_session, "a session in another mode");
            if let Some(id) = *server.client {
                let client = self.clients.get(id).expect("a server of a dead client");
                assert_eq!(*client.server, Some(on), "a one-sided link");
            }
        }
    }
}
