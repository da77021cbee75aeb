//! All that may differ between PostgreSQL's replies and Weir's, each with its reason:
//!
//! 1. **The order of ParameterStatus at login.** Weir tells a client what it has learnt from a
//!    server, in an order of its own; the protocol prescribes none. (In `differential.rs`, which
//!    sorts them. Their names and values are compared.)
//! 2. **BackendKeyData.** A key names a connection, and Weir's clients have keys of Weir's.
//! 3. **The process id in NotificationResponse**, for it is that of the notifying server's process.
//! 4. **The words of a FATAL 08P01.** Where the framing of messages itself is broken, Weir cannot
//!    pass them on: it hangs up as PostgreSQL does, with PgBouncer's words.

use testkit::Message;

/// The message without what may differ.
pub(super) fn comparable(message: &Message) -> Message {
    let Message { tag, mut body } = message.clone();
    match tag {
        b'K' => body.fill(0),
        b'A' => body[..4].fill(0),
        b'E' if message.error().is_some_and(|e| (e.severity(), e.code()) == ("FATAL", "08P01")) => {
            body = b"SFATAL\0C08P01\0\0".to_vec();
        }
        _ => {}
    }
    Message { tag, body }
}
