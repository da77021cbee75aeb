//! The pools, each under its own lock, the counts of the limits under another lock, and the mail
//! between workers. The engine's `Pool` and `Limits` make all decisions; this file only gives
//! access to them.
//!
//! A worker keeps its own list of known pools, so an ordinary transaction takes only the pool's own
//! lock.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use config::Config;
use engine::{
    client::Identity,
    ids::{PoolId, WorkerId},
    interner::Interner,
    limits::Limits,
    parse_context::{ParseContext, is_of_its_moment},
    pool::{Gate, Pool},
    prepared::Statement,
    records::{Numbering, StatementRecord},
    server::CloseReason,
    settings::{PoolKey, settings_for},
    shell::{Exchange, Mail},
    switches::Switches,
};

use super::{
    mailbox::{Mailbox, Wake},
    sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, RwLock},
};

/// Pools by number; None where a number is unused.
pub(crate) type Slots<T> = Vec<Option<Arc<Mutex<Pool<T>>>>>;

/// The pools and the mailboxes. `M` is the mail, `W` wakes the owner of a mailbox, `T` is the
/// transport of a parked server.
#[derive(Debug)]
pub(crate) struct Hub<M, W, T> {
    pools: RwLock<Slots<T>>,
    registry: Mutex<Registry>,
    interner: Mutex<Interner>,
    /// A copy of [`Interner::schema`] that is read without the lock.
    schema: AtomicU64,
    limits: Mutex<Limits>,
    /// The number of connections so far.
    connections: AtomicU64,
    mailboxes: Vec<Mailbox<M, W>>,
}

/// The names of the pools, and the state common to all. A pool that is created during an operator's
/// order gets the order from here.
#[derive(Debug, Default)]
struct Registry {
    by_key: HashMap<PoolKey, PoolId, RandomState>,
    /// Unused numbers of former pools.
    vacant: Vec<PoolId>,
    /// Pools that were looked up since the last check.
    looked_up: HashSet<PoolId>,
    switches: Switches,
    /// The configuration of the last reload. Before the first one, the workers' own is right.
    config: Option<Arc<Config>>,
}

impl Registry {
    fn configure<T>(&self, pool: &mut Pool<T>) {
        let exists = match &self.config {
            None => true,
            Some(config) => {
                let settings = settings_for(config, &pool.key);
                let exists = settings.is_some();
                // A pool whose database was removed keeps its settings, for its remaining clients.
                if let Some(settings) = settings {
                    pool.set_settings(self.switches.aimed(settings, pool.key.place));
                }
                exists
            }
        };
        self.switches.apply(pool, exists);
    }
}

impl<M, W: Wake, T> Hub<M, W, T> {
    /// See [`Interner::forget_unused`].
    pub(crate) fn forget_unused_statements(&self) {
        lock(&self.interner).forget_unused();
    }

    /// Returns the number of different statements, and their memory in bytes.
    pub(crate) fn statement_memory(&self) -> (usize, usize) {
        lock(&self.interner).memory()
    }

    /// Returns a hub with one mailbox per waker.
    pub(crate) fn new(wakers: impl IntoIterator<Item = W>) -> Self {
        Self {
            pools: RwLock::new(Vec::new()),
            registry: Mutex::default(),
            interner: Mutex::new(Interner::default()),
            schema: AtomicU64::default(),
            limits: Mutex::new(Limits::default()),
            connections: AtomicU64::default(),
            mailboxes: wakers.into_iter().map(Mailbox::new).collect(),
        }
    }

    pub(crate) fn worker_count(&self) -> u16 {
        self.mailboxes.len() as u16
    }

    pub(crate) fn mailbox(&self, worker: WorkerId) -> &Mailbox<M, W> {
        &self.mailboxes[usize::from(worker.0)]
    }

    pub(crate) fn mailboxes(&self) -> &[Mailbox<M, W>] {
        &self.mailboxes
    }

    /// Returns all present pools.
    pub(crate) fn pools(&self) -> Vec<Arc<Mutex<Pool<T>>>> {
        self.slots().into_iter().flatten().collect()
    }

    pub(crate) fn slots(&self) -> Slots<T> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn find(&self, key: &PoolKey, make: impl FnOnce(PoolId) -> Pool<T>) -> PoolId {
        let mut registry = lock(&self.registry);
        if let Some(id) = registry.by_key.get(key).copied() {
            registry.looked_up.insert(id);
            return id;
        }
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let id = registry.vacant.pop().unwrap_or_else(|| {
            pools.push(None);
            PoolId(pools.len() as u32 - 1)
        });
        let mut pool = make(id);
        registry.configure(&mut pool);
        pools[id.0 as usize] = Some(Arc::new(Mutex::new(pool)));
        registry.by_key.insert(key.clone(), id);
        registry.looked_up.insert(id);
        id
    }

    /// Returns the pools that were looked up by name since the last call.
    pub(crate) fn take_lookups(&self) -> HashSet<PoolId> {
        std::mem::take(&mut lock(&self.registry).looked_up)
    }

    /// Removes the names of those pools that are unused and were not looked up since
    /// [`Hub::take_lookups`]. Returns these pools.
    pub(crate) fn unname(&self, ids: &[PoolId]) -> Vec<PoolId> {
        let mut registry = lock(&self.registry);
        let slots = self.slots();
        let goes = |id: &PoolId| {
            let Some(pool) = slots.get(id.0 as usize).and_then(Option::as_ref) else {
                return false;
            };
            let mut pool = lock(pool);
            let is_free = pool.is_unused() && !registry.looked_up.contains(id);
            let goes = is_free && registry.by_key.remove(&pool.key).is_some();
            if goes {
                // A worker that has not been told yet could park a server there.
                pool.set_gate(Gate::Closed(CloseReason::DatabaseRemoved));
            }
            goes
        };
        let gone: Vec<_> = ids.iter().copied().filter(goes).collect();
        drop(registry);
        let mut limits = lock(&self.limits);
        gone.iter().for_each(|id| limits.forget_pool(*id));
        gone
    }

    /// Removes these pools, which no worker knows any more.
    pub(crate) fn clear(&self, ids: &[PoolId]) {
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        ids.iter().for_each(|id| pools[id.0 as usize] = None);
    }

    /// Frees the numbers of these pools, which no worker accesses any more.
    pub(crate) fn reuse(&self, ids: &[PoolId]) {
        lock(&self.registry).vacant.extend_from_slice(ids);
    }

    pub(crate) fn numbering(&self) -> Numbering {
        lock(&self.interner).numbering()
    }

    /// See [`Interner::resume`].
    pub(crate) fn resume_numbering(&self, numbering: Numbering) {
        let mut interner = lock(&self.interner);
        interner.resume(numbering);
        self.schema.store(interner.schema(), Ordering::Release);
    }

    /// Counts another client that no worker has.
    pub(crate) fn client_came(&self, identity: &Identity) {
        lock(&self.limits).client_came(identity);
    }

    /// Counts a client less that no worker has.
    pub(crate) fn client_left(&self, identity: &Identity) {
        lock(&self.limits).client_left(identity);
    }

    /// Returns the number of connections so far, including those before an online restart.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Makes later connections have higher numbers.
    pub(crate) fn resume_connections(&self, count: u64) {
        self.connections.fetch_max(count, Ordering::Relaxed);
    }

    /// See [`Interner::number_from`].
    pub(crate) fn number_from(&self, last_id: u64) {
        lock(&self.interner).number_from(last_id);
    }

    /// See [`Interner::join_schema`].
    pub(crate) fn join_schema(&self, base: u64, theirs: u64) {
        let mut interner = lock(&self.interner);
        interner.join_schema(base, theirs);
        self.schema.store(interner.schema(), Ordering::Release);
    }

    /// Restores a statement of another process, see [`Interner::restore`].
    pub(crate) fn restore(&self, one: &StatementRecord) -> Arc<Statement> {
        lock(&self.interner).restore(one)
    }

    /// Returns the number of schema changes so far.
    pub(crate) fn schema(&self) -> u64 {
        self.schema.load(Ordering::Acquire)
    }

    /// Returns the operator's switches, such as paused and disabled databases.
    pub(crate) fn switches(&self) -> Switches {
        lock(&self.registry).switches.clone()
    }

    /// Changes the switches, and tells all pools. An error changes nothing.
    pub(crate) fn switch<E>(
        &self,
        change: impl FnOnce(&mut Switches) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut registry = lock(&self.registry);
        change(&mut registry.switches)?;
        self.settle_all(&registry);
        Ok(())
    }

    /// Closes all pools, because Weir is shutting down.
    pub(crate) fn close(&self) {
        let mut registry = lock(&self.registry);
        registry.switches.closed = true;
        self.settle_all(&registry);
    }

    /// Applies a new configuration, which replaces `before`.
    pub(crate) fn set_config(&self, before: &Config, config: Arc<Config>) {
        let mut registry = lock(&self.registry);
        registry.switches.follow_config(before, &config);
        registry.config = Some(config);
        self.settle_all(&registry);
    }

    fn settle_all(&self, registry: &Registry) {
        for pool in self.pools() {
            let mut pool = lock(&pool);
            // A pool that was removed stays as it is.
            if registry.by_key.get(&pool.key) == Some(&pool.id) {
                registry.configure(&mut pool);
            }
        }
    }
}

/// Takes a lock. A panic of its holder ends the process, so its content is never inconsistent.
// Inlined: each transaction takes its pool's lock twice.
#[inline(always)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One worker's access to the hub.
#[derive(Debug)]
pub(crate) struct WorkerExchange<M, W, T> {
    hub: Arc<Hub<M, W, T>>,
    /// The pools, as of the last time that one was missing.
    known: Slots<T>,
}

impl<M, W: Wake, T> WorkerExchange<M, W, T> {
    pub(crate) fn new(hub: Arc<Hub<M, W, T>>) -> Self {
        Self { hub, known: Vec::new() }
    }
}

impl<M: From<Mail<T>>, W: Wake, T> Exchange for WorkerExchange<M, W, T> {
    type Transport = T;

    fn worker_count(&self) -> u16 {
        self.hub.worker_count()
    }

    // Called twice per transaction. Whether the compiler inlined it by itself was chance, and a
    // call costs 1 % of a transaction.
    #[inline(always)]
    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<T>) -> R) -> R {
        let at = id.0 as usize;
        if !matches!(self.known.get(at), Some(Some(_))) {
            self.known = self.hub.slots();
        }
        let pool = self.known[at].as_ref();
        f(&mut lock(pool.expect("a pool is forgotten only when no worker has its number")))
    }

    fn find_pool(&mut self, key: &PoolKey, make: impl FnOnce(PoolId) -> Pool<T>) -> PoolId {
        self.hub.find(key, make)
    }

    fn pool_ids(&mut self) -> Vec<PoolId> {
        self.known = self.hub.slots();
        let all = self.known.iter().enumerate();
        all.filter_map(|(at, pool)| pool.as_ref().map(|_| PoolId(at as u32))).collect()
    }

    fn pools_forgotten(&mut self) {
        self.known.clear();
    }

    fn post(&mut self, worker: WorkerId, mail: Mail<T>) {
        self.hub.mailbox(worker).post(mail.into());
    }

    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement> {
        let interner = &self.hub.interner;
        let known = lock(interner).find(sql, types, context);
        known.unwrap_or_else(|| {
            // A long text is examined before the lock is taken.
            let is_of_its_moment = is_of_its_moment(sql);
            lock(interner).add(sql, types, context, is_of_its_moment)
        })
    }

    fn schema_changed(&mut self) {
        let mut interner = lock(&self.hub.interner);
        interner.schema_changed();
        self.hub.schema.store(interner.schema(), Ordering::Release);
    }

    fn schema(&mut self) -> u64 {
        self.hub.schema.load(Ordering::Acquire)
    }

    fn is_outdated(&mut self, statement: &Statement) -> bool {
        lock(&self.hub.interner).is_outdated(statement)
    }

    fn next_connection(&mut self) -> u64 {
        self.hub.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn limits<R>(&mut self, f: impl FnOnce(&mut Limits) -> R) -> R {
        f(&mut lock(&self.hub.limits))
    }
}
