//! The follow-up work of an event. While a machine handles an event, it does not call another
//! machine whose work may lead back to it. It puts that work into this queue. The engine does it
//! when the machine has returned, so no machine is entered twice.
//!
//! Earlier work may end the connection that an entry is about. So each entry has the connection's
//! serial number, or is checked before it is done.

use std::collections::VecDeque;

use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Newcomer, PoolId, ServerId, Waiter};
use crate::lifecycle::attend::TrialFailure;
use crate::lifecycle::leave::Departure;
use crate::shell::{Exchange, Io};

#[derive(Debug)]
pub(crate) enum Work {
    /// Read the messages that the client has sent ahead, now that it has a server.
    Requests(ClientId),
    /// Read the messages of a client whose last request is answered and that has no server now.
    Route(ClientId),
    /// Give the server to the client that has waited for it.
    Join(Joining),
    /// Give the server to the client, which wants to prove its password.
    Prove { server: ServerId, serial: u64, client: ClientId },
    /// Let the client in, whose password is known to be right.
    Admit { client: ClientId, serial: u64 },
    /// Decide what happens to a server whose client has left.
    TakeBack { server: ServerId, serial: u64, left: Departure },
    /// Open a server whose place in the pool is reserved.
    Open(PoolId),
    /// Open a server whose place in the pool is reserved and whose seat is taken.
    Connect(PoolId),
    /// Open a server for the trial of the pool's lobby.
    Try(PoolId),
    /// Open another server for the pool's lobby, since there is a seat now.
    Attend(PoolId),
    /// Let the client into the pool: it is known whether that is direct.
    Enter(Newcomer),
    /// Continue the login of a client that has waited for a server's answer.
    Checked(Newcomer),
    /// Apply changes of the pool.
    Review(PoolId),
}

/// A server and the waiting client that gets it.
#[derive(Debug)]
pub(crate) struct Joining {
    pub server: ServerId,
    pub serial: u64,
    pub waiter: Waiter,
}

pub(crate) type Queue = VecDeque<Work>;

/// A longer queue is freed: thousands of clients may have left at once.
const KEPT_MAX: usize = 1024;

impl<X: Exchange> Engine<X> {
    /// Does all follow-up work. Each entry point for events ends with this call.
    // As a function call this costs 1 % of a transaction, though mostly there is no work.
    #[inline(always)]
    pub(crate) fn finish(&mut self, io: &mut impl Io<X>) {
        if self.has_work() {
            self.work_off(io);
        }
    }

    #[inline(always)]
    pub(crate) fn has_work(&self) -> bool {
        self.joining.is_some() || !self.work.is_empty()
    }

    fn work_off(&mut self, io: &mut impl Io<X>) {
        loop {
            while let Some(joining) = self.joining.take() {
                self.work_on(Work::Join(joining), io);
            }
            let Some(work) = self.work.pop_front() else { break };
            self.work_on(work, io);
        }
        if self.work.capacity() > KEPT_MAX {
            self.work = Queue::new();
        }
    }

    /// Gives a server to a waiting client, soon. An ordinary transaction in a full pool ends with
    /// this. Keeping the first one out of the queue saves 2 % of the instructions.
    #[inline]
    pub(crate) fn join_soon(&mut self, server: ServerId, waiter: Waiter) {
        let joining = Joining { server, serial: self.servers[server].serial, waiter };
        match self.joining {
            None if self.work.is_empty() => self.joining = Some(joining),
            Some(_) | None => self.work.push_back(Work::Join(joining)),
        }
    }

    fn work_on(&mut self, work: Work, io: &mut impl Io<X>) {
        match work {
            Work::Requests(id) => self.read_ahead(id, io),
            Work::Route(id) => self.route_held(id, io),
            Work::Join(Joining { server, serial, waiter }) => {
                self.servers.assert_free(server, serial);
                self.join_or_place(waiter, server, io);
            }
            Work::Prove { server, serial, client } => {
                self.servers.assert_free(server, serial);
                let found = self.clients.get(client);
                match found.is_some_and(Client::proves) {
                    true => self.prove_by(client, server, io),
                    false => self.place(server, io),
                }
            }
            Work::Admit { client, serial } => {
                let found = self.clients.get(client);
                if found.is_some_and(|found| found.serial == serial) {
                    self.authenticated(client, io);
                }
            }
            // `Engine::refused` disconnects a client, and may close its server, too.
            Work::TakeBack { server, serial, left } => {
                if self.servers.is_free(server, serial) {
                    self.take_back(server, left, io);
                }
            }
            Work::Open(pool) => {
                self.open_server(pool, io);
            }
            Work::Connect(pool) => self.connect_seated(pool, io),
            Work::Try(pool) => {
                if !self.open_attending(pool, io) {
                    self.trial_failed(pool, TrialFailure::LOST, io.now());
                }
            }
            Work::Attend(pool) => self.attend_more(pool, io),
            Work::Review(pool) => self.review_pool(pool, io),
            Work::Checked(newcomer) => {
                let found = self.clients.get(newcomer.client);
                let awaits =
                    |client: &Client| client.serial == newcomer.serial && client.awaits_check();
                if found.is_some_and(awaits) {
                    self.enter_pool(newcomer.client, newcomer.pool, io);
                }
            }
            Work::Enter(newcomer) => {
                let found = self.clients.get(newcomer.client);
                let awaits =
                    |client: &Client| client.serial == newcomer.serial && client.awaits_trial();
                if found.is_some_and(awaits) {
                    self.enter_pool_at_once(newcomer.client, newcomer.pool, io);
                }
            }
        }
    }

    /// Lets a client with a server send its request. Messages sent ahead come first. Half a message
    /// waits for the rest, which is in the kernel.
    pub(crate) fn go_on(&mut self, id: ClientId, io: &mut impl Io<X>) {
        io.resume_client(id);
        let client = &mut self.clients[id];
        client.await_nothing();
        if client.stream.holds_message() {
            self.work.push_back(Work::Requests(id));
        }
    }

    fn read_ahead(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id) else { return };
        if !matches!(*client.phase, ClientPhase::Linked) || client.awaits_answer() {
            return;
        }
        let was_decided = client.is_signal_decided();
        let len = client.stream.held.len();
        self.request_bytes(id, &[], io);
        self.note_handled(id, len);
        // A decision that was made meanwhile is for the next time.
        if was_decided && let Some(client) = self.clients.get_mut(id) {
            client.forget_decided();
        }
    }
}
