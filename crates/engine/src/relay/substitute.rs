//! Finds the current meaning of a client's text on its server, and the statement that Weir prepares
//! if the meaning has changed.
//!
//! Example: the client has changed its time zone since its Parse, and the server does not have the
//! statement. PostgreSQL reads literals when it parses. Under the statement's own name, other
//! clients would get this client's new meaning. So Weir prepares a substitute under another name.
//!
//! The client's name still stands for the original statement. Servers that have it use it.

use std::sync::Arc;

use crate::client::Client;
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::Statement;
use crate::server::Server;
use crate::shell::Exchange;
use crate::vars::TrackedNames;

/// Returns the meaning of a text that the client parses with message `serial`. Modes that do not
/// carry `search_path` ignore what they cannot know.
pub(crate) fn parse_context(
    client: &Client,
    server: &Server,
    names: &TrackedNames,
    serial: u64,
) -> ParseContext {
    match server.has_own_meanings() {
        true => ParseContext::private(client.key.number(), serial),
        false => ParseContext::of(&client.vars, names),
    }
}

/// Returns the statement to prepare in this statement's place; None if it can be prepared itself.
pub(crate) fn substitute(
    statement: &Statement,
    client: &Client,
    server: &Server,
    names: &TrackedNames,
    exchange: &mut impl Exchange,
) -> Option<Arc<Statement>> {
    // No other client finds a private statement.
    if statement.context.is_private() {
        return None;
    }
    // One substitute is enough until the client's known settings change.
    let copy = ParseContext::of(&client.vars, names).digest(statement.id);
    let here = parse_context(client, server, names, copy);
    (here != statement.context).then(|| exchange.intern(&statement.sql, &statement.types, here))
}
