//! What an event leaves to be done. A machine that deals with an event calls no other one whose work
//! may lead back to it: it puts that work into this queue. The engine does the queue's work when the
//! machine has returned, so that none meets another in the middle of its own work.
//!
//! Each entry names a connection by its serial number, or is looked at again before it is done: earlier
//! work may have ended what it is about.

use std::collections::VecDeque;

use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId, ServerId, Waiter};
use crate::shell::{Exchange, Io};

#[derive(Debug)]
pub(crate) enum Work {
    /// Read the messages that the client has sent ahead, now that it has a server.
    Requests(ClientId),
    /// Give the server to the client that has waited for it.
    Join(Joining),
    /// Give the server to the client, which wants to prove its password.
    Prove { server: ServerId, serial: u64, client: ClientId },
    /// Find out what becomes of a server whose client has left.
    TakeBack { server: ServerId, serial: u64, left: Left },
    /// Open a server. Its place in the pool is reserved.
    Open(PoolId),
    /// The same; its seat is taken, too.
    Connect(PoolId),
}

/// What a client that has left had to do with its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// Nobody wants what the server is doing.
    pub cancels: bool,
    /// The server has part of a message of the client's.
    pub in_message: bool,
    /// The client had settings that PostgreSQL does not report.
    pub had_settings: bool,
}

/// A server that goes to a client that waits.
#[derive(Debug)]
pub(crate) struct Joining {
    pub server: ServerId,
    pub serial: u64,
    pub waiter: Waiter,
}

pub(crate) type Queue = VecDeque<Work>;

/// A longer queue gives its memory back: thousands of clients may have left at once.
const KEPT_MAX: usize = 1024;

impl<X: Exchange> Engine<X> {
    /// Does all that is left to be done. Each method through which an event comes in ends with this.
    // As a call it cost 1 % of a transaction, which mostly leaves nothing.
    #[inline(always)]
    pub(crate) fn finish(&mut self, now: Micros, io: &mut impl Io<X>) {
        if self.has_work() {
            self.work_off(now, io);
        }
    }

    #[inline(always)]
    pub(crate) fn has_work(&self) -> bool {
        self.joining.is_some() || !self.work.is_empty()
    }

    fn work_off(&mut self, now: Micros, io: &mut impl Io<X>) {
        loop {
            while let Some(joining) = self.joining.take() {
                self.join_later(joining, now, io);
            }
            let Some(work) = self.work.pop_front() else { break };
            self.work_on(work, now, io);
        }
        if self.work.capacity() > KEPT_MAX {
            self.work = Queue::new();
        }
    }

    /// A server is given to a client that waits. An ordinary transaction in a full pool ends with this, so
    /// the first one is kept out of the queue: that saves 2 % of the instructions.
    #[inline]
    pub(crate) fn join_soon(&mut self, server: ServerId, waiter: Waiter) {
        let joining = Joining { server, serial: self.server(server).serial, waiter };
        match self.joining {
            None if self.work.is_empty() => self.joining = Some(joining),
            Some(_) | None => self.work.push_back(Work::Join(joining)),
        }
    }

    fn join_later(&mut self, joining: Joining, now: Micros, io: &mut impl Io<X>) {
        let Joining { server, serial, waiter } = joining;
        if self.is_without_client(server, serial) {
            self.join_or_place(waiter, server, now, io);
        }
    }

    fn work_on(&mut self, work: Work, now: Micros, io: &mut impl Io<X>) {
        match work {
            Work::Requests(id) => self.read_ahead(id, now, io),
            Work::Join(joining) => self.join_later(joining, now, io),
            Work::Prove { server, serial, client } => {
                if self.is_without_client(server, serial) {
                    match self.clients.contains(client.0 as usize) && self.proves(client) {
                        true => self.prove_by(client, server, now, io),
                        false => self.place(server, now, io),
                    }
                }
            }
            Work::TakeBack { server, serial, left } => {
                if self.is_without_client(server, serial) {
                    self.take_back(server, left, now, io);
                }
            }
            Work::Open(pool) => {
                self.open_server(pool, now, io);
            }
            Work::Connect(pool) => self.connect_seated(pool, now, io),
        }
    }

    /// Is that server there, and no client's?
    fn is_without_client(&self, server: ServerId, serial: u64) -> bool {
        let found = self.servers.get(server.0 as usize);
        found.is_some_and(|found| found.serial == serial && found.client.is_none())
    }

    /// The client has a server and may be read. Messages that came ahead of its turn come first;
    /// half a message has to wait for the rest, which is in the kernel.
    pub(crate) fn go_on(&mut self, id: ClientId, io: &mut impl Io<X>) {
        io.resume_client(id);
        let client = self.client_mut(id);
        client.await_nothing();
        if client.stream.holds_message() {
            self.work.push_back(Work::Requests(id));
        }
    }

    fn read_ahead(&mut self, id: ClientId, now: Micros, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id.0 as usize) else { return };
        if !matches!(client.phase, ClientPhase::Linked) || client.awaits_answer() {
            return;
        }
        let was_decided = client.is_signal_decided();
        self.request_bytes(id, &[], now, io);
        // What has been decided meanwhile is for the next time.
        if was_decided {
            self.forget_decided(id);
        }
    }
}
