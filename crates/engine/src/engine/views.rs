//! What a worker keeps of each pool it has met, so that the ordinary transaction asks nobody.

use std::sync::Arc;

use crate::admission::limits::Claim;
use crate::ids::{Identity, PoolId};
use crate::operator::stats::Stats;
use crate::session::text_history::TextHistory;
use crate::settings::PoolSettings;

#[derive(Debug)]
pub(crate) struct PoolView {
    pub(crate) settings: Arc<PoolSettings>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) stats: Stats,
    /// In auto mode.
    pub(crate) history: TextHistory,
}

impl PoolView {
    pub(crate) fn claim(&self, pool: PoolId) -> Claim {
        let PoolSettings { limits, weight, .. } = *self.settings;
        Claim { pool, identity: self.identity.clone(), limits, weight }
    }
}

/// Indexed by pool: looked into several times in each transaction.
#[derive(Debug, Default)]
pub(crate) struct PoolViews(Vec<Option<PoolView>>);

impl PoolViews {
    #[inline]
    pub(crate) fn get(&self, id: PoolId) -> Option<&PoolView> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: PoolId) -> Option<&mut PoolView> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    /// The view of a pool, made by `make` when the pool is new to this worker.
    pub(crate) fn entry(&mut self, id: PoolId, make: impl FnOnce() -> PoolView) -> &mut PoolView {
        let at = id.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_with(make)
    }

    /// The number may be another pool's later.
    pub(crate) fn remove(&mut self, id: PoolId) {
        if let Some(view) = self.0.get_mut(id.0 as usize) {
            *view = None;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PoolId, &PoolView)> {
        let known = self.0.iter().enumerate();
        known.filter_map(|(at, view)| Some((PoolId(at as u32), view.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PoolId, &mut PoolView)> {
        let known = self.0.iter_mut().enumerate();
        known.filter_map(|(at, view)| Some((PoolId(at as u32), view.as_mut()?)))
    }
}
