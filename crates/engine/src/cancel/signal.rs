//! A client cancels the query of another client or terminates it (`pool_mode = auto`). It names the
//! other one by the process id from that client's login. Meanwhile the calling client is held back
//! on its server.
//!
//! ```text
//!  begin_signal ─► FindProcess to all workers … ProcessFound ─┬─ nobody's, or elsewhere ─► Unknown
//!                                                             ├─ the same user ──────────┐
//!                                                             └─ PostgreSQL is asked … ──┤
//!                                                 Refused ◄── may not ────────────────── │
//!                          Done ◄── CancelDone … Signal to the other one's worker ◄──────┘
//! ```
//!
//! Nothing is done before the other client is found. Its serial number distinguishes it from later
//! clients in the same slot. Then the call is processed again
//! (`relay/requests/signals.rs`). `engine/cancels.rs` carries the steps out.

use sql::Signs;
use wire::error_fields::ErrorFields;
use wire::{backend, frontend, sqlstate::QUERY_CANCELED};

use crate::cancel::outcome::CancelOutcome;
use crate::cancel::signaling::{Call, Found, Owner, Refusal, Step, Verdict};
use crate::client::{Client, ClientPhase};
use crate::ids::{ClientId, Micros, Waiter};
use crate::login::auth_answer::{AuthAnswer, Found as Row};
use crate::relay::ledger::Expect;
use crate::server::{Preparation, Server};
use crate::session::carried::{ROLE, SESSION_AUTHORIZATION};
use crate::session::pins::Pins;
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};
use crate::vars::Vars;

/// May the client's current role signal sessions of this role (`pg_signal_backend` in PostgreSQL's
/// `signalfuncs.c`)? All names are qualified, independent of `search_path`.
const QUESTION: &[u8] = b"SELECT whose.rolname, CASE \
    WHEN whose.rolsuper AND NOT own.rolsuper THEN 'superuser' \
    WHEN pg_catalog.pg_has_role(whose.oid, 'USAGE') THEN 'yes' \
    WHEN pg_catalog.pg_has_role('pg_signal_backend'::pg_catalog.name, 'USAGE') THEN 'yes' \
    ELSE 'role' END \
    FROM pg_catalog.pg_roles whose, pg_catalog.pg_roles own \
    WHERE whose.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
    AND own.rolname OPERATOR(pg_catalog.=) CURRENT_USER";
/// Name of the statement and of its portal; no client uses it.
const QUESTION_NAME: &[u8] = b"weir_may_signal";

/// The next step for a client that signals another one.
#[derive(Debug)]
pub(crate) enum Next {
    /// Nothing yet.
    Wait,
    /// PostgreSQL must be asked whether the client may signal this one.
    Ask(Owner),
    /// The client may signal this one.
    Signal { owner: Owner, terminates: bool },
    /// The call is decided.
    Decide(Verdict),
}

/// Messages of Weir's own for a server, and the replies that they have.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) messages: Vec<u8>,
    pub(crate) expected: Vec<Expect>,
}

impl Client {
    /// Begins to search for the client that has the process id, in so many workers.
    pub(crate) fn begin_search(&mut self, call: Call, workers: u16) {
        self.extended.get_or_insert_default().signaling.begin(call, workers);
    }

    /// Takes the answer of one worker. `server`: the client's, if it has one. `own`: the settings of
    /// its pool.
    pub(crate) fn process_found(
        &mut self,
        new: Found,
        server: Option<&Server>,
        own: &PoolSettings,
    ) -> Next {
        let Some(Step::Find { missing, found }) = signal_step(self) else { return Next::Wait };
        let all = std::mem::replace(found, Found::Nobodys).and(new);
        *missing -= 1;
        if *missing > 0 {
            *found = all;
            return Next::Wait;
        }
        let owner = match all {
            Found::Of(owner) => owner,
            Found::Nobodys | Found::Ambiguous => return Next::Decide(Verdict::Unknown),
        };
        if own.targets != owner.settings.targets {
            // It is a process of another machine or cluster.
            return Next::Decide(Verdict::Unknown);
        }
        let is_same_user = own.login_user() == owner.settings.login_user();
        match server {
            _ if is_same_user && is_login_user(self, server) => self.signal(owner),
            Some(_) => Next::Ask(owner),
            // There is no server yet to ask PostgreSQL; the call starts again when there is one.
            None => Next::Decide(Verdict::Unknown),
        }
    }

    /// Signals the other client; the permission is given.
    fn signal(&mut self, owner: Owner) -> Next {
        let acted = self.extended.as_mut().and_then(|own| own.signaling.act());
        acted.map_or(Next::Wait, |terminates| Next::Signal { owner, terminates })
    }

    /// Takes the outcome from the other client's worker.
    pub(super) fn signaled(&mut self, outcome: CancelOutcome) -> Option<Verdict> {
        let Some(Step::Act) = signal_step(self) else { return None };
        match outcome {
            // PostgreSQL also returns true for a backend without a query.
            CancelOutcome::Idle | CancelOutcome::Sent => Some(Verdict::Done),
            CancelOutcome::Unknown | CancelOutcome::Unsent | CancelOutcome::Late => {
                Some(Verdict::Unknown)
            }
        }
    }

    /// Records the decision. Is the call processed again now, on the client's server?
    pub(crate) fn decide_signal(&mut self, verdict: Verdict, server: Option<&Server>) -> bool {
        let Some(step) = signal_step(self) else { return false };
        *step = Step::Decided(verdict);
        match server {
            // If the server is still being prepared, the decision is used afterwards.
            Some(server) if matches!(*self.phase, ClientPhase::Preparing(_)) => {
                server.phase.is_signaling()
            }
            // The client waits for a server. A signal that was not sent is tried again then.
            None if verdict == Verdict::Done => false,
            Some(_) | None => {
                self.forget_decided();
                false
            }
        }
    }
}

/// Holds back a client whose next message is this call, until the call is decided. Must the search
/// begin? It may have begun while the client waited for its server.
pub(crate) fn hold_back(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    call: Call,
    now: Micros,
) -> bool {
    server.phase.ask(Preparation::Signal(None));
    client.phase.hold_back(Waiter::served(id, server.pool, now));
    !client.extended.as_ref().is_some_and(|own| own.signaling.awaits(call))
}

/// Returns the question for PostgreSQL whether the client may signal this one.
pub(crate) fn ask(client: &mut Client, server: &mut Server, owner: Owner, now: Micros) -> Question {
    let mut messages = Vec::new();
    let values = [Some(owner.settings.login_user().as_bytes())];
    let values = frontend::text_values(&values);
    frontend::parse(&mut messages, QUESTION_NAME, QUESTION, frontend::NO_TYPES);
    frontend::bind(&mut messages, QUESTION_NAME, QUESTION_NAME, &values);
    frontend::describe_portal(&mut messages, QUESTION_NAME);
    frontend::execute(&mut messages, QUESTION_NAME, 0);
    frontend::close_portal(&mut messages, QUESTION_NAME);
    frontend::close_statement(&mut messages, QUESTION_NAME);
    let mut expected = vec![
        Expect::Parse,
        Expect::Bind,
        Expect::Describe,
        Expect::Execute,
        Expect::Close,
        Expect::Close,
    ];
    // In the middle of a batch, a Sync would end the batch and commit its work.
    if server.ledger.has_open_batch() {
        frontend::flush(&mut messages);
    } else {
        frontend::sync(&mut messages);
        expected.push(Expect::Sync);
    }
    if let Some(answer) = server.phase.auth_answer() {
        *answer = Some(Box::default());
    }
    server.begin_to_ask(now);
    if let Some(step) = signal_step(client) {
        *step = Step::Ask(owner);
    }
    Question { messages, expected }
}

/// Reads PostgreSQL's answer about the permission, if it was asked.
pub(crate) fn answered<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    server: &mut Server,
    io: &mut impl Io<X>,
) -> Next {
    let Some(step @ Step::Ask(_)) = signal_step(client) else { return Next::Wait };
    let Step::Ask(owner) = std::mem::replace(step, Step::Act) else { return Next::Wait };
    let error = server.own_error.take();
    let auth_answer: AuthAnswer = server
        .phase
        .auth_answer()
        .and_then(Option::take)
        .map_or_else(AuthAnswer::default, |own| *own);
    if let (Some(error), true) = (&error, server.ledger.is_skipping()) {
        // The client's batch has failed with it.
        let mut out = Vec::new();
        backend::error(&mut out, &ErrorFields::new("ERROR", QUERY_CANCELED, &error.message()));
        io.send_client(id, &out);
        return Next::Decide(Verdict::Unknown);
    }
    let secret = match auth_answer.finish(error.as_ref()) {
        Ok(Some(Row { secret: Some(secret), .. })) => secret,
        // The role was dropped, or the query failed.
        Ok(_) | Err(_) => String::new(),
    };
    match &*secret {
        "yes" => client.signal(owner),
        "superuser" => Next::Decide(Verdict::Refused(Refusal::Superuser)),
        "role" => Next::Decide(Verdict::Refused(Refusal::Role)),
        _ => Next::Decide(Verdict::Unknown),
    }
}

fn signal_step(client: &mut Client) -> Option<&mut Step> {
    client.extended.as_mut()?.signaling.step_mut()
}

/// Does the client certainly act as the server's login user? Without a server: will it?
fn is_login_user(client: &Client, server: Option<&Server>) -> bool {
    let is_known = server.is_none_or(|server| {
        let may_differ = Signs::SETTINGS | Signs::DISCARD | Signs::OPAQUE | Signs::LOCAL;
        let pins = server.pins();
        !server.session.traces.signs.intersects(may_differ)
            && !server.context_change.is_possible()
            && !pins.contains(Pins::UNVERIFIED)
    });
    let is_itself =
        |vars: &Vars| [ROLE, SESSION_AUTHORIZATION].iter().all(|it| vars.carried.get(it).is_none());
    is_known && is_itself(&client.vars) && server.is_none_or(|server| is_itself(&server.vars))
}
