//! Facts about a connection that the console shows as the engine has them. Reports and snapshots
//! pass this struct on as a whole. A new fact is a field here and a column in a SHOW.

use config::PoolMode;

use crate::client::Client;
use crate::server::{Server, ServerPhase};
use crate::values::Values;

#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The cancel key: process id and secret.
    pub key: u64,
    /// The values of the tracked parameters.
    pub vars: Values,
    pub prepared_statements: usize,
    /// Memory for the names of a client's statements or for a server's list, in bytes.
    pub statement_bytes: usize,
    /// Does a server report its session's state by itself, or is it probed? None for a client, and
    /// for a server that is not used in auto mode.
    pub reports_state: Option<bool>,
}

impl Facts {
    pub(super) fn of_client(client: &Client) -> Self {
        let statements = client.extended.as_ref().map(|extended| &extended.statements);
        Self {
            key: client.key.number(),
            vars: client.vars.clone(),
            prepared_statements: statements.map_or(0, |statements| statements.len()),
            statement_bytes: statements.map_or(0, |statements| statements.bytes()),
            reports_state: None,
        }
    }

    pub(super) fn of_server(server: &Server) -> Self {
        let is_used = server.mode == PoolMode::Auto
            && server.replication.is_none()
            && !matches!(
                *server.phase,
                ServerPhase::Connecting(_)
                    | ServerPhase::Login(_)
                    | ServerPhase::Listening
                    | ServerPhase::Attending { .. }
            );
        Self {
            key: cancel_key(server),
            vars: server.vars.clone(),
            prepared_statements: server.statements.len(),
            statement_bytes: server.statements.bytes(),
            reports_state: is_used.then_some(server.session.state_report.is_some()),
        }
    }
}

/// Returns the first eight bytes of the cancel key, as an old client would get it.
fn cancel_key(server: &Server) -> u64 {
    server.key.number().map_or(0, |(number, _)| number)
}
