//! A server that could not be opened: the errors for clients, and what the pool learns.

use std::sync::Arc;

use config::ErrorCodes;
use wire::error_fields::ErrorFields;
use wire::sqlstate::{ADMIN_SHUTDOWN, CANNOT_CONNECT_NOW, CRASH_SHUTDOWN};

use crate::admission::one_pool::OnePool;
use crate::admission::pool::Failure;
use crate::ids::{Micros, Waiter, WorkerId};
use crate::lifecycle::close_reason::CloseReason;
use crate::own_error::{judges_user, login_failing};
use crate::shell::{Exchange, Io};

/// Why a server could not be opened.
#[derive(Debug)]
pub(crate) struct OpenFailure {
    /// PostgreSQL runs, and has refused this login.
    pub(crate) refused: bool,
    /// The error for clients that wait for the server: PostgreSQL's, if there is one.
    pub(crate) error: Arc<ErrorFields>,
    /// The error for clients that come before the next attempt.
    cached: Arc<ErrorFields>,
}

impl OpenFailure {
    pub(crate) fn new(
        reason: CloseReason<'_>,
        refusal: Option<ErrorFields>,
        codes: ErrorCodes,
    ) -> Self {
        // PostgreSQL starts up, shuts down or has ended this login, which says nothing about the user.
        let passes = [CANNOT_CONNECT_NOW, ADMIN_SHUTDOWN, CRASH_SHUTDOWN].map(str::as_bytes);
        let refused = refusal.as_ref().is_some_and(|error| !passes.contains(&error.sqlstate()));
        let cause = refusal.as_ref().map_or(reason.text().into(), ErrorFields::message);
        let text =
            format!("server login has been failing, cached error: {cause} (server_login_retry)");
        let cached = Arc::new(login_failing(codes, &text, refusal.as_ref()));
        let error = refusal.map_or_else(|| cached.clone(), Arc::new);
        Self { refused, error, cached }
    }
}

impl<X: Exchange> OnePool<'_, X> {
    /// A server of this epoch could not be opened. Returns the clients that wait no longer.
    pub(crate) fn open_failed(
        &mut self,
        epoch: u64,
        failure: &OpenFailure,
        io: &mut impl Io<X>,
    ) -> Vec<(WorkerId, Waiter)> {
        let (now, refused, error) = (io.now(), failure.refused, &failure.error);
        let waiters = self.lock(|pool| {
            if judges_user(error) {
                // The secret that was learnt with that password is no longer right.
                pool.proven = None;
            }
            let (retry_at, pause) = pool.next_attempt(refused, now);
            let (names_user, refusal) = (judges_user(error), refused.then(|| error.clone()));
            let cached = failure.cached.clone();
            let failure = Failure { error: cached, names_user, retry_at, pause, refusal };
            pool.open_failed(epoch, failure, refused)
        });
        self.refuse_guests(error, io);
        self.vacate(now);
        waiters
    }

    /// A login has ended without a server, which says nothing about the pool. `listens`: it was to be
    /// the listener. Returns whether another one is to be opened now, whose place is reserved then.
    pub(crate) fn login_lost(&mut self, epoch: u64, listens: bool, now: Micros) -> bool {
        let open = self.lock(|pool| pool.login_lost(epoch, listens, now));
        self.vacate(now);
        open
    }
}
