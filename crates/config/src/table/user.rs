//! The keys of an entry of `[users]`.

use std::time::Duration;

use crate::choice::PoolMode;
use crate::key::keys;
use crate::weight::Weight;

keys! {
    /// One entry of `[users]`: what differs for one user.
    pub struct UserSettings in User {}

    /// Pool mode of this user; goes before the database's and the global one.
    pool_mode: Option<PoolMode> = unset, reload, acts;
    /// Server connections of each pool of this user; goes before the database's and the global
    /// one; -1 inherits.
    pool_size: Option<u32> = unset, reload, acts;
    /// Additional server connections of each pool of this user; -1 inherits.
    reserve_pool_size: Option<u32> = unset, reload, acts;
    /// Server connections of this user in all its pools; -1 inherits the global key.
    max_user_connections: Option<u32> = unset, reload, acts;
    /// The share of each pool of this user, beside those of others, of server connections under a
    /// common limit (`max_db_connections`, `max_server_connections`), 1 to 1,000. Counts only while
    /// somebody waits because the limit is reached.
    pool_weight: Weight = "1", reload, acts;
    /// Client connections of this user; -1 inherits the global key.
    max_user_client_connections: Option<u32> = unset, reload, acts;
    /// Longest query on this user's server connections; 0 inherits the global key.
    query_timeout: Option<Duration> = unset, reload, acts;
    /// How long this user's clients may wait for a server; 0 inherits.
    query_wait_timeout: Option<Duration> = unset, reload, acts;
    /// Longest idle time in a transaction on this user's server connections; 0 inherits the global
    /// key.
    idle_transaction_timeout: Option<Duration> = unset, reload, acts;
    /// Longest transaction on this user's server connections; 0 inherits the global key.
    transaction_timeout: Option<Duration> = unset, reload, acts;
    /// Longest silence of this user's clients between queries; 0 inherits the global key.
    client_idle_timeout: Option<Duration> = unset, reload, acts;
}
