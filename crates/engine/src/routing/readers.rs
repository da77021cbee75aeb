//! The nodes of a cluster as all workers read them. The cold side writes its samples here. Each
//! value is read by itself, so no lock is needed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::{Micros, NodeId};

/// All nodes of a cluster, by their number in the configuration.
#[derive(Debug, Default)]
pub struct Readers {
    nodes: Box<[Reader]>,
    /// When a transaction that may have written last ended; 0 = never.
    wrote_at: AtomicU64,
}

/// One node.
#[derive(Debug)]
pub struct Reader {
    pub name: Box<str>,
    /// Its share of the reads; 0 = none.
    pub weight: u32,
    /// See [`PrimaryLog::fresh_as_of`](super::freshness::PrimaryLog::fresh_as_of); 0 = never.
    fresh_as_of: AtomicU64,
    lag_bytes: AtomicU64,
}

impl Readers {
    /// Returns nodes that may not be read yet.
    pub fn new(nodes: impl IntoIterator<Item = (String, u32)>) -> Self {
        let reader = |(name, weight): (String, u32)| Reader {
            name: name.into(),
            weight,
            fresh_as_of: AtomicU64::new(0),
            lag_bytes: AtomicU64::new(0),
        };
        Self { nodes: nodes.into_iter().map(reader).collect(), wrote_at: AtomicU64::new(0) }
    }

    /// Returns the nodes of a configured cluster. They may not be read yet.
    pub fn of(cluster: &config::Cluster) -> Self {
        Self::new(cluster.nodes.iter().map(|node| (node.name.clone(), node.weight.into())))
    }

    pub fn all(&self) -> impl Iterator<Item = (NodeId, &Reader)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at as u16), node))
    }

    pub fn get(&self, node: NodeId) -> Option<&Reader> {
        self.nodes.get(usize::from(node.0))
    }

    /// Returns the node of this name.
    pub fn named(&self, name: &[u8]) -> Option<NodeId> {
        self.all().find(|(_, node)| node.name.as_bytes() == name).map(|(id, _)| id)
    }

    /// Allows no more reads, because another description of the nodes replaces this one.
    pub fn retire(&self) {
        self.nodes.iter().for_each(|reader| reader.set(None, 0));
    }

    pub fn note_write(&self, now: Micros) {
        self.wrote_at.fetch_max(now, Ordering::Relaxed);
    }

    /// Returns when a transaction that may have written last ended; 0 = never.
    pub fn wrote_at(&self) -> Micros {
        self.wrote_at.load(Ordering::Relaxed)
    }
}

impl Reader {
    /// Stores a sample. None: the node may not be read.
    pub fn set(&self, fresh_as_of: Option<Micros>, lag_bytes: u64) {
        self.lag_bytes.store(lag_bytes, Ordering::Relaxed);
        self.fresh_as_of.store(fresh_as_of.unwrap_or(0), Ordering::Release);
    }

    /// Returns the moment before which all commits are there. None: the node may not be read.
    pub fn fresh_as_of(&self) -> Option<Micros> {
        let moment = self.fresh_as_of.load(Ordering::Acquire);
        (moment != 0).then_some(moment)
    }

    /// Returns how many bytes of the log it has not replayed, as of the last sample.
    pub fn lag_bytes(&self) -> u64 {
        self.lag_bytes.load(Ordering::Relaxed)
    }
}
