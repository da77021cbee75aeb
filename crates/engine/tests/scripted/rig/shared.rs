//! The data that all workers share, without locks: the engines run in one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use engine::ids::{PoolId, WorkerId};
use engine::interner::Interner;
use engine::limits::Limits;
use engine::parse_context::ParseContext;
use engine::pool::Pool;
use engine::prepared::Statement;
use engine::routing::Place;
use engine::routing::rules::Routing;
use engine::settings::PoolKey;
use engine::shell::{Exchange, Mail};

use super::net::Transport;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) pools: Vec<Pool<Transport>>,
    /// One box for each worker.
    pub(crate) mail: Vec<VecDeque<Mail<Transport>>>,
    pub(crate) limits: Limits,
    pub(crate) interner: Interner,
    pub(crate) connections: u64,
    /// Chooses where a request goes, if requests are routed.
    pub(crate) router: Option<fn(&[u8]) -> Place>,
    /// The product's routing, if that decides instead.
    pub(crate) routing: Option<Arc<Routing>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Shared(Rc<RefCell<State>>);

impl Shared {
    pub(crate) fn new(workers: usize) -> Self {
        let mail = (0..workers).map(|_| VecDeque::new()).collect();
        Self(Rc::new(RefCell::new(State { mail, ..State::default() })))
    }

    pub(crate) fn state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

impl Exchange for Shared {
    type Transport = Transport;

    fn worker_count(&self) -> u16 {
        self.state(|state| state.mail.len() as u16)
    }

    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<Transport>) -> R) -> R {
        self.state(|state| f(&mut state.pools[id.0 as usize]))
    }

    fn find_pool(&mut self, key: &PoolKey, make: impl FnOnce(PoolId) -> Pool<Transport>) -> PoolId {
        self.state(|state| {
            if let Some(known) = state.pools.iter().find(|pool| pool.key == *key) {
                return known.id;
            }
            let id = PoolId(state.pools.len() as u32);
            let mut pool = make(id);
            let settings = Arc::get_mut(&mut pool.settings).expect("settings of this pool alone");
            if key.place == Place::Writer {
                let by_router = || state.router.map(|_| Arc::default());
                settings.routing = state.routing.clone().or_else(by_router);
            }
            state.pools.push(pool);
            id
        })
    }

    fn pool_ids(&mut self) -> Vec<PoolId> {
        self.state(|state| state.pools.iter().map(|pool| pool.id).collect())
    }

    fn post(&mut self, worker: WorkerId, mail: Mail<Transport>) {
        self.state(|state| state.mail[usize::from(worker.0)].push_back(mail));
    }

    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement> {
        self.state(|state| state.interner.intern(sql, types, context))
    }

    fn route(&mut self, _: PoolId, request: &[u8]) -> Option<Place> {
        self.state(|state| Some(state.router?(request)))
    }

    fn next_connection(&mut self) -> u64 {
        self.state(|state| {
            state.connections += 1;
            state.connections
        })
    }

    fn schema_changed(&mut self) {
        self.state(|state| state.interner.schema_changed());
    }

    fn schema(&mut self) -> u64 {
        self.state(|state| state.interner.schema())
    }

    fn is_outdated(&mut self, statement: &Statement) -> bool {
        self.state(|state| state.interner.is_outdated(statement))
    }

    fn limits<R>(&mut self, f: impl FnOnce(&mut Limits) -> R) -> R {
        self.state(|state| f(&mut state.limits))
    }
}
