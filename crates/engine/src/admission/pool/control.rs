//! An operator's changes to a pool: close and open its gate, change its settings, replace all its
//! servers. Each is one change under the pool's lock. The workers are told afterwards
//! (`Engine::review`), and then deal with the sockets.

use std::sync::Arc;

use wire::secret::Secret;

use super::{OutageKind, Parked, Passwords, Pool};
use crate::ids::{Micros, Waiter, WorkerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::login::server_secret::ServerSecret;
use crate::settings::{PoolSettings, Primary};

/// May clients be given servers?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    #[default]
    Open,
    /// PAUSE: clients wait, and servers are closed as soon as they are free.
    Paused,
    /// Clients wait, and servers are closed as soon as they are free: the cluster has no primary.
    NoPrimary,
    /// Clients wait, and servers are parked, because another process may take them over.
    Held,
    /// Clients are disconnected for this reason.
    Closed(CloseReason<'static>),
}

impl Gate {
    /// Returns the reason for closing servers.
    pub(super) fn server_reason(self) -> CloseReason<'static> {
        match self {
            Self::Open | Self::Held => CloseReason::Obsolete,
            Self::NoPrimary => CloseReason::PrimaryLost,
            Self::Closed(
                reason @ (CloseReason::DatabaseRemoved
                | CloseReason::NotReadable
                | CloseReason::NodeSilent),
            ) => reason,
            // Only clients are told that Weir shuts down.
            Self::Paused | Self::Closed(_) => CloseReason::Paused,
        }
    }
}

impl<T> Pool<T> {
    /// Is a server of this epoch to be given back as soon as possible?
    pub fn wants_back(&self, epoch: u64) -> bool {
        self.waiting_total() > 0 || self.gate != Gate::Open || self.epoch != epoch
    }

    pub fn gate(&self) -> Gate {
        self.gate
    }

    pub fn set_gate(&mut self, gate: Gate) {
        self.has_backlog |= self.gate == Gate::Held && gate != Gate::Held;
        if self.gate == Gate::NoPrimary && gate == Gate::Open {
            // The failures were those of the time without a primary.
            self.failure = None;
        }
        self.gate = gate;
        self.review_relief();
        if !matches!(gate, Gate::Open | Gate::Held) {
            self.condemn(gate.server_reason());
        }
        self.check_invariants();
    }

    /// Sends later servers to the primary of the pool's cluster. Servers at another node serve no
    /// client any more, since what is committed there may be lost.
    pub fn follow(&mut self, cluster: String, primary: &Primary) {
        let old = self.follows.replace((cluster.clone(), primary.clone()));
        if *self.settings.targets != [primary.target.clone()] {
            let targets = vec![primary.target.clone()];
            self.set_settings(Arc::new(PoolSettings {
                targets,
                ..PoolSettings::clone(&self.settings)
            }));
        }
        // A pool that has just joined the cluster has its servers where it was told to.
        let Some((_, old)) = old.filter(|(name, _)| *name == cluster) else { return };
        if old.target == primary.target && old.timeline != primary.timeline {
            // Another node has taken over the address.
            self.replace_servers();
        }
        if old != *primary {
            self.cut_before = self.epoch;
        }
    }

    /// Has all servers closed at once, whatever they do.
    pub fn cut(&mut self) {
        self.replace_servers();
        self.cut_before = self.epoch;
    }

    /// The pool belongs to no cluster.
    pub fn follow_nobody(&mut self) {
        self.follows = None;
    }

    /// Is a server of this epoch to be closed at once, whatever it does? It is at a node that is
    /// not the cluster's primary any more.
    pub fn is_cut(&self, epoch: u64) -> bool {
        epoch < self.cut_before
    }

    /// Returns since when the node of the pool's servers does not answer, if so. For a standby it is
    /// not known, and 0.
    pub fn silent_since(&self) -> Option<Micros> {
        if self.gate == Gate::Closed(CloseReason::NodeSilent) {
            return Some(0);
        }
        let outage = self.outage.as_ref().filter(|outage| outage.kind == OutageKind::Silent);
        outage.map(|outage| outage.since)
    }

    /// Is the pool's database removed, with all its connections closed?
    pub fn is_abandoned(&self) -> bool {
        self.gate == Gate::Closed(CloseReason::DatabaseRemoved)
            && self.servers == 0
            && self.waiting_total() == 0
    }

    /// Starts a new epoch: present servers serve no new client (RECONNECT), since their address may
    /// be outdated. Knowledge from them is forgotten, too.
    pub fn replace_servers(&mut self) {
        self.epoch += 1;
        self.forget_principal();
        self.try_lobby_again();
        self.attendance.present = 0;
        self.obsolete = self.servers.saturating_sub(self.unbegun);
        self.current = 0;
        self.welcome = None;
        self.condemn(CloseReason::Obsolete);
    }

    /// Applies settings after a reload.
    pub fn set_settings(&mut self, settings: Arc<PoolSettings>) {
        if !self.settings.leads_to_the_same(&settings) {
            self.replace_servers();
            (self.failure, self.passwords) = (None, Passwords::default());
            self.minor_version = wire::startup::MINOR_VERSION;
            (self.may_ask_report, self.is_told, self.own_keys) = (true, false, false);
        } else if self.is_told && self.settings.refuses() != settings.refuses() {
            // A server's library works as it was told at login.
            self.replace_servers();
            self.is_told = false;
        }
        self.review_principal(&settings);
        self.review_secret(&settings);
        self.try_lobby_again();
        self.failed_queries.clear();
        self.settings = settings;
    }

    /// After a refused login, a changed password is tried at once. An unchanged one is not, because
    /// repeated failures may lock the user.
    fn review_secret(&mut self, new: &PoolSettings) {
        if self.settings.secret == new.secret {
            return;
        }
        match (&self.server_secret, &self.settings.secret, &new.secret) {
            // The keys of a new verifier are known when a client has shown them.
            (Some(ServerSecret::Scram(_)), Some(_), Some(Secret::Scram(_))) => return,
            // The secret came from `auth_query`, which is not asked about users of `auth_file`.
            (Some(_), None, Some(_)) => self.server_secret = None,
            (Some(_), _, None) | (Some(_), Some(_), Some(_)) | (None, _, _) => {}
        }
        self.failure = None;
    }

    /// Keeps a secret for further logins to PostgreSQL. If it is a new one, it is tried at once.
    pub fn learn_secret(&mut self, secret: ServerSecret) {
        if self.server_secret.as_ref() != Some(&secret) {
            self.server_secret = Some(secret);
            self.failure = None;
        }
    }

    /// Uses a reserved place. Returns the epoch of the new server.
    pub fn begin_opening(&mut self) -> u64 {
        self.unbegun = self.unbegun.saturating_sub(1);
        self.epoch
    }

    /// Returns the present epoch. Servers of other epochs are to be replaced.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how many servers are to be replaced and not closed yet.
    pub fn obsolete(&self) -> u32 {
        self.obsolete
    }

    pub(super) fn forget_server(&mut self, epoch: u64) {
        self.servers -= 1;
        if epoch != self.epoch {
            self.obsolete -= 1;
        }
    }

    /// Counts a server that comes from another process. Returns its epoch, which matches no epoch
    /// of this pool if the server is to be replaced.
    pub fn adopt(&mut self, is_current: bool) -> u64 {
        self.servers += 1;
        if is_current {
            self.current += 1;
            return self.epoch;
        }
        self.obsolete += 1;
        u64::MAX
    }

    /// Returns the servers parked at `worker` for use.
    pub fn idle_at(&self, worker: WorkerId) -> impl Iterator<Item = &Parked<T>> {
        self.idle[usize::from(worker.0)].all()
    }

    /// Returns a client that waits at `worker`, and a server for it. There may be both after the
    /// pool was held.
    pub fn match_waiting(&mut self, worker: WorkerId) -> Option<(Waiter, Parked<T>)> {
        if self.gate != Gate::Open {
            return None;
        }
        let waiter = self.oldest_waiter(worker)?;
        let Some(server) = self.take_idle(worker, None) else {
            self.has_backlog = false;
            return None;
        };
        self.forget(worker, waiter.ticket);
        self.has_backlog = self.waiting_total() > 0;
        Some((waiter, server))
    }

    /// Takes the parked servers that `worker` is to close, with the reasons.
    pub fn take_condemned(&mut self, worker: WorkerId) -> Vec<(Parked<T>, CloseReason<'static>)> {
        std::mem::take(&mut self.condemned[usize::from(worker.0)])
    }

    /// Takes everything that is parked at `worker`.
    pub fn take_home(&mut self, worker: WorkerId) -> Vec<Parked<T>> {
        let condemned = self.take_condemned(worker).into_iter().map(|(server, _)| server);
        self.idle[usize::from(worker.0)].take_all().chain(condemned).collect()
    }

    pub(super) fn take_condemned_one(
        &mut self,
        worker: WorkerId,
        is_it: impl Fn(&Parked<T>) -> bool,
    ) -> Option<Parked<T>> {
        let condemned = &mut self.condemned[usize::from(worker.0)];
        let at = condemned.iter().position(|(parked, _)| is_it(parked))?;
        Some(condemned.remove(at).0)
    }

    /// Withdraws all parked servers; their workers close them.
    fn condemn(&mut self, reason: CloseReason<'static>) {
        self.condemn_where(|_| true, reason);
    }

    /// Withdraws the parked servers that `fits` selects.
    pub fn condemn_where(
        &mut self,
        fits: impl Fn(&Parked<T>) -> bool,
        reason: CloseReason<'static>,
    ) {
        for (idle, condemned) in self.idle.iter_mut().zip(&mut self.condemned) {
            condemned.extend(idle.take_where(&fits).map(|server| (server, reason)));
        }
    }
}
