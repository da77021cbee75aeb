//! Simulated PostgreSQL servers with real histories: timelines, positions in the WAL, and who
//! follows whom. A cluster manager promotes, not always with care.

use cluster::{Fact, Lsn, Obstacle, Receiver, Role, Sample};

use crate::rng::Rng;

pub(crate) const SYSTEM: u64 = 7_301;
const OTHER_SYSTEM: u64 = 9_999;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// Nothing listens.
    Dead,
    /// SIGSTOP: the kernel accepts connections, and nothing answers.
    Stopped,
    Starting,
    /// All connections are in use.
    Full,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) system: u64,
    pub(crate) timeline: u32,
    pub(crate) wal: u64,
    /// A primary follows nobody.
    pub(crate) is_primary: bool,
    pub(crate) follows: Option<usize>,
    pub(crate) state: State,
    /// No packet passes between Weir and this server.
    pub(crate) is_cut: bool,
}

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Server>,
    /// The primary of the cluster manager.
    pub(crate) chosen: usize,
    /// The highest timeline that any server has begun.
    newest: u32,
    /// Copies of a data directory, for restores.
    backups: Vec<Server>,
}

impl Nodes {
    pub(crate) fn new(count: usize, rng: &mut Rng) -> Self {
        let chosen = rng.below(count as u64) as usize;
        let timeline = 1 + rng.below(3) as u32;
        let server = |at: usize| Server {
            system: SYSTEM,
            timeline,
            wal: 1_000,
            is_primary: at == chosen,
            follows: (at != chosen).then_some(chosen),
            state: State::Up,
            is_cut: false,
        };
        let all: Vec<_> = (0..count).map(server).collect();
        let backups = vec![all[chosen]];
        Self { all, chosen, newest: timeline, backups }
    }

    /// Returns the result of a question; None if there is no answer.
    pub(crate) fn ask(&self, at: usize) -> Option<Fact> {
        let server = &self.all[at];
        if server.is_cut {
            return None;
        }
        Some(match server.state {
            State::Stopped => return None,
            State::Dead => Fact::Refused,
            State::Starting => Fact::Unready,
            State::Full => Fact::Unasked(Obstacle::Full),
            State::Up => Fact::Seen(self.sample(at)),
        })
    }

    pub(crate) fn sample(&self, at: usize) -> Sample {
        let server = &self.all[at];
        let receiver = self.streams(at).then_some(Receiver { timeline: server.timeline });
        Sample {
            system: server.system,
            timeline: server.timeline,
            role: if server.is_primary { Role::Primary } else { Role::Standby(receiver) },
            wal: Lsn(server.wal),
            received: Lsn(if server.is_primary { 0 } else { server.wal }),
            quorum: 0,
        }
    }

    /// Does this standby stream from a server that runs?
    pub(crate) fn streams(&self, at: usize) -> bool {
        let server = &self.all[at];
        !server.is_primary
            && server.follows.is_some_and(|source| {
                let source = &self.all[source];
                matches!(source.state, State::Up | State::Full)
                    && source.is_primary
                    && source.system == server.system
                    && source.timeline >= server.timeline
            })
    }

    /// Time passes: the primaries write, and their standbys replay.
    pub(crate) fn write(&mut self, rng: &mut Rng) {
        for at in 0..self.all.len() {
            if self.all[at].is_primary && matches!(self.all[at].state, State::Up | State::Full) {
                self.all[at].wal += rng.below(100);
            }
        }
        for at in 0..self.all.len() {
            if self.all[at].state == State::Up && self.streams(at) && !rng.one_in(4) {
                let source = self.all[self.all[at].follows.expect("it streams")];
                self.all[at].wal = self.all[at].wal.max(source.wal);
                self.all[at].timeline = source.timeline;
            }
        }
    }

    /// Does something that happens to clusters. Returns what.
    pub(crate) fn disturb(&mut self, strangers: bool, rng: &mut Rng) -> String {
        let at = rng.below(self.all.len() as u64) as usize;
        match rng.below(14) {
            0 => self.set(self.chosen, State::Dead),
            1 => self.set(self.chosen, State::Stopped),
            2 => self.set(at, State::Dead),
            3 => self.set(at, State::Stopped),
            4 => self.set(at, State::Full),
            5 => {
                self.all[at].is_cut = !self.all[at].is_cut;
                format!("cut of {at}: {}", self.all[at].is_cut)
            }
            6 | 7 => self.set(at, State::Up),
            8 => self.set(at, State::Starting),
            9 | 10 => self.promote(rng),
            11 => self.follow(at),
            12 => self.restore(at, strangers, rng),
            _ => {
                self.backups.push(self.all[self.chosen]);
                "backup".to_owned()
            }
        }
    }

    fn set(&mut self, at: usize, state: State) -> String {
        self.all[at].state = state;
        format!("{at} is {state:?}")
    }

    /// The manager promotes a standby that runs. The old primary may run on: fences fail.
    fn promote(&mut self, rng: &mut Rng) -> String {
        let standbys: Vec<_> = (0..self.all.len())
            .filter(|at| !self.all[*at].is_primary && self.all[*at].state == State::Up)
            .filter(|at| self.all[*at].system == SYSTEM)
            .collect();
        let Some(at) = rng.pick(&standbys) else { return "nobody to promote".to_owned() };
        // PostgreSQL takes the next timeline that it knows to be free. Without an archive it may
        // not know of another promotion.
        self.newest = match rng.one_in(6) {
            true => self.newest.max(self.all[at].timeline + 1),
            false => self.newest + 1,
        };
        let timeline = if rng.one_in(6) { self.all[at].timeline + 1 } else { self.newest };
        let server = &mut self.all[at];
        (server.is_primary, server.follows, server.timeline) = (true, None, timeline);
        self.chosen = at;
        format!("{at} is promoted to timeline {timeline}")
    }

    /// A node is rewound, and follows the manager's primary.
    fn follow(&mut self, at: usize) -> String {
        if at == self.chosen {
            return "the primary cannot follow itself".to_owned();
        }
        let primary = self.all[self.chosen];
        let is_cut = self.all[at].is_cut;
        self.all[at] = Server {
            is_primary: false,
            follows: Some(self.chosen),
            state: State::Up,
            is_cut,
            ..primary
        };
        format!("{at} follows {}", self.chosen)
    }

    /// A node is restored from a backup and started as a primary, or belongs to another cluster.
    fn restore(&mut self, at: usize, may_be_stranger: bool, rng: &mut Rng) -> String {
        if at == self.chosen || self.all.len() < 3 {
            return "no restore".to_owned();
        }
        let backup = rng.pick(&self.backups).expect("the first is made at the start");
        // A majority keeps the cluster's identifier.
        let strangers = self.all.iter().filter(|server| server.system != SYSTEM).count();
        let is_stranger = may_be_stranger && strangers == 0 && rng.one_in(2);
        let system = if is_stranger { OTHER_SYSTEM } else { SYSTEM };
        let timeline = if is_stranger { backup.timeline + 50 } else { backup.timeline };
        self.all[at] = Server {
            system,
            timeline,
            is_primary: true,
            follows: None,
            state: State::Up,
            is_cut: false,
            wal: backup.wal,
        };
        format!("{at} is restored: system {system}, timeline {timeline}")
    }

    /// The disturbances end: all servers run and can be reached, the manager's primary has the
    /// highest timeline, and most others follow it.
    pub(crate) fn settle(&mut self, rng: &mut Rng) {
        for server in &mut self.all {
            (server.state, server.is_cut) = (State::Up, false);
        }
        let highest = self.all.iter().filter(|server| server.system == SYSTEM);
        let highest = highest.map(|server| server.timeline).fold(self.newest, u32::max);
        self.newest = highest + 1;
        let primary = &mut self.all[self.chosen];
        (primary.is_primary, primary.follows) = (true, None);
        primary.timeline = self.newest;
        for at in 0..self.all.len() {
            if at == self.chosen {
                continue;
            }
            match rng.below(6) {
                0 => drop(self.set(at, State::Dead)),
                1 => {}
                // It replays what is there, and its primary is another one or none.
                2 => (self.all[at].is_primary, self.all[at].follows) = (false, None),
                _ => drop(self.follow(at)),
            }
        }
    }
}
