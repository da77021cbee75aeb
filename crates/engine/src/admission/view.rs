//! The data that a worker caches of one pool, so that an ordinary transaction need not ask the
//! exchange.

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::admission::limits::Claim;
use crate::ids::{Identity, Micros, PoolId};
use crate::operator::histogram::Durations;
use crate::operator::stats::Stats;
use crate::routing::Place;
use crate::session::text_history::TextHistory;
use crate::settings::PoolSettings;
use crate::shell::{Event, Exchange, Io};

#[derive(Debug)]
pub(crate) struct PoolView {
    pub(crate) settings: Arc<PoolSettings>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) place: Place,
    /// For a writer: the known pools of the same database and user at other places.
    pub(crate) readers: ThinVec<(Place, PoolId)>,
    pub(crate) stats: Stats,
    /// Boxed, so that the view stays small.
    pub(crate) durations: Box<Durations>,
    /// Used in auto mode.
    pub(crate) history: TextHistory,
    /// Does the log say that state reports of this pool's servers cannot be read?
    pub(crate) has_bad_reports: bool,
    /// The pool's count of changes of its role, whose former clients are disconnected.
    pub(crate) role_changes: u16,
    /// Was an idle server of another pool closed for the seat of the next server?
    pub(crate) takes_seat: bool,
}

impl PoolView {
    /// Returns the cluster whose primary the pool's servers are at.
    pub(crate) fn writer_of(&self) -> Option<&str> {
        self.settings.cluster.as_deref().filter(|_| self.place == Place::Writer)
    }

    pub(crate) fn claim(&self, pool: PoolId) -> Claim {
        let PoolSettings { limits, weight, .. } = *self.settings;
        Claim { pool, identity: self.identity.clone(), limits, weight }
    }

    /// A state report of one of its servers cannot be read. The log says so once.
    #[cold]
    pub(crate) fn note_bad_report<X: Exchange>(&mut self, io: &mut impl Io<X>) {
        if !std::mem::replace(&mut self.has_bad_reports, true) {
            let name = (self.identity.database.as_str(), self.identity.user.as_str());
            io.event(Event::BadReport { name });
        }
    }

    /// Returns the moment at which a request has arrived. The worker's `now` may be earlier than a
    /// commit that the client knew of when it sent the request.
    pub(crate) fn arrival<X: Exchange>(&self, io: &impl Io<X>) -> Micros {
        let routing = self.settings.routing.as_deref();
        match routing.is_some_and(|routing| routing.rules.are_strict()) {
            true => io.clock(),
            false => io.now(),
        }
    }

    /// A client has been given a server, for which it has `waited`. Most have not: those are counted
    /// when the figures are asked for.
    #[inline]
    pub(crate) fn assigned(&mut self, waited: Micros) {
        self.stats.assignments += 1;
        self.stats.wait_time += waited;
        if waited != 0 {
            self.durations.wait.record(waited);
        }
    }

    /// A client's query is done, which has `taken` so long.
    #[inline]
    pub(crate) fn query_done(&mut self, taken: Micros) {
        self.stats.query_time += taken;
        self.durations.query.record(taken);
    }

    /// A client's transaction is done, which has `taken` so long.
    #[inline]
    pub(crate) fn transaction_done(&mut self, taken: Micros) {
        self.stats.transaction_time += taken;
        self.durations.transaction.record(taken);
    }

    /// Counts a login to a server. `taken` is the time since its socket was opened.
    pub(crate) fn server_opened(&mut self, taken: Micros) {
        self.durations.connect_time += taken;
        self.durations.connect.record(taken);
    }
}
