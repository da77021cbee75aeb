//! The clients that hold the servers of a pool: the states for SHOW, and the DETAIL of a
//! `query_wait_timeout`.
//!
//! A client learns names and addresses of clients of its own login user only. All others are counted.
//! A worker knows the states of its own servers; those of other workers are counted, too.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::admission::pool::Failure;
use crate::client::Client;
use crate::ids::{ClientId, Identity, Micros, PoolId};
use crate::server::{Server, ServerPhase};
use crate::vars::APPLICATION_NAME;

/// Clients that a text names at most; the others are counted.
const NAMED_MAX: usize = 3;
/// Bytes of an `application_name` in a text.
const NAME_LEN_MAX: usize = 64;

/// The use that a client makes of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// A request is under way.
    Active,
    IdleInTransaction,
    /// The client is idle in a failed transaction.
    IdleInFailedTransaction,
    /// The client keeps the server without a transaction.
    Idle,
}

/// A client's use of its server, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing {
    pub activity: Activity,
    pub since: Micros,
}

impl Activity {
    /// PostgreSQL's words, as `state` in `pg_stat_activity`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInFailedTransaction => "idle in transaction (aborted)",
            Self::Idle => "idle",
        }
    }
}

/// Returns what `client` does with `server`, which it has.
pub(crate) fn doing(server: &Server, client: &Client) -> Doing {
    let is_busy = !matches!(*server.phase, ServerPhase::Linked) || !server.ledger.owes_nothing();
    let activity = match server.status.byte() {
        _ if is_busy => Activity::Active,
        b'E' => Activity::IdleInFailedTransaction,
        b'T' => Activity::IdleInTransaction,
        _ => Activity::Idle,
    };
    let since = if is_busy { client.times.request_at() } else { server.times.replied_at() };
    Doing { activity, since }
}

/// A client that holds a server of this worker.
pub(crate) struct Holder<'a> {
    id: ClientId,
    client: &'a Client,
    server: &'a Server,
    doing: Doing,
}

impl<'a> Holder<'a> {
    pub(crate) fn new(id: ClientId, client: &'a Client, server: &'a Server) -> Self {
        Self { id, client, server, doing: doing(server, client) }
    }
}

/// A pool whose servers are in use.
pub(crate) struct BusyPool<'a> {
    /// The number of its servers in use, at all workers.
    pub(crate) busy: u32,
    /// The most servers it may have; 0 = no limit.
    pub(crate) limit: u32,
    pub(crate) identity: &'a Identity,
    /// The clients of this worker that have a server of the pool.
    pub(crate) holders: Vec<Holder<'a>>,
}

/// Why a client has got no server.
#[derive(Debug)]
pub(crate) struct WaitDetail {
    pub(crate) text: String,
    /// The pool has no server, and logging in to one has failed.
    pub(crate) is_unreachable: bool,
}

/// The texts made during one tick, by pool and login user: many clients may be refused at once.
pub(crate) type Details = HashMap<(PoolId, String), Arc<WaitDetail>>;

/// Returns a sentence about a pool without a server.
pub(crate) fn describe_failure(failure: &Failure, identity: &Identity) -> String {
    // The name of a user that PostgreSQL refuses is no stranger's business.
    let why = match failure.names_user {
        true => "the server refuses the login".into(),
        false => failure.error.message(),
    };
    format!("no server of {}/{} is open; {why}", identity.database, identity.user)
}

/// Returns a sentence about the clients that hold the servers of a pool, for a client of `user`.
/// `address` returns that of a client.
pub(crate) fn describe_holders(
    pool: &BusyPool<'_>,
    user: &str,
    now: Micros,
    address: impl Fn(ClientId) -> String,
) -> String {
    let &BusyPool { busy, limit, identity, ref holders } = pool;
    let of = if limit == 0 { String::new() } else { format!(" of {limit}") };
    let servers = if busy == 1 && limit <= 1 { "server" } else { "servers" };
    let mut text = format!("{busy}{of} {servers} of {}/{} busy", identity.database, identity.user);
    let here = holders.len();
    let own = holders.iter().filter(|holder| holder.client.identity.user == user);
    let mut own: Vec<_> = own.collect();
    own.sort_by_key(|holder| holder.doing.since);
    let named = own.iter().take(NAMED_MAX);
    let mut parts: Vec<String> =
        named.map(|holder| describe_holder(holder, &address(holder.id), now)).collect();
    let counts = [
        (own.len().saturating_sub(NAMED_MAX), "more of this user"),
        (here - own.len(), "held by other users"),
        ((busy as usize).saturating_sub(here), "being opened or with clients of other workers"),
    ];
    let counted = counts.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counted.map(|(count, whose)| format!("{count} {whose}")));
    if !parts.is_empty() {
        let _ = write!(text, ": {}", parts.join("; "));
    }
    text
}

fn describe_holder(holder: &Holder<'_>, address: &str, now: Micros) -> String {
    let name = holder.client.vars.get(APPLICATION_NAME).unwrap_or_default();
    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_LEN_MAX)]);
    let name = if name.is_empty() { "a client" } else { &*name };
    let Doing { activity, since } = holder.doing;
    let seconds = now.saturating_sub(since) / 1_000_000;
    let mut text = format!("{name} ({address}) {} {seconds} s", activity.words());
    if let Some(pinned) = holder.server.session.pinned.as_deref() {
        let _ = write!(text, ", pinned, {pinned}");
    }
    text
}
