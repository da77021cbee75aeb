//! The nodes of a cluster as all workers read them. The cold side writes its samples here. Each
//! value is read by itself, so no lock is needed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::ids::{Micros, NodeId};
use crate::routing::freshness::Position;

/// All nodes of a cluster, by their number in the configuration.
#[derive(Debug, Default)]
pub struct Readers {
    nodes: Box<[Reader]>,
    /// The latest moment as of which some read needs a fresh standby, for example because a
    /// transaction that may have written has ended then; 0 = never.
    wanted_as_of: AtomicU64,
    /// Do reads wait for a fresher standby?
    are_awaited: AtomicBool,
    /// The cluster has no primary. Its standbys are those of the last one.
    are_orphaned: AtomicBool,
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
    /// See [`PrimaryLog::reached`](super::freshness::PrimaryLog::reached).
    reached: AtomicU64,
    /// See [`Reader::life`].
    life: AtomicU64,
    /// Sessions of all pools that stay with it.
    pub(super) sessions: AtomicU32,
}

fn next_life() -> u64 {
    static LIVES: AtomicU64 = AtomicU64::new(0);
    LIVES.fetch_add(1, Ordering::Relaxed)
}

impl Readers {
    /// Returns nodes that may not be read yet.
    pub fn new(nodes: impl IntoIterator<Item = (String, u32)>) -> Self {
        let reader = |(name, weight): (String, u32)| Reader {
            name: name.into(),
            weight,
            fresh_as_of: AtomicU64::new(0),
            lag_bytes: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            life: AtomicU64::new(next_life()),
            sessions: AtomicU32::new(0),
        };
        Self { nodes: nodes.into_iter().map(reader).collect(), ..Self::default() }
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
        self.nodes.iter().for_each(|reader| reader.set(None, 0, 0));
    }

    /// Notes that reads need a standby that is fresh as of this moment.
    pub fn want_as_of(&self, moment: Micros) {
        self.wanted_as_of.fetch_max(moment, Ordering::Relaxed);
    }

    /// Returns the latest moment as of which reads need a fresh standby; 0 = never.
    pub fn wanted_as_of(&self) -> Micros {
        self.wanted_as_of.load(Ordering::Relaxed)
    }

    /// Notes whether the cluster has a primary.
    pub fn set_orphaned(&self, are_orphaned: bool) {
        self.are_orphaned.store(are_orphaned, Ordering::Release);
    }

    /// Has the cluster no primary?
    pub fn are_orphaned(&self) -> bool {
        self.are_orphaned.load(Ordering::Acquire)
    }

    /// Returns a standby for a request that shows no data, if there is no primary.
    pub(crate) fn stand_in(&self) -> Option<NodeId> {
        let may_be_read = |reader: &Reader| reader.weight > 0 && reader.fresh_as_of().is_some();
        let mut fit = self.all().filter(|(_, reader)| may_be_read(reader));
        fit.next().filter(|_| self.are_orphaned()).map(|(node, _)| node)
    }

    /// Notes that a read waits for a fresher standby.
    pub fn note_waiting(&self) {
        self.are_awaited.store(true, Ordering::Relaxed);
    }

    /// Have reads begun to wait since the last call? The workers must then be told of a new sample.
    pub fn take_waiting(&self) -> bool {
        self.are_awaited.swap(false, Ordering::Relaxed)
    }
}

impl Reader {
    /// Stores a sample. None: the node may not be read.
    pub fn set(&self, fresh_as_of: Option<Micros>, lag_bytes: u64, reached: Position) {
        self.lag_bytes.store(lag_bytes, Ordering::Relaxed);
        self.reached.store(reached, Ordering::Relaxed);
        self.fresh_as_of.store(fresh_as_of.unwrap_or(0), Ordering::Release);
    }

    /// Returns the moment before which all commits are there. None: the node may not be read.
    pub fn fresh_as_of(&self) -> Option<Micros> {
        let moment = self.fresh_as_of.load(Ordering::Acquire);
        (moment != 0).then_some(moment)
    }

    /// Notes that the connection to the node is lost. It may restart, with less of the log than it
    /// had.
    pub fn lose(&self) {
        self.life.store(next_life(), Ordering::Release);
        self.set(None, 0, 0);
    }

    /// Returns a number that stays the same while the node only gains commits. No other node has
    /// the same.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    /// Returns the position in the log up to which it has everything, as of the last sample.
    pub fn reached(&self) -> Position {
        self.reached.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of the log it has not replayed, as of the last sample.
    pub fn lag_bytes(&self) -> u64 {
        self.lag_bytes.load(Ordering::Relaxed)
    }
}
