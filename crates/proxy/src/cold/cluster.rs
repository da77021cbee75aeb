//! Clusters: asks their nodes, has the crate `cluster` judge the answers, and tells the pools which
//! node is the primary.
//!
//! * `node.rs`: the kept connection to one node, and the question
//! * `info.rs`: copies for the console and the metrics
//!
//! Each node has a task of its own, so a node that does not answer delays no other one. The pools
//! are changed under their locks (`Switches::set_primary`) before the workers are told.

mod info;
mod node;

pub use self::info::{ClusterInfo, NodeInfo};

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::cluster::{Change, Cluster, Fact, NodeId, Reason, Settings};
use config::Cluster as Configured;
use engine::{
    ids::Micros,
    journal::EventKind,
    pool::Outage,
    settings::{Primary, Target},
    switches::PrimaryState,
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::sleep,
};

use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
    log, warning,
};

/// The shortest time between two questions that the workers' failures cause.
const EVIDENCE_PAUSE: Duration = Duration::from_millis(50);

/// The clusters that are being watched.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    watched: Mutex<BTreeMap<String, Arc<Watched>>>,
    /// The configuration may have changed.
    changed: Notify,
}

impl Clusters {
    /// Has the configuration looked at again.
    pub(crate) fn change(&self) {
        self.changed.notify_one();
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
}

impl Watched {
    fn new(name: &str, configured: &Configured, known: Option<&Self>, now: Micros) -> Self {
        let micros = |time: Duration| time.as_micros() as Micros;
        let settings = Settings {
            sample_interval: micros(configured.sample_interval),
            health_timeout: micros(configured.health_timeout),
        };
        let names = configured.nodes.iter().map(|node| node.name.clone());
        let cluster = match known {
            Some(known) => lock(&known.cluster).with_settings(settings),
            None => Cluster::new(settings, names, now),
        };
        Self {
            name: name.to_owned(),
            configured: configured.clone(),
            cluster: Mutex::new(cluster),
            pauses: configured.nodes.iter().map(|_| AtomicU64::new(0)).collect(),
            wakes: configured.nodes.iter().map(|_| Notify::new()).collect(),
        }
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
    asked_at: Micros,
}

/// Watches the configured clusters, forever.
pub(crate) async fn keep(controller: Controller) {
    let mut tasks: BTreeMap<String, JoinSet<()>> = BTreeMap::new();
    let clusters = &controller.0.clusters;
    loop {
        let config = controller.config();
        // Dropping the tasks of a cluster ends them.
        tasks.retain(|name, _| config.clusters.contains_key(name));
        lock(&clusters.watched).retain(|name, _| tasks.contains_key(name));
        for (name, configured) in &config.clusters {
            let before = lock(&clusters.watched).get(name).cloned();
            if before.as_ref().is_some_and(|own| own.configured == *configured) {
                continue;
            }
            tasks.remove(name);
            // Other settings do not change what is known about the same nodes.
            let known = before.filter(|own| own.configured.nodes == configured.nodes);
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
    let watched = Arc::new(Watched::new(name, configured, known, controller.now()));
    let mut tasks = JoinSet::new();
    let (answers_in, answers) = mpsc::unbounded_channel();
    for at in 0..configured.nodes.len() {
        let task = node::keep(controller.clone(), Arc::clone(&watched), at, answers_in.clone());
        tasks.spawn(task);
    }
    tasks.spawn(judge(controller.clone(), Arc::clone(&watched), answers));
    lock(&controller.0.clusters.watched).insert(name.to_owned(), watched);
    tasks
}

/// Judges the answers of a cluster's nodes, and acts on the changes.
async fn judge(
    controller: Controller,
    watched: Arc<Watched>,
    mut answers: mpsc::UnboundedReceiver<Answer>,
) {
    // Known before a reload, or by the process before an online restart.
    let mut state = controller.0.shared.hub.switches().primary(&watched.name).cloned();
    while let Some(Answer { node, fact, asked_at }) = answers.recv().await {
        let changes = {
            let mut cluster = lock(&watched.cluster);
            cluster.learn(node, fact, asked_at);
            let changes = cluster.judge(controller.now());
            for (at, pause) in watched.pauses.iter().enumerate() {
                pause.store(cluster.pause(NodeId(at as u16)), Ordering::Relaxed);
            }
            changes
        };
        for change in changes {
            act(&controller, &watched, &mut state, change);
        }
    }
}

fn act(
    controller: &Controller,
    watched: &Watched,
    known: &mut Option<PrimaryState>,
    change: Change,
) {
    let nodes = &watched.configured.nodes;
    let name = &watched.name;
    let is_known = known.as_ref().is_some_and(|state| state.primary.is_some());
    let state = known.get_or_insert_default();
    match change {
        Change::Verdict { node, verdict } => {
            let node = &nodes[usize::from(node.0)];
            let why = verdict.reason().map_or_else(String::new, |why| format!(": {why}"));
            log!("cluster {name}: node {node} is {}{why}", verdict.word());
            return;
        }
        Change::Opened { primary, timeline } => {
            let node = &nodes[usize::from(primary.0)];
            let target = Target::new(&node.host, node.port);
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
            state.outage = Some(Arc::new(Outage { why: reason.to_string(), since }));
        }
        Change::Shut { reason } => {
            let since = state.outage.as_ref().map_or(controller.now(), |outage| outage.since);
            let text = format!("cluster {name} has no primary: {reason}");
            warning!("{text}; clients wait up to failover_wait");
            controller.note(EventKind::PrimaryLost, &text);
            state.outage = Some(Arc::new(Outage { why: reason.to_string(), since }));
        }
    }
    let shared = &controller.0.shared;
    let _ = shared.hub.switch(|switches| {
        switches.set_primary(name, state.clone());
        Ok::<(), ()>(())
    });
    shared.tell_all(|| ShellMail::Review);
    // The other nodes may know more now.
    watched.wake_all();
}
