//! Clients, Weir, and the nodes: the steps of a run, and the checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::{Balance, Cluster, Config, Database, Host, Node as Configured, PoolMode};
use config::{ReadAfterWrite, ReadsGo, WhenStale};
use engine::ids::{Micros, NodeId};
use engine::routing::freshness::PrimaryLog;
use engine::routing::readers::{Reader, Readers};
use engine::routing::rules::Catalog;
use engine::settings::{Primary, Target};
use engine::switches::{Fitness, PrimaryState, Switches};
use wire::{HEADER_LEN, Header, backend};

use super::Dice;
use super::node::{Node, Request, position};
use crate::messages::*;
use crate::rig::{Client, Rig};

const CLIENTS: usize = 6;
const HOSTS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
const MAX_STALENESS: Micros = 400_000;
const STALE_WAIT: Micros = 200_000;
/// The reads of each session after which the sessions are spread evenly.
const ROUNDS: usize = 4;
/// The engines are told of the time at least so often.
const TICK: Micros = 100_000;

/// An application, and its request if that has no answer yet.
struct Application {
    client: Client,
    /// The number of commits behind its last write that was acknowledged.
    wrote: usize,
    /// The number of commits that its last read has shown.
    shown: usize,
    asked: Option<Asked>,
    /// The node that has answered its last read.
    read_at: usize,
}

#[derive(Clone, Debug)]
struct Asked {
    text: String,
    at: Micros,
    /// Commits that the answer must show, if it is a read.
    must_see: usize,
    /// The number of connections that it has lost. The second one costs an error: the request may be
    /// the cause.
    losses: usize,
    /// The primary has changed since, so an error is allowed.
    may_fail: bool,
    /// The number of commits that such a change has kept. An answer may show others, which are lost.
    kept: usize,
}

pub(super) struct Fleet {
    rig: Rig,
    which: ReadAfterWrite,
    balance: Balance,
    switches: Switches,
    catalog: Arc<Catalog>,
    readers: Arc<Readers>,
    log: PrimaryLog,
    nodes: [Node; 3],
    primary: usize,
    /// The moment of each commit of the primary's log.
    commits: Vec<Micros>,
    /// The number of times that each text was executed.
    executed: BTreeMap<String, usize>,
    applications: Vec<Application>,
    /// When the question for a sample of the primary was sent.
    asked_at: Micros,
    ticked_at: Micros,
    texts: usize,
    pub(super) is_told: bool,
    pub(super) reads: usize,
    pub(super) on_standbys: usize,
    pub(super) waited: usize,
    pub(super) moved: usize,
    pub(super) promotions: usize,
}

fn configure(config: &mut Config, which: ReadAfterWrite, balance: Balance, dice: &mut Dice) {
    let node = |(name, host): (&str, &str)| Configured {
        name: name.to_owned(),
        host: Host::Tcp(host.to_owned()),
        port: 5432,
        weight: 1,
    };
    let nodes = ["a", "b", "c"].into_iter().zip(HOSTS).map(node).collect();
    config.clusters.insert("main".to_owned(), Cluster { nodes, ..Cluster::default() });
    config.global.pool_mode = PoolMode::Auto;
    config.global.default_pool_size = [1, 2, 20][dice.below(3)];
    let app: &mut Database =
        Arc::make_mut(config.databases.get_mut("app").expect("the base has it"));
    app.cluster = Some("main".to_owned());
    app.reads = ReadsGo::Standby;
    app.read_after_write = which;
    app.max_staleness = std::time::Duration::from_micros(MAX_STALENESS);
    app.stale_wait = std::time::Duration::from_micros(STALE_WAIT);
    app.when_stale = if dice.once_in(2) { WhenStale::Wait } else { WhenStale::Primary };
    app.balance = balance;
}

impl Fleet {
    pub(super) fn new(which: ReadAfterWrite, dice: &mut Dice) -> Self {
        let workers = 1 + dice.below(2);
        let balance = if dice.once_in(2) { Balance::Statement } else { Balance::Session };
        let rig = Rig::with_workers(workers, |config| configure(config, which, balance, dice));
        // The pool is made by its first client.
        rig.client().leave();
        let readers = Arc::new(Readers::new(["a", "b", "c"].map(|name| (name.to_owned(), 1))));
        let mut switches = Switches::default();
        switches.set_readers("main", readers.clone());
        let catalog = Arc::new(Catalog::new(Default::default(), 1, false, 0));
        switches.set_catalog("app", catalog.clone());
        let mut nodes: [Node; 3] = Default::default();
        nodes[1..].iter_mut().for_each(|node| node.follows = true);
        let mut fleet = Self {
            which,
            balance,
            switches,
            catalog,
            readers,
            log: PrimaryLog::new(8_192),
            nodes,
            primary: 0,
            commits: Vec::new(),
            executed: BTreeMap::new(),
            applications: Vec::new(),
            asked_at: rig.now(),
            ticked_at: rig.now(),
            texts: 0,
            is_told: false,
            reads: 0,
            on_standbys: 0,
            waited: 0,
            moved: 0,
            promotions: 0,
            rig,
        };
        fleet.publish();
        for number in 0..CLIENTS {
            let client = fleet.rig.client_at(number % workers);
            let application = Application { client, wrote: 0, shown: 0, asked: None, read_at: 0 };
            fleet.applications.push(application);
        }
        fleet
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>9} {}", self.rig.now(), what());
        }
    }

    /// One random step.
    pub(super) fn step(&mut self, dice: &mut Dice) {
        match dice.below(40) {
            0..=7 => self.pass(100 + dice.below(20_000) as Micros),
            8..=17 => self.ask(dice.below(CLIENTS), dice),
            18..=25 => self.answer(dice),
            26..=28 => self.asked_at = self.rig.now(),
            29..=31 => self.sample(dice),
            32..=35 => self.replay(1 + dice.below(2), dice.below(4)),
            36 => self.commit("elsewhere"),
            37 if dice.once_in(4) => self.lose(1 + dice.below(3), dice),
            38 if dice.once_in(4) => self.fall_silent(dice.below(3)),
            39 if dice.once_in(12) => self.promote(dice.below(3), dice),
            _ => {}
        }
        self.look();
    }

    /// Lets time pass.
    fn pass(&mut self, time: Micros) {
        self.rig.later(time);
        if self.rig.now() - self.ticked_at >= TICK {
            self.ticked_at = self.rig.now();
            self.rig.wait_ms(0);
            self.deliver();
        }
        for application in &self.applications {
            let Some(asked) = &application.asked else { continue };
            let is_sent = self.nodes.iter().any(|node| node.has(&asked.text));
            let waits = self.rig.now() - asked.at;
            let limit = STALE_WAIT + 4 * TICK;
            // A pool with few servers has a queue.
            let may_wait = is_sent || self.nodes.iter().any(|node| !node.requests.is_empty());
            assert!(
                may_wait || waits <= limit,
                "{asked:?} is nowhere after {waits} µs: {}",
                self.rig.pools()
            );
        }
    }

    /// A client writes or reads.
    fn ask(&mut self, at: usize, dice: &mut Dice) {
        if self.applications[at].asked.is_none() {
            self.send(at, dice.once_in(3));
        }
    }

    fn send(&mut self, at: usize, writes: bool) {
        self.texts += 1;
        let text = match writes {
            true => format!("update t set a = {}", self.texts),
            false => format!("select {}", self.texts),
        };
        let known = self.applications.iter().map(|own| own.wrote).max().unwrap_or(0);
        let must_see = match self.which {
            ReadAfterWrite::Session => self.applications[at].wrote.max(self.applications[at].shown),
            ReadAfterWrite::User => known.max(self.applications[at].shown),
            ReadAfterWrite::Strict => self.commits.len(),
            ReadAfterWrite::Off => 0,
        };
        let now = self.rig.now();
        let oldest = now.saturating_sub(MAX_STALENESS);
        let must_see = must_see.max(self.commits.partition_point(|moment| *moment < oldest));
        self.tell(|| format!("client {at}: {text}, must see {must_see}"));
        let kept = usize::MAX;
        let asked =
            Asked { text: text.clone(), at: now, must_see, losses: 0, may_fail: false, kept };
        self.applications[at].asked = Some(asked);
        self.applications[at].client.send([query(&text)]);
        self.deliver();
        self.waited += usize::from(!writes && !self.nodes.iter().any(|node| node.has(&text)));
    }

    /// Some server with a request answers.
    fn answer(&mut self, dice: &mut Dice) {
        let waiting = |node: &usize| !self.nodes[*node].requests.is_empty();
        let ready: Vec<_> =
            (0..3).filter(|node| !self.nodes[*node].is_silent).filter(waiting).collect();
        let Some(node) = ready.get(dice.below(ready.len())).copied() else { return };
        let servers: Vec<_> = self.nodes[node].requests.keys().copied().collect();
        self.answer_at(node, servers[dice.below(servers.len())]);
    }

    fn answer_at(&mut self, node: usize, server: usize) {
        let Some(queue) = self.nodes[node].requests.get_mut(&server) else { return };
        let request = queue.pop_front();
        if queue.is_empty() {
            self.nodes[node].requests.remove(&server);
        }
        let Some(request) = request else { return };
        self.tell(|| format!("node {node}, server {server}: {request:?}"));
        let is_primary = node == self.primary;
        let answer = if request.text.starts_with("select") {
            self.reads += 1;
            self.on_standbys += usize::from(!is_primary);
            let is_its = |own: &&mut Application| {
                own.asked.as_ref().is_some_and(|asked| asked.text == request.text)
            };
            if let Some(own) = self.applications.iter_mut().find(is_its) {
                own.read_at = node;
            }
            let seen = request.seen.to_string();
            vec![columns("seen"), row(&seen), complete("SELECT 1"), ready('I')]
        } else if request.text.starts_with("update") {
            assert!(is_primary, "{request:?} went to node {node}");
            self.commit(&request.text);
            vec![complete("UPDATE 1"), ready('I')]
        } else {
            vec![done("OK")]
        };
        self.rig.server(server).send(answer);
        self.deliver();
    }

    fn commit(&mut self, text: &str) {
        self.commits.push(self.rig.now());
        self.nodes[self.primary].commits += 1;
        *self.executed.entry(text.to_owned()).or_default() += usize::from(text != "elsewhere");
        self.tell(|| format!("commit {}: {text}", self.commits.len()));
    }

    fn replay(&mut self, at: usize, count: usize) {
        let at = (self.primary + at) % 3;
        let end = self.nodes[self.primary].commits;
        let node = &mut self.nodes[at];
        if node.follows && !node.is_silent {
            node.commits = end.min(node.commits + count);
        }
    }

    /// The cold side has the answers of all nodes that answer.
    fn sample(&mut self, dice: &mut Dice) {
        self.log.sample(self.asked_at, position(self.nodes[self.primary].commits));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if at != self.primary && node.follows && !node.is_silent && !dice.once_in(5) {
                (node.sampled, node.is_lost) = (Some(position(node.commits)), false);
            }
        }
        self.publish();
        self.rig.sample();
        self.deliver();
    }

    /// Tells the pools and workers what is known of the nodes.
    fn publish(&mut self) {
        // The schema never changes, as the catalogs of the primary show.
        self.catalog.check(self.rig.now());
        let fitness = self.nodes.iter().enumerate().map(|(at, node)| match node {
            _ if at == self.primary => Fitness::Unfit,
            Node { is_silent: true, .. } => Fitness::Silent,
            Node { is_lost: true, .. } => Fitness::Unfit,
            Node { follows: true, .. } => Fitness::Readable,
            _ => Fitness::Unfit,
        });
        self.switches.set_fitness("main", &self.readers, fitness.collect());
        let target = Target::Tcp(HOSTS[self.primary].to_owned(), 5432);
        let primary = Some(Primary { target, timeline: 1 + self.promotions as u32 });
        self.switches.set_primary("main", PrimaryState { primary, outage: None });
        for ((node, reader), own) in self.readers.all().zip(&self.nodes) {
            let is_standby = usize::from(node.0) != self.primary;
            match own.sampled.filter(|_| is_standby && own.follows && !own.is_silent) {
                Some(position) => {
                    let fresh = self.log.fresh_as_of(position);
                    reader.set(fresh, self.log.lag_bytes(position), self.log.reached(position));
                }
                None => reader.set(None, 0, 0),
            }
        }
        self.rig.order_all(|pool| self.switches.apply(pool, true));
        self.deliver();
    }

    /// The connections to a standby break. It may have less of the log afterwards.
    fn lose(&mut self, at: usize, dice: &mut Dice) {
        let at = (self.primary + at) % 3;
        if at == self.primary {
            return;
        }
        self.tell(|| format!("node {at} is lost"));
        let node = &mut self.nodes[at];
        (node.sampled, node.is_lost) = (None, true);
        node.commits = node.commits.saturating_sub(dice.below(3));
        self.reader(at).lose();
        self.publish();
        self.break_connections(at);
    }

    fn reader(&self, at: usize) -> &Reader {
        self.readers.get(NodeId(at as u16)).expect("a node")
    }

    fn break_connections(&mut self, at: usize) {
        let servers: Vec<_> = self.servers_of(at).collect();
        let lost = std::mem::take(&mut self.nodes[at].requests);
        self.note_lost(lost.into_values().flatten());
        for server in servers {
            self.rig.server(server).die();
        }
        self.deliver();
    }

    /// A standby does not answer any more, or answers again.
    fn fall_silent(&mut self, at: usize) {
        if at == self.primary {
            return;
        }
        let node = &mut self.nodes[at];
        node.is_silent = !node.is_silent;
        node.sampled = None;
        self.tell(|| format!("node {at}: silent {}", self.nodes[at].is_silent));
        self.publish();
    }

    /// A standby becomes the primary. Commits that it has not are lost.
    fn promote(&mut self, at: usize, dice: &mut Dice) {
        if at == self.primary || self.nodes[at].is_silent || !self.nodes[at].follows {
            return;
        }
        let kept = self.nodes[at].commits;
        self.tell(|| format!("node {at} is promoted with {kept} commits"));
        let old = std::mem::replace(&mut self.primary, at);
        self.promotions += 1;
        self.commits.truncate(kept);
        self.log = PrimaryLog::new(8_192);
        self.asked_at = self.rig.now();
        for application in &mut self.applications {
            application.wrote = application.wrote.min(kept);
            application.shown = application.shown.min(kept);
            if let Some(asked) = &mut application.asked {
                asked.must_see = asked.must_see.min(kept);
                (asked.may_fail, asked.kept) = (true, asked.kept.min(kept));
            }
        }
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.sampled = None;
            // A node that is ahead of the new primary cannot follow it, until it is made anew.
            node.follows = number != at && number != old && node.commits <= kept;
        }
        if dice.once_in(2) {
            self.nodes[old].commits = kept;
            self.nodes[old].follows = true;
            self.reader(old).lose();
        }
        self.publish();
        self.break_connections(old);
    }

    /// Takes what Weir has sent to the nodes.
    fn deliver(&mut self) {
        for at in 0..3 {
            let servers: Vec<_> = self.servers_of(at).collect();
            for server in servers {
                let bytes = self.rig.server(server).take();
                self.nodes[at].take(server, &bytes);
            }
            // Weir may have closed some.
            let is_open = |server: &usize| self.rig.server(*server).is_open();
            let all = std::mem::take(&mut self.nodes[at].requests).into_iter();
            let (open, closed): (BTreeMap<_, _>, BTreeMap<_, _>) =
                all.partition(|(server, _)| is_open(server));
            self.nodes[at].requests = open;
            self.note_lost(closed.into_values().flatten());
        }
    }

    /// The connections with these requests are lost.
    fn note_lost(&mut self, requests: impl Iterator<Item = Request>) {
        for request in requests {
            let asked = self.applications.iter_mut().filter_map(|own| own.asked.as_mut());
            for own in asked.filter(|own| own.text == request.text) {
                own.losses += 1;
                self.moved += 1;
            }
        }
    }

    fn servers_of(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let rig = self.rig.clone();
        let host = HOSTS[at];
        let is_own = move |number: &usize| {
            let server = rig.server(*number);
            server.is_open() && server.target().contains(host)
        };
        (0..self.rig.servers()).filter(is_own).collect::<Vec<_>>().into_iter()
    }

    /// Checks the answers that clients have got.
    fn look(&mut self) {
        for at in 0..CLIENTS {
            let application = &mut self.applications[at];
            let got = application.client.take();
            if got.is_empty() {
                continue;
            }
            assert!(application.client.is_open(), "client {at} was closed: {:?}", show(&got));
            let Some(answer) = Answer::read(&got) else { continue };
            let asked = application.asked.take().expect("an answer without a request");
            if self.is_told {
                println!("client {at} has {answer:?} to {asked:?}");
            }
            if let Some(code) = &answer.error {
                assert!(asked.may_fail || asked.losses > 1, "client {at}: {code} to {asked:?}");
            } else if asked.text.starts_with("select") {
                let seen = answer.seen.expect("a row");
                assert!(seen >= asked.must_see, "client {at} sees {seen}: {asked:?}");
                application.shown = seen.min(asked.kept);
            } else {
                let own = self.commits.len();
                application.wrote = application.wrote.max(own);
            }
        }
        for (text, count) in &self.executed {
            assert!(*count <= 1, "{text} was executed {count} times");
        }
    }

    /// Both standbys are well. With reads now and then, the sessions are spread evenly.
    pub(super) fn check_balance(&mut self) {
        let commits = self.nodes[self.primary].commits;
        for at in [1, 2].map(|more| (self.primary + more) % 3) {
            let node = &mut self.nodes[at];
            (node.is_silent, node.is_lost, node.follows) = (false, false, true);
            (node.commits, node.sampled) = (commits, Some(position(commits)));
        }
        for _ in 0..ROUNDS {
            self.rig.later(1_000);
            self.log.sample(self.rig.now(), position(commits));
            self.publish();
            self.rig.sample();
            for at in 0..CLIENTS {
                self.rig.later(1_000);
                self.send(at, false);
                self.answer_all();
            }
        }
        let number = |node| self.applications.iter().filter(|own| own.read_at == node).count();
        let [one, other] = [1, 2].map(|more| number((self.primary + more) % 3));
        assert_eq!(one + other, CLIENTS, "some read elsewhere");
        let is_even = one.abs_diff(other) <= 1;
        assert!(is_even || self.balance != Balance::Session, "{one} sessions and {other}");
    }

    /// Answers everything but silent nodes.
    fn answer_all(&mut self) {
        for node in (0..3).filter(|node| !self.nodes[*node].is_silent).collect::<Vec<_>>() {
            for server in self.nodes[node].requests.keys().copied().collect::<Vec<_>>() {
                self.answer_at(node, server);
                self.look();
            }
        }
    }

    /// Answers everything but silent nodes. Each client must get an answer then.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            self.answer_all();
            self.rig.wait_ms(100);
            self.deliver();
            self.look();
        }
        for (at, application) in self.applications.iter().enumerate() {
            assert!(application.asked.is_none(), "client {at} waits: {:?}", application.asked);
        }
    }
}

impl Node {
    /// Has it got a request with this text?
    fn has(&self, text: &str) -> bool {
        self.requests.values().flatten().any(|request| request.text == text)
    }
}

/// The answer to a request, up to ReadyForQuery.
#[derive(Debug, Default)]
struct Answer {
    seen: Option<usize>,
    error: Option<String>,
}

impl Answer {
    /// None: it only tells that the client waits.
    fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut answer = Self::default();
        let mut is_whole = false;
        while let Ok(Some(header)) = Header::parse(bytes) {
            let message = &bytes[..header.total];
            match header.code {
                backend::DATA_ROW => {
                    let value = &message[HEADER_LEN + 6..];
                    answer.seen = String::from_utf8_lossy(value).parse().ok();
                }
                backend::ERROR => answer.error = Some(show(message).concat()),
                backend::READY_FOR_QUERY => is_whole = true,
                _ => {}
            }
            bytes = &bytes[header.total..];
        }
        is_whole.then_some(answer)
    }
}
