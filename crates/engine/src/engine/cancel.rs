//! Cancel requests. A client's key is known to one worker only, so the worker that receives a
//! request asks all of them; the one whose client it is sends the server's own key to where the
//! server is connected to, and does not give the server to anybody else before that is over.

use wire::startup::CancelKey;
use wire::{cancel_key, frontend};

use super::Engine;
use super::leave::Leaving;
use crate::client::ClientPhase;
use crate::ids::{ClientId, Micros, ServerId, WorkerId};
use crate::server::ServerPhase;
use crate::shell::{Exchange, Io, Mail};

/// A request on its way to PostgreSQL.
#[derive(Debug)]
pub(super) struct Cancel {
    server: ServerId,
    /// Is the server in that slot still the one that was meant?
    serial: u64,
    /// Who waits for it to be over; nobody, if it is for a client that was lost.
    requester: Option<(WorkerId, ClientId, u64)>,
}

impl<X: Exchange> Engine<X> {
    /// A client's whole connection is a cancel request.
    pub(super) fn ask_cancel(
        &mut self,
        id: ClientId,
        key: CancelKey,
        now: Micros,
        io: &mut impl Io,
    ) {
        let workers = self.exchange.worker_count();
        let client = self.client_mut(id);
        client.phase = ClientPhase::Canceling { answers_missing: workers };
        let requester = (self.worker, id, self.client(id).serial);
        for worker in (0..workers).map(WorkerId) {
            if worker != self.worker {
                self.exchange.post(worker, Mail::Cancel { key: key.clone(), requester });
            }
        }
        self.cancel_asked(key, requester, now, io);
    }

    /// Is it one of our clients, and is there anything to cancel?
    pub(super) fn cancel_asked(
        &mut self,
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
        now: Micros,
        io: &mut impl Io,
    ) {
        match self.busy_server_of(&key) {
            Some(on) => self.send_cancel(on, Some(requester), io),
            None => self.answer_cancel(requester, now, io),
        }
    }

    /// The client this server works for is lost: nobody wants what it is doing.
    pub(super) fn cancel_lost(&mut self, on: ServerId, io: &mut impl Io) {
        if !self.server(on).cancel_pending {
            self.send_cancel(on, None, io);
        }
    }

    fn send_cancel(
        &mut self,
        on: ServerId,
        requester: Option<(WorkerId, ClientId, u64)>,
        io: &mut impl Io,
    ) {
        let cancel = self.next_serial();
        let server = self.server_mut(on);
        server.cancel_pending = true;
        let mut packet = Vec::new();
        frontend::cancel_request(&mut packet, server.process_id, &server.secret);
        let serial = server.serial;
        self.cancels.insert(cancel, Cancel { server: on, serial, requester });
        io.send_cancel(cancel, on, &packet);
    }

    /// The server that is working for the owner of this key. One request at a time is enough for
    /// it: what comes while another is under way changes nothing.
    fn busy_server_of(&self, key: &CancelKey) -> Option<ServerId> {
        let (short, tag) = key.secret.split_first_chunk::<4>()?;
        let number = (u64::from(key.pid) << 32) | u64::from(u32::from_be_bytes(*short));
        let client = self.clients.get(self.keys.get(&number)?.0 as usize)?;
        // A client that was given a long key is not to be cancelled by whoever guesses a short one.
        let right = match client.long_key {
            true => tag.try_into().is_ok_and(|tag| cancel_key::verify(&self.seed, number, tag)),
            false => tag.is_empty(),
        };
        if !right {
            return None;
        }
        let on = client.server?;
        let server = self.server(on);
        let busy = matches!(server.phase, ServerPhase::Linked) && !server.ledger.owes_nothing();
        (busy && !server.cancel_pending).then_some(on)
    }

    /// PostgreSQL has taken the request and closed the connection, or it could not be delivered.
    pub fn cancel_finished(&mut self, cancel: u64, now: Micros, io: &mut impl Io) {
        let Some(Cancel { server, serial, requester }) = self.cancels.remove(&cancel) else {
            return;
        };
        let same = self.servers.get_mut(server.0 as usize).filter(|found| found.serial == serial);
        if let Some(found) = same {
            found.cancel_pending = false;
            let waits = matches!(found.phase, ServerPhase::Finishing | ServerPhase::Settling);
            let over = found.doomed.is_some() || found.ledger.is_at_rest();
            if waits && found.client.is_none() && over {
                self.free(server, now, io);
            }
        }
        if let Some(requester) = requester {
            self.answer_cancel(requester, now, io);
        }
    }

    fn answer_cancel(
        &mut self,
        requester: (WorkerId, ClientId, u64),
        now: Micros,
        io: &mut impl Io,
    ) {
        let (worker, client, serial) = requester;
        if worker == self.worker {
            self.cancel_answered(client, serial, now, io);
        } else {
            self.exchange.post(worker, Mail::CancelDone { requester: client, serial });
        }
    }

    /// The requester's connection is closed when every worker has had its say, so that whoever
    /// waits for that knows the request was delivered (protocol chapter 55.2.8).
    pub(super) fn cancel_answered(
        &mut self,
        id: ClientId,
        serial: u64,
        now: Micros,
        io: &mut impl Io,
    ) {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
        let ClientPhase::Canceling { answers_missing } = &mut client.phase else { return };
        if client.serial != serial {
            return;
        }
        *answers_missing -= 1;
        if *answers_missing == 0 {
            self.drop_client(id, Leaving::Answered, now, io);
        }
    }
}
