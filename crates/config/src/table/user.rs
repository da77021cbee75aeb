//! The keys of an entry of `[users]`.

use std::time::Duration;

use crate::choice::{DataPath, PoolMode, ReadsGo, ReuseAfterError};
use crate::key::keys;
use crate::weight::Weight;

keys! {
    /// One entry of `[users]`: what differs for one user.
    pub struct UserSettings in User {}

    /// Pool mode of this user. The user's mode takes precedence over the database's and the global
    /// one.
    pool_mode: Option<PoolMode> = unset, reload, acts;
    /// `data_path` of this user's pools. The user's value takes precedence over the database's and
    /// the global one. Weir's own.
    data_path: Option<DataPath> = unset, reload, acts, own;
    /// `reuse_after_error` of this user's pools. The user's value takes precedence over the
    /// database's and the global one. Weir's own.
    reuse_after_error: Option<ReuseAfterError> = unset, reload, acts, own;
    /// `reads` of this user's pools. The user's value takes precedence over the database's. Weir's
    /// own.
    reads: Option<ReadsGo> = unset, reload, acts, own;
    /// Server connections of each pool of this user; -1 inherits. The user's value takes precedence
    /// over the database's and the global key.
    pool_size: Option<u32> = unset, reload, acts;
    /// Additional server connections of each pool of this user; -1 inherits.
    reserve_pool_size: Option<u32> = unset, reload, acts;
    /// Limit of server connections of this user, over all its pools; -1 inherits the global key.
    max_user_connections: Option<u32> = unset, reload, acts;
    /// Share of each of its pools in a common limit of servers, 1 to 1,000. The limits are
    /// `max_db_connections` and `max_server_connections`. The share counts only while clients wait
    /// because a limit is reached.
    pool_weight: Weight = "1", reload, acts, own;
    /// Limit of client connections of this user; -1 inherits the global key.
    max_user_client_connections: Option<u32> = unset, reload, acts;
    /// Longest run time of a query of this user; 0 inherits the global key.
    query_timeout: Option<Duration> = unset, reload, acts;
    /// How long this user's clients may wait for a server; 0 inherits.
    query_wait_timeout: Option<Duration> = unset, reload, acts;
    /// Longest idle time inside a transaction of this user; 0 inherits the global key.
    idle_transaction_timeout: Option<Duration> = unset, reload, acts;
    /// Longest transaction of this user; 0 inherits the global key.
    transaction_timeout: Option<Duration> = unset, reload, acts;
    /// Longest idle time of this user's clients; 0 inherits the global key.
    client_idle_timeout: Option<Duration> = unset, reload, acts;
}
