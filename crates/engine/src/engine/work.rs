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
use crate::lifecycle::leave::Departure;
use crate::lifecycle::release::Cleaning;
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

/// A longer queue is freed: thousands of clients may have left at once.
const KEPT_MAX: usize = 1024;

/// Work that an event has led to, in the order of its causes.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// A server for a client, which is linked before all other work. An ordinary transaction in a full
    /// pool ends with this. Keeping it out of `entries` saves 2 % of the instructions.
    first: Option<Joining>,
    entries: VecDeque<Work>,
    #[cfg(debug_assertions)]
    chains: chains::Chains,
}

impl Queue {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.entries.is_empty()
    }

    pub(crate) fn push(&mut self, work: Work) {
        #[cfg(debug_assertions)]
        self.chains.push(&work);
        self.entries.push_back(work);
    }

    pub(crate) fn extend(&mut self, work: impl IntoIterator<Item = Work>) {
        work.into_iter().for_each(|work| self.push(work));
    }

    /// Gives a server to a waiting client, soon.
    #[inline]
    pub(crate) fn join(&mut self, joining: Joining) {
        if !self.is_empty() {
            return self.push(Work::Join(joining));
        }
        #[cfg(debug_assertions)]
        self.chains.push_first();
        self.first = Some(joining);
    }

    fn pop(&mut self) -> Option<Work> {
        let work = match self.first.take() {
            Some(joining) => Some(Work::Join(joining)),
            None => self.entries.pop_front(),
        };
        #[cfg(debug_assertions)]
        self.chains.pop(work.as_ref());
        work
    }

    fn shrink(&mut self) {
        if self.entries.capacity() > KEPT_MAX {
            self.entries = VecDeque::new();
        }
    }
}

/// Counts the work that one event leads to, where assertions are checked (tests, the simulator).
#[cfg(debug_assertions)]
mod chains {
    use std::collections::VecDeque;

    use super::Work;

    /// Only one chain has four links: `Join`, `Requests`, `TakeBack`, `Open`. A client that gets a server
    /// has sent requests ahead, and one of them ends its session. Its server is closed, and another one
    /// is opened for those who wait. All other chains have at most three.
    const LINKS_MAX: u8 = 4;

    /// The number of a piece of work in its chain, counted from 1. `Join` has number 1: when a server is
    /// given to its next client, the client before is done with.
    type Link = u8;

    #[derive(Debug, Default)]
    pub(super) struct Chains {
        /// The work that is being done; 0: none, the event itself is being handled.
        now: Link,
        first: Link,
        entries: VecDeque<Link>,
    }

    impl Chains {
        fn next(&self, work: &Work) -> Link {
            let number = if matches!(work, Work::Join(_)) { 1 } else { self.now + 1 };
            assert!(number <= LINKS_MAX, "work {number} in a row of one event: {work:?}");
            number
        }

        pub(super) fn push(&mut self, work: &Work) {
            self.entries.push_back(self.next(work));
        }

        pub(super) fn push_first(&mut self) {
            self.first = 1;
        }

        pub(super) fn pop(&mut self, work: Option<&Work>) {
            let first = std::mem::take(&mut self.first);
            self.now = match work {
                None => 0,
                Some(_) if first > 0 => first,
                Some(_) => self.entries.pop_front().unwrap_or_default(),
            };
        }
    }
}

impl<X: Exchange> Engine<X> {
    /// Does all follow-up work. Each entry point for events ends with this call.
    // As a function call this costs 1 % of a transaction, though mostly there is no work.
    #[inline(always)]
    pub(crate) fn finish(&mut self, io: &mut impl Io<X>) {
        if !self.work.is_empty() {
            self.work_off(io);
        }
    }

    fn work_off(&mut self, io: &mut impl Io<X>) {
        while let Some(work) = self.work.pop() {
            self.work_on(work, io);
        }
        self.work.shrink();
    }

    fn work_on(&mut self, work: Work, io: &mut impl Io<X>) {
        match work {
            Work::Requests(id) => self.read_ahead(id, io),
            Work::Route(id) => self.route_held(id, io),
            Work::Join(Joining { server, serial, waiter }) => {
                self.servers.assert_free(server, serial);
                self.join_waiter(waiter, server, io);
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
            // `Engine::prepared` disconnects a client, and may close its server, too.
            Work::TakeBack { server, serial, left } => {
                if self.servers.is_free(server, serial) {
                    self.release(server, Cleaning::Left(left), io);
                }
            }
            Work::Open(pool) => {
                self.open_server(pool, io);
            }
            Work::Connect(pool) => self.connect_seated(pool, io),
            Work::Try(pool) => {
                if let Some(purpose) = self.seats().try_lobby(pool, io) {
                    self.connect_server(pool, None, Some(purpose), io);
                }
            }
            Work::Attend(pool) => {
                if let Some(purpose) = self.seats().attend_more(pool, io) {
                    self.connect_server(pool, None, Some(purpose), io);
                }
            }
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
            self.work.push(Work::Requests(id));
        }
    }

    fn read_ahead(&mut self, id: ClientId, io: &mut impl Io<X>) {
        let Some(client) = self.clients.get(id) else { return };
        if !matches!(*client.phase, ClientPhase::Linked) || client.awaits_answer() {
            return;
        }
        let was_decided = client.is_signal_decided();
        let len = client.stream.held().len();
        self.request_bytes(id, &[], io);
        self.paths().note_handled(id, len);
        // A decision that was made meanwhile is for the next time.
        if was_decided && let Some(client) = self.clients.get_mut(id) {
            client.forget_decided();
        }
    }
}
