//! What an operator does to a pool: close and open its gate, give it other settings, have all its
//! servers replaced. Each is one change under the pool's lock; the workers are told afterwards
//! (`Engine::review`) and do with the sockets what follows from it.

use crate::lifecycle::close_reason::CloseReason;
use std::sync::Arc;

use super::{Parked, Pool};
use crate::ids::{Waiter, WorkerId};
use crate::login::server_secret::ServerSecret;
use crate::settings::PoolSettings;

/// May clients be given servers?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    #[default]
    Open,
    /// Not now: clients wait, servers are closed as soon as they are free (PAUSE).
    Paused,
    /// Not for the moment: clients wait, servers are parked. Another process may get them all.
    Held,
    /// Not any more: clients are turned away, and told this.
    Closed(CloseReason<'static>),
}

impl Gate {
    /// What is told of the servers that are closed because of it.
    pub(super) fn server_reason(self) -> CloseReason<'static> {
        match self {
            Self::Open | Self::Held => CloseReason::Obsolete,
            Self::Closed(CloseReason::DatabaseRemoved) => CloseReason::DatabaseRemoved,
            // That nobody is served any more is for the clients to hear.
            Self::Paused | Self::Closed(_) => CloseReason::Paused,
        }
    }
}

impl<T> Pool<T> {
    pub fn gate(&self) -> Gate {
        self.gate
    }

    pub fn set_gate(&mut self, gate: Gate) {
        self.has_backlog |= self.gate == Gate::Held && gate != Gate::Held;
        self.gate = gate;
        if !matches!(gate, Gate::Open | Gate::Held) {
            self.condemn(gate.server_reason());
        }
        self.check_invariants();
    }

    /// Its database is gone, and so is everybody who was in it.
    pub fn is_abandoned(&self) -> bool {
        self.gate == Gate::Closed(CloseReason::DatabaseRemoved)
            && self.servers == 0
            && self.waiting_total() == 0
    }

    /// Servers opened so far serve nobody new (RECONNECT): they may lead to the wrong place. What
    /// was learnt from them is forgotten, too.
    pub fn replace_servers(&mut self) {
        self.epoch += 1;
        self.obsolete = self.servers.saturating_sub(self.unbegun);
        self.current = 0;
        self.welcome = None;
        self.condemn(CloseReason::Obsolete);
    }

    /// The configuration was read again.
    pub fn set_settings(&mut self, settings: Arc<PoolSettings>) {
        if !self.settings.leads_to_the_same(&settings) {
            self.replace_servers();
            self.failure = None;
            self.minor_version = wire::startup::MINOR_VERSION;
            (self.may_ask_report, self.is_told) = (true, false);
        } else if self.is_told && self.settings.refuses() != settings.refuses() {
            // Servers with the library do so as they were told at their login.
            self.replace_servers();
            self.is_told = false;
        }
        self.settings = settings;
    }

    /// A place that was reserved is being used: what there is to log in with, and the present
    /// epoch, which is the new server's for good.
    pub fn begin_opening(&mut self) -> (Option<ServerSecret>, u64) {
        self.unbegun = self.unbegun.saturating_sub(1);
        (self.server_secret.clone(), self.epoch)
    }

    /// Servers of other epochs are to be replaced.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Servers that are to be replaced and have not gone yet.
    pub fn obsolete(&self) -> u32 {
        self.obsolete
    }

    pub(super) fn forget_server(&mut self, epoch: u64) {
        self.servers -= 1;
        if epoch != self.epoch {
            self.obsolete -= 1;
        }
    }

    /// A server of another process comes in. The epoch it has from now on, which is none of ours
    /// if it is to be replaced.
    pub fn adopt(&mut self, is_current: bool) -> u64 {
        self.servers += 1;
        if is_current {
            self.current += 1;
            return self.epoch;
        }
        self.obsolete += 1;
        u64::MAX
    }

    /// Servers parked at `worker` for whoever comes.
    pub fn idle_at(&self, worker: WorkerId) -> impl Iterator<Item = &Parked<T>> {
        self.idle[usize::from(worker.0)].all()
    }

    /// One who waits at `worker`, and a server for him, as there may be after the pool was held.
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

    /// Parked servers of `worker` that it is to close, and why.
    pub fn take_condemned(&mut self, worker: WorkerId) -> Vec<(Parked<T>, CloseReason<'static>)> {
        std::mem::take(&mut self.condemned[usize::from(worker.0)])
    }

    /// Everything that is parked at `worker`.
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

    /// Nobody gets a server that is parked now; its worker closes it.
    fn condemn(&mut self, reason: CloseReason<'static>) {
        self.condemn_where(|_| true, reason);
    }

    /// Likewise, those servers only.
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
