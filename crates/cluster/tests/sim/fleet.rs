//! Several Weirs in front of one cluster: members that are stopped, cut off from etcd or from a node,
//! restarted, and whose requests are lost before or after they had their effect. etcd itself is always
//! right. The checks know which member sends to which node, and when a node was promoted.

use std::collections::BTreeMap;

use cluster::fleet::{
    Answer, Gate, Holding, Me, Membership, News, Own, OwnAddress, Phase, Record, Request, Seen,
    Succession, TTL, Transaction, Turn, VIEW, Writer,
};
use cluster::{Micros, Verdict};

use crate::rng::Rng;

const STEP: Micros = 200_000;
const SYSTEM: u64 = 7;
/// A member renews its lease so often.
const RENEWAL: Micros = 2_000_000;
/// The kernel may remove an address so long after its life time.
const KERNELS_DELAY: Micros = 1_250_000;
/// Faults end after this time, and then the fleet must come to rest.
const CALM: Micros = 100_000_000;
const END: Micros = 170_000_000;
/// A leader may act on what others have told so long ago.
const LATELY: Micros = 40_000_000;
const NODES: [&str; 3] = ["a", "b", "c"];

/// A value in etcd.
#[derive(Clone, Debug)]
struct Stored {
    value: Vec<u8>,
    revision: i64,
    lease: i64,
}

#[derive(Debug, Default)]
struct Etcd {
    revision: i64,
    stored: BTreeMap<String, Stored>,
    /// When each lease ends.
    leases: BTreeMap<i64, Micros>,
    next_lease: i64,
    log: Vec<News>,
    /// Until when there was a record that a node is lost, by its path; None: there is one.
    told: BTreeMap<String, Option<Micros>>,
    /// When each member has registered first, by the path of its record.
    joined: BTreeMap<String, Micros>,
    /// The report of a check.
    broken: Option<String>,
}

impl Etcd {
    fn expire(&mut self, now: Micros) {
        let over: Vec<_> =
            self.leases.iter().filter(|(_, end)| **end <= now).map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| self.revoke(lease, now));
    }

    fn revoke(&mut self, lease: i64, now: Micros) {
        self.leases.remove(&lease);
        let gone: Vec<_> = self
            .stored
            .iter()
            .filter(|(_, own)| own.lease == lease)
            .map(|(path, _)| path.clone())
            .collect();
        if !gone.is_empty() {
            self.revision += 1;
        }
        for path in gone {
            self.delete(&path, now);
        }
    }

    fn end_report(&mut self, path: &str, now: Micros) {
        if let Some(until) = self.told.get_mut(path) {
            until.get_or_insert(now);
        }
    }

    fn delete(&mut self, path: &str, now: Micros) {
        self.end_report(path, now);
        if self.stored.remove(path).is_some() {
            let (path, revision) = (path.to_owned(), self.revision);
            self.log.push(News { path, value: None, revision });
        }
    }

    fn all(&self) -> Answer {
        let records = self.stored.iter();
        let records = records.map(|(path, own)| News {
            path: path.clone(),
            value: Some(own.value.clone()),
            revision: own.revision,
        });
        Answer::Loaded { records: records.collect(), revision: self.revision }
    }

    fn change(&mut self, change: &Transaction, now: Micros) -> Answer {
        let revision_of = |path: &String| self.stored.get(path).map_or(0, |own| own.revision);
        if change.checks.iter().any(|(path, revision)| revision_of(path) != *revision) {
            return Answer::Refused;
        }
        let needs_lease = change.puts.iter().any(Record::is_leased);
        if needs_lease && !self.leases.contains_key(&change.lease) {
            return Answer::Failed("requested lease not found".to_owned());
        }
        if !change.puts.is_empty() || !change.deletes.is_empty() {
            self.revision += 1;
        }
        for path in &change.deletes {
            self.delete(path, now);
        }
        self.check_loss(change, now);
        for record in &change.puts {
            match record {
                Record::Seen(_, _, seen) if seen.is_lost => {
                    self.told.insert(record.path(), None);
                }
                _ => self.end_report(&record.path(), now),
            }
            self.joined.entry(record.path()).or_insert(now);
            let lease = if record.is_leased() { change.lease } else { 0 };
            let (value, revision) = (record.value().into_bytes(), self.revision);
            self.log.push(News { path: record.path(), value: Some(value.clone()), revision });
            self.stored.insert(record.path(), Stored { value, revision, lease });
        }
        if change.is_loading { self.all() } else { Answer::Done }
    }

    /// A term is closed only if a majority of all members have told that the writer is lost. The leader
    /// may not have told it yet.
    fn check_loss(&mut self, change: &Transaction, now: Micros) {
        let [Record::Term(term)] = &change.puts[..] else { return };
        let is_begun = |own: &Stored| own.value.windows(7).any(|word| word == b"serving");
        let was_serving = self.stored.get("term").is_some_and(is_begun);
        if !was_serving || !matches!(term.phase, Phase::Closed { .. }) {
            return;
        }
        // The leader may not know of a member that has just come.
        let is_known = |path: &&String| self.joined[*path] + LATELY < now;
        let members = self.stored.keys().filter(|path| path.starts_with("members/"));
        let members = members.filter(is_known).count();
        let is_about = |path: &str| path.ends_with(&format!("/{}", term.writer.node));
        let told = self.told.iter().filter(|(path, until)| {
            is_about(path) && until.is_none_or(|until| until + LATELY > now)
        });
        let told = told.count();
        if told + 1 < members / 2 + 1 {
            self.broken =
                Some(format!("fleet majority: {told} of {members} members have told the loss"));
        }
    }

    fn obey(&mut self, request: &Request, now: Micros) -> Answer {
        self.expire(now);
        match request {
            Request::Load => self.all(),
            Request::Grant => {
                self.next_lease += 1;
                self.leases.insert(self.next_lease, now + TTL as Micros * 1_000_000);
                Answer::Granted(self.next_lease)
            }
            Request::Change(change) => self.change(change, now),
            Request::Revoke(lease) => {
                self.revoke(*lease, now);
                Answer::Done
            }
        }
    }

    fn renew(&mut self, lease: i64, now: Micros) -> bool {
        self.expire(now);
        let end = self.leases.get_mut(&lease);
        end.map(|end| *end = now + TTL as Micros * 1_000_000).is_some()
    }
}

/// A request on its way to etcd, or its answer on the way back.
#[derive(Debug)]
struct Trip {
    request: Request,
    way: Way,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Way {
    /// When etcd obeys it; None: it was lost on the way, or it was obeyed.
    arrives: Option<Micros>,
    returns: Micros,
    /// The answer is lost.
    is_lost: bool,
}

/// A renewal of a lease.
#[derive(Debug)]
struct Renewal {
    lease: i64,
    asked_at: Micros,
    way: Way,
    was_renewed: Option<bool>,
}

/// The work of the member's process about a loss.
#[derive(Debug)]
enum Work {
    None,
    /// It waits for the turn of this step.
    Step(Succession, Next),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Fence,
    Order,
    Promote(usize),
    End(usize),
    /// The change is over when the last term is written.
    Rest,
}

#[derive(Debug)]
struct Weir {
    name: String,
    membership: Membership,
    /// Its clock shows `now` plus this.
    offset: Micros,
    /// The process does nothing until then.
    stopped_until: Micros,
    /// Etcd, or the writer, cannot be reached until then.
    cut_until: Micros,
    blind_until: Micros,
    is_down_until: Micros,
    trip: Option<Trip>,
    renewal: Option<Renewal>,
    renewed_at: Micros,
    /// The part of etcd's log that it has watched.
    watched: usize,
    watch_due: Micros,
    /// The watch has ended.
    has_gap: bool,
    /// The node that the pools may use, as they were told.
    open_at: Option<usize>,
    /// A server is in use there.
    busy_at: Option<usize>,
    /// The transaction there, and its end by order, take about so many turns.
    slowness: u64,
    waits_in: u64,
    /// When it has seen the primary last, by its own clock, and which.
    sees: (Micros, Option<usize>),
    work: Work,
    /// An operator stops the process, and it leaves first.
    is_leaving: bool,
    /// When the kernel of its machine removes the virtual address; None: it is not there.
    address: Option<Micros>,
    /// The predecessor sends to this node until then, by the clock of both.
    ghost: Option<(usize, Micros)>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    is_up: bool,
    is_primary: bool,
    timeline: u32,
    /// It was fenced: it comes back only as a standby.
    is_fenced: bool,
}

impl Node {
    fn standby(timeline: u32) -> Self {
        Self { is_up: true, is_primary: false, timeline, is_fenced: false }
    }
}

pub(crate) struct Fleet {
    now: Micros,
    rng: Rng,
    trace: bool,
    etcd: Etcd,
    weirs: Vec<Weir>,
    nodes: [Node; 3],
    /// The last node that was promoted: sending to another one is a fault.
    promoted: usize,
    /// Orders to promote a node, with their senders, and when they have their effect.
    orders: Vec<(Micros, usize, String)>,
    /// The last promotion that was ordered in each term.
    pub(crate) promotions: u64,
    pub(crate) steps: u64,
    serial: u64,
}

impl Fleet {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xF1EE7);
        let count = [1, 2, 3, 3, 3, 5][rng.below(6) as usize];
        let node = |at| Node { is_primary: at == 0, ..Node::standby(1) };
        let mut fleet = Self {
            now: 1_000_000,
            rng,
            trace,
            etcd: Etcd { revision: 1, ..Etcd::default() },
            weirs: Vec::new(),
            nodes: [node(0), node(1), node(2)],
            promoted: 0,
            orders: Vec::new(),
            promotions: 0,
            steps: 0,
            serial: 0,
        };
        for at in 0..count {
            let weir = fleet.weir(format!("w{at}"));
            fleet.weirs.push(weir);
        }
        fleet
    }

    fn weir(&mut self, name: String) -> Weir {
        self.serial += 1;
        let me = Me {
            member: name.clone(),
            instance: self.serial.to_string(),
            version: "1".to_owned(),
            follows: false,
            shared_until: 0,
            address_until: 0,
        };
        Weir {
            name,
            membership: Membership::new(me),
            offset: self.rng.below(1_000_000_000),
            stopped_until: 0,
            cut_until: 0,
            blind_until: 0,
            is_down_until: 0,
            trip: None,
            renewal: None,
            renewed_at: 0,
            watched: self.etcd.log.len(),
            watch_due: 0,
            has_gap: true,
            open_at: None,
            busy_at: None,
            slowness: 1,
            waits_in: 0,
            sees: (0, None),
            work: Work::None,
            is_leaving: false,
            address: None,
            ghost: None,
        }
    }

    fn note(&self, what: &str) {
        if self.trace {
            println!("{:>9.3} {what}", self.now as f64 / 1e6);
        }
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        while self.now < END {
            self.now += 1 + self.rng.below(STEP);
            self.steps += 1;
            if self.now < CALM {
                self.fault();
            } else {
                self.calm();
            }
            self.etcd.expire(self.now);
            if let Some(why) = self.etcd.broken.take() {
                return Err(why);
            }
            let now = self.now;
            let due: Vec<_> = self.orders.extract_if(.., |(due, ..)| *due <= now).collect();
            for (_, to, leader) in due {
                if self.nodes[to].is_up {
                    self.promote(to, &leader)?;
                }
            }
            for at in 0..self.weirs.len() {
                self.clients(at)?;
                self.turn(at)?;
                self.check_address()?;
            }
        }
        self.at_rest()
    }

    /// Two machines never have the virtual address.
    fn check_address(&self) -> Result<(), String> {
        let has_it = |weir: &&Weir| weir.address.is_some_and(|until| until > self.now);
        let holders: Vec<_> = self.weirs.iter().filter(has_it).map(|own| &own.name).collect();
        match holders.len() > 1 {
            true => Err(format!("fleet address: {holders:?} have the address")),
            false => Ok(()),
        }
    }

    /// The process gives its machine the address, or takes it away.
    fn keep_address(&mut self, at: usize, clock: Micros) {
        let late = self.rng.below(KERNELS_DELAY);
        let weir = &mut self.weirs[at];
        weir.address.take_if(|until| *until <= self.now);
        match weir.membership.holding(clock) {
            Holding::For(seconds) => {
                weir.address = Some(self.now + Micros::from(seconds) * 1_000_000 + late);
            }
            Holding::Inherited => {}
            // The order for the kernel may come later.
            Holding::No => drop(weir.address.take_if(|_| self.rng.one_in(2))),
        }
    }

    /// All faults have ended: the fleet must serve again.
    fn at_rest(&self) -> Result<(), String> {
        if !self.weirs.iter().any(|weir| weir.address.is_some_and(|until| until > self.now)) {
            return Err("fleet rest: nobody has the address".to_owned());
        }
        for weir in &self.weirs {
            let node = weir.open_at.map(|at| &self.nodes[at]);
            if node.is_none_or(|node| !node.is_up || !node.is_primary) {
                let (now, view) = (self.now + weir.offset, weir.membership.view());
                let gate = weir.membership.gate(None, now);
                return Err(format!(
                    "fleet rest: {} does not serve: {gate:?}, {:?}, term {:?}, leader {:?}, {:?}",
                    weir.name,
                    weir.membership.trouble(),
                    view.term,
                    view.leader,
                    weir.work
                ));
            }
        }
        Ok(())
    }

    fn fault(&mut self) {
        if !self.rng.one_in(60) {
            return;
        }
        let at = self.rng.below(self.weirs.len() as u64) as usize;
        let long = self.now + self.rng.below(30_000_000);
        match self.rng.below(11) {
            0 | 1 => self.weirs[at].stopped_until = long,
            2 | 3 => self.weirs[at].cut_until = long,
            4 => self.weirs[at].blind_until = long,
            5 => {
                self.note(&format!("{} is killed", self.weirs[at].name));
                self.restart(at, long);
            }
            6 => {
                self.weirs[at].has_gap = true;
                self.weirs[at].membership.missed();
            }
            7 => {
                // A machine with a primary is gone.
                if let Some(at) = self.nodes.iter().position(|node| node.is_up && node.is_primary) {
                    self.note(&format!("node {} is lost", NODES[at]));
                    self.nodes[at].is_up = false;
                }
            }
            8 => self.replace(at),
            9 => self.weirs[at].is_leaving = true,
            _ => {
                // A node comes back as it was, or as a standby.
                let at = self.rng.below(3) as usize;
                let highest = self.nodes.iter().map(|node| node.timeline).max().unwrap_or(1);
                let node = &mut self.nodes[at];
                if !node.is_up {
                    node.is_up = true;
                    if node.timeline < highest || node.is_fenced {
                        *node = Node::standby(highest);
                    }
                }
            }
        }
    }

    /// The process has ended, and another one starts later.
    fn restart(&mut self, at: usize, down_until: Micros) {
        let (name, address) = (self.weirs[at].name.clone(), self.weirs[at].address);
        self.weirs[at] = Weir { is_down_until: down_until, address, ..self.weir(name) };
    }

    /// An online restart: the new process has the name and the instance, and the old one still serves
    /// a client that cannot move.
    fn replace(&mut self, at: usize) {
        let (clock, old) = (self.now + self.weirs[at].offset, &self.weirs[at]);
        let is_running = old.is_down_until <= self.now && old.stopped_until <= self.now;
        let is_running = is_running && !old.is_leaving;
        if !is_running || matches!(old.work, Work::Step(..)) || old.ghost.is_some() {
            return;
        }
        let until = old.membership.lease().until();
        let ghost = old.busy_at.or(old.open_at).filter(|_| clock < until);
        let (offset, me) = (old.offset, old.membership.me().clone());
        let address = old.address;
        let me = Me { shared_until: until, address_until: clock + VIEW, ..me };
        self.note(&format!("{} is replaced", me.member));
        let fresh = self.weir(me.member.clone());
        let ghost = ghost.map(|node| (node, until));
        let membership = Membership::new(me);
        self.weirs[at] = Weir { membership, offset, ghost, address, ..fresh };
    }

    fn calm(&mut self) {
        for weir in &mut self.weirs {
            weir.stopped_until = 0;
            weir.cut_until = 0;
            weir.blind_until = 0;
        }
        let highest = self.nodes.iter().map(|node| node.timeline).max().unwrap_or(1);
        let has_primary = self.nodes.iter().any(|node| node.is_up && node.is_primary);
        for node in &mut self.nodes {
            if !node.is_up && (node.timeline < highest || node.is_fenced) {
                *node = Node::standby(highest);
            }
            if !node.is_up && !has_primary && self.now > CALM + 30_000_000 {
                node.is_up = true;
            }
        }
    }

    /// A worker of this Weir sends to the server that it has, also just before its process is stopped.
    fn clients(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        let weir = &mut self.weirs[at];
        if weir.is_down_until > now || weir.stopped_until > now {
            return Ok(());
        }
        let clock = now + weir.offset;
        // The worker compares the end of the lease with a fresh clock.
        if !weir.membership.lease().holds(clock) {
            weir.busy_at = None;
            return Ok(());
        }
        if weir.busy_at.is_none() {
            weir.busy_at = weir.open_at;
            weir.slowness = if self.rng.one_in(10) { 40 } else { 3 };
        }
        let ghost = weir.ghost.take_if(|(_, until)| clock >= *until).or(weir.ghost);
        let ghost = ghost.filter(|(_, until)| clock < *until).map(|(node, _)| node);
        let sends_to = weir.busy_at.or(ghost);
        if self.rng.one_in(self.weirs[at].slowness) {
            self.weirs[at].busy_at = None;
        }
        match sends_to {
            Some(node) if node != self.promoted => Err(format!(
                "fleet writer: {} sends to node {}, and node {} was promoted",
                self.weirs[at].name, NODES[node], NODES[self.promoted]
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn turn(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        if self.weirs[at].is_down_until > now || self.weirs[at].stopped_until > now {
            // Requests on their way still arrive.
            self.travel(at);
            return Ok(());
        }
        self.travel(at);
        self.look(at);
        let mut own = self.own(at);
        self.receive(at, &own);
        self.watch(at);
        let clock = now + self.weirs[at].offset;
        self.apply_gate(at, &own, clock);
        self.keep_address(at, clock);
        if self.weirs[at].is_leaving && self.weirs[at].membership.has_left() {
            let until = now + self.rng.below(30_000_000);
            self.restart(at, until);
            return Ok(());
        }
        self.work(at, clock)?;
        let weir = &self.weirs[at];
        (own.waits_in, own.is_changing) = (weir.waits_in, !matches!(weir.work, Work::None));
        own.address.is_up = weir.address.is_some();
        self.ask(at, &own, clock);
        Ok(())
    }

    /// Requests reach etcd.
    fn travel(&mut self, at: usize) {
        let (now, weir) = (self.now, &mut self.weirs[at]);
        if let Some(trip) = &mut weir.trip
            && trip.way.arrives.take_if(|arrives| *arrives <= now).is_some()
        {
            trip.answer = Some(self.etcd.obey(&trip.request, now));
        }
        if let Some(renewal) = &mut weir.renewal
            && renewal.way.arrives.take_if(|arrives| *arrives <= now).is_some()
        {
            renewal.was_renewed = Some(self.etcd.renew(renewal.lease, now));
        }
    }

    /// Answers reach the member.
    fn receive(&mut self, at: usize, own: &Own) {
        let (now, weir) = (self.now, &mut self.weirs[at]);
        let clock = now + weir.offset;
        if let Some(trip) = weir.trip.take_if(|trip| trip.way.returns <= now) {
            let answer = match trip.answer {
                Some(answer) if !trip.way.is_lost => answer,
                Some(_) | None => Answer::Failed("no answer".to_owned()),
            };
            // A watch that has ended begins again at the revision that was read.
            if let Answer::Loaded { revision, .. } = &answer
                && std::mem::take(&mut weir.has_gap)
            {
                let later = |own: &News| own.revision > *revision;
                weir.watched = self.etcd.log.iter().position(later).unwrap_or(self.etcd.log.len());
            }
            weir.membership.done(&trip.request, answer, own, clock);
        }
        if let Some(renewal) = weir.renewal.take_if(|renewal| renewal.way.returns <= now) {
            match renewal.was_renewed {
                Some(true) if !renewal.way.is_lost => {
                    weir.membership.renewed(renewal.lease, renewal.asked_at);
                }
                Some(false) if !renewal.way.is_lost => weir.membership.ended(renewal.lease),
                Some(_) | None => {}
            }
        }
    }

    fn watch(&mut self, at: usize) {
        let (now, weir) = (self.now, &mut self.weirs[at]);
        if weir.watch_due > now || weir.cut_until > now || weir.has_gap {
            return;
        }
        let longest = if self.rng.one_in(50) { 5_000_000 } else { 200_000 };
        weir.watch_due = now + self.rng.below(longest);
        let mut news = self.etcd.log.get(weir.watched..).unwrap_or_default();
        if self.rng.one_in(3) && !news.is_empty() {
            // Changes of one revision come together.
            let last = news[self.rng.below(news.len() as u64) as usize].revision;
            news = &news[..news.partition_point(|own| own.revision <= last)];
        }
        weir.membership.learn(news);
        weir.watched += news.len();
    }

    /// The member asks the nodes.
    fn look(&mut self, at: usize) {
        let is_blind = self.weirs[at].blind_until > self.now;
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up && node.is_primary);
        let primary = up.max_by_key(|(_, node)| node.timeline).map(|(at, _)| at);
        let weir = &mut self.weirs[at];
        weir.sees = (self.now + weir.offset, primary.filter(|_| !is_blind));
    }

    fn own(&self, at: usize) -> Own {
        let weir = &self.weirs[at];
        let (_, seen) = weir.sees;
        let writer = |node: usize| Writer {
            node: NODES[node].to_owned(),
            timeline: self.nodes[node].timeline,
            system: SYSTEM,
        };
        let term = weir.membership.view().present();
        let is_lost =
            |name: &str| seen.is_none() && term.is_some_and(|term| term.writer.node == *name);
        let nodes = NODES.map(|name| {
            let sees = seen.is_some_and(|node| NODES[node] == name);
            let state = if sees { Verdict::Writable.word() } else { "x" }.to_owned();
            let seen = Seen { state, why: String::new(), is_lost: is_lost(name) };
            (name.to_owned(), seen)
        });
        Own {
            primary: seen.map(writer),
            nodes: nodes.into(),
            waits_in: weir.waits_in,
            is_changing: !matches!(weir.work, Work::None),
            is_leaving: weir.is_leaving,
            address: OwnAddress { is_wanted: true, is_up: weir.address.is_some() },
        }
    }

    /// The pools are told.
    fn apply_gate(&mut self, at: usize, own: &Own, clock: Micros) {
        let weir = &mut self.weirs[at];
        let primary = own.primary.as_ref();
        let gate = weir.membership.gate(primary, clock);
        let node = primary.and_then(|own| NODES.iter().position(|name| *name == own.node));
        weir.open_at = match gate {
            Gate::Open => node,
            Gate::Wait(_) | Gate::Drain(_) => None,
            Gate::Cut(_) => {
                // Workers close their connections later.
                weir.busy_at.take_if(|_| self.rng.one_in(weir.slowness));
                None
            }
        };
        let is_idle = weir.open_at.is_none() && weir.busy_at.is_none();
        if is_idle && let Some(term) = weir.membership.view().present() {
            weir.waits_in = term.number;
        }
    }

    /// The leader replaces a lost primary.
    fn work(&mut self, at: usize, clock: Micros) -> Result<(), String> {
        let work = std::mem::replace(&mut self.weirs[at].work, Work::None);
        let weir = &mut self.weirs[at];
        let Work::Step(mut change, next) = work else {
            let lost = weir.membership.view().present().map(|term| term.writer.node.clone());
            let Some(node) = lost.filter(|_| weir.sees.1.is_none()) else { return Ok(()) };
            if let Ok(change) = Succession::after_loss(&mut weir.membership, &node, clock) {
                let next = match &change.term().phase {
                    Phase::Closed { ordered: Some(node), .. } => {
                        Next::Promote(NODES.iter().position(|own| own == node).unwrap_or(0))
                    }
                    Phase::Closed { is_fenced: true, .. } => Next::Order,
                    Phase::Serving | Phase::Draining { .. } | Phase::Closed { .. } => Next::Fence,
                };
                weir.work = Work::Step(change, next);
                self.note(&format!("{} begins with {next:?}", self.weirs[at].name));
            }
            return Ok(());
        };
        let next = match change.turn(&mut weir.membership, clock) {
            Turn::Lost(_) => return Ok(()),
            Turn::Later(_) => next,
            Turn::Now => match next {
                Next::Fence => {
                    // The primary has come back before.
                    if weir.sees.1.is_some() {
                        return Ok(());
                    }
                    let old = NODES.iter().position(|own| *own == change.term().writer.node);
                    let old = old.unwrap_or(0);
                    self.nodes[old].is_up = false;
                    self.nodes[old].is_fenced = true;
                    change.fenced(&mut weir.membership, clock);
                    Next::Order
                }
                Next::Order => {
                    let best = self.nodes.iter().enumerate().filter(|(_, own)| own.is_up);
                    let Some((to, _)) = best.max_by_key(|(_, own)| own.timeline) else {
                        weir.work = Work::Step(change, next);
                        return Ok(());
                    };
                    change.orders(NODES[to], &mut weir.membership, clock);
                    Next::Promote(to)
                }
                Next::Promote(to) => {
                    if !self.nodes[to].is_up {
                        return Ok(());
                    }
                    // The order has its effect a moment later, whatever happens to its sender.
                    let due = self.now + self.delay();
                    self.orders.push((due, to, self.weirs[at].name.clone()));
                    Next::End(to)
                }
                Next::End(to) if !self.nodes[to].is_primary => next,
                Next::End(to) => {
                    let node = self.nodes[to];
                    let writer = Writer {
                        node: NODES[to].to_owned(),
                        timeline: node.timeline,
                        system: SYSTEM,
                    };
                    change.ends(writer, &mut self.weirs[at].membership, clock);
                    Next::Rest
                }
                Next::Rest => return Ok(()),
            },
        };
        self.weirs[at].work = Work::Step(change, next);
        Ok(())
    }

    fn promote(&mut self, to: usize, leader: &str) -> Result<(), String> {
        if self.nodes[to].is_primary {
            return Ok(());
        }
        self.note(&format!("{leader} promotes {}", NODES[to]));
        let others = self.nodes.iter().enumerate();
        let other = others.clone().find(|(at, own)| *at != to && own.is_primary && own.is_up);
        if let Some((at, _)) = other {
            return Err(format!(
                "fleet fence: {leader} promotes {} while {} accepts writes",
                NODES[to], NODES[at]
            ));
        }
        // From here on a byte for another node is a lost write.
        for weir in &self.weirs {
            let clock = self.now + weir.offset;
            let sends = weir.busy_at.or(weir.open_at).filter(|node| *node != to);
            let may_send = weir.membership.lease().holds(clock) && weir.is_down_until <= self.now;
            if let Some(node) = sends.filter(|_| may_send) {
                return Err(format!(
                    "fleet confirmed: {leader} promotes {} while {} may send to {}",
                    NODES[to], weir.name, NODES[node]
                ));
            }
        }
        let highest = self.nodes.iter().map(|node| node.timeline).max().unwrap_or(1);
        self.nodes[to] = Node { is_primary: true, ..Node::standby(highest + 1) };
        self.promoted = to;
        self.promotions += 1;
        Ok(())
    }

    /// The member sends its next request, and renews its lease.
    fn ask(&mut self, at: usize, own: &Own, clock: Micros) {
        let now = self.now;
        let is_cut = self.weirs[at].cut_until > now;
        if self.weirs[at].trip.is_none()
            && let Some(request) = self.weirs[at].membership.next(own, clock)
        {
            let way = self.way(is_cut);
            self.weirs[at].trip = Some(Trip { request, way, answer: None });
        }
        let weir = &self.weirs[at];
        if weir.renewal.is_none()
            && now >= weir.renewed_at + RENEWAL
            && let Some(lease) = weir.membership.kept_lease()
        {
            let way = self.way(is_cut);
            let weir = &mut self.weirs[at];
            weir.renewed_at = now;
            weir.renewal = Some(Renewal { lease, asked_at: clock, way, was_renewed: None });
        }
    }

    /// Draws how a request travels.
    fn way(&mut self, is_cut: bool) -> Way {
        let arrives = self.now + self.delay();
        let is_lost = self.rng.one_in(20);
        let reaches = !is_cut && !self.rng.one_in(30);
        let returns =
            if is_lost || !reaches { self.now + 2_000_000 } else { arrives + self.delay() };
        Way { arrives: reaches.then_some(arrives), returns, is_lost }
    }

    fn delay(&mut self) -> Micros {
        if self.rng.one_in(40) { self.rng.below(3_000_000) } else { self.rng.below(50_000) }
    }
}
