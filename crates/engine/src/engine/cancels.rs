//! Cancel requests and signals: exchanges mail about them with other workers ([`Cancellation`]), and
//! does what follows for clients and servers. The rules are in `cancel`.

use wire::startup::CancelKey;

use super::Engine;
use super::pools::Pools;
use super::tables::{Clients, Servers};
use crate::cancel::keys::Keys;
use crate::cancel::outcome::{CancelEnd, CancelOutcome, Requester};
use crate::cancel::requests::{Answered, CancelOver, Cancels, Due, Ended, is_of_peer};
use crate::cancel::signal::{self, Next};
use crate::cancel::signaling::{Call, Found, Owner, Verdict};
use crate::client::Client;
use crate::context::Context;
use crate::ids::{ClientId, ServerId};
use crate::lifecycle::leave::{Ending, Leaving};
use crate::lifecycle::preparation::Readable;
use crate::lifecycle::release::Cleaning;
use crate::shell::{Exchange, Io, Mail};

/// The clients that may send cancel requests and signals, and those that may be meant.
#[derive(Debug)]
pub(crate) struct Cancellation<'a, X> {
    context: &'a mut Context,
    clients: &'a mut Clients,
    servers: &'a mut Servers,
    pools: &'a mut Pools<X>,
    keys: &'a Keys,
    cancels: &'a mut Cancels,
}

/// The next step of a cancel request or of a signal.
#[derive(Debug)]
#[must_use]
pub(crate) enum Requested {
    /// Nothing: other workers or PostgreSQL must answer first, or it is over.
    Nothing,
    /// The client is closed without an answer, for this reason.
    Unanswered(ClientId, &'static str),
    /// The client is terminated, and the requester is told.
    Terminated { client: ClientId, requester: Requester },
    /// The client's call is decided, and processed again on its server.
    Decided(ClientId, ServerId),
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn cancellation(&mut self) -> Cancellation<'_, X> {
        let Self { context, clients, servers, pools, keys, cancels, .. } = self;
        Cancellation { context, clients, servers, pools, keys, cancels }
    }

    /// Does what follows from a step of a cancel request or of a signal.
    pub(crate) fn follow_request(&mut self, requested: Requested, io: &mut impl Io<X>) {
        match requested {
            Requested::Nothing => {}
            Requested::Unanswered(id, why) => self.disconnect(id, Leaving::Unanswered(why), io),
            Requested::Terminated { client, requester } => {
                self.disconnect(client, Ending::Terminated, io);
                let told = self.cancellation().answer(requester, CancelOutcome::Sent);
                self.follow_request(told, io);
            }
            Requested::Decided(id, on) => {
                if self.ready(id, on, io) == Readable::Now {
                    self.go_on(id, io);
                }
            }
        }
    }

    /// Ends a cancel request.
    pub fn cancel_finished(&mut self, cancel: u64, end: CancelEnd, io: &mut impl Io<X>) {
        if let Some(Ended { server, requester }) = self.cancels.end(cancel, end, io.now()) {
            if let Some((on, serial)) = server {
                let found = self.servers.get_mut(on).filter(|found| found.serial == serial);
                match found.map_or(CancelOver::GoesOn, |server| server.cancel_over(end)) {
                    CancelOver::GoesOn => {}
                    CancelOver::MayBeJudged(client) => self.judge(client, on, io),
                    CancelOver::IsFree => self.release(on, Cleaning::Begins, io),
                }
            }
            if let Some(requester) = requester {
                let told = self.cancellation().answer(requester, end.outcome());
                self.follow_request(told, io);
            }
        }
        self.finish(io);
    }
}

/// Cancel requests.
impl<X: Exchange> Cancellation<'_, X> {
    /// Deals with a connection that consists of a cancel request.
    pub(crate) fn ask(&mut self, id: ClientId, key: &CancelKey, io: &mut impl Io<X>) -> Requested {
        if is_of_peer(key, self.context) {
            return self.pass_on(id, key, io);
        }
        let workers = self.pools.exchange.worker_count();
        let requester = (self.context.worker, id, self.clients[id].serial);
        let others = self.cancels.ask_processes(key, requester, self.context, io);
        let lobbies = u16::from(io.cancel_in_lobby(key, requester));
        self.clients[id].phase.cancel(workers + others + lobbies);
        io.cancel_console(key);
        let mail = || Mail::Cancel { key: key.clone(), requester };
        self.pools.exchange.post_to_others(self.context.worker, mail);
        self.asked(key, requester, io)
    }

    /// Forwards the request to the peer that the key belongs to.
    fn pass_on(&mut self, id: ClientId, key: &CancelKey, io: &mut impl Io<X>) -> Requested {
        let requester = (self.context.worker, id, self.clients[id].serial);
        match self.cancels.pass_on(key, requester, self.context, io) {
            Ok(()) => {
                self.clients[id].phase.cancel(1);
                Requested::Nothing
            }
            Err(why) => Requested::Unanswered(id, why),
        }
    }

    /// Sends a cancel request if the key belongs to a client of this worker that has a query
    /// running.
    pub(crate) fn asked(
        &mut self,
        key: &CancelKey,
        requester: Requester,
        io: &mut impl Io<X>,
    ) -> Requested {
        let client = self.keys.find(key, self.context).and_then(|id| self.clients.get(id));
        let client = client.filter(|client| client.has_tag(key, self.context));
        let busy = busy_server(client, self.servers);
        self.cancel(busy, requester, io)
    }

    /// Cancels the query of this server, or tells the requester why there is none.
    fn cancel(
        &mut self,
        busy: Result<ServerId, CancelOutcome>,
        requester: Requester,
        io: &mut impl Io<X>,
    ) -> Requested {
        match busy {
            Ok(on) => {
                self.send(on, Some(requester), io);
                Requested::Nothing
            }
            Err(outcome) => self.answer(requester, outcome),
        }
    }

    /// Cancels the query of a server. `requester`: None if the server's client was lost.
    pub(crate) fn send(&mut self, on: ServerId, requester: Option<Requester>, io: &mut impl Io<X>) {
        let server = &mut *self.servers[on];
        let identity = &self.pools.view(server.pool).identity;
        self.cancels.send(on, server, requester, identity, self.context, io);
    }

    /// Repeats a request for a peer that could not be reached, unless its requester has left.
    pub(crate) fn retry(&mut self, due: &Due, io: &mut impl Io<X>) -> Requested {
        let (_, id, serial) = due.requester;
        match self.clients.get(id).is_some_and(|one| one.serial == serial) {
            true => self.pass_on(id, &due.key, io),
            false => Requested::Nothing,
        }
    }

    /// Gives an answer to the client that has sent a request or a signal. After the last answer to
    /// a request, its connection is closed, which tells it that the request was delivered (protocol
    /// chapter 55.2.8).
    pub(crate) fn answer(&mut self, requester: Requester, outcome: CancelOutcome) -> Requested {
        let (worker, id, serial) = requester;
        if worker != self.context.worker {
            let mail = Mail::CancelDone { requester: id, serial, outcome };
            self.pools.exchange.post(worker, mail);
            return Requested::Nothing;
        }
        let Some(client) = self.clients.get_mut(id) else { return Requested::Nothing };
        if client.serial != serial {
            return Requested::Nothing;
        }
        match client.cancel_answered(outcome) {
            Answered::Waits => Requested::Nothing,
            Answered::Over(outcome) => Requested::Unanswered(id, outcome.reason()),
            Answered::Decided(verdict) => self.decide(id, verdict),
        }
    }
}

/// Signals.
impl<X: Exchange> Cancellation<'_, X> {
    /// Holds back a client whose next message is this call, until the call is decided.
    pub(crate) fn begin_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        call: Call,
        io: &mut impl Io<X>,
    ) -> Requested {
        let (client, server) = (&mut self.clients[id], &mut *self.servers[on]);
        match signal::hold_back(id, client, server, call, io.now()) {
            true => self.find_process(id, call, io),
            false => Requested::Nothing,
        }
    }

    /// Examines the bytes of a client that has waited long enough, once per wait.
    pub(crate) fn look_ahead(&mut self, id: ClientId, io: &mut impl Io<X>) -> Requested {
        // A client that was looked at before may have terminated this one.
        let Some(client) = self.clients.get_mut(id) else { return Requested::Nothing };
        let is_auto = client.pool.id().is_some_and(|pool| self.pools.settings(pool).is_auto());
        match client.look_ahead(id, is_auto, io) {
            Some(call) => self.find_process(id, call, io),
            None => Requested::Nothing,
        }
    }

    /// Asks all workers which client has the process id.
    fn find_process(&mut self, id: ClientId, call: Call, io: &mut impl Io<X>) -> Requested {
        let client = &mut self.clients[id];
        client.begin_search(call, self.pools.exchange.worker_count());
        let requester = (self.context.worker, id, client.serial);
        let process_id = call.process_id;
        let mail = || Mail::FindProcess { process_id, requester };
        self.pools.exchange.post_to_others(self.context.worker, mail);
        self.process_asked(process_id, requester, io)
    }

    /// Tells the requester whether a client of this worker has the process id.
    pub(crate) fn process_asked(
        &mut self,
        process_id: u32,
        requester: Requester,
        io: &mut impl Io<X>,
    ) -> Requested {
        let mut found = Found::Nobodys;
        for id in self.keys.of_process(process_id) {
            let Some(client) = self.clients.get(id) else { continue };
            let Some(pool) = client.pool.id() else { continue };
            let (worker, settings) = (self.context.worker, self.pools.settings(pool).clone());
            let owner = Owner { worker, client: id, serial: client.serial, settings };
            found = found.and(Found::Of(owner));
        }
        self.process_found(requester, found, io)
    }

    /// Gives the answer of one worker to the client that has asked.
    pub(crate) fn process_found(
        &mut self,
        requester: Requester,
        found: Found,
        io: &mut impl Io<X>,
    ) -> Requested {
        let (worker, id, serial) = requester;
        if worker != self.context.worker {
            let mail = Mail::ProcessFound { requester: id, serial, found };
            self.pools.exchange.post(worker, mail);
            return Requested::Nothing;
        }
        let client = self.clients.get_mut(id).filter(|client| client.serial == serial);
        let Some(client) = client else { return Requested::Nothing };
        let server = client.server.map(|on| &*self.servers[on]);
        let Some(pool) = server.map(|server| server.pool).or(client.pool.id()) else {
            return Requested::Nothing;
        };
        let next = client.process_found(found, server, self.pools.settings(pool));
        self.go_on(id, next, io)
    }

    /// Reads PostgreSQL's answer about the permission to signal, if it was asked.
    pub(crate) fn may_signal(
        &mut self,
        id: ClientId,
        on: ServerId,
        io: &mut impl Io<X>,
    ) -> Requested {
        let next = signal::answered(id, &mut self.clients[id], &mut self.servers[on], io);
        self.go_on(id, next, io)
    }

    fn go_on(&mut self, id: ClientId, next: Next, io: &mut impl Io<X>) -> Requested {
        let client = &mut self.clients[id];
        match next {
            Next::Wait => {}
            Next::Ask(owner) => {
                let Some(on) = *client.server else { return Requested::Nothing };
                let question = signal::ask(client, &mut self.servers[on], owner, io.now());
                let server = &mut *self.servers[on];
                server.ask(on, &question.expected, 0, &question.messages, self.context, io);
            }
            Next::Signal { owner, terminates } => {
                let requester = (self.context.worker, id, client.serial);
                let Owner { worker, client, serial, .. } = owner;
                if worker == self.context.worker {
                    return self.signaled((client, serial), terminates, requester, io);
                }
                let mail = Mail::Signal { client, serial, terminates, requester };
                self.pools.exchange.post(worker, mail);
            }
            Next::Decide(verdict) => return self.decide(id, verdict),
        }
        Requested::Nothing
    }

    /// Signals a client of this worker, if it still is the one with this serial number.
    pub(crate) fn signaled(
        &mut self,
        whom: (ClientId, u64),
        terminates: bool,
        requester: Requester,
        io: &mut impl Io<X>,
    ) -> Requested {
        let (id, serial) = whom;
        let client = self.clients.get(id).filter(|client| client.serial == serial);
        if terminates && client.is_some() {
            return Requested::Terminated { client: id, requester };
        }
        let busy = busy_server(client, self.servers);
        self.cancel(busy, requester, io)
    }

    /// Records the decision. If the client has a server, it processes the call again.
    fn decide(&mut self, id: ClientId, verdict: Verdict) -> Requested {
        let client = &mut self.clients[id];
        let on = *client.server;
        let goes_on = client.decide_signal(verdict, on.map(|on| &*self.servers[on]));
        on.filter(|_| goes_on).map_or(Requested::Nothing, |on| Requested::Decided(id, on))
    }
}

/// Returns the server that works for this client. While a cancel request for it is under way,
/// another one has no effect.
fn busy_server(client: Option<&Client>, servers: &Servers) -> Result<ServerId, CancelOutcome> {
    let client = client.ok_or(CancelOutcome::Unknown)?;
    let on = client.server.ok_or(CancelOutcome::Idle)?;
    servers[on].takes_cancel().map(|()| on)
}
