//! The pools, as one worker sees them.

use std::sync::Arc;

use thin_vec::ThinVec;

use super::views::PoolViews;
use crate::admission::view::PoolView;
use crate::ids::{Identity, PoolId};
use crate::operator::stats::Stats;
use crate::session::text_history::TextHistory;
use crate::settings::{PoolKey, PoolSettings};
use crate::shell::Exchange;

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
        let exchange = &mut self.exchange;
        self.views.entry(id, || {
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
            })
        })
    }
}
