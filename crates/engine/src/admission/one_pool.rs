//! One pool: the part that all workers share, and this worker's view of it.

use config::AccessPolicy;
use wire::ErrorFields;

use crate::admission::limits::Starving;
use crate::admission::pool::{Pool, Refusals};
use crate::admission::view::PoolView;
use crate::context::Context;
use crate::ids::{Micros, PoolId, WorkerId};
use crate::lifecycle::own_query::OwnQuery;
use crate::login::server_secret::ServerSecret;
use crate::operator::waits;
use crate::server::Server;
use crate::shell::{Event, Exchange, Io, Mail};

/// A pool that a machine may use.
#[derive(Debug)]
pub(crate) struct OnePool<'a, X> {
    pub(crate) id: PoolId,
    pub(crate) exchange: &'a mut X,
    pub(crate) view: &'a mut PoolView,
}

impl<X: Exchange> OnePool<'_, X> {
    /// Runs `f` on the shared part under its lock.
    pub(crate) fn lock<R>(&mut self, f: impl FnOnce(&mut Pool<X::Transport>) -> R) -> R {
        self.exchange.pool(self.id, f)
    }

    /// Does a client wait in a pool that starves for a seat of this pool?
    pub(crate) fn is_starved_for(&mut self, now: Micros) -> bool {
        self.starving_for(now).is_some()
    }

    /// Returns the claim of a pool that starves for a seat of this pool, and whose clients wait.
    pub(crate) fn starving_for(&mut self, now: Micros) -> Option<Starving> {
        let identity = &self.view.identity;
        while let Some((starving, since)) =
            self.exchange.limits(|limits| limits.starving_for(identity))
        {
            if self.exchange.pool(starving, |pool| pool.needs_seat(now)) {
                return self.exchange.limits(|limits| limits.claim_of(starving).cloned());
            }
            self.exchange.limits(|limits| limits.forget(starving, since));
        }
        None
    }

    /// Returns a pool that starves, and has a better right to a seat of this pool.
    pub(crate) fn rival(&mut self, now: Micros) -> Option<PoolId> {
        let identity = &self.view.identity;
        let id = self.id;
        while let Some((rival, since)) =
            self.exchange.limits(|limits| limits.better_claim(id, identity, now))
        {
            if self.exchange.pool(rival, |pool| pool.needs_seat(now)) {
                return Some(rival);
            }
            self.exchange.limits(|limits| limits.forget(rival, since));
        }
        None
    }

    /// Gives up the seat of a closed server.
    pub(crate) fn vacate(&mut self, now: Micros) {
        let id = self.id;
        let identity = &self.view.identity;
        self.exchange.limits(|limits| limits.vacate(id, identity, now));
    }

    /// Is there no room for another pool's listener because of this pool's?
    pub(crate) fn is_lacked_elsewhere(&mut self) -> bool {
        let id = self.id;
        let identity = &self.view.identity;
        self.exchange.limits(|limits| limits.listener_is_lacked(id, identity))
    }

    /// Has the lobby found no seat, and will it be offered the next one? It asks every 20 ms.
    pub(crate) fn awaits_seat(&mut self, now: Micros) -> bool {
        let id = self.id;
        let awaits = self.exchange.limits(|limits| limits.will_be_fed(id))
            && self.lock(|pool| pool.lobby_wants_seat(now));
        if awaits {
            self.lock(|pool| pool.note_lobby_wants_seat(now));
        }
        awaits
    }

    /// A login has failed. If PostgreSQL refuses the pool, clients of the lobby do not wait for it.
    pub(crate) fn refuse_guests(&mut self, error: &ErrorFields, io: &mut impl Io<X>) {
        let now = io.now();
        if self.lock(|pool| pool.lobby_is_refused(now)) {
            io.refuse_lobby(self.id, error);
        }
    }

    /// Logs why a query of Weir's own has failed on the server.
    pub(crate) fn report_own_query(
        &mut self,
        query: OwnQuery,
        error: Option<ErrorFields>,
        io: &mut impl Io<X>,
    ) {
        let message = match (error, query) {
            (None, _) => "it leaves a transaction open".to_owned(),
            (Some(error), OwnQuery::Connect) => {
                format!("{}: {}", String::from_utf8_lossy(error.severity()), error.message())
            }
            (Some(error), _) => error.message().into_owned(),
        };
        let repeats = self.lock(|pool| pool.query_failed(query, &message));
        let identity = &self.view.identity;
        let name = (identity.database.as_str(), identity.user.as_str());
        io.event(Event::OwnQueryFailed { name, query, message: &message, repeats });
    }

    /// Describes why no server can be opened. None if there is a server, or the last attempt to open
    /// one has not failed.
    pub(crate) fn describe_failure(&mut self) -> Option<String> {
        let failure = self.lock(|pool| match &pool.failure {
            Some(failure) if pool.has_none_open() => Some(failure.clone()),
            Some(_) | None => None,
        })?;
        Some(waits::describe_failure(&failure, &self.view.identity))
    }

    /// Is the server at a node that has ceased to be the primary? While the server was on its way to
    /// this worker, no worker could close it.
    pub(crate) fn has_cut(&mut self, server: &Server) -> bool {
        self.view.settings.cluster.is_some() && self.lock(|pool| pool.is_cut(server.epoch))
    }

    /// Logs that PostgreSQL accepts logins again.
    pub(crate) fn logins_work_again(&mut self, refusals: &Refusals, io: &mut impl Io<X>) {
        let identity = &self.view.identity;
        let name = (identity.database.as_str(), identity.user.as_str());
        let after = io.now().saturating_sub(refusals.since);
        io.event(Event::ServerLoginWorks { name, refused: refusals.count, after });
    }

    /// Asks the pool itself: this worker may not have heard yet what another one has found out.
    #[cold]
    #[inline(never)]
    pub(crate) fn role_changes(&mut self) -> u16 {
        self.lock(|pool| pool.role_changes())
    }

    /// Was this password found right before?
    pub(crate) fn is_proven(&mut self, password: &[u8]) -> bool {
        let proven = self.lock(|pool| pool.proven.clone());
        proven.is_some_and(|verifier| verifier.verify_password(password))
    }

    /// Does this pool lack a secret to open servers with?
    pub(crate) fn opens_by_proof(&mut self, context: &Context) -> bool {
        context.config.access == AccessPolicy::ProvenByServer
            && self.lock(|pool| pool.server_secret.is_none())
    }

    /// Does the client that has waited longest, whose login is next, belong to this worker?
    pub(crate) fn proves_first(&mut self, worker: WorkerId) -> bool {
        let first = self.lock(|pool| pool.first_waiter());
        first.is_some_and(|(owner, _)| owner == worker)
    }

    /// Has the worker continue whose client is the first that waits to prove its password.
    pub(crate) fn pass_proof_on(&mut self) {
        let first = self.lock(|pool| {
            pool.withdraw_opening();
            pool.first_waiter()
        });
        if let Some((owner, _)) = first {
            self.exchange.post(owner, Mail::Prove { pool: self.id });
        }
    }

    /// `user` has logged in with this secret. A forced user has its own credentials: only its keys
    /// may be missing.
    pub(crate) fn learn(&mut self, user: &str, server_secret: ServerSecret) {
        self.lock(|pool| {
            let settings = &pool.settings;
            let is_missing = match (&server_secret, settings.own_verifier()) {
                (ServerSecret::Scram(keys), Some(verifier)) => {
                    settings.login_user() == user && verifier.verify_client_key(&keys.client_key)
                }
                (_, _) => !settings.forced_user,
            };
            if is_missing {
                pool.learn_secret(server_secret);
            }
        });
    }
}
