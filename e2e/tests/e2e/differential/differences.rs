//! All permitted differences between PostgreSQL's replies and Weir's, with their reasons:
//!
//! 1. **The order of ParameterStatus at login.** Weir sends the parameters of a server in an order
//!    of its own; the protocol prescribes none. (`differential.rs` sorts them and compares names
//!    and values.) Outside of auto mode it adds its own parameters as PgBouncer does:
//!    `pgbouncer.version` and others.
//! 2. **BackendKeyData.** A key names a connection, and Weir gives its clients keys of its own.
//! 3. **The process id in NotificationResponse.** It is that of the notifying server's process.
//! 4. **A FATAL 08P01 and its text.** If the framing of messages is broken, Weir cannot forward
//!    them. It closes the connection as PostgreSQL does, with PgBouncer's text. PostgreSQL has
//!    another text, or none except in its log. Earlier queries without an answer get none, while
//!    PostgreSQL answers them first. (No script does that.)
//! 5. **A name whose Parse fails, used after the next Sync and before the client has read the
//!    error.** The client gets the error of the Parse once more, not an error about a missing
//!    statement. (No script does that.)

use testkit::Message;

/// Returns the message without the parts that may differ, or `None` if the message may be missing.
pub(super) fn comparable(message: &Message) -> Option<Message> {
    let Message { tag, mut body } = message.clone();
    match tag {
        b'K' => body.fill(0),
        b'A' => body[..4].fill(0),
        b'E' if message.error().is_some_and(|e| (e.severity(), e.code()) == ("FATAL", "08P01")) => {
            return None;
        }
        _ => {}
    }
    Some(Message { tag, body })
}
