//! A cluster of simulated servers, and Weir's judgement of it. Facts are delayed, lost, overtake
//! each other, and say less than is true. The checks know the servers' real state.

use std::collections::BTreeMap;

use cluster::{Change, Cluster, Fact, Micros, NodeId, Obstacle, Role, Sample, Settings, Verdict};

use crate::nodes::{Nodes, SYSTEM, State};
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

/// A fact on its way.
#[derive(Debug)]
struct Mail {
    node: usize,
    fact: Fact,
    asked_at: Micros,
}

/// The facts of one node that have arrived, in the order of questions, as the checks know them.
#[derive(Clone, Debug, Default)]
struct Heard {
    asked_at: Micros,
    sample: Option<Sample>,
    /// Failures one after the other, and the refusals among them.
    failures: u32,
    refusals: u32,
    /// When the first of them was asked.
    failing_since: Micros,
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
    reigns: BTreeMap<u32, NodeId>,
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
                self.nodes.write(&mut self.rng);
                write_at = self.now + 50_000;
            }
            if self.now >= disturb_at && settled_at.is_none() {
                if self.now >= UNREST {
                    self.nodes.settle(&mut self.rng);
                    self.say("all is well");
                    (self.is_calm, settled_at) = (true, Some(self.now));
                    disturb_at = Micros::MAX;
                } else {
                    let event = self.disturb();
                    self.say(&event);
                    disturb_at = self.now + self.rng.below(6_000_000);
                }
            }
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
        let mail = Mail { node, fact, asked_at: self.now };
        self.mail.insert((self.now + delay, self.sent), mail);
    }

    fn deliver(&mut self) -> Result<(), String> {
        while let Some(entry) = self.mail.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let Mail { node, fact, asked_at } = entry.remove();
            if self.trace {
                println!("{:>10} n{node}: {fact:?}, asked at {asked_at}", self.now);
            }
            let before = self.cluster.verdict(NodeId(node as u16)).clone();
            self.hear(node, &fact, asked_at);
            self.cluster.learn(NodeId(node as u16), fact.clone(), asked_at);
            for change in self.cluster.judge(self.now) {
                self.say(&format!("{change:?}"));
                if let Change::Opened { primary, timeline } = change {
                    self.check_primary(primary, timeline)?;
                }
            }
            self.check_fact(node, &fact, &before)?;
            self.check_verdicts()?;
        }
        Ok(())
    }

    fn hear(&mut self, node: usize, fact: &Fact, asked_at: Micros) {
        let heard = &mut self.heard[node];
        if asked_at < heard.asked_at {
            return;
        }
        heard.asked_at = asked_at;
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
        if let Some(other) = self.reigns.insert(timeline, primary).filter(|one| *one != primary) {
            return Err(format!("writers: n{at} and {other:?} on timeline {timeline}"));
        }
        let is_new = |(highest, _): (&u32, _)| *highest <= timeline;
        if !self.reigns.last_key_value().is_some_and(is_new) {
            return Err(format!("writers: n{at} of timeline {timeline}, which is over"));
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

    /// When facts have been steady for long enough, each node is judged by its real state.
    fn check_end(&self) -> Result<(), String> {
        let chosen = NodeId(self.nodes.chosen as u16);
        if self.cluster.primary() != Ok(chosen) {
            let is = self.cluster.primary();
            return Err(format!("found: the primary is {chosen:?}, and Weir has {is:?}"));
        }
        for (at, server) in self.nodes.all.iter().enumerate() {
            let verdict = self.cluster.verdict(NodeId(at as u16));
            let is_own = server.system == SYSTEM;
            // It may also stream from a false primary.
            let follows = self.nodes.streams(at)
                && server.timeline == self.nodes.all[self.nodes.chosen].timeline;
            let fits = match verdict {
                Verdict::Writable => at == self.nodes.chosen,
                Verdict::Readable => follows && is_own,
                Verdict::Down(_) => server.state == State::Dead,
                Verdict::FalsePrimary(_) => server.is_primary && is_own,
                Verdict::Unfit(_) => !is_own || !server.is_primary && !follows,
                Verdict::Unknown(_) => false,
            };
            if !fits {
                return Err(format!("found: n{at} is {verdict:?}, and really {server:?}"));
            }
        }
        Ok(())
    }
}
