//! A worker's views of the pools that it knows.

use crate::admission::view::PoolView;
use crate::ids::PoolId;

/// The views, indexed by pool: each transaction reads them several times.
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

    /// Returns the view of a pool; `make` creates it if the pool is new to this worker.
    #[inline]
    pub(crate) fn entry(&mut self, id: PoolId, make: impl FnOnce() -> PoolView) -> &mut PoolView {
        if self.get(id).is_none() {
            self.add(id, make());
        }
        self.get_mut(id).expect("added above")
    }

    #[cold]
    fn add(&mut self, id: PoolId, view: PoolView) {
        let at = id.0 as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, || None);
        }
        self.0[at] = Some(view);
    }

    /// Removes a pool's view, since its number may be used again.
    pub(crate) fn remove(&mut self, id: PoolId) {
        if let Some(view) = self.0.get_mut(id.0 as usize) {
            *view = None;
        }
        for (_, view) in self.iter_mut() {
            view.readers.retain(|(_, reader)| *reader != id);
        }
    }

    pub(crate) fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|(id, _)| id).collect()
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
