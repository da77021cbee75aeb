//! The keys of an entry of `[peers]`.

use crate::host::Host;
use crate::key::keys;

keys! {
    /// One entry of `[peers]`: another pooler that may hold the connection a cancel request is for.
    pub struct Peer in Peer {}

    /// Host of the peer. It must be set.
    hosts ("host"): Vec<Host> = unset, reload, acts;
    /// TCP port of the peer, and suffix of its Unix socket name.
    port: u16 = "6432", reload, acts;
    /// Limit of simultaneous cancel requests to the peer; -1 inherits `default_pool_size`.
    pool_size: Option<u32> = unset, reload, acts;
}
