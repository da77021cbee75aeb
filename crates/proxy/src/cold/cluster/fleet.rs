//! This Weir as one of several in front of a cluster (the key `etcd`).
//!
//! `cluster::fleet` decides. Here its requests go to etcd, and the pools are told whether clients may
//! use the primary.
//!
//! * `state.rs`: what is known of the members, and the lease
//! * `access.rs`: the access to etcd, by the configuration
//! * `change.rs`: a change of the primary, with the agreement of the other members
//! * `orders.rs`: an operator's orders: FAILOVER PAUSE, RESUME, FORGET
//! * `address.rs`, `means.rs`: the virtual address
//! * `info.rs`: the members, for the console and the metrics

mod access;
mod address;
pub(super) mod change;
pub(super) mod info;
mod means;
mod orders;
pub(super) mod state;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::cluster::{
    Micros, Verdict,
    fleet::{Answer, Gate, Membership, Own, Seen, TTL, Writer},
};
use engine::{
    journal::EventKind,
    pool::{Outage, OutageKind},
    records::MembershipRecord,
    settings::Target,
};
use etcd::{Changes, Etcd};
use net::sys::process;
use tokio::time::{sleep, timeout};

use self::state::Fleet;
use super::{
    Watched,
    change::{end_listeners, pools_at_primary},
    publish,
};
use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail},
    log, warning,
};

/// The interval at which the gate and the duties are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The interval at which the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(2);
/// The connection to etcd is opened anew when the lease has been over for so long.
const UNREACHED: Micros = 5_000_000;
/// The pause after a failure.
const RETRY: Duration = Duration::from_millis(500);
/// A stopping Weir tries to leave for so long.
const LEAVING: Duration = Duration::from_secs(2);

/// Returns why clients wait, as far as it depends on the other members.
pub(super) fn outage(
    fleet: &Fleet,
    controller: &Controller,
    watched: &Watched,
) -> Option<Arc<Outage>> {
    let (why, kind) = match fleet.gate_to(writer_of_pools(watched).as_ref()) {
        Gate::Open => return None,
        Gate::Drain(why) => (why, OutageKind::Planned),
        Gate::Wait(why) | Gate::Cut(why) => (why, OutageKind::Other),
    };
    Some(Arc::new(Outage { why, since: controller.now(), kind }))
}

impl Controller {
    /// Returns the memberships, for a successor.
    pub(crate) fn memberships(&self) -> Vec<MembershipRecord> {
        let record = |own: Arc<Watched>| {
            let fleet = own.fleet.as_ref()?;
            let membership = lock(&fleet.membership);
            let until = if fleet.guards() { membership.lease().until() } else { 0 };
            let (cluster, instance) = (own.name.clone(), membership.me().instance.clone());
            Some(MembershipRecord { cluster, instance, until })
        };
        self.all_watched().into_iter().filter_map(record).collect()
    }

    /// Leaves the other Weirs of all clusters, at the end of the process. Returns after a moment.
    pub(crate) async fn leave_fleets(&self) {
        // The successor has the membership.
        if self.0.clusters.right.is_ceded() {
            return;
        }
        let watched = self.all_watched();
        let fleets: Vec<_> = watched.iter().filter_map(|own| own.fleet.as_ref()).collect();
        for fleet in &fleets {
            fleet.is_leaving.store(true, Ordering::Relaxed);
            fleet.changed.notify_waiters();
        }
        let left = async {
            while !fleets.iter().all(|fleet| lock(&fleet.membership).has_left()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = timeout(LEAVING, left).await;
    }
}

/// Returns the primary that the pools have, whether it still answers or not.
fn writer_of_pools(watched: &Watched) -> Option<Writer> {
    let known = lock(&watched.known).clone()?.primary?;
    let mut nodes = watched.configured.nodes.iter();
    let node = nodes.find(|node| Target::of_node(node) == known.target)?;
    let system = lock(&watched.cluster).system().unwrap_or_default();
    Some(Writer { node: node.name.clone(), timeline: known.timeline, system })
}

/// Returns the primary by the facts of this Weir, if they are fresh.
pub(super) fn primary(controller: &Controller, watched: &Watched) -> Option<Writer> {
    let cluster = lock(&watched.cluster);
    let node = cluster.primary().ok()?;
    let configured = &watched.configured;
    let age = configured.sample_interval + 2 * configured.health_timeout;
    let age = age.as_micros() as Micros;
    let is_fresh = cluster.sampled_at(node) + age >= controller.now();
    is_fresh.then(|| Writer {
        node: cluster.name(node).to_owned(),
        timeline: cluster.timeline(),
        system: cluster.system().unwrap_or_default(),
    })
}

/// Returns the state of each node, for the other members.
fn seen(watched: &Watched) -> BTreeMap<String, Seen> {
    let cluster = lock(&watched.cluster);
    let lost = cluster.lost_primary();
    let seen = cluster.nodes().map(|node| {
        let verdict: &Verdict = cluster.verdict(node);
        let seen = Seen {
            state: verdict.word().to_owned(),
            why: verdict.reason().map_or_else(String::new, ToString::to_string),
            is_lost: lost == Some(node),
        };
        (cluster.name(node).to_owned(), seen)
    });
    seen.collect()
}

fn own(controller: &Controller, watched: &Watched, fleet: &Fleet) -> Own {
    Own {
        primary: primary(controller, watched),
        nodes: seen(watched),
        waits_in: fleet.waits_in.load(Ordering::Relaxed),
        is_changing: watched.is_changing(),
        is_leaving: fleet.is_leaving.load(Ordering::Relaxed),
        address: address::own(&watched.configured, fleet),
    }
}

/// Takes part, forever.
pub(super) async fn keep(controller: Controller, watched: Arc<Watched>, fleet: Arc<Fleet>) {
    // The membership may be an older one, whose changes nobody has watched meanwhile.
    fleet.with(Membership::missed);
    tokio::select! {
        () = serve(&controller, &watched, &fleet) => {}
        () = keep_gate(&controller, &watched, &fleet) => {}
        () = address::keep(&controller, (&watched.name, &watched.configured), &fleet) => {}
    }
}

async fn serve(controller: &Controller, watched: &Watched, fleet: &Fleet) {
    let mut told = None;
    loop {
        let etcd = match access::of(&watched.name, &watched.configured) {
            Ok(access) => Etcd::connect(&access).await,
            Err(why) => Err(why),
        };
        match etcd {
            Ok(etcd) => {
                *lock(&fleet.trouble) = None;
                let work = async {
                    tokio::join!(
                        do_duties(controller, watched, fleet, &etcd),
                        renew(controller, fleet, &etcd),
                        follow(fleet, &etcd)
                    )
                };
                tokio::select! {
                    _ = work => {}
                    () = until_unreached(fleet) => fleet.with(Membership::missed),
                }
            }
            Err(why) => {
                if told.as_ref() != Some(&why) {
                    warning!("cluster {}: etcd cannot be used: {why}", watched.name);
                }
                *lock(&fleet.trouble) = Some(why.clone());
                told = Some(why);
                sleep(RETRY).await;
            }
        }
    }
}

/// Returns when etcd has not renewed the lease for a long time. The certificates may have expired: they
/// are read again then.
async fn until_unreached(fleet: &Fleet) {
    let begun = process::boottime_us();
    loop {
        sleep(RENEWAL).await;
        let until = lock(&fleet.membership).lease().until().max(begun);
        if process::boottime_us() > until + UNREACHED {
            return;
        }
    }
}

/// Carries out the requests, one after the other.
async fn do_duties(controller: &Controller, watched: &Watched, fleet: &Fleet, etcd: &Etcd) {
    let mut told = false;
    loop {
        let own = own(controller, watched, fleet);
        // Once another process has taken over, this one is a member no more.
        let is_ceded = controller.0.clusters.right.is_ceded();
        let next = || fleet.with(|membership| membership.next(&own, process::boottime_us()));
        let Some(request) = (!is_ceded).then(next).flatten() else {
            tokio::select! {
                () = sleep(LOOK) => {}
                () = fleet.changed.notified() => {}
            }
            continue;
        };
        let answer = etcd.obey(&request).await;
        let loaded = match &answer {
            Answer::Loaded { revision, .. } => Some(*revision),
            Answer::Granted(_) | Answer::Done | Answer::Refused | Answer::Failed(_) => None,
        };
        let now = process::boottime_us();
        let trouble = fleet.with(|membership| {
            membership.done(&request, answer, &own, now);
            membership.trouble().map(str::to_owned)
        });
        if let Some(revision) = loaded {
            fleet.loaded.send_modify(|(count, known)| (*count, *known) = (*count + 1, revision));
        }
        // The words of one failure may differ at each attempt.
        if trouble.is_some() != told {
            match &trouble {
                Some(why) => warning!("cluster {}: etcd: {why}", watched.name),
                None => log!("cluster {}: etcd does what it is asked for again", watched.name),
            }
            told = trouble.is_some();
        }
    }
}

/// Renews the lease again and again, until another process has taken over. That one knows the end of
/// the lease of this one.
async fn renew(controller: &Controller, fleet: &Fleet, etcd: &Etcd) {
    let is_ceded = || controller.0.clusters.right.is_ceded();
    loop {
        let lease = lock(&fleet.membership).kept_lease();
        if let Some(lease) = lease.filter(|_| !is_ceded()) {
            let asked_at = process::boottime_us();
            match etcd.renew(lease).await {
                _ if is_ceded() => {}
                Ok(true) => fleet.with(|membership| membership.renewed(lease, asked_at)),
                Ok(false) => fleet.with(|membership| membership.ended(lease)),
                Err(_) => {
                    sleep(RETRY).await;
                    continue;
                }
            }
        }
        sleep(RENEWAL).await;
    }
}

/// Watches the changes of the records.
async fn follow(fleet: &Fleet, etcd: &Etcd) {
    let mut loaded = fleet.loaded.subscribe();
    loop {
        let (count, revision) = *loaded.borrow_and_update();
        if count == 0 {
            let _ = loaded.changed().await;
            continue;
        }
        match etcd.watch(revision).await {
            Ok(changes) => pass_on(fleet, changes).await,
            Err(_) => sleep(RETRY).await,
        }
        fleet.with(Membership::missed);
        // All records are read again, and then watched from there.
        let _ = loaded.changed().await;
    }
}

async fn pass_on(fleet: &Fleet, mut changes: Changes) {
    while let Ok(news) = changes.next().await {
        fleet.with(|membership| membership.learn(&news));
    }
}

/// Tells the pools whether clients may use the primary, whenever that changes.
async fn keep_gate(controller: &Controller, watched: &Watched, fleet: &Fleet) {
    let (mut told, mut was_open) = (Told::default(), false);
    // As the pools were told last.
    let mut before = Gate::Wait("etcd was not asked yet".to_owned());
    loop {
        tokio::select! {
            () = sleep(LOOK) => {}
            () = fleet.changed.notified() => {}
        }
        told.news(watched, fleet, controller);
        if !fleet.guards() {
            continue;
        }
        let gate = fleet.gate_to(writer_of_pools(watched).as_ref());
        let number = {
            let membership = lock(&fleet.membership);
            membership.view().present().map_or(0, |term| term.number)
        };
        // Why etcd does not answer may change several times.
        if std::mem::discriminant(&before) != std::mem::discriminant(&gate) {
            was_open |= before == Gate::Open;
            match &gate {
                Gate::Open => log!("cluster {}: clients may use the primary", watched.name),
                Gate::Wait(why) | Gate::Drain(why) => {
                    log!("cluster {}: clients wait: {why}", watched.name);
                }
                Gate::Cut(why) if !was_open => {
                    log!("cluster {}: clients wait: {why}", watched.name)
                }
                Gate::Cut(why) => {
                    warning!(
                        "cluster {}: connections to the primary are closed: {why}",
                        watched.name
                    );
                }
            }
        }
        if before != gate {
            publish(controller, watched);
            before = gate.clone();
        }
        if gate == Gate::Open {
            continue;
        }
        if matches!(gate, Gate::Drain(_)) {
            end_listeners(controller, watched);
        }
        let pools = pools_at_primary(controller, watched);
        if matches!(gate, Gate::Cut(_)) && pools.iter().any(|pool| lock(pool).counts().0 > 0) {
            pools.iter().for_each(|pool| lock(pool).cut());
            controller.0.shared.tell_all(|| ShellMail::Review);
        }
        if pools.iter().all(|pool| lock(pool).counts().0 == 0) {
            fleet.waits_in.store(number, Ordering::Relaxed);
        }
    }
}

/// The facts that the log has.
#[derive(Default)]
struct Told {
    leader: Option<String>,
    term: u64,
    is_paused: bool,
    holder: Option<String>,
    members: Vec<String>,
}

impl Told {
    /// Writes to the log what has changed among the members.
    fn news(&mut self, watched: &Watched, fleet: &Fleet, controller: &Controller) {
        let membership = lock(&fleet.membership);
        let view = membership.view();
        let name = &watched.name;
        let leader = view.leader.as_ref().map(|leader| leader.record.member.clone());
        if leader != self.leader {
            match &leader {
                Some(leader) => log!("cluster {name}: member {leader} leads"),
                None => log!("cluster {name}: no member leads"),
            }
            self.leader = leader;
        }
        let holder = view.address.as_ref().map(|own| own.record.member.clone());
        if holder != self.holder {
            match &holder {
                Some(holder) => log!("cluster {name}: member {holder} has the virtual address"),
                None => log!("cluster {name}: no member has the virtual address"),
            }
            self.holder = holder;
        }
        if let Some(term) = view.present().filter(|term| term.number != self.term) {
            let text = format!("cluster {name}: {}", info::term_in_words(term));
            log!("{text}");
            controller.note(EventKind::Term, &text);
            self.term = term.number;
        }
        if !view.seen.keys().eq(&self.members) {
            let alive: Vec<_> = view.seen.keys().cloned().collect();
            for lost in self.members.iter().filter(|own| !alive.contains(own)) {
                match view.members.contains_key(lost) {
                    true => warning!(
                        "cluster {name}: member {lost} is silent: its lease of {TTL} s has ended"
                    ),
                    false => log!("cluster {name}: member {lost} has left"),
                }
            }
            for new in alive.iter().filter(|own| !self.members.contains(own)) {
                log!("cluster {name}: member {new} takes part");
            }
            self.members = alive;
        }
        if view.pause.is_some() != self.is_paused {
            self.is_paused = view.pause.is_some();
            match &view.pause {
                Some(pause) => {
                    warning!("cluster {name}: no failover: FAILOVER PAUSE by {}", pause.by);
                }
                None => log!("cluster {name}: failovers are allowed again"),
            }
        }
    }
}
