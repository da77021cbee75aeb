//! The data that the workers share, without threads: pools in cells, and mail with delays.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use engine::ids::{Micros, PoolId, WorkerId};
use engine::interner::Interner;
use engine::limits::{Limits, OPENINGS_MAX};
use engine::parse_context::ParseContext;
use engine::pool::Pool;
use engine::prepared::Statement;
use engine::records::WorkerRecords;
use engine::routing::Place;
use engine::settings::{PoolKey, PoolSettings};
use engine::shell::{Exchange, Mail};
use engine::switches::Switches;

use crate::rng::Rng;
use crate::router::{Routed, adapt, place};
use crate::sabotage::Sabotage;

/// A server's number in the net.
pub(crate) type Transport = usize;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) now: Micros,
    pub(crate) pools: Vec<Pool<Transport>>,
    by_key: HashMap<PoolKey, PoolId>,
    pub(crate) switches: Switches,
    interner: Interner,
    connections: u64,
    pub(crate) limits: Limits,
    /// For each worker, in order. The time says from when on it may be delivered.
    pub(crate) mail: Vec<VecDeque<(Micros, Mail<Transport>)>>,
    rng: Rng,
    sabotage: Option<Sabotage>,
    last_statement: Option<Arc<Statement>>,
    /// Are requests of idle clients read before a pool is chosen?
    pub(crate) routed: Option<Routed>,
    /// Do clients keep their connections when a server is lost?
    pub(crate) keeps_clients: bool,
}

/// The properties of all pools of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    routed: bool,
    keeps_clients: bool,
}

impl Manner {
    /// Adapts a pool's settings that nobody else has yet.
    pub(crate) fn adapt(self, settings: &mut Arc<PoolSettings>, key: &PoolKey) {
        if self.routed {
            adapt(settings, key);
        }
        let settings = Arc::get_mut(settings).expect("settings that nobody else has yet");
        settings.keeps_clients = self.keeps_clients;
    }
}

impl Shared {
    pub(crate) fn new(workers: u16, mut rng: Rng, sabotage: Option<Sabotage>) -> Self {
        let mut limits = Limits::default();
        limits.openings_max = rng.pick(&[1, 2, OPENINGS_MAX]);
        Self {
            now: 0,
            pools: Vec::new(),
            by_key: HashMap::new(),
            switches: Switches::default(),
            interner: Interner::default(),
            connections: 0,
            limits,
            mail: (0..workers).map(|_| VecDeque::new()).collect(),
            rng,
            sabotage,
            last_statement: None,
            routed: None,
            keeps_clients: false,
        }
    }

    /// The numbers of statements and connections given out so far.
    pub(crate) fn numbering(&self) -> (engine::records::Numbering, u64) {
        (self.interner.numbering(), self.connections)
    }

    /// The shared data of another process, which continues with these numbers.
    pub(crate) fn successor(
        &mut self,
        statements: engine::records::Numbering,
        connections: u64,
    ) -> Self {
        let workers = self.mail.len() as u16;
        let mut new = Self::new(workers, Rng::new(self.rng.next()), self.sabotage);
        (new.now, new.routed) = (self.now, self.routed);
        new.keeps_clients = self.keeps_clients;
        new.interner.resume(statements);
        new.connections = connections;
        new
    }

    /// The statements of a worker's records, by their numbers.
    pub(crate) fn restore(&mut self, records: &WorkerRecords) -> HashMap<u64, Arc<Statement>> {
        let all = records.statements.iter();
        all.map(|one| (one.id, self.interner.restore(one))).collect()
    }

    /// Does the sabotage happen now?
    fn harms(&mut self, with: Sabotage, once_in: usize) -> bool {
        self.sabotage == Some(with) && self.rng.once_in(once_in)
    }

    /// Changes the switches, and tells all pools.
    pub(crate) fn switch(&mut self, change: impl FnOnce(&mut Switches)) {
        change(&mut self.switches);
        self.pools.iter_mut().for_each(|pool| self.switches.apply(pool, true));
    }

    /// The number of server connections in the pools.
    pub(crate) fn servers(&self) -> usize {
        self.pools.iter().map(|pool| pool.counts().0 as usize).sum()
    }

    /// Returns the properties of all pools of this run.
    pub(crate) fn manner(&self) -> Manner {
        Manner { routed: self.routed.is_some(), keeps_clients: self.keeps_clients }
    }

    /// Is a server on its way to this waiter?
    pub(crate) fn is_on_its_way(&self, worker: usize, client: u32) -> bool {
        self.mail[worker].iter().any(
            |(_, mail)| matches!(mail, Mail::Server { waiter, .. } if waiter.client.0 == client),
        )
    }
}

/// One worker's access to it.
#[derive(Clone, Debug)]
pub(crate) struct SimExchange(pub(crate) Rc<RefCell<Shared>>);

impl Exchange for SimExchange {
    type Transport = Transport;

    fn worker_count(&self) -> u16 {
        self.0.borrow().mail.len() as u16
    }

    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<Transport>) -> R) -> R {
        let shared = &mut *self.0.borrow_mut();
        let forgets = shared.harms(Sabotage::ForgetWaiter, 40);
        let pool = &mut shared.pools[id.0 as usize];
        let result = f(pool);
        if forgets {
            for worker in 0..shared.mail.len() as u16 {
                if let Some(waiter) = pool.oldest_waiter(WorkerId(worker)) {
                    pool.forget(WorkerId(worker), waiter.ticket);
                }
            }
        }
        pool.check_invariants();
        result
    }

    fn find_pool(&mut self, key: &PoolKey, make: impl FnOnce(PoolId) -> Pool<Transport>) -> PoolId {
        let shared = &mut *self.0.borrow_mut();
        let manner = shared.manner();
        *shared.by_key.entry(key.clone()).or_insert_with(|| {
            let id = PoolId(shared.pools.len() as u32);
            let mut pool = make(id);
            manner.adapt(&mut pool.settings, key);
            shared.switches.apply(&mut pool, true);
            shared.pools.push(pool);
            id
        })
    }

    fn pool_ids(&mut self) -> Vec<PoolId> {
        (0..self.0.borrow().pools.len() as u32).map(PoolId).collect()
    }

    fn post(&mut self, worker: WorkerId, mail: Mail<Transport>) {
        let shared = &mut *self.0.borrow_mut();
        if shared.harms(Sabotage::LoseMail, 4) {
            return;
        }
        let due = shared.now + shared.rng.below(400) as Micros;
        shared.mail[usize::from(worker.0)].push_back((due, mail));
    }

    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement> {
        let shared = &mut *self.0.borrow_mut();
        let mut statement = shared.interner.intern(sql, types, context);
        if shared.harms(Sabotage::SwapStatement, 20)
            && let Some(other) = shared.last_statement.clone()
        {
            statement = other;
        }
        shared.last_statement = Some(statement.clone());
        statement
    }

    fn route(&mut self, _: PoolId, request: &[u8]) -> Option<Place> {
        let routed = self.0.borrow().routed;
        routed.map(|routed| place(request, routed))
    }

    fn next_connection(&mut self) -> u64 {
        let shared = &mut *self.0.borrow_mut();
        shared.connections += 1;
        shared.connections
    }

    fn schema_changed(&mut self) {
        self.0.borrow_mut().interner.schema_changed();
    }

    fn schema(&mut self) -> u64 {
        self.0.borrow_mut().interner.schema()
    }

    fn is_outdated(&mut self, statement: &Statement) -> bool {
        self.0.borrow_mut().interner.is_outdated(statement)
    }

    fn limits<R>(&mut self, f: impl FnOnce(&mut Limits) -> R) -> R {
        f(&mut self.0.borrow_mut().limits)
    }
}
