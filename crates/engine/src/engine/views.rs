//! What a worker keeps of each pool it has met, so that the ordinary transaction asks nobody.

use std::sync::Arc;

use crate::ids::{Identity, PoolId};
use crate::limits::Claim;
use crate::lore::Lore;
use crate::settings::PoolSettings;
use crate::stats::Stats;

#[derive(Debug)]
pub(super) struct PoolView {
    pub(super) settings: Arc<PoolSettings>,
    pub(super) identity: Arc<Identity>,
    pub(super) stats: Stats,
    /// In auto mode.
    pub(super) lore: Lore,
}

impl PoolView {
    pub(super) fn claim(&self, pool: PoolId) -> Claim {
        let PoolSettings { limits, weight, .. } = *self.settings;
        Claim { pool, identity: self.identity.clone(), limits, weight }
    }
}

/// Indexed by pool: looked into several times in each transaction.
#[derive(Debug, Default)]
pub(super) struct PoolViews(Vec<Option<PoolView>>);

impl PoolViews {
    #[inline]
    pub(super) fn get(&self, id: PoolId) -> Option<&PoolView> {
        self.0.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: PoolId) -> Option<&mut PoolView> {
        self.0.get_mut(id.0 as usize)?.as_mut()
    }

    /// The view of a pool, made by `make` when the pool is new to this worker.
    pub(super) fn entry(&mut self, id: PoolId, make: impl FnOnce() -> PoolView) -> &mut PoolView {
        let at = id.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at].get_or_insert_with(make)
    }

    /// The number may be another pool's later.
    pub(super) fn remove(&mut self, id: PoolId) {
        if let Some(view) = self.0.get_mut(id.0 as usize) {
            *view = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &PoolView)> {
        let known = self.0.iter().enumerate();
        known.filter_map(|(at, view)| Some((PoolId(at as u32), view.as_ref()?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PoolId, &mut PoolView)> {
        let known = self.0.iter_mut().enumerate();
        known.filter_map(|(at, view)| Some((PoolId(at as u32), view.as_mut()?)))
    }
}
