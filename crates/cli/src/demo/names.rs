//! The names and the address that the demo uses.

/// The database, and the role that owns it.
pub(super) const DEMO: &str = "demo";
/// The database's names on the pooler's side, each with the mode of its pools.
pub(super) const MODES: [(&str, &str); 4] = [
    ("demo", "auto"),
    ("demo_session", "session"),
    ("demo_transaction", "transaction"),
    ("demo_statement", "statement"),
];
pub(super) const LOOPBACK: &str = "127.0.0.1";
