//! The pools, as one worker sees them.

use std::sync::Arc;

use config::{AccessPolicy, Database, PoolMode};
use thin_vec::ThinVec;

use super::tables::Clients;
use super::views::PoolViews;
use super::work::Work;
use crate::admission::limits::Limits;
use crate::admission::one_pool::OnePool;
use crate::admission::pool::{Gate, Pool, role_changes};
use crate::admission::view::PoolView;
use crate::client::{Client, ClientPhase};
use crate::context::Context;
use crate::ids::{ClientId, Identity, Micros, NodeId, PoolId, WorkerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::question::Question;
use crate::login::server_secret::ServerSecret;
use crate::operator::stats::Stats;
use crate::own_error::{Cause, OwnError};
use crate::routing::Place;
use crate::routing::freshness::Need;
use crate::routing::rules::{Drawn, Routing};
use crate::routing::stays::share;
use crate::routing::why::Why;
use crate::server::Server;
use crate::session::text_history::TextHistory;
use crate::settings::{PoolKey, PoolSettings};
use crate::shell::{Drain, Event, Exchange, Io, Mail, Weight};

#[derive(Debug)]
pub(crate) struct Pools<X> {
    pub(crate) exchange: X,
    pub(crate) views: PoolViews,
    /// The key of the pool that was looked up last; kept for its memory.
    pub(crate) sought: PoolKey,
    /// A database made from `*` that has just got its first pool, until this is logged.
    pub(crate) new_autodb: Option<String>,
    /// Pools whose database has another `user=` since a reload.
    pub(crate) changed_user: Vec<PoolId>,
}

impl<X: Exchange> Pools<X> {
    pub(crate) fn new(exchange: X) -> Self {
        Self {
            exchange,
            views: PoolViews::default(),
            sought: PoolKey::default(),
            new_autodb: None,
            changed_user: Vec::new(),
        }
    }

    /// Panics if the worker does not know the pool. It knows those of its clients and servers.
    pub(crate) fn settings(&self, pool: PoolId) -> &Arc<PoolSettings> {
        let view = self.views.get(pool);
        &view.expect("a worker knows the pools of its clients and servers").settings
    }

    /// Returns this worker's view of a pool, and creates it for a new pool, for instance of a
    /// stolen server.
    pub(crate) fn view(&mut self, id: PoolId) -> &mut PoolView {
        view_of(&mut self.exchange, &mut self.views, id)
    }

    /// Returns the pool of a client or a server of this worker.
    #[inline]
    pub(crate) fn known(&mut self, id: PoolId) -> OnePool<'_, X> {
        let Self { exchange, views, .. } = self;
        let view = views.get_mut(id);
        let view = view.expect("a worker knows the pools of its clients and servers");
        OnePool { id, exchange, view }
    }

    /// Returns the mode in which a server is used.
    #[inline]
    pub(crate) fn mode_of(&self, server: &Server) -> PoolMode {
        server.mode_in(self.settings(server.pool).mode)
    }

    /// Closes all pools again: logging-in clients may have created one since the shutdown began.
    pub(crate) fn close_gates(&mut self) {
        for id in self.exchange.pool_ids() {
            let gate = Gate::Closed(CloseReason::ShuttingDown);
            self.exchange.pool(id, |pool| pool.set_gate(gate));
        }
    }

    /// Returns a pool that this worker may use.
    pub(crate) fn one(&mut self, id: PoolId) -> OnePool<'_, X> {
        let Self { exchange, views, .. } = self;
        let view = view_of(exchange, views, id);
        OnePool { id, exchange, view }
    }

    /// Returns the writer pool of this database and user, and creates it if needed.
    pub(crate) fn find(&mut self, context: &Context, database: &str, user: &str) -> Option<PoolId> {
        self.find_at(context, database, user, Place::Writer)
    }

    /// Does the same for any place.
    pub(crate) fn find_at(
        &mut self,
        context: &Context,
        database: &str,
        user: &str,
        place: Place,
    ) -> Option<PoolId> {
        let entry = context.config.database(database)?;
        let user = entry.user.as_deref().unwrap_or(user);
        // Each login looks its pool up. The key keeps its memory.
        let mut key = std::mem::take(&mut self.sought);
        entry.name.clone_into(&mut key.database);
        user.clone_into(&mut key.user);
        key.place = place;
        let id = self.of_key(context, &entry, &key);
        self.sought = key;
        Some(id)
    }

    /// Returns the pool with exactly this key, whatever user its clients have.
    pub(crate) fn of_key(&mut self, context: &Context, entry: &Database, key: &PoolKey) -> PoolId {
        let (config, workers) = (&context.config, self.exchange.worker_count());
        let closed = context.drain == Some(Drain::WaitForServers);
        let mut made = false;
        let id = self.exchange.find_pool(key, |id| {
            made = true;
            let settings = Arc::new(PoolSettings::of_key(config, entry, key));
            let mut pool = Pool::new(id, key.clone(), settings, workers);
            if closed {
                pool.set_gate(Gate::Closed(CloseReason::ShuttingDown));
            }
            pool
        });
        self.view(id);
        if made && !context.config.databases.contains_key(&entry.name) {
            self.new_autodb = Some(entry.name.clone());
        }
        id
    }

    /// Logs the first use of a database that was made from `*`.
    pub(crate) fn remark_autodb(&mut self, id: ClientId, pool: PoolId, io: &mut impl Io<X>) {
        let Some(database) = self.new_autodb.take() else { return };
        let mut others = self.exchange.pool_ids().into_iter().filter(|other| *other != pool);
        let of_it = |other: PoolId| self.exchange.pool(other, |pool| pool.key.database == database);
        if others.any(of_it) {
            return;
        }
        let message = format!("registered new auto-database: {database}");
        let (name, weight) = (("(nodb)", "(nouser)"), Weight::Log);
        io.event(Event::ClientRemark { client: id, name, weight, message: &message });
    }

    /// Copies the SCRAM keys of a user's verifier from a pool of another database.
    pub(crate) fn learn_from_others(&mut self, pool: PoolId) {
        let unknown = self.exchange.pool(pool, |pool| {
            let settings = &pool.settings;
            let is_verifier = matches!(settings.secret, Some(wire::Secret::Scram(_)));
            (is_verifier && pool.server_secret.is_none()).then(|| settings.secret.clone())
        });
        let Some(verifier) = unknown else { return };
        let found = self.exchange.pool_ids().into_iter().find_map(|other| {
            self.exchange.pool(other, |other| match &other.server_secret {
                Some(ServerSecret::Scram(keys)) if other.settings.secret == verifier => {
                    Some(keys.clone())
                }
                _ => None,
            })
        });
        if let Some(keys) = found {
            self.exchange.pool(pool, |pool| pool.learn_secret(ServerSecret::Scram(keys)));
        }
    }

    /// Returns the pool of the same database and user at another place.
    pub(crate) fn at(&mut self, context: &Context, writer: PoolId, place: Place) -> PoolId {
        // A server there would need a client's password, which is not kept.
        if context.config.access == AccessPolicy::ProvenByServer {
            return writer;
        }
        let view = self.view(writer);
        if let Some((_, known)) = view.readers.iter().find(|(of, _)| *of == place) {
            return *known;
        }
        let key = PoolKey {
            database: view.identity.database.clone(),
            user: view.identity.user.clone(),
            place,
        };
        let Some(entry) = context.config.database(&key.database) else { return writer };
        let reader = self.of_key(context, &entry, &key);
        self.teach_reader(writer, reader);
        self.view(writer).readers.push((place, reader));
        reader
    }

    /// Copies the writer's login secret and parameters to a new reader pool.
    fn teach_reader(&mut self, writer: PoolId, reader: PoolId) {
        let (welcome, secret, minor_version, may_ask_report) = self.exchange.pool(writer, |pool| {
            let secret = pool.server_secret.clone();
            (pool.welcome.clone(), secret, pool.minor_version, pool.may_ask_report)
        });
        self.exchange.pool(reader, |pool| {
            if pool.welcome.is_none() {
                (pool.welcome, pool.server_secret) = (welcome, secret);
                (pool.minor_version, pool.may_ask_report) = (minor_version, may_ask_report);
            }
        });
    }

    /// Returns the pool of a standby for a question of Weir's own, while the cluster of this writer
    /// has no primary.
    fn without_primary(&mut self, context: &Context, writer: PoolId) -> Option<PoolId> {
        let routing = self.views.get(writer)?.settings.routing.as_deref()?;
        let node = routing.readers.stand_in()?;
        Some(self.at(context, writer, Place::Reader(node)))
    }

    /// Returns the pool for a question about a user, in this database.
    pub(crate) fn for_question(
        &mut self,
        context: &Context,
        entry: &Database,
        question: &Question,
    ) -> Result<PoolId, OwnError<'static>> {
        let user = question.auth_user.clone();
        let key = PoolKey { database: entry.name.clone(), user, place: Place::Writer };
        let pool = self.of_key(context, entry, &key);
        if self.exchange.pool(pool, |pool| pool.disabled) {
            let why = format!("authentication database \"{}\" is disabled", question.shown);
            return Err(OwnError::new(Cause::DisabledDatabase, why));
        }
        Ok(self.without_primary(context, pool).unwrap_or(pool))
    }

    /// Returns the pool at a node, if this worker has used it.
    fn reader(&self, writer: PoolId, node: NodeId) -> Option<PoolId> {
        let readers = &self.views.get(writer)?.readers;
        let known = readers.iter().find(|(place, _)| *place == Place::Reader(node));
        known.map(|(_, pool)| *pool)
    }

    /// Returns the node that runs the read.
    pub(crate) fn pick(&mut self, writer: PoolId, drawn: Drawn) -> NodeId {
        match drawn {
            Drawn::One(node) => node,
            Drawn::Two(two) => self.less_busy(writer, two),
            Drawn::Move { from, to } => {
                let pool = self.reader(writer, to);
                match pool.is_some_and(|pool| self.exchange.pool(pool, |pool| pool.is_used_up())) {
                    true => from,
                    false => to,
                }
            }
        }
    }

    /// Returns the less busy one of two nodes, by their weights.
    fn less_busy(&mut self, writer: PoolId, two: [NodeId; 2]) -> NodeId {
        let [first, second] = two.map(|node| {
            let pool = self.reader(writer, node);
            let load = pool.map_or(0, |pool| self.exchange.pool(pool, |pool| pool.load()));
            let view = self.views.get(writer);
            let routing = view.and_then(|view| view.settings.routing.as_deref());
            let weight = routing.and_then(|own| own.readers.get(node)).map_or(1, |own| own.weight);
            share(load, weight)
        });
        if second < first { two[1] } else { two[0] }
    }

    /// Returns another standby that may run a read with this need, and its pool, if a server is free
    /// there. The read would wait in `full`. Without such a standby, the writer runs it.
    #[cold]
    pub(crate) fn elsewhere(
        &mut self,
        context: &Context,
        writer: PoolId,
        full: PoolId,
        need: Need,
        now: Micros,
    ) -> Option<(NodeId, PoolId)> {
        let Place::Reader(node) = self.view(full).place else { return None };
        let others: Vec<_> = self.routing(Some(writer))?.others(node, need, now).collect();
        for other in others {
            let pool = self.at(context, writer, Place::Reader(other));
            if pool != writer && !self.exchange.pool(pool, |pool| pool.is_used_up()) {
                return Some((other, pool));
            }
        }
        self.routing(Some(writer))?.counts.add(Why::Full);
        None
    }

    /// Returns when the role of this reader's pool last changed, if its node has the change;
    /// otherwise 0. `writer` is the pool of the client.
    pub(crate) fn role_change_at(&mut self, writer: Option<PoolId>, reader: PoolId) -> Micros {
        let place = self.view(reader).place;
        match (self.routing(writer), place) {
            (Some(routing), Place::Reader(node)) => routing.role_change_at(node),
            (Some(_) | None, _) => 0,
        }
    }

    /// Counts a login that has succeeded or failed, so another server may be opened. The caller
    /// must call `Seats::feed` afterwards.
    pub(crate) fn opening_ended(&mut self) {
        self.exchange.limits(Limits::opening_ended);
    }

    /// Is this the pool of a reader?
    pub(crate) fn is_reader(&self, pool: PoolId) -> bool {
        self.views.get(pool).is_some_and(|view| view.place != Place::Writer)
    }

    /// Returns the routing of a client's pool.
    pub(crate) fn routing(&self, pool: Option<PoolId>) -> Option<&Routing> {
        self.views.get(pool?)?.settings.routing.as_deref()
    }

    /// Is a request of this pool's client read before the client is linked?
    #[inline]
    pub(crate) fn routes(&self, pool: Option<PoolId>) -> bool {
        pool.and_then(|pool| self.views.get(pool))
            .is_some_and(|view| view.settings.routing.is_some())
    }

    /// Would this server run the client's statements as another role than it has logged in as?
    #[inline]
    pub(crate) fn has_another_role(&mut self, client: &Client, server: &Server) -> bool {
        let now = match client.pool.id() {
            Some(pool) if pool != server.pool => self.one(pool).role_changes(),
            Some(_) | None => role_changes(server.epoch),
        };
        client.pool.has_another_role(now) && client.is_welcomed()
    }

    /// Creates the pools of databases with `user=`, which are filled up to `min_pool_size` before
    /// their first client comes.
    pub(crate) fn make_warm(&mut self, context: &Context) {
        let config = &context.config;
        for database in config.databases.values() {
            if let (Some(user), 1..) = (&database.user, config.min_pool_size(database)) {
                self.find(context, &database.name, user);
            }
        }
    }

    /// All servers of the pool are being replaced. Doubts the servers of the same user in other pools.
    /// Returns the pools that have changed, for [`Self::review_everywhere`].
    pub(crate) fn principal_changed(&mut self, pool: PoolId, io: &mut impl Io<X>) -> Vec<PoolId> {
        let now = io.now();
        let identity = self.view(pool).identity.clone();
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::PrincipalChanged { name });
        let is_writer = self.view(pool).place == Place::Writer;
        if let Some(routing) = &self.view(pool).settings.routing {
            // The change may be younger than this worker's `now`.
            routing.note_role_change(io.clock());
        }
        let mut changed = vec![pool];
        for other in self.exchange.pool_ids() {
            let is_reader = self.exchange.pool(other, |other| {
                if other.id == pool || other.key.user != identity.user {
                    return false;
                }
                other.owe_check(now);
                // A standby may not have the change yet. It is not used before it has, and its servers
                // are then replaced once more (`Pool::keep_up`).
                let follows = is_writer && other.key.database == identity.database;
                if follows {
                    other.follow_role(false);
                }
                follows
            });
            changed.extend(is_reader.then_some(other));
        }
        changed
    }

    /// Returns the clients to be disconnected if the role of the pool's servers has changed: those that
    /// have logged in as another role. A client in a transaction keeps its server until the end. A
    /// client whose login waits for a server gets one of the new role.
    pub(crate) fn role_changed(
        &mut self,
        pool: PoolId,
        clients: &Clients,
    ) -> Option<Vec<ClientId>> {
        let changes = self.exchange.pool(pool, |pool| pool.role_changes());
        if std::mem::replace(&mut self.view(pool).role_changes, changes) == changes {
            return None;
        }
        Some(clients.ids_where(|client| {
            client.pool.is(pool)
                && client.pool.has_another_role(changes)
                && client.is_welcomed()
                && matches!(*client.phase, ClientPhase::Idle | ClientPhase::Waiting(_))
        }))
    }

    /// Has all workers apply what has changed in the pool. This one does it with the returned work.
    pub(crate) fn review_everywhere(&mut self, pool: PoolId, worker: WorkerId) -> Work {
        self.exchange.post_to_others(worker, || Mail::Review { pool });
        Work::Review(pool)
    }

    /// Forgets a server that another process owns now.
    pub(crate) fn forget_server(&mut self, server: &Server, now: Micros) {
        self.exchange.pool(server.pool, |pool| pool.server_gone(server.epoch));
        self.one(server.pool).vacate(now);
    }
}

fn view_of<'a, X: Exchange>(
    exchange: &mut X,
    views: &'a mut PoolViews,
    id: PoolId,
) -> &'a mut PoolView {
    views.entry(id, || {
        exchange.pool(id, |pool| PoolView {
            settings: pool.settings.clone(),
            identity: Arc::new(Identity {
                database: pool.key.database.clone(),
                user: pool.key.user.clone(),
            }),
            place: pool.key.place,
            readers: ThinVec::new(),
            stats: Stats::default(),
            durations: Box::default(),
            history: TextHistory::default(),
            has_bad_reports: false,
            role_changes: pool.role_changes(),
            takes_seat: false,
        })
    })
}
