//! What a client's text means on its server at the moment, and what is prepared there in a statement's
//! place where its text has come to mean something else: the client has set another time zone since
//! its Parse, say, and the server has not got the statement. PostgreSQL reads literals when it
//! parses, so under the statement's own name a stranger would find what this client means by it.
//!
//! The client's name goes on to stand for its own statement, which it gets wherever a server has that.

use std::sync::Arc;

use crate::client::Client;
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::Statement;
use crate::server::Server;
use crate::shell::Exchange;
use crate::vars::TrackedNames;

/// What a text means that the client has parsed with message `serial`. In modes that carry no
/// `search_path` that is as it may be.
pub(crate) fn parse_context(
    client: &Client,
    server: &Server,
    names: &TrackedNames,
    serial: u64,
) -> ParseContext {
    match server.has_own_meanings() {
        true => ParseContext::private(client.key, serial),
        false => ParseContext::of(&client.vars, names),
    }
}

/// What has to be prepared in this statement's place; None if it is that itself.
pub(crate) fn substitute(
    statement: &Statement,
    client: &Client,
    server: &Server,
    names: &TrackedNames,
    exchange: &mut impl Exchange,
) -> Option<Arc<Statement>> {
    // Nobody else finds it.
    if statement.context.is_private() {
        return None;
    }
    // One copy will do for as long as what is known of the client's settings does not change.
    let copy = ParseContext::of(&client.vars, names).digest(statement.id);
    let here = parse_context(client, server, names, copy);
    (here != statement.context).then(|| exchange.intern(&statement.sql, &statement.types, here))
}
