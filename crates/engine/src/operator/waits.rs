//! The clients that hold the servers of a pool: the states for SHOW, and the DETAIL of a
//! `query_wait_timeout`.
//!
//! A client learns names and addresses of clients of its own login user only. All others are counted.
//! A worker knows the states of its own servers; those of other workers are counted, too.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::client::Client;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId};
use crate::server::{Server, ServerPhase};
use crate::shell::{Exchange, Io};
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
    let is_busy = !matches!(server.phase, ServerPhase::Linked) || !server.ledger.owes_nothing();
    let activity = match server.status {
        _ if is_busy => Activity::Active,
        b'E' => Activity::IdleInFailedTransaction,
        b'T' => Activity::IdleInTransaction,
        _ => Activity::Idle,
    };
    let since = if is_busy { client.request_at } else { server.times.replied_at };
    Doing { activity, since }
}

/// A client that holds a server of this worker.
struct Holder {
    client: ClientId,
    server: ServerId,
    doing: Doing,
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

impl<X: Exchange> Engine<X> {
    /// Returns a sentence about the servers that the client `id` has waited for, and whether it is the
    /// first with this sentence in this tick.
    pub(crate) fn wait_detail(
        &mut self,
        id: ClientId,
        details: &mut Details,
        io: &impl Io<X>,
    ) -> Option<(Arc<WaitDetail>, bool)> {
        let client = self.clients.get(id)?;
        let pool = client.wait()?.pool;
        let key = (pool, client.identity.user.clone());
        if let Some(known) = details.get(&key) {
            return Some((known.clone(), false));
        }
        let detail = match self.describe_failure(pool) {
            Some(text) => WaitDetail { text, is_unreachable: true },
            None => {
                let text = self.describe_holders(pool, &key.1, io);
                WaitDetail { text, is_unreachable: false }
            }
        };
        let detail = Arc::new(detail);
        details.insert(key, detail.clone());
        Some((detail, true))
    }

    /// None if there is a server, or the last attempt to open one has not failed.
    fn describe_failure(&mut self, pool: PoolId) -> Option<String> {
        let failure = self.exchange.pool(pool, |pool| match &pool.failure {
            Some(failure) if pool.has_none_open() => Some(failure.clone()),
            Some(_) | None => None,
        })?;
        let identity = &self.view(pool).identity;
        // The name of a user that PostgreSQL refuses is no stranger's business.
        let why = match failure.names_user {
            true => "the server refuses the login".into(),
            false => failure.error.message(),
        };
        Some(format!("no server of {}/{} is open; {why}", identity.database, identity.user))
    }

    fn describe_holders(&mut self, pool: PoolId, user: &str, io: &impl Io<X>) -> String {
        let (busy, limit) =
            self.exchange.pool(pool, |pool| (pool.busy_servers(), pool.settings.size));
        let identity = &self.view(pool).identity;
        let of = if limit == 0 { String::new() } else { format!(" of {limit}") };
        let servers = if busy == 1 && limit <= 1 { "server" } else { "servers" };
        let mut text =
            format!("{busy}{of} {servers} of {}/{} busy", identity.database, identity.user);
        let mut holders = self.holders(pool);
        let here = holders.len();
        holders.retain(|holder| self.client(holder.client).identity.user == user);
        let of_others = here - holders.len();
        holders.sort_by_key(|holder| holder.doing.since);
        let mut parts: Vec<String> =
            holders.iter().take(NAMED_MAX).map(|holder| self.describe_holder(holder, io)).collect();
        let counts = [
            (holders.len().saturating_sub(NAMED_MAX), "more of this user"),
            (of_others, "held by other users"),
            ((busy as usize).saturating_sub(here), "being opened or with clients of other workers"),
        ];
        let counted = counts.into_iter().filter(|(count, _)| *count > 0);
        parts.extend(counted.map(|(count, whose)| format!("{count} {whose}")));
        if !parts.is_empty() {
            let _ = write!(text, ": {}", parts.join("; "));
        }
        text
    }

    /// The clients of this worker that have a server of the pool.
    fn holders(&self, pool: PoolId) -> Vec<Holder> {
        let own = self.servers.iter().filter(|(_, server)| server.pool == pool);
        let held = own.filter_map(|(on, server)| {
            let client = server.client?;
            let doing = doing(server, self.clients.get(client)?);
            Some(Holder { client, server: on, doing })
        });
        held.collect()
    }

    fn describe_holder(&self, holder: &Holder, io: &impl Io<X>) -> String {
        let client = self.client(holder.client);
        let name = client.vars.get(APPLICATION_NAME).unwrap_or_default();
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME_LEN_MAX)]);
        let name = if name.is_empty() { "a client" } else { &*name };
        let Doing { activity, since } = holder.doing;
        let seconds = io.now().saturating_sub(since) / 1_000_000;
        let address = io.client_address(holder.client);
        let mut text = format!("{name} ({address}) {} {seconds} s", activity.words());
        if let Some(pinned) = self.server(holder.server).session.pinned.as_deref() {
            let _ = write!(text, ", pinned, {pinned}");
        }
        text
    }
}
