//! A cluster of simulated servers, and Weir's judgement of it. Facts are delayed, lost, overtake
//! each other, and say less than is true. The checks know the servers' real state.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{
    Change, Cluster, Fact, Micros, NodeId, Obstacle, Reason, Role, Sample, Settings, Verdict,
};

use crate::nodes::{Nodes, SYSTEM, Server, State};
use crate::rng::Rng;

const INTERVAL: Micros = 1_000_000;
const TIMEOUT: Micros = 2_000_000;
const SETTINGS: Settings = Settings { sample_interval: INTERVAL, health_timeout: TIMEOUT };
/// Duration of the disturbances.
const UNREST: Micros = 60_000_000;
/// Time limit within which all nodes are judged correctly, once facts are steady: the longest pause
/// of a node that is down, two questions that fail, and the answer.
const BOUND: Micros = 5_000_000 + 4 * TIMEOUT;
/// The longest delay of an answer.
const DELAY_MAX: Micros = 1_500_000;
/// A primary that has been running for so long is known to run, unless nothing is heard of it.
const SETTLED: Micros = 10_000_000;

/// A fact on its way.
#[derive(Debug)]
struct Mail {
    node: usize,
    /// The server that has answered.
    server: Option<Server>,
    fact: Fact,
    asked_at: Micros,
}

/// The facts of one node that have arrived, in the order of questions, as the checks know them.
#[derive(Clone, Debug, Default)]
struct Heard {
    asked_at: Micros,
    sample: Option<Sample>,
    /// The server that has told the sample.
    server: Option<Server>,
    /// Failures one after the other, and the refusals among them.
    failures: u32,
    refusals: u32,
    refusals_in_a_row: u32,
    /// When the first of them was asked.
    failing_since: Micros,
    /// A standby was seen at the node.
    had_standby: bool,
    /// Another server was seen at the node of the last primary, which had this start.
    has_replaced: Option<u64>,
}

/// The primary of a timeline.
#[derive(Clone, Copy, Debug)]
struct Reign {
    /// The server, and the node at which it was.
    id: u64,
    node: usize,
    /// It is a copy itself, so that another copy has another history in any case.
    is_copy: bool,
    /// The end of the WAL that Weir was told.
    told: u64,
    /// Its start, and when that was first heard.
    started: u64,
    since: Micros,
}

pub(crate) struct World {
    rng: Rng,
    nodes: Nodes,
    cluster: Cluster,
    now: Micros,
    mail: BTreeMap<(Micros, u64), Mail>,
    sent: u64,
    ask_at: Vec<Micros>,
    heard: Vec<Heard>,
    /// The primaries so far, by timeline.
    reigns: BTreeMap<u32, Reign>,
    /// The timelines of which a copy was the primary, because the real one was lost before it was known.
    /// The real one is a server that ran beside the primary then, and so is any server at its places.
    misled: BTreeSet<u32>,
    /// When a copy was asked and heard last, by its identity and timeline.
    claims: BTreeMap<(u64, u32), (Micros, Micros)>,
    /// The servers that ran beside the primary of their timeline, by their identities.
    copies: BTreeSet<u64>,
    /// The starts of servers that were heard in recovery.
    standbys: BTreeSet<u64>,
    /// For each node, is it named by the source of the nodes?
    named: Vec<bool>,
    /// The highest timeline of all samples that have arrived.
    newest: u32,
    is_calm: bool,
    trace: bool,
    pub(crate) failovers: u64,
    /// The events so far.
    pub(crate) steps: u64,
}

impl World {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + rng.below(5) as usize;
        let nodes = Nodes::new(count, &mut rng);
        let count = nodes.places.len();
        let names = (0..count).map(|at| format!("n{at}"));
        Self {
            cluster: Cluster::new(SETTINGS, names, 0),
            nodes,
            now: 0,
            mail: BTreeMap::new(),
            sent: 0,
            ask_at: (0..count).map(|_| 1 + rng.below(300_000)).collect(),
            heard: vec![Heard::default(); count],
            reigns: BTreeMap::new(),
            misled: BTreeSet::new(),
            claims: BTreeMap::new(),
            copies: BTreeSet::new(),
            standbys: BTreeSet::new(),
            named: vec![true; count],
            newest: 0,
            is_calm: false,
            trace,
            rng,
            failovers: 0,
            steps: 0,
        }
    }

    /// Plays a run. The error is what a check says.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        // Some runs begin while something is wrong already.
        for _ in 0..self.rng.below(4) {
            let event = self.disturb();
            self.say(&event);
        }
        let mut disturb_at = self.rng.below(8_000_000);
        let (mut settled_at, mut write_at) = (None, 0);
        loop {
            self.steps += 1;
            let ask = self.ask_at.iter().copied().min().expect("there is a node");
            let next = self.mail.keys().next().map_or(ask, |(at, _)| ask.min(*at));
            self.now = next.min(disturb_at).min(write_at).max(self.now);
            if self.now >= write_at {
                self.nodes.write(self.now, &mut self.rng);
                write_at = self.now + 50_000;
            }
            if self.now >= disturb_at && settled_at.is_none() {
                if self.now >= UNREST {
                    let chosen = self.nodes.all[self.nodes.chosen];
                    let reign = self.reigns.get(&chosen.timeline);
                    let reigns = reign.is_some_and(|reign| reign.id == chosen.id);
                    self.nodes.settle(reigns, &mut self.rng);
                    self.say("all is well");
                    (self.is_calm, settled_at) = (true, Some(self.now));
                    disturb_at = Micros::MAX;
                } else {
                    let event = self.disturb();
                    self.say(&event);
                    disturb_at = self.now + self.rng.below(6_000_000);
                }
            }
            self.name();
            self.ask();
            self.deliver()?;
            if settled_at.is_some_and(|at| self.now > at + BOUND) {
                return self.check_end();
            }
        }
    }

    /// A node of another cluster is only put in when Weir knows its own: it cannot know which of
    /// two is meant.
    fn disturb(&mut self) -> String {
        let knows_its_own = self.cluster.system().is_some();
        self.nodes.disturb(knows_its_own, &mut self.rng)
    }

    /// The source of the nodes names an address with a server, sooner or later.
    fn name(&mut self) {
        if !self.is_calm && !self.rng.one_in(20) {
            return;
        }
        self.named = self.nodes.places.iter().map(Option::is_some).collect();
        let named = &self.named;
        self.cluster.set_named(|node| named[usize::from(node.0)]);
    }

    fn say(&self, what: &str) {
        if self.trace {
            println!("{:>10} {what}", self.now);
        }
    }

    /// Asks the nodes whose time has come.
    fn ask(&mut self) {
        for node in 0..self.ask_at.len() {
            if self.ask_at[node] > self.now {
                continue;
            }
            let answer = self.nodes.ask(node);
            let is_lost = !self.is_calm && self.rng.one_in(12);
            let (fact, delay) = match answer {
                // A single refusal, as of a full queue of connections.
                Some(_) if !self.is_calm && self.rng.one_in(25) => (Fact::Refused, 1_000),
                Some(fact) if !is_lost => (fact, 200 + self.delay()),
                Some(_) | None => (Fact::Silent, TIMEOUT),
            };
            self.post(node, fact, delay);
            // Somebody ends the sessions of all users, Weir's among them.
            if !self.is_calm && self.rng.one_in(20) {
                self.post(node, Fact::Unasked(Obstacle::SessionEnded), 0);
            }
            let pause = self.cluster.pause(NodeId(node as u16));
            // A question is asked when the answer to the last one is there; evidence of a worker
            // makes another one be asked before.
            let early = !self.is_calm && self.rng.one_in(10);
            self.ask_at[node] = self.now + if early { 1_000 } else { delay + pause };
        }
    }

    fn delay(&mut self) -> Micros {
        match self.is_calm {
            true => self.rng.below(20_000),
            false if self.rng.one_in(8) => self.rng.below(DELAY_MAX),
            false => self.rng.below(30_000),
        }
    }

    fn post(&mut self, node: usize, fact: Fact, delay: Micros) {
        self.sent += 1;
        let server = self.nodes.places[node].map(|at| self.nodes.all[at]);
        let mail = Mail { node, server, fact, asked_at: self.now };
        self.mail.insert((self.now + delay, self.sent), mail);
    }

    fn deliver(&mut self) -> Result<(), String> {
        while let Some(entry) = self.mail.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let Mail { node, server, fact, asked_at } = entry.remove();
            if self.trace {
                println!("{:>10} n{node}: {fact:?}, asked at {asked_at}", self.now);
            }
            let before = self.cluster.verdict(NodeId(node as u16)).clone();
            self.hear(node, server, &fact, asked_at);
            self.cluster.learn(NodeId(node as u16), fact.clone(), asked_at);
            for change in self.cluster.judge(self.now) {
                self.say(&format!("{change:?}"));
                if let Change::Opened { primary, timeline } = change {
                    self.check_primary(primary, timeline)?;
                }
            }
            self.note_reign();
            self.check_fact(node, &fact, &before)?;
            self.check_verdicts()?;
        }
        Ok(())
    }

    fn hear(&mut self, node: usize, server: Option<Server>, fact: &Fact, asked_at: Micros) {
        let heard = &mut self.heard[node];
        if asked_at < heard.asked_at {
            return;
        }
        if let (Fact::Seen(sample), Some(server)) = (fact, server) {
            heard.server = Some(server);
            heard.had_standby |= sample.role != Role::Primary;
            let is_last = self.cluster.last_primary() == Some(NodeId(node as u16));
            let last = self.cluster.last_start().filter(|_| is_last);
            if last.is_some_and(|started| started != sample.started) {
                heard.has_replaced = last;
            }
            if sample.role != Role::Primary {
                self.standbys.insert(sample.started);
            } else if server.copied_at.is_some() {
                self.claims.insert((server.id, sample.timeline), (asked_at, self.now));
            }
            let all = self.nodes.all.iter_mut();
            all.filter(|own| own.id == server.id).for_each(|own| own.is_unknown = false);
            let reign = self.reigns.get(&sample.timeline);
            let is_reign = |reign: &&Reign| {
                (reign.id, reign.started, reign.node) == (server.id, server.started, node)
            };
            if let Some(reign) = reign.filter(is_reign) {
                let beside = self.claims.iter().filter(|((id, timeline), (asked, heard))| {
                    (*id != server.id && *timeline == sample.timeline)
                        && (reign.since <= *asked && *heard <= asked_at)
                });
                self.copies.extend(beside.map(|((id, _), _)| *id));
            }
        }
        heard.asked_at = asked_at;
        let refusals = heard.refusals_in_a_row + 1;
        heard.refusals_in_a_row = if *fact == Fact::Refused { refusals } else { 0 };
        if matches!(fact, Fact::Refused | Fact::Silent) {
            if heard.failures == 0 {
                (heard.failing_since, heard.refusals) = (asked_at, 0);
            }
            heard.refusals += u32::from(*fact == Fact::Refused);
        }
        match fact {
            Fact::Seen(sample) => {
                (heard.sample, heard.failures) = (Some(*sample), 0);
                if sample.system == SYSTEM {
                    self.newest = self.newest.max(sample.timeline);
                }
            }
            Fact::Refused | Fact::Silent => heard.failures += 1,
            Fact::Unready => (heard.sample, heard.failures) = (None, 0),
            Fact::Unasked(_) => heard.failures = 0,
        }
    }

    /// Notes what Weir was told by the present primary.
    fn note_reign(&mut self) {
        let Ok(node) = self.cluster.primary() else { return };
        let node = usize::from(node.0);
        let Heard { sample: Some(sample), server: Some(server), .. } = self.heard[node] else {
            return;
        };
        if let Some(reign) = self.reigns.get_mut(&sample.timeline)
            && reign.id == server.id
        {
            (reign.node, reign.told) = (node, reign.told.max(sample.wal.0));
            if reign.started != server.started {
                (reign.started, reign.since) = (server.started, self.now);
            }
        }
    }

    /// A new primary: the only one of its timeline, and none has a higher one.
    fn check_primary(&mut self, primary: NodeId, timeline: u32) -> Result<(), String> {
        self.failovers += 1;
        let at = usize::from(primary.0);
        if let Some(unheard) = self.heard.iter().position(|heard| heard.asked_at == 0) {
            return Err(format!("early: n{at} is the primary, and n{unheard} was not heard"));
        }
        let Some(sample) = self.heard[at].sample else {
            return Err(format!("writers: n{at} is the primary, and was not heard"));
        };
        if sample.system != SYSTEM {
            return Err(format!("strangers: n{at} of another cluster is the primary"));
        }
        if sample.role != Role::Primary || sample.timeline != timeline {
            return Err(format!("writers: n{at} is the primary, and said {sample:?}"));
        }
        if timeline < self.newest {
            let newest = self.newest;
            return Err(format!("writers: n{at} of timeline {timeline}, {newest} was seen"));
        }
        let claims = |(other, heard): (usize, &Heard)| {
            let is_false =
                matches!(self.cluster.verdict(NodeId(other as u16)), Verdict::FalsePrimary(_));
            is_false && heard.sample.is_some_and(|sample| sample.timeline == timeline)
        };
        if !self.reigns.contains_key(&timeline) && self.heard.iter().enumerate().any(claims) {
            return Err(format!("writers: n{at} is the primary, and another one claims to be it"));
        }
        let server = self.heard[at].server.expect("it was heard");
        let (id, started) = (server.id, server.started);
        let is_copy = server.copied_at.is_some();
        if is_copy {
            self.misled.insert(timeline);
        }
        let reign = Reign { id, node: at, told: sample.wal.0, is_copy, started, since: self.now };
        if let Some(other) = self.reigns.insert(timeline, reign).filter(|own| own.id != server.id) {
            self.check_copy(at, server, other, timeline)?;
        }
        let is_new = |(highest, _): (&u32, _)| *highest <= timeline;
        if !self.reigns.last_key_value().is_some_and(is_new) {
            return Err(format!("writers: n{at} of timeline {timeline}, which is over"));
        }
        Ok(())
    }

    /// Another server is the primary of a timeline. It may be a copy that has all that Weir was told
    /// by the primary, if that is gone.
    fn check_copy(
        &self,
        at: usize,
        server: Server,
        other: Reign,
        timeline: u32,
    ) -> Result<(), String> {
        let by = format!("n{at} and the server {} on timeline {timeline}", other.id);
        if !other.is_copy && server.copied_at.is_some_and(|wal| wal < other.told) {
            return Err(format!("copy: {by}, which had {}: {server:?}", other.told));
        }
        if self.copies.contains(&server.id) {
            return Err(format!("beside: {by}, which ran together"));
        }
        if self.standbys.contains(&server.started) {
            return Err(format!("second: {by}, which were promoted"));
        }
        let since = self.now.saturating_sub(SETTLED);
        let is_empty = self.heard[other.node].refusals_in_a_row >= 2;
        if self.named[other.node]
            && !is_empty
            && self.nodes.reigns(other.id, timeline, other.node, since)
        {
            return Err(format!("gone: {by}, which runs at n{}", other.node));
        }
        Ok(())
    }

    /// Checks that a fact has changed nothing that it must not.
    fn check_fact(&self, node: usize, fact: &Fact, before: &Verdict) -> Result<(), String> {
        let after = self.cluster.verdict(NodeId(node as u16));
        let was_down = matches!(before, Verdict::Down(_));
        let is_down = matches!(after, Verdict::Down(_));
        match fact {
            Fact::Unasked(why) if is_down && !was_down => {
                Err(format!("calm: n{node} is down because of {why}"))
            }
            // Another server may have its address.
            Fact::Unasked(_) if !self.named[node] => Ok(()),
            Fact::Unasked(why) if *before == Verdict::Writable && *after != Verdict::Writable => {
                Err(format!("calm: n{node} is not the primary any more because of {why}"))
            }
            Fact::Refused if is_down && !was_down && self.heard[node].failures < 2 => {
                Err(format!("calm: n{node} is down after one refusal"))
            }
            Fact::Seen(_) | Fact::Refused | Fact::Silent | Fact::Unready | Fact::Unasked(_) => {
                Ok(())
            }
        }
    }

    /// Checks rules that hold always.
    fn check_verdicts(&self) -> Result<(), String> {
        let primary = self.cluster.primary().ok();
        for (at, heard) in self.heard.iter().enumerate() {
            let verdict = self.cluster.verdict(NodeId(at as u16));
            let is_primary = primary == Some(NodeId(at as u16));
            if (*verdict == Verdict::Writable) != is_primary {
                return Err(format!("writers: n{at} is {verdict:?}, the primary is {primary:?}"));
            }
            let is_used = matches!(verdict, Verdict::Writable | Verdict::Readable);
            let is_refused = heard.failures >= 2 && heard.refusals > 0;
            let is_silent = heard.failures > 0
                && heard.refusals == 0
                && self.now >= heard.failing_since + 2 * TIMEOUT;
            if is_used && (is_refused || is_silent) {
                return Err(format!("down: n{at} is {verdict:?}, and {heard:?}"));
            }
            if is_used && heard.sample.is_some_and(|sample| sample.system != SYSTEM) {
                return Err(format!("strangers: n{at} of another cluster is {verdict:?}"));
            }
            if *verdict == Verdict::Unfit(Reason::NoPrimary) {
                self.check_orphan(NodeId(at as u16))?;
            }
            if *verdict != Verdict::Readable {
                continue;
            }
            let Some(primary) = primary else {
                return Err(format!("readers: n{at} is readable without a primary"));
            };
            let primary = self.heard[usize::from(primary.0)].sample;
            let follows = |own: Sample| match own.role {
                Role::Standby(Some(receiver)) => {
                    primary.is_some_and(|primary| primary.timeline == receiver.timeline)
                }
                Role::Standby(None) | Role::Primary => false,
            };
            if !heard.sample.is_some_and(follows) {
                return Err(format!("readers: n{at} is readable, and said {:?}", heard.sample));
            }
        }
        Ok(())
    }

    /// A standby that is only unfit because there is no primary: it has the timeline of the last one,
    /// and nobody has shown a newer one.
    fn check_orphan(&self, node: NodeId) -> Result<(), String> {
        let own = self.cluster.own_sample(node).map(|sample| sample.timeline);
        let newest = self.cluster.timeline();
        let last = self.reigns.last_key_value().map_or(newest, |(timeline, _)| *timeline);
        match own == Some(newest) && last == newest {
            true => Ok(()),
            false => Err(format!("readers: {node:?} of {own:?} is an orphan of {last}, {newest}")),
        }
    }

    /// Is the server only at nodes of former standbys, while nothing is left at the node of the last
    /// primary, and no other server was seen there? A standby that was started without recovery looks the
    /// same.
    fn may_be_a_standby(&self, server: usize) -> bool {
        let last = self.cluster.last_primary().map(|node| &self.heard[usize::from(node.0)]);
        let is_empty = last.is_some_and(|own| {
            own.refusals_in_a_row >= 2 && own.has_replaced != self.cluster.last_start()
        });
        let nodes = self.nodes.places.iter().zip(&self.heard);
        let mut nodes = nodes.filter(|(place, _)| **place == Some(server));
        is_empty && nodes.all(|(_, heard)| heard.had_standby)
    }

    /// When facts have been steady for long enough, each node is judged by its real state.
    fn check_end(&self) -> Result<(), String> {
        let chosen = self.nodes.chosen;
        let primary = self.cluster.primary();
        let place = primary.map(|node| self.nodes.places[usize::from(node.0)]);
        let is_misled = self.misled.contains(&self.nodes.all[chosen].timeline);
        if place.is_err() && (is_misled || self.may_be_a_standby(chosen)) {
            return Ok(());
        }
        if place != Ok(Some(chosen)) {
            let places = &self.nodes.places;
            return Err(format!(
                "found: the primary is {chosen} of {places:?}, Weir has {primary:?}"
            ));
        }
        for (node, place) in self.nodes.places.iter().enumerate() {
            let verdict = self.cluster.verdict(NodeId(node as u16));
            let Some(at) = *place else {
                match verdict {
                    Verdict::Down(_) => continue,
                    _ => {
                        return Err(format!("found: n{node} is {verdict:?}, and nothing is there"));
                    }
                }
            };
            let server = &self.nodes.all[at];
            let is_own = server.system == SYSTEM;
            // It may also stream from a false primary.
            let follows = self.nodes.streams(at)
                && server.timeline == self.nodes.all[self.nodes.chosen].timeline;
            let fits = match verdict {
                Verdict::Writable => at == chosen,
                Verdict::Readable => follows && is_own,
                Verdict::Down(_) => server.state == State::Dead,
                Verdict::FalsePrimary(_) => server.is_primary && is_own,
                Verdict::Unfit(Reason::SameServer { .. }) => at == chosen,
                Verdict::Unfit(_) => !is_own || !server.is_primary && !follows,
                Verdict::Unknown(_) => false,
            };
            if !fits {
                return Err(format!("found: n{node} is {verdict:?}, and really {server:?}"));
            }
        }
        Ok(())
    }
}
