//! What is believed of a server and its client goes back to what it was before a message that the
//! server never got to, or that failed.

use sql::{Seen, Signs};

use crate::client::Client;
use crate::relay::ledger::{Entry, Undo};
use crate::relay::prepared::ServerStatements;
use crate::session::state::AllLent;

/// A message that was sent has had no effect.
pub(crate) fn undo(
    entry: Entry,
    statements: &mut ServerStatements,
    unnamed: &mut u64,
    lent: &mut AllLent,
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
            lent.extend(was_lent.map(|lent| (name.clone(), lent)));
            if let Some(client) = client {
                client.statements.restore(name, statement, since);
            }
        }
        Undo::Prepare { statement } => statements.remove_parsed(statement.id, entry.serial),
        Undo::Evict { statement, since } => statements.restore(statement, since),
        // Whatever the server has now, the client's Parse is sent again when it is needed. What
        // was sent behind this message in another batch stands.
        Undo::ParseUnnamed { before, message } => {
            if *unnamed <= entry.serial {
                *unnamed = 0;
            }
            // It was a Close or Query at first, which has inherited this (`Ledger::void_one`).
            let is_latest = |serial| serial == entry.serial || serial == 0;
            if let Some(client) = client.filter(|client| is_latest(client.unnamed)) {
                client.unnamed = if entry.failed { 0 } else { before };
                client.unnamed_parse = message;
                // Which of the two texts it is was not kept.
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
            if lent.get(&name).is_some_and(|lent| lent.since == entry.serial) {
                lent.remove(&name);
            }
        }
    }
}
