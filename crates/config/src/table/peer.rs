//! The keys of an entry of `[peers]`.

use super::keys;
use crate::host::Host;

keys! {
    /// One entry of `[peers]`: another pooler that may hold the connection a cancel request is for.
    pub struct Peer in Peer {}

    /// Where the peer listens; must be given.
    hosts ("host"): Vec<Host> = unset, reload, acts;
    /// TCP port of the peer, and suffix of its Unix socket name.
    port: u16 = "6432", reload, acts;
    /// In PgBouncer the cancel requests that are passed on to the peer at the same time. Weir makes none
    /// of them wait.
    pool_size: Option<u32> = unset, reload, nothing;
}
