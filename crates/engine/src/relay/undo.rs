//! Restores what Weir records about a server and its client, after a message that failed or that
//! the server discarded.

use crate::client::Client;
use crate::relay::ledger::{Entry, Undo};
use crate::relay::prepared::ServerStatements;
use crate::relay::unnamed::ServerUnnamed;
use crate::session::on_server::SessionBox;

/// A sent message has had no effect. Restores the records from before it.
pub(crate) fn undo(
    entry: Entry,
    statements: &mut ServerStatements,
    unnamed: &mut ServerUnnamed,
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
        Undo::ParseUnnamed { .. } | Undo::PrepareUnnamed => unnamed.undo_parse(entry.serial),
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
        Undo::ParseUnnamed { before, message } => {
            client.unnamed.undo_parse(entry.serial, entry.failed, *before, message);
        }
        Undo::DropUnnamed { before } => client.unnamed.undo_removal(*before),
        Undo::Taken { .. }
        | Undo::Prepare { .. }
        | Undo::Evict { .. }
        | Undo::PrepareUnnamed
        | Undo::Lend { .. } => {}
    }
}
