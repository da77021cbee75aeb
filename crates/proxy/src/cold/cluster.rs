//! Clusters: asks their nodes, has the crate `cluster` judge the answers, and tells the pools which
//! node is the primary.
//!
//! * `addresses.rs`: the address in use of a node whose host is a name
//! * `node.rs`: the kept connection to one node, and the question
//! * `state.rs`: the question for a node's state, and its answer
//! * `sampling.rs`, `samples.rs`: which standbys have which commits, for reads on standbys
//! * `tail.rs`: has the primary flush its log if nobody does
//! * `catalogs.rs`: the names of a database whose reads need the primary
//! * `discovery.rs`, `patroni.rs`: finds the nodes that the configuration does not name
//! * `change.rs`: a change of the primary that Weir carries out: SWITCHOVER, `failover = own`
//! * `fleet.rs`: several Weirs that agree by etcd; `rival.rs`: two that do not
//! * `change_right.rs`: the right to change primaries, which only one process has
//! * `command.rs`: the operator's commands for it
//! * `detached.rs`: the standbys that an operator has taken out of use
//! * `checks.rs`, `numbers.rs`: counts of questions, and numbers of nodes, for the console
//! * `orders.rs`: SQL for it
//! * `risk.rs`: tells whether a failover by Weir may lose commits
//! * `info.rs`: copies for the console and the metrics, EXPLAIN ROUTE
//!
//! Each node has a task of its own, so a node that does not answer delays no other one. The pools
//! are changed under their locks (`Switches::set_primary`) before the workers are told.

mod addresses;
mod catalogs;
mod change;
mod change_right;
mod checks;
mod command;
mod detached;
pub(crate) mod discovery;
mod fleet;
mod info;
mod node;
mod numbers;
mod orders;
mod patroni;
pub(crate) mod risk;
mod rival;
mod samples;
mod sampling;
mod state;
mod tail;

pub use self::checks::Checks;
pub use self::fleet::info::{FleetInfo, MemberInfo};
pub use self::info::{ClusterInfo, Judgement, NodeInfo};

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use self::{change_right::ChangeRight, fleet::state::Fleet, samples::Samples};
use ::cluster::{
    Change, Cluster, Doubt, Fact, NodeId, Past, Reason, Replication, Settings, Verdict,
};
use config::{Cluster as Configured, FailoverKind, Node};
use engine::{
    ids::Micros,
    journal::EventKind,
    pool::{Outage, OutageKind, Pool},
    routing::readers::Readers,
    settings::{Primary, Target},
    switches::PrimaryState,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_postgres::Client;

use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
    log, warning,
};

/// The shortest time between two questions that the workers' failures cause.
const EVIDENCE_PAUSE: Duration = Duration::from_millis(50);

/// More nodes that were found would be a mistake.
const NODES_MAX: usize = 100;

/// The clusters that are being watched.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    watched: Mutex<BTreeMap<String, Arc<Watched>>>,
    /// The configuration may have changed.
    changed: Notify,
    right: Arc<ChangeRight>,
    /// The clusters without etcd for which an operator has said FAILOVER PAUSE.
    paused: Mutex<BTreeSet<String>>,
    detached: detached::Detached,
    numbers: Mutex<numbers::Numbers>,
}

impl Clusters {
    /// `detached`: cluster and name of each node that an operator has detached in the process before an
    /// online restart, if there was one.
    pub(crate) fn new(detached: Option<Vec<(String, String)>>) -> Self {
        Self { detached: detached::Detached::new(detached), ..Self::default() }
    }

    /// Returns cluster and name of each node that an operator has detached.
    pub(crate) fn detached(&self) -> Vec<(String, String)> {
        self.detached.names()
    }

    /// Wakes `keep`, which compares the configuration again.
    pub(crate) fn change(&self) {
        self.changed.notify_one();
    }

    /// Cedes the right to change primaries, before another process takes over.
    ///
    /// # Errors
    /// Why that process must wait.
    pub(crate) fn cede(&self) -> Result<(), String> {
        if !self.right.cede() {
            return Err("the primary of a cluster is being changed".to_owned());
        }
        // The other process would not know it, and might promote another one.
        let ordered = |watched: &Arc<Watched>| {
            let node = lock(&watched.past).ordered()?;
            let node = &watched.configured.nodes[usize::from(node.0)].name;
            let is_lost = lock(&watched.cluster).primary().is_err();
            is_lost
                .then(|| format!("node {node} was ordered to promote itself and may still do so"))
        };
        match lock(&self.watched).values().find_map(ordered) {
            None => Ok(()),
            Some(why) => {
                self.take_back();
                Err(why)
            }
        }
    }

    /// The other process has not taken over.
    pub(crate) fn take_back(&self) {
        self.right.take_back();
    }

    /// Is no change of a primary under way?
    pub(crate) fn are_at_rest(&self) -> bool {
        self.right.is_unused()
    }
}

/// One cluster.
#[derive(Debug)]
struct Watched {
    name: String,
    configured: Configured,
    cluster: Mutex<Cluster>,
    /// For each node, the time from an answer to the next question, in microseconds.
    pauses: Vec<AtomicU64>,
    /// For each node: ask it now.
    wakes: Vec<Notify>,
    /// For each node: the connection on which it is asked, if it is open.
    clients: Vec<Mutex<Option<Arc<Client>>>>,
    /// For each node: its name, if its host is one.
    names: Vec<Mutex<addresses::Name>>,
    /// For each node: the facts that only the console shows.
    records: Vec<Mutex<checks::Record>>,
    /// The nodes, as workers see them.
    readers: Arc<Readers>,
    samples: Mutex<Samples>,
    /// The primary by the verdicts; none before the first one.
    known: Mutex<Option<PrimaryState>>,
    /// Why the nodes cannot be found, if Patroni or DNS is to name them.
    trouble: Mutex<Option<String>>,
    /// When Patroni or DNS was asked last. A list that always changes must not cause more questions.
    nodes_asked_at: Mutex<Option<Instant>>,
    /// Why clients wait, while Weir changes the primary.
    hold: Mutex<Option<Arc<Outage>>>,
    /// Why clients wait, while listeners are opened at the primary.
    resuming: Mutex<Option<Arc<Outage>>>,
    /// Weir changes the primary.
    is_changing: AtomicBool,
    /// The steps that the last change has done, if it has failed.
    past: Mutex<Past>,
    /// This Weir as one of several, with the key `etcd`.
    fleet: Option<Arc<Fleet>>,
    /// Without etcd: is another Weir to promote standbys?
    has_rival: AtomicBool,
}

impl Watched {
    fn new(
        name: &str,
        configured: &Configured,
        known: Option<&Self>,
        fleet: Option<Arc<Fleet>>,
        now: Micros,
    ) -> Self {
        let micros = |time: Duration| time.as_micros() as Micros;
        let settings = Settings {
            sample_interval: micros(configured.sample_interval),
            health_timeout: micros(configured.health_timeout),
        };
        let names = configured.nodes.iter().map(|node| node.name.clone());
        let has_rival = known.is_some_and(|known| known.has_rival.load(Ordering::Relaxed));
        let cluster = match known {
            Some(known) => {
                let nodes = names.zip(configured.nodes.iter().map(|node| known.node_like(node)));
                lock(&known.cluster).with_nodes(nodes, now).with_settings(settings)
            }
            None => Cluster::new(settings, names, now),
        };
        let has_same_source = |own: &&Self| {
            let one = &own.configured;
            (&one.patroni, &one.dns) == (&configured.patroni, &configured.dns)
        };
        let nodes_asked_at =
            known.filter(has_same_source).and_then(|own| *lock(&own.nodes_asked_at));
        let record = |node: &Node| {
            let kept = known.and_then(|own| own.records.get(usize::from(own.node_like(node)?.0)));
            Mutex::new(kept.map_or_else(|| checks::Record::new(now), |record| lock(record).clone()))
        };
        let records = configured.nodes.iter().map(record).collect();
        let known =
            known.filter(|own| Node::are_same_servers(&own.configured.nodes, &configured.nodes));
        Self {
            name: name.to_owned(),
            configured: configured.clone(),
            cluster: Mutex::new(cluster),
            pauses: configured.nodes.iter().map(|_| AtomicU64::new(0)).collect(),
            wakes: configured.nodes.iter().map(|_| Notify::new()).collect(),
            clients: configured.nodes.iter().map(|_| Mutex::default()).collect(),
            names: configured.nodes.iter().map(|_| Mutex::default()).collect(),
            records,
            readers: Arc::new(Readers::of(configured)),
            samples: Mutex::new(Samples::new(configured.nodes.len())),
            known: Mutex::default(),
            trouble: Mutex::default(),
            nodes_asked_at: Mutex::new(nodes_asked_at),
            hold: Mutex::default(),
            resuming: Mutex::default(),
            is_changing: AtomicBool::new(false),
            past: Mutex::new(known.map_or_else(Past::default, |known| lock(&known.past).clone())),
            fleet,
            has_rival: AtomicBool::new(has_rival),
        }
    }

    /// Returns the node that is the same server.
    fn node_like(&self, node: &Node) -> Option<NodeId> {
        let at = self.configured.nodes.iter().position(|own| own.is_same_server(node))?;
        Some(NodeId(at as u16))
    }

    /// Returns this Weir's membership, if the members must agree on each change of the primary.
    fn agreeing(&self) -> Option<&Fleet> {
        self.fleet.as_deref().filter(|fleet| fleet.guards())
    }

    /// Returns why this Weir does not replace the lost primary `node`, before it begins.
    fn hesitation(&self, controller: &Controller, node: &str) -> Option<String> {
        match self.agreeing() {
            Some(fleet) => fleet.hesitation(node),
            None => self.paused_because(controller),
        }
    }

    /// Returns why this Weir replaces no lost primary now, whatever happens.
    fn paused_because(&self, controller: &Controller) -> Option<String> {
        if let Some(fleet) = &self.fleet {
            return fleet.paused_because();
        }
        if lock(&controller.0.clusters.paused).contains(&self.name) {
            return Some("FAILOVER PAUSE".to_owned());
        }
        let has_rival = self.has_rival.load(Ordering::Relaxed);
        has_rival.then(|| rival::IN_WORDS.to_owned())
    }

    /// Does Weir change the primary now?
    fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    /// Has its primary never be changed again, because its configuration is outdated. Returns false
    /// while Weir changes the primary.
    fn retire(&self) -> bool {
        !self.is_changing.swap(true, Ordering::AcqRel)
    }

    /// Removes the virtual address, if this machine has it: this Weir leaves the others.
    fn abandon_address(&self) {
        self.fleet.iter().for_each(|fleet| fleet.abandon_address());
    }

    /// Tells the pools which nodes can be read.
    fn tell_readable(&self, controller: &Controller) {
        let fitness = |node| info::fitness(lock(&self.cluster).verdict(node));
        let nodes = self.readers.all().map(|(node, _)| fitness(NodeId(node.0))).collect();
        let shared = &controller.0.shared;
        let _ = shared.hub.switch(|switches| {
            switches.set_fitness(&self.name, &self.readers, nodes);
            Ok::<(), ()>(())
        });
        shared.tell_all(|| ShellMail::Review);
    }

    /// The connection to a node is lost. The node may have crashed, and may then have less of the log
    /// than it had.
    fn lose_client(&self, at: usize) {
        *lock(&self.clients[at]) = None;
        lock(&self.samples).forget(at, &self.readers);
    }

    fn wake_all(&self) {
        self.wakes.iter().for_each(Notify::notify_one);
    }
}

/// An answer of a node.
#[derive(Debug)]
struct Answer {
    node: NodeId,
    fact: Fact,
    replication: Option<Replication>,
    asked_at: Micros,
    /// It is the first answer at another address of the node.
    has_moved: bool,
}

/// Watches the configured clusters, forever.
pub(crate) async fn keep(controller: Controller) {
    let mut tasks: BTreeMap<String, JoinSet<()>> = BTreeMap::new();
    let clusters = &controller.0.clusters;
    clusters.detached.load(&controller.config().global);
    loop {
        let config = controller.config();
        lock(&clusters.numbers).follow(&config);
        // While Weir changes the primary, a new configuration waits.
        let retires = |name: &str| {
            let known = lock(&clusters.watched).get(name).cloned();
            known.is_none_or(|own| own.retire())
        };
        // Dropping the tasks of a cluster ends them.
        tasks.retain(|name, _| config.clusters.contains_key(name) || !retires(name));
        let gone = |name: &String, _: &mut Arc<Watched>| !tasks.contains_key(name);
        let gone: Vec<_> = lock(&clusters.watched).extract_if(.., gone).collect();
        gone.iter().for_each(|(_, own)| own.abandon_address());
        for (name, configured) in &config.clusters {
            let before = lock(&clusters.watched).get(name).cloned();
            let is_same = |own: &Arc<Watched>| own.configured == *configured;
            if before.as_ref().is_some_and(|own| is_same(own) || !own.retire()) {
                continue;
            }
            tasks.remove(name);
            before
                .iter()
                .filter(|_| configured.etcd.is_empty())
                .for_each(|own| own.abandon_address());
            // A worker may not know the new nodes for a moment.
            before.iter().for_each(|own| own.readers.retire());
            // Other settings do not change what is known about the same nodes. Nodes that were found
            // are those of the same cluster.
            let known = before.filter(|own| {
                configured.is_discovered()
                    || Node::are_same_servers(&own.configured.nodes, &configured.nodes)
            });
            tasks.insert(name.clone(), start(&controller, name, configured, known.as_deref()));
        }
        tokio::select! {
            () = clusters.changed.notified() => {}
            () = controller.0.shared.outages.evidence.notified() => {
                lock(&clusters.watched).values().for_each(|own| own.wake_all());
                sleep(EVIDENCE_PAUSE).await;
            }
        }
    }
}

/// Starts the tasks of one cluster.
fn start(
    controller: &Controller,
    name: &str,
    configured: &Configured,
    known: Option<&Watched>,
) -> JoinSet<()> {
    let port = controller.config().global.listen_port;
    let own_fleet = known.and_then(|own| Some((&own.configured, own.fleet.as_ref()?)));
    let fleet = Fleet::of((&controller.0.shared.leases, port), name, configured, own_fleet);
    let watched = Watched::new(name, configured, known, fleet, controller.now());
    let watched = Arc::new(watched);
    let _ = controller.0.shared.hub.switch(|switches| {
        switches.set_readers(name, Arc::clone(&watched.readers));
        // A change of the primary may have ended since the reload.
        switches.forget_stranger(name, configured);
        Ok::<(), ()>(())
    });
    watched.mark_detached(&controller.0.clusters.detached);
    watched.tell_readable(controller);
    let mut tasks = JoinSet::new();
    let (answers_in, answers) = mpsc::unbounded_channel();
    for at in 0..configured.nodes.len() {
        let task = node::keep(controller.clone(), Arc::clone(&watched), at, answers_in.clone());
        tasks.spawn(task);
        tasks.spawn(sampling::keep(controller.clone(), Arc::clone(&watched), at));
        tasks.spawn(addresses::keep(controller.clone(), Arc::clone(&watched), at));
    }
    tasks.spawn(catalogs::keep(controller.clone(), Arc::clone(&watched)));
    // The primary from before a reload, or from the process before an online restart.
    let mut state = controller.0.shared.hub.switches().primary(name).cloned();
    if let Some(state) = &mut state {
        state.outage.take_if(|outage| outage.kind == OutageKind::Resuming);
    }
    *lock(&watched.known) = state;
    tasks.spawn(judge(controller.clone(), Arc::clone(&watched), answers));
    if configured.is_discovered() {
        tasks.spawn(discovery::keep(controller.clone(), Arc::clone(&watched)));
    }
    if let Some(fleet) = watched.fleet.clone() {
        tasks.spawn(fleet::keep(controller.clone(), Arc::clone(&watched), fleet));
    }
    if configured.failover == FailoverKind::Own {
        tasks.spawn(change::guard(controller.clone(), Arc::clone(&watched)));
    }
    lock(&controller.0.clusters.watched).insert(name.to_owned(), watched);
    tasks
}

/// Judges the answers of a cluster's nodes, and acts on the changes.
async fn judge(
    controller: Controller,
    watched: Arc<Watched>,
    mut answers: mpsc::UnboundedReceiver<Answer>,
) {
    let mut told = None;
    while let Some(answer) = answers.recv().await {
        let Answer { node, fact, replication, asked_at, has_moved } = answer;
        let (changes, is_another) = {
            let mut cluster = lock(&watched.cluster);
            let before = cluster.last_start();
            if let Some(replication) = replication {
                cluster.learn_replication(node, replication, asked_at);
            }
            cluster.learn(node, fact, asked_at);
            let changes = judged(&controller, &watched, &mut cluster);
            let is_another = cluster.primary() == Ok(node) && cluster.last_start() != before;
            (changes, has_moved && is_another)
        };
        if is_another {
            // A transaction at the old address could commit into a history that is lost.
            watched.change_servers(&controller, usize::from(node.0), Pool::cut);
        }
        for change in changes {
            act(&controller, &watched, change);
        }
        tell_risk(&watched, &mut told);
    }
}

/// Judges all nodes. The caller acts on the changes before it waits for anything else.
fn judged(controller: &Controller, watched: &Watched, cluster: &mut Cluster) -> Vec<Change> {
    let changes = cluster.judge(controller.now());
    lock(&watched.samples).follow(&changes, &watched.readers);
    for (at, pause) in watched.pauses.iter().enumerate() {
        pause.store(cluster.pause(NodeId(at as u16)), Ordering::Relaxed);
    }
    changes
}

/// Writes to the log why a failover may lose commits, when that has changed. `told`: the last line.
fn tell_risk(watched: &Watched, told: &mut Option<String>) {
    if watched.configured.failover != FailoverKind::Own {
        return;
    }
    let (is_known, risk) = {
        let cluster = lock(&watched.cluster);
        let is_known = !matches!(cluster.guarantee(), Err(Doubt::Unasked | Doubt::Reloaded));
        (is_known, cluster.risk().unwrap_or_default())
    };
    if !is_known || told.as_ref() == Some(&risk) {
        return;
    }
    let name = &watched.name;
    let outcome = match watched.configured.max_loss {
        None => "Weir promotes no standby, since max_loss is not set".to_owned(),
        Some(bytes) => format!("Weir promotes a standby that lacks at most {bytes} bytes"),
    };
    match risk.is_empty() {
        true => log!("cluster {name}: a failover loses no acknowledged commit"),
        false => warning!("cluster {name}: a failover may lose commits: {risk}. {outcome}"),
    }
    *told = Some(risk);
}

fn act(controller: &Controller, watched: &Arc<Watched>, change: Change) {
    let nodes = &watched.configured.nodes;
    let name = &watched.name;
    let mut known = lock(&watched.known);
    let is_known = known.as_ref().is_some_and(|state| state.primary.is_some());
    let state = known.get_or_insert_default();
    match change {
        Change::Verdict { node, verdict } => {
            let at = usize::from(node.0);
            lock(&watched.records[at]).changed_at = controller.now();
            let node = &nodes[at];
            let why = verdict.reason().map_or_else(String::new, |why| format!(": {why}"));
            log!("cluster {name}: node {node} is {}{why}", verdict.word());
            if matches!(verdict, Verdict::FalsePrimary(_)) {
                // A primary that answers now is not this server.
                watched.wake_all();
            }
            return watched.tell_readable(controller);
        }
        Change::Opened { primary, timeline } => {
            let node = &nodes[usize::from(primary.0)];
            let target = Target::of_node(node);
            lock(&watched.past).opened(timeline);
            state.primary = Some(Primary { target, timeline });
            state.outage = None;
            let text = format!("cluster {name}: the primary is node {node}, timeline {timeline}");
            log!("{text}");
            controller.note(EventKind::PrimaryFound, &text);
        }
        // Nothing is lost yet: not all nodes have answered since the start.
        Change::Shut { reason: reason @ Reason::WaitsFor(_) } if is_known => {
            log!("cluster {name}: {reason}; the primary stays as it was known");
            return;
        }
        Change::Shut { reason: reason @ Reason::WaitsFor(_) } => {
            log!("cluster {name}: {reason}; clients wait");
            let since = controller.now();
            let kind = OutageKind::Other;
            state.outage = Some(Arc::new(Outage { why: reason.to_string(), since, kind }));
        }
        Change::Shut { reason } => {
            let since = state.outage.as_ref().map_or(controller.now(), |outage| outage.since);
            let text = format!("cluster {name} has no primary: {reason}");
            warning!("{text}; clients wait up to failover_wait");
            if watched.rest(controller).is_some() {
                log!(
                    "cluster {name}: until there is a primary, its standbys run the reads of \
                    databases with max_staleness = 0 and of sessions with weir.route = 'standby'"
                );
            }
            controller.note(EventKind::PrimaryLost, &text);
            let is_silent = matches!(&reason, Reason::Lost { why, .. } if **why == Reason::Silent);
            let kind = if is_silent { OutageKind::Silent } else { OutageKind::Other };
            state.outage = Some(Arc::new(Outage { why: reason.to_string(), since, kind }));
        }
    }
    let is_open = state.outage.is_none();
    drop(known);
    match is_open {
        true => change::open_listeners(controller, watched),
        false => publish(controller, watched),
    }
    // The other nodes may know more now.
    watched.wake_all();
}

/// Tells the pools which node is the primary, and whether clients wait.
fn publish(controller: &Controller, watched: &Watched) {
    // Held until the pools are told, so that the last state is the one that they have.
    let hold = lock(&watched.hold);
    let mut state = lock(&watched.known).clone().unwrap_or_default();
    if hold.is_some() {
        state.outage.clone_from(&hold);
    } else if state.outage.is_none() {
        let fleet = watched.fleet.as_ref();
        let disagreement = fleet.and_then(|own| fleet::outage(own, controller, watched));
        state.outage = disagreement.or_else(|| lock(&watched.resuming).clone());
    }
    let shared = &controller.0.shared;
    let _ = shared.hub.switch(|switches| {
        switches.set_primary(&watched.name, state);
        Ok::<(), ()>(())
    });
    shared.tell_all(|| ShellMail::Review);
}
