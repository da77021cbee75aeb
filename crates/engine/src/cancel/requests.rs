//! Cancel requests. Only one worker knows the key of a client, so the worker that receives a
//! request asks all of them. The client's worker sends the server's own key to the server's
//! address, and links the server to no other client until that is over. A peer's key is forwarded
//! to that peer with an increased hop count. If the peer cannot be reached, the request is repeated
//! until `cancel_wait_timeout`.

use crate::lifecycle::close_reason::CloseReason;
use wire::startup::CancelKey;
use wire::{cancel_key, frontend};

use crate::cancel::outcome::{Cancel, CancelEnd, CancelOutcome, To};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, ServerId, WorkerId};
use crate::lifecycle::leave::Leaving;
use crate::operator::report::{CancelRow, CancelTarget};
use crate::server::{Preparation, Server, ServerPhase};
use crate::settings::Target;
use crate::shell::{Event, Exchange, Io, Mail, OtherProcess};

/// The pause after a failed attempt to reach a peer.
const PEER_RETRY: Micros = 1_000_000;

impl<X: Exchange> Engine<X> {
    /// Deals with a connection that consists of a cancel request.
    pub(crate) fn ask_cancel(&mut self, id: ClientId, key: CancelKey, io: &mut impl Io<X>) {
        let own = self.context.config.global.peer_id;
        if own > 0
            && let Some((number, _)) = key.number()
            && u32::from(cancel_key::peer(number)) != own
        {
            return self.pass_cancel_on(id, &key, number, io);
        }
        let workers = self.pools.exchange.worker_count();
        let requester = (self.context.worker, id, self.clients[id].serial);
        let others = self.ask_other_processes(&key, requester, io);
        let lobbies = u16::from(io.cancel_in_lobby(&key, requester));
        let answers_missing = workers + others + lobbies;
        self.clients[id].phase.cancel(answers_missing);
        io.cancel_console(&key);
        for worker in (0..workers).map(WorkerId) {
            if worker != self.context.worker {
                self.pools.exchange.post(worker, Mail::Cancel { key: key.clone(), requester });
            }
        }
        self.cancel_asked(key, requester, io);
    }

    /// Forwards the request to the other processes of an online restart, which may serve the key's
    /// client. Returns the number of processes asked.
    fn ask_other_processes(
        &mut self,
        key: &CancelKey,
        requester: (WorkerId, ClientId, u64),
        io: &mut impl Io<X>,
    ) -> u16 {
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, key.pid, &key.secret);
        let mut asked = 0;
        for to in [OtherProcess::Predecessor, OtherProcess::Successor] {
            let cancel = self.context.next_serial();
            if io.forward_to_process(cancel, to, requester.1, &packet) {
                self.cancels.insert(cancel, Cancel::new(To::Process, Some(requester)));
                asked += 1;
            }
        }
        asked
    }

    /// Forwards the request to the peer that the key belongs to.
    fn pass_cancel_on(&mut self, id: ClientId, key: &CancelKey, number: u64, io: &mut impl Io<X>) {
        let peer = u32::from(cancel_key::peer(number));
        let Some(number) = cancel_key::passed_on(number) else {
            let why = "failed to forward cancel request because its TTL was exhausted";
            return self.drop_client(id, Leaving::Unanswered(why), io);
        };
        let target = self.context.config.peers.get(&peer).and_then(|entry| {
            let host = entry.hosts.first()?;
            Some(Target::new(host, entry.port))
        });
        let Some(target) = target else {
            let why = "could not find peer to forward request to";
            return self.drop_client(id, Leaving::Unanswered(why), io);
        };
        let client = &mut self.clients[id];
        client.phase.cancel(1);
        let serial = client.serial;
        let requester = Some((self.context.worker, id, serial));
        let mut secret = (number as u32).to_be_bytes().to_vec();
        secret.extend_from_slice(key.secret.get(4..).unwrap_or_default());
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, key.pid, &secret);
        let cancel = self.context.next_serial();
        self.cancels.insert(cancel, Cancel::new(To::Peer(peer, key.clone()), requester));
        io.forward_cancel(cancel, peer, &target, &packet);
    }

    /// Sends a cancel request if the key belongs to a client of this worker that has a query
    /// running.
    pub(crate) fn cancel_asked(
        &mut self,
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
        io: &mut impl Io<X>,
    ) {
        match self.busy_server_of(&key) {
            Ok(on) => self.send_cancel(on, Some(requester), io),
            Err(outcome) => self.answer_cancel(requester, outcome, io),
        }
    }

    /// Cancels the query of a server whose client was lost.
    pub(crate) fn cancel_lost(&mut self, on: ServerId, io: &mut impl Io<X>) {
        if self.servers[on].cancel.is_none() {
            self.send_cancel(on, None, io);
        }
    }

    pub(crate) fn send_cancel(
        &mut self,
        on: ServerId,
        requester: Option<(WorkerId, ClientId, u64)>,
        io: &mut impl Io<X>,
    ) {
        let cancel = self.context.next_serial();
        let server = &mut self.servers[on];
        server.cancel = Some(cancel);
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, server.key.pid, &server.key.secret);
        let (serial, pool) = (server.serial, server.pool);
        self.cancels.insert(cancel, Cancel::new(To::Server(on, serial), requester));
        let identity = self.pools.view(pool).identity.clone();
        io.event(Event::CancelOpening { name: (&identity.database, &identity.user) });
        io.send_cancel(cancel, on, &packet);
    }

    /// Returns the server that works for the key's client. While a cancel request for it is under
    /// way, another one has no effect.
    fn busy_server_of(&self, key: &CancelKey) -> Result<ServerId, CancelOutcome> {
        let client = self.keys.find(key, &self.context).and_then(|id| self.clients.get(id));
        let client = client.filter(|client| client.has_tag(key, &self.context));
        let client = client.ok_or(CancelOutcome::Unknown)?;
        let on = client.server.ok_or(CancelOutcome::Idle)?;
        self.servers[on].takes_cancel().map(|()| on)
    }

    /// Ends a request. One for a peer that could not be reached is kept, to be repeated.
    pub(crate) fn end_cancel(&mut self, id: u64, end: CancelEnd, io: &mut impl Io<X>) {
        let Some(cancel) = self.cancels.remove(&id) else { return };
        match cancel.to {
            To::Server(server, serial) => self.cancel_over(server, serial, end, io),
            To::Peer(..) if end == CancelEnd::Unsent => {
                let again_at = Some(io.now() + PEER_RETRY);
                self.cancels.insert(id, Cancel { again_at, ..cancel });
                return;
            }
            To::Peer(..) | To::Process => {}
        }
        if let Some(requester) = cancel.requester {
            self.answer_cancel(requester, end.outcome(), io);
        }
    }

    /// Ends the request for this server. Another client may get the server only if the request can
    /// no longer reach it.
    fn cancel_over(&mut self, server: ServerId, serial: u64, end: CancelEnd, io: &mut impl Io<X>) {
        let found = self.servers.get_mut(server);
        let Some(found) = found.filter(|found| found.serial == serial) else { return };
        found.cancel = None;
        if end == (CancelEnd::Late { sent: true }) {
            found.doomed = Some(CloseReason::CancelMayCome);
        }
        let waits = matches!(*found.phase, ServerPhase::Finishing | ServerPhase::Settling(_));
        let over = found.doomed.is_some() || found.ledger.is_at_rest();
        let judged = matches!(*found.phase, ServerPhase::Preparing(Preparation::AwaitCancel))
            && found.is_clean();
        if let (true, Some(client)) = (judged, found.client) {
            self.judge(client, server, io);
        } else if waits && found.client.is_none() && over {
            self.free(server, io);
        }
    }

    /// Repeats requests for peers that could not be reached, and forgets those whose requester has
    /// left.
    pub(crate) fn retry_cancels(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let is_due = |cancel: &Cancel| cancel.again_at.is_some_and(|at| at <= now);
        let mut due: Vec<_> = self.cancels.extract_if(|_, cancel| is_due(cancel)).collect();
        due.sort_unstable_by_key(|(id, _)| *id);
        for (_, cancel) in due {
            let Cancel { to: To::Peer(_, key), requester: Some((_, id, serial)), .. } = cancel
            else {
                continue;
            };
            let is_there = self.clients.get(id).is_some_and(|one| one.serial == serial);
            if let (true, Some((number, _))) = (is_there, key.number()) {
                self.pass_cancel_on(id, &key, number, io);
            }
        }
    }

    /// Returns the requests on their way to servers and peers, the oldest first.
    pub fn cancel_rows(&self) -> Vec<CancelRow> {
        let row = |(&id, cancel): (&u64, &Cancel)| {
            let to = match cancel.to {
                To::Server(server, serial) => {
                    let server = self.servers.get(server)?;
                    (server.serial == serial).then_some(CancelTarget::Pool(server.pool))?
                }
                To::Peer(peer, _) => CancelTarget::Peer(peer),
                To::Process => return None,
            };
            let requester = cancel.requester.map_or(0, |(_, _, serial)| serial);
            Some(CancelRow { id, to, requester })
        };
        let mut rows: Vec<_> = self.cancels.iter().filter_map(row).collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    pub(crate) fn answer_cancel(
        &mut self,
        requester: (WorkerId, ClientId, u64),
        outcome: CancelOutcome,
        io: &mut impl Io<X>,
    ) {
        let (worker, client, serial) = requester;
        if worker == self.context.worker {
            self.cancel_answered(client, serial, outcome, io);
        } else {
            self.pools
                .exchange
                .post(worker, Mail::CancelDone { requester: client, serial, outcome });
        }
    }

    /// Takes one answer. The requester's connection is closed after the last one, which tells it
    /// that the request was delivered (protocol chapter 55.2.8).
    pub(crate) fn cancel_answered(
        &mut self,
        id: ClientId,
        serial: u64,
        answer: CancelOutcome,
        io: &mut impl Io<X>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.serial != serial {
            return;
        }
        match client.phase.cancel_answered(answer) {
            None => self.signaled(id, answer, io),
            Some((0, outcome)) => self.drop_client(id, Leaving::Unanswered(outcome.reason()), io),
            Some(_) => {}
        }
    }
}

impl Server {
    /// Does it work for its client, so that a cancel request has an effect? While one is under way,
    /// another one has no effect.
    pub(crate) fn takes_cancel(&self) -> Result<(), CancelOutcome> {
        // A query of Weir's own may wait for a lock as long as the client's request would.
        let renews = matches!(
            &*self.phase, ServerPhase::Preparing(step) if step.renews() || step.has_sent()
        );
        let works = renews || matches!(*self.phase, ServerPhase::Linked);
        let busy = works && !self.ledger.owes_nothing();
        match (busy, self.cancel.is_some()) {
            (true, false) => Ok(()),
            (true, true) => Err(CancelOutcome::Sent),
            (false, _) => Err(CancelOutcome::Idle),
        }
    }
}
