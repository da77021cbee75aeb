//! All that may differ between PostgreSQL's replies and Weir's, each with its reason:
//!
//! 1. **The order of ParameterStatus at login.** Weir tells a client what it has learnt from a
//!    server, in an order of its own; the protocol prescribes none. (In `differential.rs`, which
//!    sorts them. Their names and values are compared.) Outside of auto mode it tells of itself as
//!    PgBouncer does: `pgbouncer.version` and its like.
//! 2. **BackendKeyData.** A key names a connection, and Weir's clients have keys of Weir's.
//! 3. **The process id in NotificationResponse**, for it is that of the notifying server's process.
//! 4. **Whether and how a FATAL 08P01 is told.** Where the framing of messages itself is broken,
//!    Weir cannot pass them on. It hangs up as PostgreSQL does, with PgBouncer's words where
//!    PostgreSQL has other words, or none but in its log. Queries before it that are not answered
//!    yet stay so, where PostgreSQL answers them first. (No script has such.)
//! 5. **A name whose Parse fails, used behind the next Sync before the failure was heard.** The
//!    client is told of the Parse's error once more, not that there is no such statement. (No
//!    script does that.)

use testkit::Message;

/// The message without what may differ; nothing, if it may be missing.
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
