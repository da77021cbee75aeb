//! The keys of an entry of `[peers]`.

use crate::host::Host;
use crate::key::keys;

keys! {
    /// One entry of `[peers]`: another pooler that may hold the connection a cancel request is for.
    pub struct Peer in Peer {}

    /// Where the peer listens; must be given.
    hosts ("host"): Vec<Host> = unset, reload, acts;
    /// TCP port of the peer, and suffix of its Unix socket name.
    port: u16 = "6432", reload, acts;
    /// Cancel requests forwarded to the peer at the same time; -1 inherits `default_pool_size`.
    pool_size: Option<u32> = unset, reload, acts;
}
