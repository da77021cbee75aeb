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
//! clients in the same slot. Then the call is processed again (`requests/signals.rs`).

use crate::lifecycle::preparation::Readable;
use wire::error_fields::ErrorFields;
use wire::{backend, frontend, sqlstate::QUERY_CANCELED};

use crate::cancel::outcome::CancelOutcome;
use crate::cancel::signaling::{Call, Found, Owner, Refusal, Signaling, Step, Verdict};
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, ServerId, Waiter, WorkerId};
use crate::login::auth_answer::{AuthAnswer, Found as Row};
use crate::relay::ledger::Expect;
use crate::server::{Preparation, Server};
use crate::session::carried::{ROLE, SESSION_AUTHORIZATION};
use crate::session::pins::Pins;
use crate::shell::{Exchange, Io, Mail};
use crate::vars::Vars;
use sql::Signs;

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

impl<X: Exchange> Engine<X> {
    /// Holds back a client whose next message is this call, until the call is decided.
    pub(crate) fn begin_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        call: Call,
        io: &mut impl Io<X>,
    ) {
        let server = &mut self.servers[on];
        let waiter = Waiter::served(id, server.pool, io.now());
        server.phase.ask(Preparation::Signal(None));
        let client = &mut self.clients[id];
        client.phase.hold_back(waiter);
        // The search may have begun while the client waited for its server.
        let has_begun = signaling(client).is_some_and(|one| one.call == call && !one.is_decided());
        if !has_begun {
            self.find_process(id, call, io);
        }
    }

    /// Asks all workers which client has the process id.
    pub(super) fn find_process(&mut self, id: ClientId, call: Call, io: &mut impl Io<X>) {
        let missing = self.pools.exchange.worker_count();
        let step = Step::Find { missing, found: Found::Nobodys };
        let worker = self.context.worker;
        let client = &mut self.clients[id];
        let own = client.extended.get_or_insert_default();
        own.signaling = Some(Box::new(Signaling { call, step }));
        let requester = (worker, id, client.serial);
        let process_id = call.process_id;
        for worker in (0..missing).map(WorkerId) {
            if worker != self.context.worker {
                self.pools.exchange.post(worker, Mail::FindProcess { process_id, requester });
            }
        }
        self.process_asked(process_id, requester, io);
    }

    /// Tells the requester whether a client of this worker has the process id.
    pub(crate) fn process_asked(
        &mut self,
        process_id: u32,
        requester: (WorkerId, ClientId, u64),
        io: &mut impl Io<X>,
    ) {
        let mut found = Found::Nobodys;
        for id in self.keys.of_process(process_id) {
            found = found.and(self.owner(id).map_or(Found::Nobodys, Found::Of));
        }
        let (worker, client, serial) = requester;
        if worker == self.context.worker {
            self.process_found(client, serial, found, io);
        } else {
            self.pools
                .exchange
                .post(worker, Mail::ProcessFound { requester: client, serial, found });
        }
    }

    fn owner(&self, id: ClientId) -> Option<Owner> {
        let client = self.clients.get(id)?;
        let settings = self.pools.settings(client.pool?).clone();
        Some(Owner { worker: self.context.worker, client: id, serial: client.serial, settings })
    }

    /// Takes the answer of one worker.
    pub(crate) fn process_found(
        &mut self,
        id: ClientId,
        serial: u64,
        new: Found,
        io: &mut impl Io<X>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.serial != serial {
            return;
        }
        let (on, pool) = (client.server, client.pool);
        let Some(Step::Find { missing, found }) = signal_step(client) else { return };
        *found = std::mem::replace(found, Found::Nobodys).and(new);
        *missing -= 1;
        let (0, Some(pool)) = (*missing, pool) else { return };
        let owner = match std::mem::replace(found, Found::Nobodys) {
            Found::Of(owner) => owner,
            Found::Nobodys | Found::Ambiguous => {
                return self.decide_signal(id, Verdict::Unknown, io);
            }
        };
        let pool = on.map_or(pool, |on| self.servers[on].pool);
        let own = self.pools.settings(pool);
        if own.targets != owner.settings.targets {
            // It is a process of another machine or cluster.
            return self.decide_signal(id, Verdict::Unknown, io);
        }
        let is_same_user = own.login_user() == owner.settings.login_user();
        let server = on.map(|on| &*self.servers[on]);
        match on {
            _ if is_same_user && is_login_user(&self.clients[id], server) => {
                self.act_on(id, &owner, io);
            }
            Some(on) => self.ask_permission(id, on, owner, io),
            // There is no server yet to ask PostgreSQL; the call starts again when there is one.
            None => self.decide_signal(id, Verdict::Unknown, io),
        }
    }

    fn ask_permission(&mut self, id: ClientId, on: ServerId, owner: Owner, io: &mut impl Io<X>) {
        let mut out = Vec::new();
        let user = owner.settings.login_user().as_bytes();
        frontend::parse(&mut out, QUESTION_NAME, QUESTION, frontend::NO_TYPES);
        frontend::bind(
            &mut out,
            QUESTION_NAME,
            QUESTION_NAME,
            &frontend::text_values(&[Some(user)]),
        );
        frontend::describe_portal(&mut out, QUESTION_NAME);
        frontend::execute(&mut out, QUESTION_NAME, 0);
        frontend::close_portal(&mut out, QUESTION_NAME);
        frontend::close_statement(&mut out, QUESTION_NAME);
        let mut steps = vec![
            Expect::Parse,
            Expect::Bind,
            Expect::Describe,
            Expect::Execute,
            Expect::Close,
            Expect::Close,
        ];
        let server = &mut self.servers[on];
        // In the middle of a batch, a Sync would end the batch and commit its work.
        if server.ledger.has_open_batch() {
            frontend::flush(&mut out);
        } else {
            frontend::sync(&mut out);
            steps.push(Expect::Sync);
        }
        if let Some(answer) = server.phase.auth_answer() {
            *answer = Some(Box::default());
        }
        server.own_error = None;
        server.times.asked_at = io.now();
        if let Some(step) = signal_step(&mut self.clients[id]) {
            *step = Step::Ask(owner);
        }
        self.ask(on, &steps, 0, &out, io);
    }

    /// Reads PostgreSQL's answer about the permission, if it was asked.
    pub(crate) fn may_signal(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let Some(step @ Step::Ask(_)) = signal_step(&mut self.clients[id]) else { return };
        let Step::Ask(owner) = std::mem::replace(step, Step::Act) else { return };
        let server = &mut self.servers[on];
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
            return self.decide_signal(id, Verdict::Unknown, io);
        }
        let secret = match auth_answer.finish(error.as_ref()) {
            Ok(Some(Row { secret: Some(secret), .. })) => secret,
            // The role was dropped, or the query failed.
            Ok(_) | Err(_) => String::new(),
        };
        match &*secret {
            "yes" => self.act_on(id, &owner, io),
            "superuser" => {
                self.decide_signal(id, Verdict::Refused(Refusal::Superuser), io);
            }
            "role" => self.decide_signal(id, Verdict::Refused(Refusal::Role), io),
            _ => self.decide_signal(id, Verdict::Unknown, io),
        }
    }

    /// Signals the other client; the permission is given.
    fn act_on(&mut self, id: ClientId, owner: &Owner, io: &mut impl Io<X>) {
        let requester = (self.context.worker, id, self.clients[id].serial);
        let Some(signaling) = signaling(&mut self.clients[id]) else { return };
        signaling.step = Step::Act;
        let terminates = signaling.call.terminates;
        let Owner { worker, client, serial, .. } = *owner;
        if worker == self.context.worker {
            self.signal_asked((client, serial), terminates, requester, io);
        } else {
            self.pools
                .exchange
                .post(worker, Mail::Signal { client, serial, terminates, requester });
        }
    }

    /// Signals a client of this worker, if it still is the one with this serial number.
    pub(crate) fn signal_asked(
        &mut self,
        whom: (ClientId, u64),
        terminates: bool,
        requester: (WorkerId, ClientId, u64),
        io: &mut impl Io<X>,
    ) {
        let (id, serial) = whom;
        let client = self.clients.get(id).filter(|client| client.serial == serial);
        let Some(client) = client else {
            // The client has left meanwhile.
            return self.answer_cancel(requester, CancelOutcome::Unknown, io);
        };
        if terminates {
            self.terminate_client(id, io);
            return self.answer_cancel(requester, CancelOutcome::Sent, io);
        }
        let on = client.server.ok_or(CancelOutcome::Idle);
        match on.and_then(|on| self.servers[on].takes_cancel().map(|()| on)) {
            Ok(on) => self.send_cancel(on, Some(requester), io),
            Err(outcome) => self.answer_cancel(requester, outcome, io),
        }
    }

    /// Takes the outcome from the other client's worker.
    pub(crate) fn signaled(&mut self, id: ClientId, outcome: CancelOutcome, io: &mut impl Io<X>) {
        let Some(Step::Act) = signal_step(&mut self.clients[id]) else { return };
        let verdict = match outcome {
            // PostgreSQL also returns true for a backend without a query.
            CancelOutcome::Idle | CancelOutcome::Sent => Verdict::Done,
            CancelOutcome::Unknown | CancelOutcome::Unsent | CancelOutcome::Late => {
                Verdict::Unknown
            }
        };
        self.decide_signal(id, verdict, io);
    }

    /// Records the decision, and processes the call again.
    fn decide_signal(&mut self, id: ClientId, verdict: Verdict, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        let on = client.server;
        let Some(step) = signal_step(client) else { return };
        *step = Step::Decided(verdict);
        match on {
            Some(on) if matches!(*client.phase, ClientPhase::Preparing(_)) => {
                let is_held = self.servers[on].phase.is_signaling();
                // Otherwise the client's server is still being prepared, and the decision is used
                // afterwards.
                if !is_held {
                    return;
                }
                if self.ready(id, on, io) == Readable::Now {
                    self.go_on(id, io);
                }
            }
            // The client waits for a server. A signal that was not sent is tried again then.
            None if verdict == Verdict::Done => {}
            Some(_) | None => self.clients[id].forget_decided(),
        }
    }
}

fn signaling(client: &mut Client) -> Option<&mut Signaling> {
    client.extended.as_mut()?.signaling.as_deref_mut()
}

fn signal_step(client: &mut Client) -> Option<&mut Step> {
    Some(&mut signaling(client)?.step)
}

/// Does the client certainly act as the server's login user? Without a server: will it?
fn is_login_user(client: &Client, server: Option<&Server>) -> bool {
    let is_known = server.is_none_or(|server| {
        let may_differ = Signs::SETTINGS | Signs::DISCARD | Signs::OPAQUE | Signs::LOCAL;
        let pins = server.pins();
        !server.session.traces.signs.intersects(may_differ)
            && !server.context_changed
            && !pins.contains(Pins::UNVERIFIED)
    });
    let is_itself =
        |vars: &Vars| [ROLE, SESSION_AUTHORIZATION].iter().all(|it| vars.carried.get(it).is_none());
    is_known && is_itself(&client.vars) && server.is_none_or(|server| is_itself(&server.vars))
}
