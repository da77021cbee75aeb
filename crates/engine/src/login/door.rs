//! The door: a client that logs in, and what its login may touch.

use std::sync::Arc;

use config::Database;
use wire::startup::CancelKey;

use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, Identity, Micros};
use crate::login::auth::{Credentials, Login};
use crate::login::question::Question;
use crate::own_error::{Cause, OwnError};
use crate::shell::{Event, Exchange, Io, TlsStart};

pub(super) const PASSWORD_FAILED: &str = "password authentication failed";

pub(crate) fn no_database(name: &str) -> OwnError<'static> {
    OwnError::new(Cause::UnknownDatabase, format!("no such database: {name}"))
}

/// Returns the error for a user that may not use the console.
pub(crate) fn not_allowed() -> OwnError<'static> {
    OwnError::new(Cause::Rule, "not allowed")
}

/// The result of a login's steps so far. It may contain a password, so it has no `Debug`.
pub(crate) enum Step {
    /// More bytes are needed, or an answer.
    Wait,
    Refuse(OwnError<'static>),
    /// Closes the client without an error message.
    Drop(&'static str),
    StartTls(TlsStart),
    /// It is a cancel request.
    Cancel(CancelKey),
    /// PostgreSQL is asked about the user, in this database.
    Ask(Arc<Database>, Question),
    /// PostgreSQL decides about the password.
    Prove(Vec<u8>),
    Authenticated,
}

/// A client that logs in, and what it may touch. A method that returns a step returns `None` if the
/// next message may have arrived already.
pub(crate) struct Door<'a, X> {
    pub(crate) id: ClientId,
    pub(crate) client: &'a mut Client,
    pub(crate) context: &'a mut Context,
    pub(crate) exchange: &'a mut X,
    pub(crate) credentials: &'a mut Credentials,
}

impl<X: Exchange> Door<'_, X> {
    pub(super) fn login(&mut self) -> &mut Login {
        self.client.login_mut()
    }

    pub(crate) fn verdict(
        &mut self,
        accepted: bool,
        failure: OwnError<'static>,
        now: Micros,
    ) -> Option<Step> {
        if accepted {
            return Some(Step::Authenticated);
        }
        self.refuse_proof(failure, now)
    }

    /// Refuses a client whose proof was wrong.
    pub(super) fn refuse_proof(&mut self, why: OwnError<'static>, now: Micros) -> Option<Step> {
        self.note_wrong_proof(now);
        Some(Step::Refuse(why))
    }
}

/// Logs that a client's login has failed.
pub(crate) fn log_login_failed<X: Exchange>(id: ClientId, login: &Login, io: &mut impl Io<X>) {
    let Identity { database, user } = &*login.requested;
    io.event(Event::LoginFailed { client: id, database, user });
}
