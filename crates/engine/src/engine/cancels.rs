//! Carries out cancel requests and signals: exchanges mail about them with other workers, and does
//! what follows for clients and servers. The rules are in `cancel`.

use wire::error_fields::ErrorFields;
use wire::sqlstate::ADMIN_SHUTDOWN;
use wire::startup::CancelKey;

use crate::cancel::outcome::{CancelEnd, CancelOutcome, Requester};
use crate::cancel::requests::{Answered, CancelOver, Due, Ended, is_of_peer};
use crate::cancel::signal::{self, Next};
use crate::cancel::signaling::{Call, Found, Owner, Verdict};
use crate::client::Client;
use crate::engine::Engine;
use crate::engine::tables::Servers;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::leave::{Leaving, TERMINATED};
use crate::lifecycle::preparation::Readable;
use crate::shell::{Exchange, Io, Mail};

/// Cancel requests.
impl<X: Exchange> Engine<X> {
    /// Deals with a connection that consists of a cancel request.
    pub(crate) fn ask_cancel(&mut self, id: ClientId, key: CancelKey, io: &mut impl Io<X>) {
        if is_of_peer(&key, &self.context) {
            return self.pass_cancel_on(id, &key, io);
        }
        let workers = self.pools.exchange.worker_count();
        let requester = (self.context.worker, id, self.clients[id].serial);
        let others = self.cancels.ask_processes(&key, requester, &mut self.context, io);
        let lobbies = u16::from(io.cancel_in_lobby(&key, requester));
        self.clients[id].phase.cancel(workers + others + lobbies);
        io.cancel_console(&key);
        let mail = || Mail::Cancel { key: key.clone(), requester };
        self.pools.exchange.post_to_others(self.context.worker, mail);
        self.cancel_asked(&key, requester, io);
    }

    /// Forwards the request to the peer that the key belongs to.
    fn pass_cancel_on(&mut self, id: ClientId, key: &CancelKey, io: &mut impl Io<X>) {
        let requester = (self.context.worker, id, self.clients[id].serial);
        match self.cancels.pass_on(key, requester, &mut self.context, io) {
            Ok(()) => self.clients[id].phase.cancel(1),
            Err(why) => self.drop_client(id, Leaving::Unanswered(why), io),
        }
    }

    /// Sends a cancel request if the key belongs to a client of this worker that has a query
    /// running.
    pub(crate) fn cancel_asked(
        &mut self,
        key: &CancelKey,
        requester: Requester,
        io: &mut impl Io<X>,
    ) {
        let client = self.keys.find(key, &self.context).and_then(|id| self.clients.get(id));
        let client = client.filter(|client| client.has_tag(key, &self.context));
        match busy_server(client, &self.servers) {
            Ok(on) => self.send_cancel(on, Some(requester), io),
            Err(outcome) => self.answer_cancel(requester, outcome, io),
        }
    }

    /// Cancels the query of a server. `requester`: None if the server's client was lost.
    pub(crate) fn send_cancel(
        &mut self,
        on: ServerId,
        requester: Option<Requester>,
        io: &mut impl Io<X>,
    ) {
        let server = &mut *self.servers[on];
        let identity = &self.pools.view(server.pool).identity;
        self.cancels.send(on, server, requester, identity, &mut self.context, io);
    }

    /// Ends a request.
    pub(crate) fn end_cancel(&mut self, id: u64, end: CancelEnd, io: &mut impl Io<X>) {
        let Some(Ended { server, requester }) = self.cancels.end(id, end, io.now()) else { return };
        if let Some((on, serial)) = server {
            let found = self.servers.get_mut(on).filter(|found| found.serial == serial);
            match found.map_or(CancelOver::GoesOn, |server| server.cancel_over(end)) {
                CancelOver::GoesOn => {}
                CancelOver::MayBeJudged(client) => self.judge(client, on, io),
                CancelOver::IsFree => self.free(on, io),
            }
        }
        if let Some(requester) = requester {
            self.answer_cancel(requester, end.outcome(), io);
        }
    }

    /// Repeats requests for peers that could not be reached, and forgets those whose requester has
    /// left.
    pub(crate) fn retry_cancels(&mut self, io: &mut impl Io<X>) {
        for Due { key, requester: (_, id, serial) } in self.cancels.take_due(io.now()) {
            if self.clients.get(id).is_some_and(|one| one.serial == serial) {
                self.pass_cancel_on(id, &key, io);
            }
        }
    }

    /// Gives an answer to the client that has sent a request or a signal. After the last answer to
    /// a request, its connection is closed, which tells it that the request was delivered (protocol
    /// chapter 55.2.8).
    pub(crate) fn answer_cancel(
        &mut self,
        requester: Requester,
        outcome: CancelOutcome,
        io: &mut impl Io<X>,
    ) {
        let (worker, id, serial) = requester;
        if worker != self.context.worker {
            let mail = Mail::CancelDone { requester: id, serial, outcome };
            return self.pools.exchange.post(worker, mail);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.serial != serial {
            return;
        }
        match client.cancel_answered(outcome) {
            Answered::Waits => {}
            Answered::Over(outcome) => {
                self.drop_client(id, Leaving::Unanswered(outcome.reason()), io);
            }
            Answered::Decided(verdict) => self.decide_signal(id, verdict, io),
        }
    }
}

/// Signals.
impl<X: Exchange> Engine<X> {
    /// Holds back a client whose next message is this call, until the call is decided.
    pub(crate) fn begin_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        call: Call,
        io: &mut impl Io<X>,
    ) {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        if signal::hold_back(id, client, server, call, io.now()) {
            self.find_process(id, call, io);
        }
    }

    /// Examines the bytes of each client that has waited long enough, once per wait.
    pub(crate) fn look_ahead(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        for id in self.clients.ids_where(|client| client.may_look_ahead(now)) {
            // An earlier client in this loop may have terminated this one.
            let Some(client) = self.clients.get_mut(id) else { continue };
            let is_auto = client.pool.is_some_and(|pool| self.pools.settings(pool).is_auto());
            if let Some(call) = client.look_ahead(id, is_auto, io) {
                self.find_process(id, call, io);
            }
        }
    }

    /// Asks all workers which client has the process id.
    fn find_process(&mut self, id: ClientId, call: Call, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        client.begin_search(call, self.pools.exchange.worker_count());
        let requester = (self.context.worker, id, client.serial);
        let process_id = call.process_id;
        let mail = || Mail::FindProcess { process_id, requester };
        self.pools.exchange.post_to_others(self.context.worker, mail);
        self.process_asked(process_id, requester, io);
    }

    /// Tells the requester whether a client of this worker has the process id.
    pub(crate) fn process_asked(
        &mut self,
        process_id: u32,
        requester: Requester,
        io: &mut impl Io<X>,
    ) {
        let mut found = Found::Nobodys;
        for id in self.keys.of_process(process_id) {
            let Some(client) = self.clients.get(id) else { continue };
            let Some(pool) = client.pool else { continue };
            let (worker, settings) = (self.context.worker, self.pools.settings(pool).clone());
            let owner = Owner { worker, client: id, serial: client.serial, settings };
            found = found.and(Found::Of(owner));
        }
        self.process_found(requester, found, io);
    }

    /// Gives the answer of one worker to the client that has asked.
    pub(crate) fn process_found(
        &mut self,
        requester: Requester,
        found: Found,
        io: &mut impl Io<X>,
    ) {
        let (worker, id, serial) = requester;
        if worker != self.context.worker {
            let mail = Mail::ProcessFound { requester: id, serial, found };
            return self.pools.exchange.post(worker, mail);
        }
        let client = self.clients.get_mut(id).filter(|client| client.serial == serial);
        let Some(client) = client else { return };
        let server = client.server.map(|on| &*self.servers[on]);
        let Some(pool) = server.map(|server| server.pool).or(client.pool) else { return };
        let next = client.process_found(found, server, self.pools.settings(pool));
        self.go_on_signaling(id, next, io);
    }

    /// Reads PostgreSQL's answer about the permission to signal, if it was asked.
    pub(crate) fn may_signal(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let next = signal::answered(id, &mut self.clients[id], &mut self.servers[on], io);
        self.go_on_signaling(id, next, io);
    }

    fn go_on_signaling(&mut self, id: ClientId, next: Next, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        match next {
            Next::Wait => {}
            Next::Ask(owner) => {
                let Some(on) = client.server else { return };
                let question = signal::ask(client, &mut self.servers[on], owner, io.now());
                let server = &mut *self.servers[on];
                server.ask(on, &question.expected, 0, &question.messages, &mut self.context, io);
            }
            Next::Signal { owner, terminates } => {
                let requester = (self.context.worker, id, client.serial);
                let Owner { worker, client, serial, .. } = owner;
                if worker == self.context.worker {
                    return self.signal_asked((client, serial), terminates, requester, io);
                }
                let mail = Mail::Signal { client, serial, terminates, requester };
                self.pools.exchange.post(worker, mail);
            }
            Next::Decide(verdict) => self.decide_signal(id, verdict, io),
        }
    }

    /// Signals a client of this worker, if it still is the one with this serial number.
    pub(crate) fn signal_asked(
        &mut self,
        whom: (ClientId, u64),
        terminates: bool,
        requester: Requester,
        io: &mut impl Io<X>,
    ) {
        let (id, serial) = whom;
        let client = self.clients.get(id).filter(|client| client.serial == serial);
        if terminates && client.is_some() {
            // As PostgreSQL terminates a backend.
            let error = ErrorFields::new("FATAL", ADMIN_SHUTDOWN, TERMINATED);
            self.close_with(id, &error, Leaving::Terminated, io);
            return self.answer_cancel(requester, CancelOutcome::Sent, io);
        }
        match busy_server(client, &self.servers) {
            Ok(on) => self.send_cancel(on, Some(requester), io),
            Err(outcome) => self.answer_cancel(requester, outcome, io),
        }
    }

    /// Records the decision, and processes the call again.
    fn decide_signal(&mut self, id: ClientId, verdict: Verdict, io: &mut impl Io<X>) {
        let client = &mut self.clients[id];
        let on = client.server;
        let goes_on = client.decide_signal(verdict, on.map(|on| &*self.servers[on]));
        if let (true, Some(on)) = (goes_on, on)
            && self.ready(id, on, io) == Readable::Now
        {
            self.go_on(id, io);
        }
    }
}

/// Returns the server that works for this client. While a cancel request for it is under way,
/// another one has no effect.
fn busy_server(client: Option<&Client>, servers: &Servers) -> Result<ServerId, CancelOutcome> {
    let client = client.ok_or(CancelOutcome::Unknown)?;
    let on = client.server.ok_or(CancelOutcome::Idle)?;
    servers[on].takes_cancel().map(|()| on)
}
