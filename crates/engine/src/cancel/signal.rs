//! A client cancels what another one does, or terminates it, by the process id that this one was told
//! at its login (`pool_mode = auto`). The client that asks is held back on its server meanwhile.
//!
//! ```text
//!  begin_signal ─► FindProcess to all workers … ProcessFound ─┬─ nobody's, or elsewhere ─► Unknown
//!                                                             ├─ the same user ──────────┐
//!                                                             └─ PostgreSQL is asked … ──┤
//!                                                 Refused ◄── may not ────────────────── │
//!                          Done ◄── CancelDone … Signal to the other one's worker ◄──────┘
//! ```
//!
//! Nothing is done before it is known who is meant, and that one is told from later clients in its
//! place by its serial number. Then the call is dealt with once more (`requests/signals.rs`).

use crate::lifecycle::link::Readable;
use wire::error_fields::ErrorFields;
use wire::{backend, frontend};

use crate::cancel::outcome::CancelOutcome;
use crate::cancel::signaling::{Call, Found, Owner, Refusal, Signaling, Step, Verdict};
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, ServerId, Waiter, WorkerId};
use crate::login::auth_answer::{AuthAnswer, Found as Row};
use crate::relay::ledger::Expect;
use crate::relay::resend::QUERY_CANCELED;
use crate::server::{Preparation, Server, ServerPhase};
use crate::session::carried::{ROLE, SESSION_AUTHORIZATION};
use crate::session::pins::Pins;
use crate::shell::{Exchange, Io, Mail};
use crate::vars::Vars;
use sql::Signs;

/// May whom the client is now signal the sessions of that role (`pg_signal_backend` in PostgreSQL's
/// `signalfuncs.c`)? Nothing is looked up by `search_path`.
const QUESTION: &[u8] = b"SELECT whose.rolname, CASE \
    WHEN whose.rolsuper AND NOT own.rolsuper THEN 'superuser' \
    WHEN pg_catalog.pg_has_role(whose.oid, 'USAGE') THEN 'yes' \
    WHEN pg_catalog.pg_has_role('pg_signal_backend'::pg_catalog.name, 'USAGE') THEN 'yes' \
    ELSE 'role' END \
    FROM pg_catalog.pg_roles whose, pg_catalog.pg_roles own \
    WHERE whose.rolname OPERATOR(pg_catalog.=) $1::pg_catalog.name \
    AND own.rolname OPERATOR(pg_catalog.=) CURRENT_USER";
/// Of the statement and of its portal: no client's has the name.
const QUESTION_NAME: &[u8] = b"weir_may_signal";

impl<X: Exchange> Engine<X> {
    /// The message in front of the client's is this call. It waits until that is decided.
    pub(crate) fn begin_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        call: Call,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        self.server_mut(on).phase = ServerPhase::Preparing(Preparation::Signal(None));
        let client = self.client_mut(id);
        client.phase = ClientPhase::Preparing(Waiter { client: id, ticket: 0, since: now });
        // It may have begun while the client waited for its server.
        let has_begun = signaling(client).is_some_and(|one| one.call == call && !one.is_decided());
        if !has_begun {
            self.find_process(id, call, now, io);
        }
    }

    /// All workers are asked whose process id it is.
    pub(super) fn find_process(
        &mut self,
        id: ClientId,
        call: Call,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let missing = self.exchange.worker_count();
        let step = Step::Find { missing, found: Found::Nobodys };
        let worker = self.worker;
        let client = self.client_mut(id);
        let own = client.extended.get_or_insert_default();
        own.signaling = Some(Box::new(Signaling { call, step }));
        let requester = (worker, id, client.serial);
        let process_id = call.process_id;
        for worker in (0..missing).map(WorkerId) {
            if worker != self.worker {
                self.exchange.post(worker, Mail::FindProcess { process_id, requester });
            }
        }
        self.process_asked(process_id, requester, now, io);
    }

    /// Was one of our clients told it?
    pub(crate) fn process_asked(
        &mut self,
        process_id: u32,
        requester: (WorkerId, ClientId, u64),
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let mut found = Found::Nobodys;
        for id in self.told(process_id) {
            found = found.and(self.owner(id).map_or(Found::Nobodys, Found::Of));
        }
        let (worker, client, serial) = requester;
        if worker == self.worker {
            self.process_found(client, serial, found, now, io);
        } else {
            self.exchange.post(worker, Mail::ProcessFound { requester: client, serial, found });
        }
    }

    /// The clients that were told this process id: hardly ever more than one.
    pub(crate) fn told(&self, process_id: u32) -> impl Iterator<Item = ClientId> + '_ {
        let first = u64::from(process_id) << 32;
        let keys = self.keys.range(first..=first | u64::from(u32::MAX));
        keys.map(|(_, id)| *id)
    }

    fn owner(&self, id: ClientId) -> Option<Owner> {
        let client = self.clients.get(id.0 as usize)?;
        let settings = self.settings(client.pool?).clone();
        Some(Owner { worker: self.worker, client: id, serial: client.serial, settings })
    }

    /// A worker has looked.
    pub(crate) fn process_found(
        &mut self,
        id: ClientId,
        serial: u64,
        new: Found,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
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
                return self.decide_signal(id, Verdict::Unknown, now, io);
            }
        };
        let pool = on.map_or(pool, |on| self.server(on).pool);
        let own = self.settings(pool);
        if own.targets != owner.settings.targets {
            // A process of another machine, or of another cluster there.
            return self.decide_signal(id, Verdict::Unknown, now, io);
        }
        let is_same_user = own.login_user() == owner.settings.login_user();
        let server = on.map(|on| self.server(on));
        match on {
            _ if is_same_user && is_login_user(self.client(id), server) => {
                self.act_on(id, &owner, now, io);
            }
            Some(on) => self.ask_permission(id, on, owner, now, io),
            // There is nobody to be asked yet: it begins anew when there is.
            None => self.decide_signal(id, Verdict::Unknown, now, io),
        }
    }

    fn ask_permission(
        &mut self,
        id: ClientId,
        on: ServerId,
        owner: Owner,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
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
        let server = self.server_mut(on);
        // In the middle of a batch a Sync would end it, and commit what it has done so far.
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
        server.times.asked_at = now;
        if let Some(step) = signal_step(self.client_mut(id)) {
            *step = Step::Ask(owner);
        }
        self.ask(on, &steps, 0, &out, io);
    }

    /// PostgreSQL has answered whether the client may, if it was asked.
    pub(crate) fn may_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let Some(step @ Step::Ask(_)) = signal_step(self.client_mut(id)) else { return };
        let Step::Ask(owner) = std::mem::replace(step, Step::Act) else { return };
        let server = self.server_mut(on);
        let error = server.own_error.take();
        let auth_answer: AuthAnswer = server
            .phase
            .auth_answer()
            .and_then(Option::take)
            .map_or_else(AuthAnswer::default, |own| *own);
        if let (Some(message), true) = (&error, server.ledger.is_skipping()) {
            // The client's batch has failed with it.
            let code = str::from_utf8(QUERY_CANCELED).unwrap_or_default();
            let mut out = Vec::new();
            backend::error(&mut out, &ErrorFields::new("ERROR", code, message));
            io.send_client(id, &out);
            return self.decide_signal(id, Verdict::Unknown, now, io);
        }
        let secret = match auth_answer.finish(error) {
            Ok(Some(Row { secret: Some(secret), .. })) => secret,
            // The role is gone, or it cannot be known.
            Ok(_) | Err(_) => String::new(),
        };
        match &*secret {
            "yes" => self.act_on(id, &owner, now, io),
            "superuser" => {
                self.decide_signal(id, Verdict::Refused(Refusal::Superuser), now, io);
            }
            "role" => self.decide_signal(id, Verdict::Refused(Refusal::Role), now, io),
            _ => self.decide_signal(id, Verdict::Unknown, now, io),
        }
    }

    /// The client may do what it asks for.
    fn act_on(&mut self, id: ClientId, owner: &Owner, now: Micros, io: &mut impl Io<X>) {
        let requester = (self.worker, id, self.client(id).serial);
        let Some(signaling) = signaling(self.client_mut(id)) else { return };
        signaling.step = Step::Act;
        let terminates = signaling.call.terminates;
        let Owner { worker, client, serial, .. } = *owner;
        if worker == self.worker {
            self.signal_asked((client, serial), terminates, requester, now, io);
        } else {
            self.exchange.post(worker, Mail::Signal { client, serial, terminates, requester });
        }
    }

    /// Our client with that serial number is signaled.
    pub(crate) fn signal_asked(
        &mut self,
        whom: (ClientId, u64),
        terminates: bool,
        requester: (WorkerId, ClientId, u64),
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let (id, serial) = whom;
        let client = self.clients.get(id.0 as usize).filter(|client| client.serial == serial);
        let Some(client) = client else {
            // It has left meanwhile.
            return self.answer_cancel(requester, CancelOutcome::Unknown, now, io);
        };
        if terminates {
            self.terminate_client(id, now, io);
            return self.answer_cancel(requester, CancelOutcome::Sent, now, io);
        }
        match self.busy_server(client) {
            Ok(on) => self.send_cancel(on, Some(requester), io),
            Err(outcome) => self.answer_cancel(requester, outcome, now, io),
        }
    }

    /// The other one's worker has acted.
    pub(crate) fn signaled(
        &mut self,
        id: ClientId,
        outcome: CancelOutcome,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let Some(Step::Act) = signal_step(self.client_mut(id)) else { return };
        let verdict = match outcome {
            // PostgreSQL says true of a backend that has nothing to cancel, too.
            CancelOutcome::Idle | CancelOutcome::Sent => Verdict::Done,
            CancelOutcome::Unknown | CancelOutcome::Unsent | CancelOutcome::Late => {
                Verdict::Unknown
            }
        };
        self.decide_signal(id, verdict, now, io);
    }

    /// The call is dealt with once more.
    fn decide_signal(&mut self, id: ClientId, verdict: Verdict, now: Micros, io: &mut impl Io<X>) {
        let client = self.client_mut(id);
        let on = client.server;
        let Some(step) = signal_step(client) else { return };
        *step = Step::Decided(verdict);
        match on {
            Some(on) if matches!(client.phase, ClientPhase::Preparing(_)) => {
                let is_held = self.server(on).phase.is_signaling();
                // Else its server is being prepared for it, and what was done is known by then.
                if !is_held {
                    return;
                }
                if self.ready(id, on, now, io) == Readable::Now {
                    self.go_on(id, io);
                }
            }
            // It waits for a server. What was not done is tried again when it has one.
            None if verdict == Verdict::Done => {}
            Some(_) | None => self.forget_decided(id),
        }
    }

    /// What was decided is for the call that was in front, and for no later one.
    pub(crate) fn forget_decided(&mut self, id: ClientId) {
        let client = self.clients.get_mut(id.0 as usize);
        // It has not come to the front if something before it is waited for.
        if let Some(own) = client.and_then(|it| it.extended.as_mut()).filter(|own| own.awaits == 0)
        {
            own.signaling.take_if(|one| one.is_decided());
        }
    }
}

fn signaling(client: &mut Client) -> Option<&mut Signaling> {
    client.extended.as_mut()?.signaling.as_deref_mut()
}

fn signal_step(client: &mut Client) -> Option<&mut Step> {
    Some(&mut signaling(client)?.step)
}

/// Is it certain that the client is on its server as whom the server was logged in?
/// Without a server: will it be?
fn is_login_user(client: &Client, server: Option<&Server>) -> bool {
    let is_known = server.is_none_or(|server| {
        let may_differ = Signs::SETTINGS | Signs::DISCARD | Signs::OPAQUE | Signs::LOCAL;
        let pins = server.session.pinned.as_ref().map_or(Pins::NONE, |pinned| pinned.pins);
        !server.session.traces.signs.intersects(may_differ)
            && !server.session.context_changed
            && !pins.contains(Pins::UNVERIFIED)
    });
    let is_itself =
        |vars: &Vars| [ROLE, SESSION_AUTHORIZATION].iter().all(|it| vars.carried.get(it).is_none());
    is_known && is_itself(&client.vars) && server.is_none_or(|server| is_itself(&server.vars))
}
