//! A change of the primary that Weir carries out: SWITCHOVER on the console, and `failover = own`.
//!
//! The crate `cluster` decides the steps (`Promotion`). Here they are carried out, one at a time:
//! clients wait while `Watched::hold` is set, whatever the nodes answer.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use ::cluster::{
    By, Failure, Limits, NodeId, Order, Outcome, Overtime, Past, Promotion, Verdict,
    fleet::Hesitation,
};
use config::{Node, SwitchoverOvertime};
use engine::{
    pool::{Outage, OutageKind, Pool},
    routing::Place,
};
use tokio::time::{sleep, timeout};

use super::{
    Watched,
    change_right::RunningChange,
    command,
    fleet::{
        self,
        change::{AGREEING, Agreement},
    },
    orders::Orders,
    patroni::Patroni,
    publish,
};
use crate::{
    cold::controller::Controller,
    exchange::{hub::lock, mail::ShellMail, transport::Transport},
    log, warning,
};

/// The interval at which a step is checked and the nodes are asked.
const LOOK: Duration = Duration::from_millis(10);
/// The pause between two failovers that have failed.
const RETRY: Duration = Duration::from_secs(1);
/// The time for which clients wait for listeners at the primary.
const RESUMING: Duration = Duration::from_secs(1);

/// The right to change the primary of a cluster, which one task has at a time. Clients go on when
/// it is dropped.
struct Hold<'a> {
    controller: &'a Controller,
    watched: &'a Arc<Watched>,
    running: Arc<RunningChange>,
}

impl<'a> Hold<'a> {
    fn take(controller: &'a Controller, watched: &'a Arc<Watched>) -> Result<Self, &'static str> {
        let running = RunningChange::begin(&controller.0.clusters.right)
            .ok_or("another process takes over")?;
        // No `Hold` is made if there is one already: dropping it would let the clients go on.
        match watched.is_changing.swap(true, Ordering::AcqRel) {
            true => Err("another change of the primary is under way"),
            false => Ok(Self { controller, watched, running: Arc::new(running) }),
        }
    }

    /// Has all clients wait, for this reason.
    fn shut(&self, why: String, kind: OutageKind) {
        lock(&self.watched.cluster).intend(Some(why.clone()));
        let outage = Outage { why, since: self.controller.now(), kind };
        *lock(&self.watched.hold) = Some(Arc::new(outage));
        publish(self.controller, self.watched);
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let is_shut = lock(&self.watched.hold).take().is_some();
        lock(&self.watched.cluster).intend(None);
        if is_shut {
            open_listeners(self.controller, self.watched);
        }
        self.watched.is_changing.store(false, Ordering::Release);
        // A new configuration may have waited.
        self.controller.0.clusters.change();
    }
}

impl Controller {
    /// Makes the node `to` the primary of the cluster that this database is at.
    ///
    /// # Errors
    /// Why it is refused or has failed, in words.
    pub(crate) async fn switch_over(&self, database: &str, to: &str) -> Result<(), String> {
        let config = self.config();
        let database_row = config.database(database);
        let database_row = database_row.ok_or_else(|| format!("no such database: {database}"))?;
        let Some(name) = database_row.cluster.clone() else {
            return Err(format!("database {database} belongs to no cluster"));
        };
        self.promote(&name, to).await
    }

    /// Makes the node `to` the primary of its cluster.
    ///
    /// # Errors
    /// Why it is refused or has failed, in words.
    pub(crate) async fn promote(&self, cluster: &str, to: &str) -> Result<(), String> {
        let watched = self.watched(cluster)?;
        let to = watched.node_called(to)?;
        // The console's client may leave, and the switchover goes on.
        let controller = self.clone();
        let work = async move { planned(&controller, &watched, to).await };
        tokio::spawn(work).await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

async fn planned(
    controller: &Controller,
    watched: &Arc<Watched>,
    to: NodeId,
) -> Result<(), String> {
    let by = limits(watched).by;
    // Without the way back, a switchover that fails would leave the cluster without a primary.
    let has_commands =
        watched.configured.stop_command.is_some() && watched.configured.start_command.is_some();
    if let Some(why) = watched.fleet.as_ref().and_then(|fleet| fleet.defers()) {
        return Err(why);
    }
    if by == By::Weir && !has_commands {
        return Err("SWITCHOVER needs a stop_command and a start_command".to_owned());
    }
    let hold = Hold::take(controller, watched)?;
    let node = node(watched, to);
    if by == By::Weir && !Orders::to(controller, watched, to).await?.may_promote().await? {
        let user = &watched.configured.user;
        return Err(format!("user {user} may not execute pg_promote on node {}", node.name));
    }
    let planned = || {
        Promotion::planned(&lock(&watched.cluster), to, limits(watched), controller.now())
            .map_err(|refusal| refusal.to_string())
    };
    let old = planned()?.source();
    log!("cluster {}: switchover to node {} begins", watched.name, node.name);
    if by == By::Weir {
        checkpoint(controller, watched, old).await;
    }
    let mut promotion = match planned() {
        Ok(promotion) if promotion.source() == old => promotion,
        Ok(_) => return refused(watched, node, "another node has become the primary"),
        Err(why) => return refused(watched, node, &why),
    };
    let agreement =
        watched.agreeing().map(|fleet| Agreement::by_order(fleet, &watched.name, &node.name));
    let mut agreement = match agreement.transpose() {
        Ok(agreement) => agreement,
        Err(why) => return refused(watched, node, &why.to_string()),
    };
    let why = format!("switchover to node {}", node.name);
    hold.shut(why, OutageKind::Planned);
    let end = match drain_all(watched, &mut agreement).await {
        Ok(()) => carry_out(controller, watched, &mut promotion, &mut agreement).await,
        Err(why) => Err(why),
    };
    conclude(controller, watched, agreement, end.is_ok()).await;
    let _running = Arc::clone(&hold.running);
    drop(hold);
    if let Err(why) = end {
        warning!("cluster {}: switchover to node {} failed: {why}", watched.name, node.name);
        return Err(format!("switchover failed: {why}"));
    }
    log!("cluster {}: switchover to node {} succeeded", watched.name, node.name);
    if by == By::Manager {
        return Ok(());
    }
    let troubles = follow_new_primary(controller, watched, old, to).await;
    if troubles.is_empty() {
        return Ok(());
    }
    Err(format!("node {} is the primary now, but {}", node.name, troubles.join("; ")))
}

/// Waits until the clients of all members wait.
async fn drain_all(
    watched: &Watched,
    agreement: &mut Option<Agreement<'_>>,
) -> Result<(), Failure> {
    let Some(agreement) = agreement else { return Ok(()) };
    let drained = match agreement.turn(watched.configured.switchover_drain).await {
        Err(Hesitation::Awaited(_) | Hesitation::Busy)
            if limits(watched).overtime == Overtime::Close =>
        {
            agreement.close().await
        }
        drained => drained,
    };
    drained.map_err(|why| Failure::Disagreed(why.to_string()))
}

/// Tells the members the primary of a change that has succeeded.
async fn conclude(
    controller: &Controller,
    watched: &Watched,
    agreement: Option<Agreement<'_>>,
    is_done: bool,
) {
    // After a failure, the leader tells them when there is a primary.
    if let Some(agreement) = agreement.filter(|_| is_done)
        && let Some(writer) = fleet::primary(controller, watched)
    {
        agreement.end(writer).await;
    }
}

/// The switchover has begun, and no client has noticed yet.
fn refused(watched: &Watched, to: &Node, why: &str) -> Result<(), String> {
    warning!("cluster {}: no switchover to node {}: {why}", watched.name, to.name);
    Err(why.to_owned())
}

/// Has the old primary write out what it has changed, while clients are still served. The shutdown then
/// has less to write, so clients wait for a shorter time. If the primary is lost meanwhile, nothing may
/// delay its successor.
async fn checkpoint(controller: &Controller, watched: &Watched, old: NodeId) {
    let limit = watched.configured.command_timeout;
    let done =
        async { Orders::to(controller, watched, old).await?.within(limit).checkpoint().await };
    let lost = async {
        while lock(&watched.cluster).primary() == Ok(old) {
            sleep(LOOK).await;
        }
        Err("the primary is lost".to_owned())
    };
    let end = tokio::select! {
        end = done => end,
        end = lost => end,
    };
    if let Err(why) = end {
        log!("cluster {}: no checkpoint before the switchover: {why}", watched.name);
    }
}

/// Promotes a standby whenever the primary is lost, forever (`failover = own`).
pub(super) async fn guard(controller: Controller, watched: Arc<Watched>) {
    let mut told = None;
    loop {
        sleep(LOOK).await;
        // Once another process has taken over, this one has no right any more.
        let (hold, mut promotion, mut agreement) = match begin(&controller, &watched) {
            Ok(begun) => begun,
            Err(None) => continue,
            Err(Some(why)) => {
                if told.as_ref() != Some(&why) {
                    warning!("cluster {}: nobody is promoted: {why}", watched.name);
                }
                told = Some(why);
                continue;
            }
        };
        let old = promotion.source();
        let name = &node(&watched, old).name;
        hold.shut(format!("failover: node {name} is lost"), OutageKind::Other);
        let end = match agree(&mut agreement).await {
            Ok(()) => carry_out(&controller, &watched, &mut promotion, &mut agreement).await,
            Err(why) => Err(why),
        };
        conclude(&controller, &watched, agreement, end.is_ok()).await;
        let running = Arc::clone(&hold.running);
        drop(hold);
        match end {
            Ok(new) => {
                told = None;
                log!("cluster {}: node {} is promoted", watched.name, node(&watched, new).name);
                let (controller, watched) = (controller.clone(), Arc::clone(&watched));
                // The cluster serves its clients although a standby may not follow yet. A new
                // configuration ends this task, but not the spawned one.
                let others = tokio::spawn(async move {
                    let _running = running;
                    follow_new_primary(&controller, &watched, old, new).await
                });
                drop(others.await);
            }
            Err(why) => {
                let why = why.to_string();
                if told.as_ref() != Some(&why) {
                    warning!("cluster {}: nobody is promoted: {why}", watched.name);
                }
                told = Some(why);
                sleep(RETRY).await;
            }
        }
    }
}

/// A failover that has begun.
type Begun<'a> = (Hold<'a>, Promotion, Option<Agreement<'a>>);

/// Begins a failover, if the primary is lost and this process may promote another one.
///
/// # Errors
/// Why an operator may have expected one; None if there is nothing to do.
fn begin<'a>(
    controller: &'a Controller,
    watched: &'a Arc<Watched>,
) -> Result<Begun<'a>, Option<String>> {
    let promotion = || {
        let past = lock(&watched.past).clone();
        let cluster = lock(&watched.cluster);
        Promotion::unplanned(&cluster, limits(watched), &past, controller.now())
    };
    let lost = promotion().ok_or(None)?.source();
    let name = &node(watched, lost).name;
    if let Some(why) = watched.hesitation(controller, name) {
        return Err(Some(why));
    }
    let hold = Hold::take(controller, watched).map_err(|_| None)?;
    let agreement = watched
        .agreeing()
        .map(|fleet| Agreement::after_loss(fleet, &watched.name, name))
        .transpose()
        .map_err(|why| Some(why.to_string()))?;
    if let Some((is_fenced, ordered)) = agreement.as_ref().map(Agreement::done_before) {
        let known = match ordered {
            None => lock(&watched.past).ordered(),
            // It may promote itself at any time.
            Some(name) => Some(watched.node_called(name).map_err(Some)?),
        };
        let timeline = lock(&watched.cluster).timeline();
        *lock(&watched.past) = Past::resumed(lost, timeline, is_fenced, known);
    }
    // Another change may have ended meanwhile.
    let promotion = promotion().ok_or(None)?;
    Ok((hold, promotion, agreement))
}

/// Waits until the clients of all members wait, and until no member sends to the old primary.
async fn agree(agreement: &mut Option<Agreement<'_>>) -> Result<(), Failure> {
    let Some(agreement) = agreement else { return Ok(()) };
    agreement.turn(AGREEING).await.map_err(|why| Failure::Disagreed(why.to_string()))
}

fn limits(watched: &Watched) -> Limits {
    let configured = &watched.configured;
    Limits {
        drain: configured.switchover_drain.as_micros() as u64,
        overtime: match configured.switchover_overtime {
            SwitchoverOvertime::Refuse => Overtime::Refuse,
            SwitchoverOvertime::Close => Overtime::Close,
        },
        by: if configured.patroni.is_empty() { By::Weir } else { By::Manager },
        max_loss: configured.max_loss.map(u64::from),
    }
}

fn node(watched: &Watched, node: NodeId) -> &Node {
    &watched.configured.nodes[usize::from(node.0)]
}

/// Carries out all steps. Returns the new primary.
async fn carry_out(
    controller: &Controller,
    watched: &Watched,
    promotion: &mut Promotion,
    agreement: &mut Option<Agreement<'_>>,
) -> Result<NodeId, Failure> {
    loop {
        end_listeners(controller, watched);
        let servers = servers(controller, watched);
        let next = promotion.next(&lock(&watched.cluster), servers, controller.now());
        let order = match next {
            Ok(Order::Wait) => {
                watched.wake_all();
                sleep(LOOK).await;
                continue;
            }
            Ok(order) => order,
            Err(end) => {
                *lock(&watched.past) = match end {
                    Ok(_) => Past::default(),
                    Err(_) => promotion.past().clone(),
                };
                return end;
            }
        };
        let outcome = match agreement {
            None => obey(controller, watched, order, promotion).await,
            Some(agreement) => obey_agreed(controller, watched, order, promotion, agreement).await,
        };
        if let Outcome::Failed(why) | Outcome::Unsent(why) = &outcome {
            warning!("cluster {}: {} failed: {why}", watched.name, in_words(order));
        }
        promotion.done(outcome, controller.now());
    }
}

/// Tells the pools of the primary. Clients go on when the listeners listen, or after a second.
pub(super) fn open_listeners(controller: &Controller, watched: &Arc<Watched>) {
    let why = "listeners are opened at the primary".to_owned();
    let outage = Outage { why, since: controller.now(), kind: OutageKind::Resuming };
    let outage = Arc::new(outage);
    *lock(&watched.resuming) = Some(Arc::clone(&outage));
    publish(controller, watched);
    let (controller, watched) = (controller.clone(), Arc::clone(watched));
    tokio::spawn(async move {
        let opened = async {
            while pools_at_primary(&controller, &watched)
                .iter()
                .any(|pool| lock(pool).lacks_listener())
            {
                sleep(LOOK).await;
            }
        };
        // A listener that cannot be opened delays clients, but it does not stop them.
        let _ = timeout(RESUMING, opened).await;
        let is_it = |own: &mut Arc<Outage>| Arc::ptr_eq(own, &outage);
        if lock(&watched.resuming).take_if(is_it).is_none() {
            return;
        }
        // After a reload, others watch the cluster.
        let present = lock(&controller.0.clusters.watched).get(&watched.name).cloned();
        if present.is_some_and(|own| Arc::ptr_eq(&own, &watched)) {
            publish(&controller, &watched);
        }
    });
}

/// Has the listeners read what is left and end, if no other connection to the old primary is open.
/// Each pool's transactions notify the clients of the others, too.
pub(super) fn end_listeners(controller: &Controller, watched: &Watched) {
    let pools = pools_at_primary(controller, watched);
    let is_drained = pools.iter().all(|pool| lock(pool).places() == 0);
    if is_drained && pools.iter().any(|pool| lock(pool).counts().0 > 0) {
        pools.iter().for_each(|pool| lock(pool).end_listener());
        controller.0.shared.tell_all(|| ShellMail::Review);
    }
}

/// Does the pool have servers of the cluster's primary? Reads on standbys go on.
fn is_at_primary<X>(pool: &Pool<X>, watched: &Watched) -> bool {
    pool.settings.cluster.as_ref() == Some(&watched.name) && pool.key.place == Place::Writer
}

/// Returns the pools with servers at the primary.
pub(super) fn pools_at_primary(
    controller: &Controller,
    watched: &Watched,
) -> Vec<Arc<Mutex<Pool<Transport>>>> {
    let mut pools = controller.0.shared.hub.pools();
    pools.retain(|pool| is_at_primary(&lock(pool), watched));
    pools
}

/// Returns the number of server connections at the primary.
fn servers(controller: &Controller, watched: &Watched) -> u32 {
    let pools = pools_at_primary(controller, watched);
    pools.iter().map(|pool| lock(pool).counts().0).sum()
}

/// Carries out an order as the leader of several Weirs. The steps that the next leader must know are
/// written down.
async fn obey_agreed(
    controller: &Controller,
    watched: &Watched,
    order: Order,
    promotion: &Promotion,
    agreement: &mut Agreement<'_>,
) -> Outcome {
    let may_go_on = match order {
        Order::Promote(to) => agreement.orders(&node(watched, to).name).await,
        Order::Wait
        | Order::Close
        | Order::Mark(_)
        | Order::Stop(_)
        | Order::Start(_)
        | Order::Fence(_)
        | Order::Request(_) => agreement.turn(AGREEING).await,
    };
    if let Err(why) = may_go_on {
        return Outcome::Unsent(why.to_string());
    }
    let outcome = obey(controller, watched, order, promotion).await;
    if matches!(order, Order::Fence(_))
        && outcome == Outcome::Done
        && let Err(why) = agreement.fenced().await
    {
        warning!("cluster {}: the fence is not written down: {why}", watched.name);
    }
    outcome
}

async fn obey(
    controller: &Controller,
    watched: &Watched,
    order: Order,
    promotion: &Promotion,
) -> Outcome {
    let configured = &watched.configured;
    let to = promotion.target();
    let done = match order {
        Order::Wait => Ok(()),
        Order::Close => {
            for pool in pools_at_primary(controller, watched) {
                lock(&pool).cut();
            }
            controller.0.shared.tell_all(|| ShellMail::Review);
            Ok(())
        }
        Order::Mark(from) => {
            let end = async { Orders::to(controller, watched, from).await?.end().await };
            match end.await {
                Ok(end) => return Outcome::At(end),
                Err(why) => Err(why),
            }
        }
        Order::Stop(from) => {
            run(controller, watched, configured.stop_command.as_ref(), (from, to)).await
        }
        Order::Start(from) => start(controller, watched, from, to).await,
        Order::Fence(from) => {
            run(controller, watched, configured.fence_command.as_ref(), (from, to)).await
        }
        Order::Promote(to) => match Orders::to(controller, watched, to).await {
            // The connection has taken some time, in which the old primary may have come back.
            Ok(_) if !promotion.may_promote(&lock(&watched.cluster), controller.now()) => {
                return Outcome::Unsent("the old primary may run again".to_owned());
            }
            Ok(orders) => {
                let done = orders.promote().await;
                if done.is_ok() {
                    follow_early(controller, watched, promotion.source(), to).await;
                }
                done
            }
            Err(why) => return Outcome::Unsent(why),
        },
        Order::Request(to) => {
            let patroni = Patroni { dns: &controller.0.dns, cluster: configured };
            let old = &node(watched, promotion.source()).name;
            return tokio::select! {
                outcome = patroni.switch_over(old, &node(watched, to).name) => outcome,
                // Patroni tells it up to a second later.
                () = until_primary(watched, to) => Outcome::Done,
            };
        }
    };
    watched.wake_all();
    done.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

/// Runs `start_command`. Ends when the node serves as the primary: a command that stays with the
/// server it has started keeps no client waiting. It goes on, and is killed at its limit.
async fn start(
    controller: &Controller,
    watched: &Watched,
    from: NodeId,
    to: Option<NodeId>,
) -> Result<(), String> {
    let begun = controller.now();
    let serves = || {
        let cluster = lock(&watched.cluster);
        cluster.primary() == Ok(from) && cluster.sampled_at(from) > begun
    };
    let served = async {
        while !serves() {
            watched.wake_all();
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        done = run(controller, watched, watched.configured.start_command.as_ref(), (from, to)) => done,
        () = served => {
            let name = &node(watched, from).name;
            log!("cluster {}: node {name} serves, and start_command still runs", watched.name);
            Ok(())
        }
    }
}

/// Asks the nodes until this one is the primary.
async fn until_primary(watched: &Watched, to: NodeId) {
    while lock(&watched.cluster).primary() != Ok(to) {
        watched.wake_all();
        sleep(LOOK).await;
    }
}

fn in_words(order: Order) -> &'static str {
    match order {
        Order::Wait => "waiting",
        Order::Close => "closing the server connections",
        Order::Mark(_) => "asking for the end of the WAL",
        Order::Stop(_) => "stop_command",
        Order::Start(_) => "start_command",
        Order::Fence(_) => "fence_command",
        Order::Promote(_) => "pg_promote",
        Order::Request(_) => "the switchover by Patroni",
    }
}

async fn run(
    controller: &Controller,
    watched: &Watched,
    command: Option<&String>,
    (about, new): (NodeId, Option<NodeId>),
) -> Result<(), String> {
    let command = command.ok_or("there is no such command")?;
    let limit = watched.configured.command_timeout;
    let new = new.map(|new| node(watched, new));
    let place = (&*controller.config(), &*watched.name);
    command::run(command, place, node(watched, about), new, limit).await
}

/// Makes the other standbys follow a node that is being promoted. Commits there may have to wait for
/// them. Ends when the node is the primary: clients do not wait for a standby that does not answer.
async fn follow_early(controller: &Controller, watched: &Watched, old: NodeId, new: NodeId) {
    tokio::select! {
        // `follow_new_primary` tries again, and tells the failures.
        _ = others_follow(controller, watched, old, new) => {}
        () = until_primary(watched, new) => {}
    }
}

/// Makes the standbys but the old primary follow the new one. Returns the failures.
async fn others_follow(
    controller: &Controller,
    watched: &Watched,
    old: NodeId,
    new: NodeId,
) -> Vec<String> {
    let mut troubles = Vec::new();
    let nodes: Vec<_> = lock(&watched.cluster).nodes().collect();
    for other in nodes.into_iter().filter(|other| *other != old && *other != new) {
        let is_down = matches!(lock(&watched.cluster).verdict(other), Verdict::Down(_));
        let follow = async {
            Orders::to(controller, watched, other).await?.follow(node(watched, new)).await
        };
        let outcome = if is_down { Err("it is down".to_owned()) } else { follow.await };
        if let Err(why) = outcome {
            troubles.push(format!("node {} does not follow it: {why}", node(watched, other).name));
        }
    }
    troubles
}

/// Makes the other nodes follow the new primary. Returns the failures.
async fn follow_new_primary(
    controller: &Controller,
    watched: &Watched,
    old: NodeId,
    new: NodeId,
) -> Vec<String> {
    let mut troubles = others_follow(controller, watched, old, new).await;
    if let Some(command) = &watched.configured.rejoin_command
        && let Err(why) = run(controller, watched, Some(command), (old, Some(new))).await
    {
        let name = &node(watched, old).name;
        troubles.push(format!("rejoin_command failed for node {name}: {why}"));
    }
    for trouble in &troubles {
        warning!("cluster {}: {trouble}", watched.name);
    }
    watched.wake_all();
    troubles
}
