//! Restores what Weir records about a server and its client, after a message that failed or that
//! the server discarded.

use sql::{Seen, Signs};

use crate::client::Client;
use crate::relay::ledger::{Entry, Undo};
use crate::relay::prepared::ServerStatements;
use crate::session::on_server::SessionBox;

/// A sent message has had no effect. Restores the records from before it.
pub(crate) fn undo(
    entry: Entry,
    statements: &mut ServerStatements,
    unnamed: &mut u64,
    session: &mut SessionBox,
    client: Option<&mut Client>,
) {
    let Some(undo) = entry.undo else { return };
    let client = client.and_then(|client| client.extended.as_mut());
    match *undo {
        Undo::Taken { .. } => {}
        Undo::Parse { name, statement, sent } => {
            if sent {
                statements.remove_parsed(statement.id, entry.serial);
            }
            if let Some(client) = client {
                client.statements.remove_parsed(&name, entry.serial);
            }
        }
        Undo::Close { name, statement, since, lent: was_lent } => {
            if let Some(lent) = was_lent {
                session.own().lent.insert(name.clone(), lent);
            }
            if let Some(client) = client {
                client.statements.restore(name, statement, since);
            }
        }
        Undo::Prepare { statement } => statements.remove_parsed(statement.id, entry.serial),
        Undo::Evict { statement, since } => statements.restore(statement, since),
        // The client's Parse is sent again when it is needed, whatever the server has now. Messages
        // that were sent later in another batch remain valid.
        Undo::ParseUnnamed { before, message } => {
            if *unnamed <= entry.serial {
                *unnamed = 0;
            }
            // The entry was a Close or Query that has taken this over (`Ledger::void_one`).
            let is_latest = |serial| serial == entry.serial || serial == 0;
            if let Some(client) = client.filter(|client| is_latest(client.unnamed)) {
                client.unnamed = if entry.failed { 0 } else { before };
                client.unnamed_parse = message;
                // Weir has not kept which of the two texts is the current one.
                client.unnamed_seen = Seen { signs: Signs::OPAQUE, ..Seen::default() };
            }
        }
        Undo::DropUnnamed { before } => {
            if let Some(client) = client.filter(|client| client.unnamed == 0) {
                client.unnamed = before;
            }
        }
        Undo::PrepareUnnamed if *unnamed > entry.serial => {}
        Undo::PrepareUnnamed => *unnamed = 0,
        Undo::Lend { name } => {
            if session.lent.get(&name).is_some_and(|lent| lent.since == entry.serial) {
                session.own().lent.remove(&name);
            }
        }
    }
}
