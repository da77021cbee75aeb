//! Restores what Weir records about a server and its client, after a message that failed or that
//! the server discarded.

use sql::{Seen, Signs};

use crate::client::{Client, Extended};
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
    if let Some(client) = client {
        undo_for_client(&entry, client);
    }
    let Some(undo) = entry.undo else { return };
    match *undo {
        Undo::Taken { .. } | Undo::DropUnnamed { .. } => {}
        Undo::Parse { statement, sent: true, .. } | Undo::Prepare { statement } => {
            statements.remove_parsed(statement.id, entry.serial);
        }
        Undo::Parse { sent: false, .. } => {}
        Undo::Close { name, lent: was_lent, .. } => {
            if let Some(lent) = was_lent {
                session.own().lent.insert(name, lent);
            }
        }
        Undo::Evict { statement } => statements.restore(statement),
        // The client's Parse is sent again when it is needed, whatever the server has now. Messages
        // that were sent later in another batch remain valid.
        Undo::ParseUnnamed { .. } | Undo::PrepareUnnamed => {
            if *unnamed <= entry.serial {
                *unnamed = 0;
            }
        }
        Undo::Lend { name } => {
            if session.lent.get(&name).is_some_and(|lent| lent.since == entry.serial) {
                session.own().lent.remove(&name);
            }
        }
    }
}

/// A message of the client has had no effect, or it will be sent to another server. Restores the
/// client's records from before it.
pub(crate) fn undo_for_client(entry: &Entry, client: &mut Client) {
    let (Some(undo), Some(client)) = (entry.undo.as_deref(), client.extended.as_deref_mut()) else {
        return;
    };
    match undo {
        Undo::Parse { name, .. } => client.statements.remove_parsed(name, entry.serial),
        Undo::Close { name, statement, since, .. } => {
            client.statements.restore(name.clone(), statement.clone(), *since);
        }
        Undo::ParseUnnamed { before, message } => undo_unnamed(entry, *before, message, client),
        Undo::DropUnnamed { before } if client.unnamed == 0 => client.unnamed = *before,
        Undo::Taken { .. }
        | Undo::Prepare { .. }
        | Undo::Evict { .. }
        | Undo::DropUnnamed { .. }
        | Undo::PrepareUnnamed
        | Undo::Lend { .. } => {}
    }
}

fn undo_unnamed(entry: &Entry, before: u64, message: &[u8], client: &mut Extended) {
    // The entry was a Close or Query that has taken this over (`Ledger::void_one`).
    let is_latest = client.unnamed == entry.serial || client.unnamed == 0;
    if is_latest {
        client.unnamed = if entry.failed { 0 } else { before };
        client.unnamed_parse = message.into();
        // Weir has not kept which of the two texts is the current one.
        client.unnamed_seen = Seen { signs: Signs::OPAQUE, ..Seen::default() };
    }
}
