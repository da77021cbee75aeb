//! Counts the sessions that stay with each node (`balance = session`), of all workers together.
//!
//! Each pool has its sessions spread evenly over its nodes, by their weights. Of two nodes that have
//! equal shares of a pool's sessions, the one with fewer sessions of all pools of the cluster gets
//! the next one.
//!
//! Two workers may choose the same node at the same moment. The next read of one of these sessions
//! corrects that (see [`Routing::node_of_session`](super::rules::Routing::node_of_session)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ids::NodeId;
use crate::routing::readers::{Reader, Readers};

/// The sessions of one pool at each node.
#[derive(Debug, Default)]
pub(crate) struct Stays {
    readers: Arc<Readers>,
    of_pool: Box<[AtomicU32]>,
}

/// The stay of a session with a node. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Stay {
    node: NodeId,
    all: Arc<Stays>,
}

impl Stays {
    pub(crate) fn new(readers: Arc<Readers>) -> Self {
        Self { of_pool: readers.all().map(|_| AtomicU32::new(0)).collect(), readers }
    }

    /// Are these the stays with these nodes?
    pub(crate) fn are_with(&self, readers: &Arc<Readers>) -> bool {
        Arc::ptr_eq(&self.readers, readers)
    }

    /// Begins the stay of a session.
    pub(crate) fn begin(all: &Arc<Self>, node: NodeId) -> Stay {
        all.count(node, |number| {
            number.fetch_add(1, Ordering::Relaxed);
        });
        Stay { node, all: Arc::clone(all) }
    }

    /// Returns the node's sessions of this pool.
    pub(crate) fn at(&self, node: NodeId) -> u32 {
        self.of_pool.get(usize::from(node.0)).map_or(0, |number| number.load(Ordering::Relaxed))
    }

    /// Returns the share of the sessions that the node has after one more: of this pool, and of all.
    pub(crate) fn with_one_more(&self, node: NodeId, reader: &Reader) -> [f64; 2] {
        let all = reader.sessions.load(Ordering::Relaxed);
        [self.at(node), all].map(|number| share(number.saturating_add(1), reader.weight))
    }

    fn count(&self, node: NodeId, change: impl Fn(&AtomicU32)) {
        if let Some(number) = self.of_pool.get(usize::from(node.0)) {
            change(number);
        }
        if let Some(reader) = self.readers.get(node) {
            change(&reader.sessions);
        }
    }
}

impl Stay {
    /// Returns the node, if this is a stay of that pool with its present nodes.
    pub(crate) fn node_in(&self, all: &Arc<Stays>) -> Option<NodeId> {
        Arc::ptr_eq(&self.all, all).then_some(self.node)
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.all.count(self.node, |number| {
            number.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Returns how much a node has for its weight.
pub(crate) fn share(number: u32, weight: u32) -> f64 {
    f64::from(number) / f64::from(weight)
}
