//! The data that all workers share. Here there is one worker.

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
use engine::settings::PoolKey;
use engine::shell::{Exchange, Mail};

/// The number of servers detached before. It identifies the socket of a server that is in no table.
pub(super) type Transport = u64;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pools: Vec<Pool<Transport>>,
    pub(super) mail: VecDeque<Mail<Transport>>,
    pub(super) limits: Limits,
    interner: Interner,
    connections: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Rc<RefCell<State>>);

impl Shared {
    pub(super) fn state<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

impl Exchange for Shared {
    type Transport = Transport;

    fn worker_count(&self) -> u16 {
        1
    }

    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<Transport>) -> R) -> R {
        self.state(|state| f(&mut state.pools[id.0 as usize]))
    }

    fn find_pool(&mut self, key: &PoolKey, make: impl FnOnce(PoolId) -> Pool<Transport>) -> PoolId {
        self.state(|state| {
            if let Some(known) = state.pools.iter().find(|pool| pool.key == *key) {
                return known.id;
            }
            let id = PoolId(u32::try_from(state.pools.len()).expect("few pools"));
            state.pools.push(make(id));
            id
        })
    }

    fn pool_ids(&mut self) -> Vec<PoolId> {
        self.state(|state| state.pools.iter().map(|pool| pool.id).collect())
    }

    fn post(&mut self, _: WorkerId, mail: Mail<Transport>) {
        self.state(|state| state.mail.push_back(mail));
    }

    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement> {
        self.state(|state| state.interner.intern(sql, types, context))
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
