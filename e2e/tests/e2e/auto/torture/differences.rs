//! All that may differ between a session of auto mode and a connection of one's own, each with its
//! reason. It is the list of `docs/auto-mode.md` as far as the scripts touch it:
//!
//! 1. **The table's number in RowDescription.** The direct scripts run in a database of their own.
//! 2. **The process id in NotificationResponse** is the client's own number or another server's.
//! 3. **Reports of what RESET brings back from the startup packet.** PostgreSQL reports the server's
//!    default, and Weir the startup packet's value when the transaction is over. (In `play.rs`:
//!    of scripts with a startup packet of their own the reports are compared at the end.)
//! 4. **The temporary schema.** A session of one's own has none before something is made in it; a
//!    server that others have used may have one, empty, and under another number.
//! 5. **What no question to PostgreSQL shows** (`LOAD`, `setseed`) has to be seen in the text itself:
//!    not in a function or a DO block. (In `ways.rs`.)
//! 6. **A setting that only a role may make which has been left again** is refused on every server.
//!    (No scene has one.)

use testkit::Message;

/// The message without what may differ.
pub(super) fn comparable(message: &Message) -> Message {
    let Message { tag, mut body } = message.clone();
    match tag {
        b'A' => body[..4].fill(0),
        b'T' => clear_tables(&mut body),
        b'E' | b'N' => body = without_temporary_schema(message, body),
        _ => {}
    }
    Message { tag, body }
}

/// A column is its name, its table's number (4 bytes), and 14 bytes more.
fn clear_tables(body: &mut [u8]) {
    let mut at = 2;
    while let Some(length) = body.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0)) {
        at += length + 1;
        body[at..at + 4].fill(0);
        at += 18;
    }
}

fn without_temporary_schema(message: &Message, body: Vec<u8>) -> Vec<u8> {
    let error = message.error().expect("an error or a notice");
    if error.field('s').starts_with("pg_temp_") {
        return format!("{} {}", error.code(), error.message()).into_bytes();
    }
    let missing = ["3F000", "42883", "42704"].contains(&error.code());
    match missing && error.message().contains("pg_temp") {
        true => b"nothing of the name in pg_temp".to_vec(),
        false => body,
    }
}
