//! Simulated PostgreSQL servers with real histories: timelines, positions in the WAL, and who
//! follows whom. A cluster manager promotes, not always with care.
//!
//! Weir knows places, which are addresses of servers. A server moves to another place, two servers
//! swap their places, a place is empty, and a server has two.

use std::collections::BTreeSet;

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
    /// Another one for each data directory. A copy has another one than its source.
    pub(crate) id: u64,
    /// Another one for each start of PostgreSQL.
    pub(crate) started: u64,
    /// Of a copy that accepts writes: the end of the WAL when it was copied.
    pub(crate) copied_at: Option<u64>,
    /// Nobody writes to a copy before Weir knows it: a client would have to know its address.
    pub(crate) is_unknown: bool,
    /// It was promoted to a timeline that another server has begun.
    is_second: bool,
    /// Since when it has been running.
    pub(crate) runs_since: u64,
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
    /// For each address, the server that is there.
    pub(crate) places: Vec<Option<usize>>,
    /// The places at which a copy was. A server that moves there is taken for that copy, unless it
    /// has less WAL.
    tainted: BTreeSet<usize>,
    /// The servers that have swapped their places. Only their answers show that.
    swapped: BTreeSet<usize>,
    /// At an address without a server, nothing answers. Otherwise connections are refused.
    is_silence: bool,
    /// Nobody writes.
    is_idle: bool,
    /// The primary of the cluster manager.
    pub(crate) chosen: usize,
    /// The highest timeline that any server has begun.
    newest: u32,
    /// All timelines that were begun.
    begun: BTreeSet<u32>,
    /// Copies of a data directory, for restores.
    backups: Vec<Server>,
    /// The number of identities and starts so far.
    stamps: u64,
    now: u64,
}

impl Nodes {
    pub(crate) fn new(count: usize, rng: &mut Rng) -> Self {
        let chosen = rng.below(count as u64) as usize;
        let timeline = 1 + rng.below(3) as u32;
        let server = |at: usize| Server {
            id: at as u64,
            started: at as u64,
            copied_at: None,
            is_unknown: false,
            is_second: false,
            runs_since: 0,
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
        let free = if rng.one_in(2) { rng.below(3) as usize } else { 0 };
        let places = (0..count).map(Some).chain((0..free).map(|_| None)).collect();
        Self {
            all,
            places,
            tainted: BTreeSet::new(),
            swapped: BTreeSet::new(),
            is_silence: rng.one_in(2),
            is_idle: rng.one_in(6),
            chosen,
            newest: timeline,
            begun: (1..=timeline).collect(),
            backups,
            stamps: count as u64,
            now: 0,
        }
    }

    /// Returns the result of a question at a place; None if there is no answer.
    pub(crate) fn ask(&self, place: usize) -> Option<Fact> {
        let Some(at) = self.places[place] else {
            return (!self.is_silence).then_some(Fact::Refused);
        };
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

    fn sample(&self, at: usize) -> Sample {
        let server = &self.all[at];
        let receiver = self.streams(at).then_some(Receiver { timeline: server.timeline });
        Sample {
            system: server.system,
            started: server.started,
            timeline: server.timeline,
            role: if server.is_primary { Role::Primary } else { Role::Standby(receiver) },
            wal: Lsn(server.wal),
            received: Lsn(if server.is_primary { 0 } else { server.wal }),
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

    /// Is the server with this identity a primary of this timeline, at this place, and has it been
    /// for so long that Weir must know?
    pub(crate) fn reigns(&self, id: u64, timeline: u32, place: usize, since: u64) -> bool {
        let server = self.places[place].map(|at| &self.all[at]);
        server.is_some_and(|own| {
            own.id == id
                && own.is_primary
                && own.timeline == timeline
                && own.state != State::Dead
                && own.runs_since < since
        })
    }

    /// Time passes: the primaries write, and their standbys replay.
    pub(crate) fn write(&mut self, now: u64, rng: &mut Rng) {
        self.now = now;
        let writes = |own: &&mut Server| own.is_primary && !own.is_unknown;
        for own in self.all.iter_mut().filter(writes) {
            if matches!(own.state, State::Up | State::Full) && !self.is_idle {
                own.wal += rng.below(100);
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
        match rng.below(20) {
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
            13 => self.shift(self.chosen, rng),
            14 => self.shift(at, rng),
            15 => self.swap(at, rng),
            16 => self.add_place(at, rng),
            17 => self.restore(at, false, rng),
            18 => self.restart_copies(),
            _ => {
                self.backups.push(self.all[self.chosen]);
                "backup".to_owned()
            }
        }
    }

    fn stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    fn set(&mut self, at: usize, state: State) -> String {
        let was_dead = self.all[at].state == State::Dead && state != State::Dead;
        // A restart hides from everybody that it was promoted to a timeline of another server.
        if (was_dead || state == State::Starting) && !self.all[at].is_second {
            self.all[at].started = self.stamp();
        }
        if was_dead {
            self.all[at].runs_since = self.now;
        }
        self.all[at].state = state;
        format!("{at} is {state:?}")
    }

    fn restart(&mut self, at: usize) {
        self.set(at, State::Dead);
        self.set(at, State::Up);
    }

    fn restart_copies(&mut self) -> String {
        let is_copy = |at: &usize| self.all[*at].copied_at.is_some();
        let copies: Vec<_> = (0..self.all.len()).filter(is_copy).collect();
        copies.iter().for_each(|at| self.restart(*at));
        format!("the copies {copies:?} are restarted")
    }

    /// May the server get another place? It hides from everybody that a server is a copy.
    fn is_mobile(&self, at: usize) -> bool {
        self.all[at].copied_at.is_none() && !self.all[at].is_second
    }

    fn free_place(&self, rng: &mut Rng) -> Option<usize> {
        let is_free = |place: &usize| self.places[*place].is_none();
        let free = (0..self.places.len()).filter(is_free).filter(|at| !self.tainted.contains(at));
        rng.pick(&free.collect::<Vec<_>>())
    }

    /// A server restarts at another place, as a pod does.
    fn shift(&mut self, at: usize, rng: &mut Rng) -> String {
        let Some(place) = self.free_place(rng).filter(|_| self.is_mobile(at)) else {
            return "no move".to_owned();
        };
        for other in self.places.iter_mut().filter(|own| **own == Some(at)) {
            *other = None;
        }
        self.places[place] = Some(at);
        self.restart(at);
        format!("{at} moves to the place {place}")
    }

    /// A server swaps its place with the chosen one.
    fn swap(&mut self, at: usize, rng: &mut Rng) -> String {
        let other = self.chosen;
        let is_tainted = |at| self.tainted.iter().any(|place| self.places[*place] == Some(at));
        let is_fixed = |at| !self.is_mobile(at) || is_tainted(at);
        if at == other || is_fixed(at) || is_fixed(other) {
            return "no swap".to_owned();
        }
        self.swapped.extend([at, other]);
        for place in &mut self.places {
            *place = match *place {
                Some(own) if own == at => Some(other),
                Some(own) if own == other => Some(at),
                same => same,
            };
        }
        if rng.one_in(2) {
            self.restart(at);
            self.restart(other);
        }
        format!("{at} and {other} swap their places")
    }

    /// A server has another address, too.
    fn add_place(&mut self, at: usize, rng: &mut Rng) -> String {
        let Some(place) = self.free_place(rng).filter(|_| self.is_mobile(at)) else {
            return "no second place".to_owned();
        };
        self.places[place] = Some(at);
        format!("{at} has the place {place}, too")
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
        let is_second = !self.begun.insert(timeline);
        let server = &mut self.all[at];
        (server.is_primary, server.follows, server.timeline) = (true, None, timeline);
        server.is_second = is_second;
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
        let id = self.stamp();
        self.all[at] = Server {
            id,
            started: id,
            copied_at: None,
            is_unknown: false,
            is_second: false,
            runs_since: self.now,
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
        let id = self.stamp();
        self.all[at] = Server {
            id,
            started: id,
            copied_at: Some(backup.wal),
            is_unknown: true,
            is_second: false,
            runs_since: self.now,
            system,
            timeline,
            is_primary: true,
            follows: None,
            state: State::Up,
            is_cut: false,
            wal: backup.wal,
        };
        let places = self.places.iter().enumerate().filter(|(_, own)| **own == Some(at));
        self.tainted.extend(places.map(|(place, _)| place));
        format!("{at} is restored: system {system}, timeline {timeline}")
    }

    /// The disturbances end: all servers run and can be reached, the manager's primary has the
    /// highest timeline, and most others follow it. `reigns`: Weir knows it as the primary of its
    /// timeline, so it need not be promoted.
    pub(crate) fn settle(&mut self, reigns: bool, rng: &mut Rng) {
        for at in 0..self.all.len() {
            self.set(at, State::Up);
            self.all[at].is_cut = false;
        }
        let own = self.all.iter().filter(|server| server.system == SYSTEM);
        let highest = own.map(|server| server.timeline).fold(self.newest, u32::max);
        let chosen = self.all[self.chosen];
        let is_alone = self.all.iter().filter(|own| own.is_primary && own.timeline >= highest);
        let stays = reigns && chosen.timeline == highest && is_alone.count() == 1;
        if stays {
            match rng.below(3) {
                0 => drop(self.shift(self.chosen, rng)),
                1 => drop(self.swap(rng.below(self.all.len() as u64) as usize, rng)),
                _ => {}
            }
        } else {
            self.newest = highest + 1;
            let primary = &mut self.all[self.chosen];
            (primary.is_primary, primary.follows) = (true, None);
            primary.timeline = self.newest;
        }
        for at in 0..self.all.len() {
            if at == self.chosen {
                continue;
            }
            match rng.below(6) {
                0 if !self.swapped.contains(&at) => drop(self.set(at, State::Dead)),
                1 => {}
                // It replays what is there, and its primary is another one or none.
                2 => (self.all[at].is_primary, self.all[at].follows) = (false, None),
                _ => drop(self.follow(at)),
            }
        }
    }
}
