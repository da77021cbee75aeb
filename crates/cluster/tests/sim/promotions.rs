//! Promotions that Weir carries out: three simulated servers, commands that fail, have their effect
//! although they fail, or do nothing although they succeed. The checks know the real state.

use cluster::{
    By, Cluster, Fact, Failure, Limits, Lsn, Micros, NodeId, Obstacle, Order, Outcome, Overtime,
    Past, Promotion, Receiver, Replication, Role, Sample, Settings,
};

use crate::commits::Commits;
use crate::nodes::SYSTEM;
use crate::rng::Rng;

const TICK: Micros = 5_000;
const START: Micros = 1_000_000;
/// Time limit for a whole promotion, all patience used up.
const BOUND: Micros = 120_000_000;
const DRAIN: Micros = 1_000_000;
/// Weir notices that it was stopped for this long.
const STOPPED: Micros = 2_000_000;
/// The time in which Weir sees that a node has started.
const NOTICED: Micros = 300_000;
const FROM: usize = 0;
const TO: usize = 1;

#[derive(Clone, Copy, Debug)]
struct Server {
    is_up: bool,
    is_primary: bool,
    timeline: u32,
    wal: u64,
    received: u64,
    /// Its connection to the primary works.
    streams: bool,
    /// It starts, until then.
    starts_until: Micros,
}

/// A node that runs and does not tell its state for some time.
#[derive(Clone, Debug)]
struct Mute {
    at: usize,
    from: Micros,
    until: Micros,
    fact: Fact,
}

/// An answer on its way.
#[derive(Debug)]
struct Mail {
    due: Micros,
    node: NodeId,
    fact: Fact,
    told: Replication,
    asked_at: Micros,
}

/// A command that runs.
#[derive(Debug)]
struct Command {
    order: Order,
    due: Micros,
    has_effect: bool,
    succeeds: bool,
}

pub(crate) struct Promotions {
    now: Micros,
    rng: Rng,
    trace: bool,
    servers: [Server; 3],
    cluster: Cluster,
    facts: Vec<Mail>,
    ask_at: [Micros; 3],
    mutes: Vec<Mute>,
    promotion: Option<Promotion>,
    command: Option<Command>,
    is_planned: bool,
    limits: Limits,
    commits: Commits,
    /// Server connections of clients at the old primary; they may end.
    in_use: u32,
    drains: bool,
    /// Standbys receive late.
    is_slow: bool,
    /// The primary sends no WAL to standbys from this time on.
    stalled_at: Micros,
    is_fenced: bool,
    /// The standby that an operator has detached.
    detached: Option<usize>,
    /// The old primary is started again then, although the fence has succeeded.
    returns_at: Micros,
    /// When it was started again, or 0.
    returned_at: Micros,
    /// Weir is stopped by a signal from this time on, and until the second one.
    stopped: (Micros, Micros),
    is_promoted: bool,
    was_started: bool,
    /// The ticks so far.
    pub(crate) steps: u64,
}

impl Promotions {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x5EED);
        let server = |at: usize| Server {
            is_up: true,
            is_primary: at == FROM,
            timeline: 1,
            wal: 1_000,
            received: 1_000,
            streams: true,
            starts_until: 0,
        };
        let settings = Settings { sample_interval: 1_000_000, health_timeout: 2_000_000 };
        let names = ["a", "b", "c"].map(str::to_owned);
        let overtime = if rng.one_in(3) { Overtime::Close } else { Overtime::Refuse };
        let by = if rng.one_in(3) { By::Manager } else { By::Weir };
        let max_loss = if rng.one_in(4) { Some(rng.below(400)) } else { None };
        let mut mutes = Vec::new();
        if rng.one_in(2) {
            let from = START - rng.below(400_000);
            let fact = match rng.one_in(3) {
                true => Fact::Silent,
                false => Fact::Unasked(Obstacle::Full),
            };
            let at = TO + rng.below(2) as usize;
            mutes.push(Mute { at, from, until: START + rng.below(6_000_000), fact });
        }
        Self {
            now: 0,
            trace,
            servers: std::array::from_fn(server),
            cluster: Cluster::new(settings, names, 0),
            facts: Vec::new(),
            ask_at: [0; 3],
            mutes,
            promotion: None,
            command: None,
            is_planned: rng.one_in(2),
            limits: Limits { drain: DRAIN, overtime, by, max_loss },
            commits: Commits::new(START, &mut rng),
            in_use: rng.below(4) as u32,
            drains: !rng.one_in(4),
            is_slow: rng.one_in(3),
            stalled_at: if rng.one_in(3) { START - rng.below(400_000) } else { Micros::MAX },
            is_fenced: false,
            detached: None,
            returns_at: Micros::MAX,
            returned_at: 0,
            stopped: (Micros::MAX, 0),
            is_promoted: false,
            was_started: false,
            steps: 0,
            rng,
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.now < START + BOUND {
            self.now += TICK;
            self.steps += 1;
            self.live();
            if self.stopped.0 <= self.now && self.now < self.stopped.1 {
                continue;
            }
            self.ask();
            self.finish_command();
            if self.now < START {
                continue;
            }
            if self.now == START {
                self.begin();
            }
            if self.promotion.is_none() && !self.is_planned {
                self.promotion =
                    Promotion::unplanned(&self.cluster, self.limits, &Past::default(), self.now);
            }
            if self.command.is_some() {
                continue;
            }
            let Some(promotion) = &mut self.promotion else { continue };
            match promotion.next(&self.cluster, self.in_use, self.now) {
                Ok(Order::Wait) => {}
                Ok(order) => self.carry_out(order)?,
                Err(end) => return self.check_end(&end),
            }
        }
        match self.promotion {
            Some(_) => Err("end: the promotion does not end".to_owned()),
            // The primary has not been lost long enough, or the switchover was refused.
            None => Ok(()),
        }
    }

    fn begin(&mut self) {
        if self.rng.one_in(4) {
            let at = TO + self.rng.below(2) as usize;
            self.detached = Some(at);
            self.cluster.set_detached(NodeId(at as u16), true);
            self.cluster.judge(self.now);
        }
        if self.is_planned {
            let to = NodeId(TO as u16);
            let begun = Promotion::planned(&self.cluster, to, self.limits, self.now);
            self.promotion = begun.ok();
        } else {
            self.servers[FROM].is_up = false;
            if self.rng.one_in(4) {
                self.servers[2].is_up = false;
            }
        }
    }

    /// Clients write, standbys receive and replay.
    fn live(&mut self) {
        let primary = self.servers[FROM];
        // Once clients wait, others may write on: those that do not go through Weir.
        if primary.is_up && primary.is_primary {
            self.servers[FROM].wal += self.rng.below(3) * 20;
        }
        if self.drains && self.now > START && self.rng.one_in(40) {
            self.in_use = self.in_use.saturating_sub(1);
        }
        for at in [TO, 2] {
            if self.rng.one_in(300) {
                self.servers[at].streams = !self.servers[at].streams;
            }
            let source = self.servers[FROM];
            let own = &mut self.servers[at];
            let is_stalled = self.stalled_at <= self.now && self.now < START;
            let receives = if self.is_slow { self.rng.one_in(40) } else { !self.rng.one_in(5) };
            if own.is_up
                && own.streams
                && source.is_up
                && !own.is_primary
                && receives
                && !is_stalled
            {
                own.received = own.received.max(source.wal);
            }
            if own.is_up && !self.rng.one_in(3) {
                own.wal = own.wal.max(own.received);
            }
        }
        if self.now >= self.returns_at {
            (self.servers[FROM].is_up, self.returns_at) = (true, Micros::MAX);
            self.returned_at = self.now;
            self.servers[FROM].starts_until = self.now + self.rng.below(400_000);
        }
        let primary = self.servers[FROM];
        let waits = self.promotion.is_some() && self.in_use == 0;
        if self.runs(FROM) && primary.is_primary && !waits {
            let received = [self.servers[TO].received, self.servers[2].received];
            self.commits.live(primary.wal, received, self.now, &mut self.rng);
        }
    }

    /// Does this server answer as what it is?
    fn runs(&self, at: usize) -> bool {
        self.servers[at].is_up && self.servers[at].starts_until <= self.now
    }

    fn sample(&self, at: usize) -> Sample {
        let own = &self.servers[at];
        let streams = own.streams && self.servers[FROM].is_up;
        let receiver = streams.then_some(Receiver { timeline: own.timeline });
        Sample {
            system: SYSTEM,
            started: at as u64,
            timeline: own.timeline,
            role: if own.is_primary { Role::Primary } else { Role::Standby(receiver) },
            wal: Lsn(own.wal),
            received: Lsn(own.received),
        }
    }

    fn ask(&mut self) {
        for at in 0..3 {
            if self.ask_at[at] > self.now {
                continue;
            }
            self.ask_at[at] = self.now + 20_000;
            let now = self.now;
            let is_mute = |mute: &&Mute| mute.at == at && mute.from <= now && now < mute.until;
            let mute = self.mutes.iter().find(is_mute).map(|mute| mute.fact.clone());
            let fact = match (mute, self.servers[at].is_up) {
                (Some(Fact::Silent), _) => Fact::Silent,
                (Some(fact), true) => fact,
                (None, true) if self.rng.one_in(30) => Fact::Silent,
                (None, true) if self.rng.one_in(30) => Fact::Unasked(Obstacle::SessionEnded),
                (None, true) if !self.runs(at) => Fact::Unready,
                (None, true) => Fact::Seen(self.sample(at)),
                (_, false) => Fact::Refused,
            };
            if !self.rng.one_in(10) {
                let due = self.now + self.rng.below(15_000);
                let streams = [TO, 2].map(|at| self.servers[at].is_up && self.servers[at].streams);
                let told =
                    self.commits.told(at, streams.map(|own| own && self.servers[FROM].is_up));
                let node = NodeId(at as u16);
                self.facts.push(Mail { due, node, fact, told, asked_at: now });
            }
        }
        let arrived: Vec<_> = self.facts.extract_if(.., |mail| mail.due <= self.now).collect();
        for Mail { node, fact, told, asked_at, .. } in arrived {
            if let Fact::Seen(sample) = &fact {
                if sample.role == Role::Primary && usize::from(node.0) == FROM {
                    self.commits.seen(&told, self.now);
                }
                self.cluster.learn_replication(node, told, asked_at);
            }
            self.cluster.learn(node, fact, asked_at);
        }
        self.cluster.judge(self.now);
    }

    fn carry_out(&mut self, order: Order) -> Result<(), String> {
        if self.trace {
            println!("{:>10} {order:?}; {:?}", self.now, self.servers);
        }
        let by_manager = self.is_planned && self.limits.by == By::Manager;
        if by_manager && !matches!(order, Order::Close | Order::Request(_)) {
            return Err(format!("manager: {order:?} is the cluster manager's"));
        }
        match order {
            Order::Close if self.now < START + DRAIN => {
                return Err("drain: closed before the time".to_owned());
            }
            Order::Stop(_) => {
                self.check_stop()?;
                // Its connection breaks before it has received the end.
                self.servers[TO].streams &= !self.rng.one_in(6);
                // Nothing is heard of it any more, whether it stops or not.
                if self.rng.one_in(3) {
                    let (from, until) = (self.now, self.now + 8_000_000);
                    self.mutes.push(Mute { at: FROM, from, until, fact: Fact::Silent });
                }
            }
            Order::Request(to) if self.detached == Some(usize::from(to.0)) => {
                return Err(format!("detached: {to:?} is to be the primary"));
            }
            Order::Request(_) => self.check_stop()?,
            Order::Promote(to) => self.check_promotion(usize::from(to.0))?,
            Order::Start(_) if self.is_promoted => {
                return Err("back: the old primary is started after a promotion".to_owned());
            }
            Order::Start(_) => self.was_started = true,
            Order::Wait | Order::Close | Order::Mark(_) | Order::Fence(_) => {}
        }
        let (has_effect, succeeds) = match self.rng.below(10) {
            0 => (false, false),
            1 => (true, false),
            2 if matches!(order, Order::Stop(_) | Order::Promote(_) | Order::Request(_)) => {
                (false, true)
            }
            _ => (true, true),
        };
        let due = self.now + self.rng.below(500_000);
        self.command = Some(Command { order, due, has_effect, succeeds });
        Ok(())
    }

    fn check_stop(&self) -> Result<(), String> {
        match self.in_use == 0 {
            true => Ok(()),
            false => Err(format!("drain: stopped with {} servers in use", self.in_use)),
        }
    }

    fn check_promotion(&mut self, to: usize) -> Result<(), String> {
        self.is_promoted = true;
        if self.detached == Some(to) {
            return Err(format!("detached: n{to} is promoted"));
        }
        let old = self.servers[FROM];
        let is_back = old.is_up && old.is_primary;
        if is_back && self.is_planned {
            return Err(format!("two: n{to} is promoted, and the old primary is {old:?}"));
        }
        if is_back && self.now < self.returned_at + STOPPED + NOTICED {
            // A start just before the order cannot be known.
            return Ok(());
        }
        if is_back {
            return Err(format!("returned: n{to} is promoted, and the old primary is {old:?}"));
        }
        if !self.is_planned && !self.is_fenced {
            return Err(format!("fence: n{to} is promoted without a fence"));
        }
        let has = self.servers[to].received;
        let lost = self.commits.acknowledged.saturating_sub(has);
        // The limit is for the WAL that was seen, and later WAL is not known.
        let may_lose = !self.is_planned && self.limits.max_loss.is_some();
        if lost > 0 && !may_lose {
            return Err(format!("loss: n{to} lacks {lost} acknowledged bytes"));
        }
        Ok(())
    }

    fn finish_command(&mut self) {
        let Some(Command { order, has_effect, succeeds, .. }) =
            self.command.take_if(|command| command.due <= self.now)
        else {
            return;
        };
        if has_effect {
            match order {
                Order::Stop(_) => {
                    for at in [TO, 2] {
                        if self.servers[at].is_up && self.servers[at].streams {
                            self.servers[at].received = self.servers[FROM].wal;
                        }
                    }
                    self.servers[FROM].is_up = false;
                }
                Order::Start(_) => self.servers[FROM].is_up = true,
                Order::Fence(_) => {
                    self.is_fenced = succeeds;
                    if self.rng.one_in(3) {
                        self.returns_at = self.now + self.rng.below(3_000_000);
                    }
                    if self.rng.one_in(3) {
                        let from = self.now + self.rng.below(1_000_000);
                        self.stopped = (from, from + self.rng.below(12_000_000));
                    }
                }
                Order::Promote(to) => {
                    let own = &mut self.servers[usize::from(to.0)];
                    (own.is_primary, own.wal, own.timeline) = (true, own.received, 2);
                }
                Order::Request(to) => {
                    let wal = self.servers[FROM].wal;
                    self.servers[FROM].is_up = false;
                    let own = &mut self.servers[usize::from(to.0)];
                    (own.is_primary, own.received, own.wal, own.timeline) = (true, wal, wal, 2);
                }
                Order::Close => self.in_use = 0,
                Order::Wait | Order::Mark(_) => {}
            }
        }
        let outcome = match (order, succeeds) {
            (_, false) => Outcome::Failed("test".to_owned()),
            (Order::Mark(_), true) => Outcome::At(Lsn(self.servers[FROM].wal)),
            (_, true) => Outcome::Done,
        };
        if let Some(promotion) = &mut self.promotion {
            promotion.done(outcome, self.now);
        }
    }

    fn check_end(&self, end: &Result<NodeId, Failure>) -> Result<(), String> {
        if self.trace {
            println!("{:>10} {end:?}; {:?}", self.now, self.servers);
        }
        let old = self.servers[FROM];
        match end {
            Ok(to) => {
                let new = self.servers[usize::from(to.0)];
                match new.is_primary && new.timeline == 2 {
                    true => Ok(()),
                    false => Err(format!("verify: {to:?} shall be the primary, and is {new:?}")),
                }
            }
            Err(why) if self.limits.by == By::Manager && self.is_planned => {
                match old.is_up || self.servers[TO].is_primary {
                    true => Ok(()),
                    false => Err(format!("start: there is no primary: {why}")),
                }
            }
            Err(why) if self.is_planned && !self.is_promoted && !old.is_up => {
                match self.was_started {
                    true => Ok(()),
                    false => Err(format!("start: the old primary is left stopped: {why}")),
                }
            }
            Err(_) => Ok(()),
        }
    }
}
