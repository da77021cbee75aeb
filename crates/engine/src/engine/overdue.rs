//! The limits of time: which clients and servers have exceeded one ([`Overdue`]).

use std::sync::Arc;

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use crate::admission::pool::{Gate, Pool};
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{ClientId, Micros, PoolId, ServerId, micros, over};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::silent::Patience;
use crate::login::auth::Awaited;
use crate::login::patience::LOGIN_GRACE;
use crate::operator::waits::{self, BusyPool, Details, Holder, WaitDetail};
use crate::own_error::{Cause, OwnError, QUERY_WAIT_TIMEOUT};
use crate::routing::Sessions;
use crate::server::{LoginStage, Preparation, Server, ServerPhase};
use crate::session::holding::is_idle;
use crate::session::pins::Pins;
use crate::shell::{Exchange, Io};

/// The clients and servers of one worker, of which some have exceeded a limit.
#[derive(Debug)]
pub(super) struct Overdue<'a, X> {
    context: &'a Context,
    clients: &'a Clients,
    servers: &'a Servers,
    pools: &'a mut Pools<X>,
    sessions: &'a Sessions,
    now: Micros,
}

impl<X: Exchange> Engine<X> {
    pub(super) fn overdue(&mut self, now: Micros) -> Overdue<'_, X> {
        let Self { context, clients, servers, pools, sessions, .. } = self;
        Overdue { context, clients, servers, pools, sessions, now }
    }
}

/// Clients.
impl<X: Exchange> Overdue<'_, X> {
    /// Returns the clients that have exceeded a limit, with the errors for them.
    pub(super) fn clients(&self) -> Vec<(ClientId, OwnError<'static>)> {
        let now = self.now;
        let global = &self.context.config.global;
        let login = micros(global.client_login_timeout);
        let cancel = micros(global.cancel_wait_timeout);
        let settings = |client: &Client| client.pool.id().map(|pool| &**self.pools.settings(pool));
        // Waiting for a server is part of the client's query.
        let query_limit = |client: &_| settings(client).map_or(0, |pool| pool.query_timeout);
        let wait_limit =
            |client: &Client| self.context.wait_limit(&client.identity, settings(client));
        let keeps_for_long = |client: &Client| {
            let server = client.server.and_then(|on| self.servers.get(on));
            server.is_some_and(|server| {
                server.is_kept_for_long(client, self.pools.settings(server.pool).pin_timeout, now)
            })
        };
        let mut expired = Vec::new();
        for (id, client) in self.clients.iter() {
            let why = match &*client.phase {
                ClientPhase::Login(_) if over(login, client.times.connected_at(), now) => {
                    "client_login_timeout".into()
                }
                ClientPhase::Waiting(waiter) if over(query_limit(client), waiter.since, now) => {
                    OwnError::new(Cause::QueryTimeout, "query_timeout")
                }
                ClientPhase::Waiting(waiter) if over(wait_limit(client), waiter.since, now) => {
                    OwnError::new(Cause::QueryWaitTimeout, QUERY_WAIT_TIMEOUT)
                }
                ClientPhase::Waiting(_)
                    if !client.is_welcomed() && over(login, client.times.connected_at(), now) =>
                {
                    OwnError::new(Cause::ServerUnreachable, "client_login_timeout (server down)")
                }
                ClientPhase::Idle | ClientPhase::Failed(_)
                    if over(
                        self.context.idle_limit(&client.identity),
                        client.times.request_at(),
                        now,
                    ) && !self.sessions.holds(id, client.serial) =>
                {
                    OwnError::new(Cause::IdleTimeout, "client_idle_timeout")
                }
                ClientPhase::Linked if keeps_for_long(client) => {
                    OwnError::new(Cause::IdleTimeout, "pin_timeout")
                }
                ClientPhase::Canceling { .. } if over(cancel, client.times.connected_at(), now) => {
                    "cancel_wait_timeout".into()
                }
                ClientPhase::Login(_)
                | ClientPhase::Idle
                | ClientPhase::Waiting(_)
                | ClientPhase::Preparing(_)
                | ClientPhase::Linked
                | ClientPhase::Failed(_)
                | ClientPhase::Canceling { .. } => continue,
            };
            expired.push((id, why));
        }
        expired
    }

    /// Returns the clients that have waited for a primary of their cluster for `failover_wait`.
    pub(super) fn without_primary(&mut self) -> Vec<(ClientId, OwnError<'static>)> {
        let now = self.now;
        let mut expired = Vec::new();
        for pool in self.pools.views.ids() {
            let settings = self.pools.settings(pool);
            let Some(cluster) = settings.cluster.clone() else { continue };
            let limit = settings.failover_wait;
            let Some(outage) = self.pools.exchange.pool(pool, |pool| {
                let is_shut = pool.gate() == Gate::NoPrimary;
                pool.outage.clone().filter(|outage| is_shut && !outage.is_ordered())
            }) else {
                continue;
            };
            let is_over = |client: &Client| {
                let waiter = client.wait().filter(|waiter| waiter.pool == pool);
                waiter.is_some_and(|waiter| over(limit, waiter.since.max(outage.since), now))
            };
            let text = format!("cluster {cluster} has no primary: {}", outage.why);
            let refuse = |id| (id, OwnError::new(Cause::NoPrimary, text.clone()));
            expired.extend(self.clients.ids_where(is_over).into_iter().map(refuse));
        }
        expired
    }

    /// Returns a sentence about the servers that the client `id` has waited for, and whether it is
    /// the first with this sentence in this tick.
    pub(super) fn wait_detail(
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
        let mut one = self.pools.one(pool);
        let detail = match one.describe_failure() {
            Some(text) => WaitDetail { text, is_unreachable: true },
            None => {
                let own = self.servers.iter().filter(|(_, server)| server.pool == pool);
                let holders = own.filter_map(|(_, server)| {
                    let holder = (*server.client)?;
                    Some(Holder::new(holder, self.clients.get(holder)?, server))
                });
                let (busy, limit) = one.lock(|pool| (pool.busy_servers(), pool.settings.size));
                let identity = &one.view.identity;
                let pool = BusyPool { busy, limit, identity, holders: holders.collect() };
                let address = |id| io.client_address(id);
                let text = waits::describe_holders(&pool, &key.1, io.now(), address);
                WaitDetail { text, is_unreachable: false }
            }
        };
        let detail = Arc::new(detail);
        details.insert(key, detail.clone());
        Some((detail, true))
    }

    /// Returns the clients of those meant that delay their own login. If there are none, those whose
    /// proofs must wait after earlier failures.
    pub(super) fn slow_logins(&self, is_meant: impl Fn(&Client) -> bool) -> Vec<ClientId> {
        let (mut slow, mut held) = (Vec::new(), Vec::new());
        for (id, client) in self.clients.iter() {
            let ClientPhase::Login(login) = &*client.phase else { continue };
            if !is_meant(client) {
                continue;
            }
            let since = client.times.connected_at().max(login.challenged_at);
            if login.peer.local
                || login.step.awaits() == Awaited::Answer
                || self.now.saturating_sub(since) < LOGIN_GRACE
            {
                continue;
            }
            let out = if login.held { &mut held } else { &mut slow };
            out.push(id);
        }
        if slow.is_empty() { held } else { slow }
    }

    /// Returns the clients whose proofs are delayed, with their serial numbers, the oldest first: the
    /// delay may be over.
    pub(super) fn held_proofs(&self) -> Vec<(u64, ClientId)> {
        let held = self.clients.iter().filter(|(_, client)| client.has_held_proof());
        let mut held: Vec<_> = held.map(|(id, client)| (client.serial, id)).collect();
        held.sort_unstable();
        held
    }

    /// Returns the idle clients that have held their servers longer than others may wait, and these
    /// servers.
    pub(super) fn holds(&self) -> Vec<(ClientId, ServerId)> {
        let clients = self.clients.iter();
        clients.filter_map(|(id, client)| Some((id, self.held_too_long(client)?))).collect()
    }

    /// Returns the server that the client has kept longer than others may wait, without using it.
    /// Only a server that it keeps for no other reason, or while its channels move to the listener.
    fn held_too_long(&self, client: &Client) -> Option<ServerId> {
        let on = client.server.filter(|_| matches!(*client.phase, ClientPhase::Linked))?;
        let server = self.servers.get(on)?;
        let only_held = server.pins().without(Pins::LISTEN) == Pins::DRAWN;
        if !only_held || !is_idle(client, server) {
            return None;
        }
        let patience =
            self.pools.views.get(server.pool)?.history.sequences.patience(&server.session.drawn);
        (self.now.saturating_sub(client.times.request_at()) > patience).then_some(on)
    }
}

/// Servers.
impl<X: Exchange> Overdue<'_, X> {
    /// Returns the servers that have exceeded a limit, or whose clients have.
    pub(super) fn servers(&self) -> Vec<(ServerId, CloseReason<'static>)> {
        let now = self.now;
        let mut expired = Vec::new();
        for (id, server) in self.servers.iter() {
            let settings = self.pools.settings(server.pool);
            let client = server.client.and_then(|id| self.clients.get(id));
            let why = match (&*server.phase, client) {
                (ServerPhase::Connecting(login), _)
                    if matches!(login.stage, LoginStage::AwaitsPassword(_)) =>
                {
                    let patience = login.issued.as_ref().map_or(0, |own| own.wanted.patience());
                    if !over(patience, server.times.connected_at(), now) {
                        continue;
                    }
                    CloseReason::NoPassword
                }
                // PgBouncer's texts: one for a network that does not answer, one for a server.
                (ServerPhase::Connecting(login), _)
                    if matches!(login.stage, LoginStage::Connecting)
                        && over(
                            settings.server_connect_timeout,
                            server.times.connected_at(),
                            now,
                        ) =>
                {
                    CloseReason::ConnectFailed
                }
                (ServerPhase::Connecting(_) | ServerPhase::Login(_), _)
                    if over(settings.server_connect_timeout, server.times.connected_at(), now) =>
                {
                    CloseReason::ConnectTimeout
                }
                (ServerPhase::Linked, Some(client)) => {
                    let busy = !server.ledger.owes_nothing();
                    let in_transaction = client.times.in_transaction();
                    // A replication stream has no end that could be late.
                    let limited = server.replication.is_none();
                    let asked_at = client.times.request_at().max(server.times.query_at());
                    if limited && busy && over(settings.query_timeout, asked_at, now) {
                        CloseReason::QueryTimeout
                    } else if !busy
                        && in_transaction
                        && over(settings.idle_transaction_timeout, server.times.replied_at(), now)
                    {
                        CloseReason::IdleTransactionTimeout
                    } else if limited
                        && client.times.in_transaction_over(settings.transaction_timeout, now)
                    {
                        CloseReason::TransactionTimeout
                    } else {
                        continue;
                    }
                }
                // The query may wait for a lock, as the client's own request would, and the
                // client's state is on this server only.
                (ServerPhase::Preparing(Preparation::Confirm), Some(_))
                    if !server.status.is_idle() || server.has_traces() =>
                {
                    if !over(settings.query_timeout, server.times.asked_at(), now) {
                        continue;
                    }
                    CloseReason::QueryTimeout
                }
                // A reply to Weir's own query is overdue.
                (
                    ServerPhase::Preparing(_)
                    | ServerPhase::Finishing
                    | ServerPhase::Settling(_)
                    | ServerPhase::Listening,
                    _,
                ) if !server.ledger.owes_nothing()
                    && over(settings.server_connect_timeout, server.times.asked_at(), now) =>
                {
                    CloseReason::CheckFailed
                }
                _ => continue,
            };
            expired.push((id, why));
        }
        expired
    }

    /// Returns the servers of this pool at silent nodes.
    pub(super) fn silent(&mut self, pool: PoolId) -> Vec<ServerId> {
        let Some(patience) = Patience::of(&mut self.pools.one(pool)) else { return Vec::new() };
        self.servers.ids_where(|server| {
            let client = server.client.and_then(|id| self.clients.get(id));
            server.pool == pool && patience.is_over(server, client, self.now)
        })
    }

    /// Returns the servers in use that are to be replaced and need not be waited for. These are
    /// replication servers, and with `server_fast_close` servers at rest within a session.
    pub(super) fn obsolete(&mut self) -> Vec<ServerId> {
        let fast = self.context.config.global.server_fast_close;
        let may_go = |server: &Server| {
            let at_rest = fast && server.is_clean();
            matches!(*server.phase, ServerPhase::Linked)
                && (at_rest || server.replication.is_some())
        };
        let mut obsolete = self.servers.ids_where(|server| may_go(server));
        obsolete.retain(|id| {
            let server = &*self.servers[*id];
            let is_old = |pool: &mut Pool<_>| {
                pool.epoch() != server.epoch || pool.passwords.replaces(server.password_number)
            };
            self.pools.exchange.pool(server.pool, is_old)
        });
        obsolete
    }
}
