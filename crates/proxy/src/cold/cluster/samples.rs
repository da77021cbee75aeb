//! The sampled positions in the logs of a cluster's nodes. `sampling.rs` asks for them.

use ::cluster::{Change, Reason, Verdict};
use engine::{
    ids::{self, Micros},
    routing::{
        freshness::{Position, PrimaryLog},
        readers::Readers,
    },
};

use super::tail::Tail;

/// The samples since the cluster has its present primary.
#[derive(Debug)]
pub(super) struct Samples {
    /// Number of primaries so far. An answer to a question of an earlier term is ignored.
    pub(super) term: u64,
    log: Option<PrimaryLog>,
    /// For each node: its last position as a standby of the primary.
    pub(super) replayed: Vec<Option<Position>>,
    pub(super) tail: Tail,
}

/// An answer of a node.
pub(super) struct Sample {
    pub(super) is_in_recovery: bool,
    pub(super) position: Position,
    /// The position up to which a primary has flushed its log.
    pub(super) flushed: Position,
    pub(super) page_len: u64,
}

/// The part of a node in its cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Primary,
    Standby,
}

impl Samples {
    pub(super) fn new(nodes: usize) -> Self {
        Self { term: 0, log: None, replayed: vec![None; nodes], tail: Tail::default() }
    }

    /// Forgets the samples that are no longer true after these changes.
    pub(super) fn follow(&mut self, changes: &[Change], readers: &Readers) {
        for change in changes {
            match change {
                Change::Opened { .. } => {
                    self.term += 1;
                    (self.log, self.tail) = (None, Tail::default());
                    self.replayed.fill(None);
                    readers.set_orphaned(false);
                }
                // The standbys still have what they have replayed of the last primary's log.
                Change::Shut { .. } => readers.set_orphaned(true),
                Change::Verdict {
                    verdict: Verdict::Readable | Verdict::Unfit(Reason::NoPrimary),
                    ..
                } => {}
                Change::Verdict { node, .. } => self.replayed[usize::from(node.0)] = None,
            }
        }
        if !changes.is_empty() {
            self.publish(readers);
        }
    }

    /// Forgets the position of one node, to which the connection is lost.
    pub(super) fn forget(&mut self, at: usize, readers: &Readers) {
        self.replayed[at] = None;
        readers.get(ids::NodeId(at as u16)).inspect(|reader| reader.lose());
        self.publish(readers);
    }

    pub(super) fn learn(&mut self, at: usize, part: Part, asked_at: Micros, sample: &Sample) {
        match part {
            Part::Primary => {
                let log = self.log.get_or_insert_with(|| PrimaryLog::new(sample.page_len));
                log.sample(asked_at, sample.position);
                self.tail.learn(log.without_header(sample.position), sample.flushed, asked_at);
            }
            Part::Standby => self.replayed[at] = Some(sample.position),
        }
    }

    /// Tells the workers.
    pub(super) fn publish(&self, readers: &Readers) {
        for ((_, reader), replayed) in readers.all().zip(&self.replayed) {
            match self.log.as_ref().zip(*replayed) {
                Some((log, position)) => {
                    let lag = log.lag_bytes(position);
                    reader.set(log.fresh_as_of(position), lag, log.reached(position));
                }
                None => reader.set(None, 0, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ::cluster::{NodeId, Verdict};

    use super::*;

    fn sample(position: Position) -> Sample {
        Sample { is_in_recovery: false, position, flushed: position, page_len: 8_192 }
    }

    fn fresh(readers: &Readers) -> Vec<Option<Micros>> {
        readers.all().map(|(_, reader)| reader.fresh_as_of()).collect()
    }

    #[test]
    fn a_standby_is_as_fresh_as_the_samples_say() {
        let readers = Readers::new(["a", "b"].map(|name| (name.to_owned(), 1)));
        let mut samples = Samples::new(2);
        samples.learn(1, Part::Standby, 5, &sample(1_000));
        samples.publish(&readers);
        assert_eq!(fresh(&readers), [None, None], "the primary was not asked");
        samples.learn(0, Part::Primary, 10, &sample(1_000));
        samples.learn(0, Part::Primary, 20, &sample(2_000));
        samples.publish(&readers);
        assert_eq!(fresh(&readers), [None, Some(10)]);
        samples.learn(1, Part::Standby, 25, &sample(2_000));
        samples.learn(0, Part::Primary, 30, &sample(2_000));
        samples.publish(&readers);
        assert_eq!(fresh(&readers), [None, Some(30)], "an idle primary keeps it fresh");
    }

    #[test]
    fn another_primary_or_verdict_makes_samples_worthless() {
        let readers = Readers::new(["a", "b", "c"].map(|name| (name.to_owned(), 1)));
        let mut samples = Samples::new(3);
        let learn = |samples: &mut Samples| {
            samples.learn(0, Part::Primary, 10, &sample(1_000));
            samples.learn(1, Part::Standby, 10, &sample(1_000));
            samples.learn(2, Part::Standby, 10, &sample(1_000));
            samples.publish(&readers);
        };
        learn(&mut samples);
        assert_eq!(fresh(&readers), [None, Some(10), Some(10)]);
        let verdict = Verdict::Unfit(::cluster::Reason::NotStreaming);
        samples.follow(&[Change::Verdict { node: NodeId(1), verdict }], &readers);
        assert_eq!(fresh(&readers), [None, None, Some(10)]);
        learn(&mut samples);
        samples.forget(2, &readers);
        assert_eq!(fresh(&readers), [None, Some(10), None]);
        learn(&mut samples);
        samples.follow(&[Change::Opened { primary: NodeId(1), timeline: 2 }], &readers);
        assert_eq!((fresh(&readers), samples.term), (vec![None; 3], 1));
    }
}
