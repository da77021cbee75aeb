//! Lifecycle: a server is opened, linked to a client, prepared for it, released and lost.
//!
//! The machines here borrow one client, one server or both: `open` has a `NewServer`, `pair` a `Pair`,
//! `release` a `Released`. They change the phases of the two, send Weir's own queries, and ask the
//! server's pool. They return what follows; `engine/opening.rs`, `linking.rs`, `leaving.rs`,
//! `losses.rs` and `lobbies.rs` carry it out. They read no message of a client; `relay` does.

pub(crate) mod ahead;
pub(crate) mod apply;
pub(crate) mod attend;
pub(crate) mod close_reason;
pub(crate) mod connect_query;
mod defaults;
pub(crate) mod enlist;
pub(crate) mod failed;
pub(crate) mod leave;
pub(crate) mod link;
pub(crate) mod loss;
pub(crate) mod lost;
pub(crate) mod mark;
pub(crate) mod open;
pub(crate) mod open_failure;
pub(crate) mod own_keys;
pub(crate) mod own_messages;
pub(crate) mod own_query;
pub(crate) mod pair;
pub(crate) mod preparation;
pub(crate) mod prepare;
pub(crate) mod principal;
pub(crate) mod release;
pub(crate) mod replicate;
pub mod replication;
pub(crate) mod reserved;
pub(crate) mod silent;
mod statements;
pub(crate) mod while_waiting;
