//! One thread, one epoll: moves bytes between sockets and the state machines of the rig, the
//! sessions of the canned server and the clients of the load generator alike. Both live in one
//! loop so that together they cost less than the pooler between them, and it is the pooler that
//! is saturated.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::client::Client;
use crate::frame::put;
use crate::server::{Session, Verdict};
use crate::socket::{Address, Listener, Stream};
use crate::sys::{CLOSED, Epoll};
use crate::tls::{TlsContext, TlsEnd};
use crate::traffic::Traffic;

const READ_BYTES: usize = 64 * 1024;
/// So often a client at rest is looked for.
const DRAWS_MAX: usize = 1_000;

/// The loop and everything in it.
#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: Epoll,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots emptied in this turn: not to be reused while events for them may still be in hand.
    emptied: Vec<usize>,
    buffer: Vec<u8>,
    sessions: u32,
    /// What clients need to begin TLS; without it they have none.
    pub(crate) tls: Option<TlsContext>,
    pub(crate) traffic: Traffic,
}

#[derive(Debug)]
enum Slot {
    Empty,
    Listener(Listener),
    Connection(Box<Connection>),
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    peer: Peer,
    tls: Option<TlsEnd>,
    /// The beginning of a message whose end has not come yet.
    inbox: Vec<u8>,
    /// What the peer of ours has said, before TLS.
    said: Vec<u8>,
    /// What is to be sent, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// The socket was full: wait until it is writable.
    blocked: bool,
}

#[derive(Debug)]
enum Peer {
    Client(Client),
    Session(Session),
}

impl Reactor {
    pub(crate) fn new(traffic: Traffic) -> Result<Self> {
        Ok(Self {
            epoll: Epoll::new()?,
            slots: Vec::new(),
            free: Vec::new(),
            emptied: Vec::new(),
            buffer: vec![0; READ_BYTES],
            sessions: 0,
            tls: None,
            traffic,
        })
    }

    /// Serves as the canned PostgreSQL at `address`; returns it with the port the system chose.
    pub(crate) fn listen(&mut self, address: &Address) -> Result<Address> {
        let listener =
            Listener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.address()?;
        let index = self.vacancy();
        self.epoll.add(listener.as_fd(), index)?;
        self.slots[index] = Slot::Listener(listener);
        Ok(address)
    }

    /// One more client of the load generator; its login begins at once.
    pub(crate) fn open_client(&mut self, stream: Stream) -> Result<()> {
        let mut said = Vec::new();
        let client = Client::start(&mut self.traffic, &mut said);
        let tls = self.tls.clone();
        self.open(stream, Peer::Client(client), tls.as_ref(), said)
    }

    /// Lets `act` do something with every client, and sends what it had them say.
    pub(crate) fn each_client(
        &mut self,
        mut act: impl FnMut(&mut Client, &mut Traffic, &mut Vec<u8>),
    ) -> Result<()> {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Connection(connection) = slot
                && let Peer::Client(client) = &mut connection.peer
            {
                act(client, &mut self.traffic, &mut connection.said);
                connection.flush(&self.epoll, index)?;
            }
        }
        Ok(())
    }

    /// Clients at rest say goodbye and go, until so many are left.
    pub(crate) fn leave(&mut self, left: usize) -> Result<()> {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Connection(connection) = slot
                && let Peer::Client(client) = &connection.peer
                && client.is_idle()
                && self.traffic.ready > left
            {
                put(&mut connection.said, b'X', &[]);
                connection.flush(&self.epoll, index)?;
                *slot = Slot::Empty;
                self.emptied.push(index);
                self.traffic.ready -= 1;
            }
        }
        Ok(())
    }

    /// Everybody begins to work, or as many as are to be at work at a time.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.traffic.running = true;
        if self.traffic.sessions.at_work == 0 {
            return self.each_client(|client, traffic, out| client.ask(traffic, out));
        }
        self.traffic.turns = self.traffic.sessions.at_work.min(self.traffic.ready);
        self.give_turns()
    }

    /// A client drawn by lot asks what was due then; no one may if hardly anybody is at rest.
    pub(crate) fn ask_somebody(&mut self, due: Instant) -> Result<bool> {
        for _ in 0..DRAWS_MAX {
            if self.draw_asker(due)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Clients drawn by lot ask, until as many are at work as are to be.
    fn give_turns(&mut self) -> Result<()> {
        while self.traffic.turns > 0 {
            self.traffic.turns -= usize::from(self.draw_asker(Instant::now())?);
        }
        Ok(())
    }

    /// Draws one, who asks if it is a client at rest.
    fn draw_asker(&mut self, due: Instant) -> Result<bool> {
        let index = self.traffic.draw(self.slots.len());
        if let Slot::Connection(connection) = &mut self.slots[index]
            && let Peer::Client(client) = &mut connection.peer
            && client.is_idle()
        {
            client.ask_due(due, &mut self.traffic, &mut connection.said);
            connection.flush(&self.epoll, index)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Waits at most `timeout` for something to happen and handles all that did.
    ///
    /// # Errors
    ///
    /// Any answer that is not the right one, and any connection of a client that ends unasked: a
    /// figure measured beside a mistake is worth nothing.
    pub(crate) fn turn(&mut self, timeout: Duration) -> Result<()> {
        for (index, events) in self.epoll.wait(timeout)? {
            match &mut self.slots[index] {
                Slot::Empty => {}
                Slot::Listener(_) => self.accept(index)?,
                Slot::Connection(connection) => {
                    let verdict = connection.handle(
                        events,
                        &self.epoll,
                        index,
                        &mut self.buffer,
                        &mut self.traffic,
                    )?;
                    if verdict == Verdict::Close {
                        self.slots[index] = Slot::Empty;
                        self.emptied.push(index);
                    }
                }
            }
        }
        self.free.append(&mut self.emptied);
        self.give_turns()
    }

    fn accept(&mut self, index: usize) -> Result<()> {
        while let Slot::Listener(listener) = &self.slots[index] {
            let Some(stream) = listener.accept()? else { break };
            self.sessions += 1;
            self.open(stream, Peer::Session(Session::new(self.sessions)), None, Vec::new())?;
        }
        Ok(())
    }

    fn open(
        &mut self,
        stream: Stream,
        peer: Peer,
        tls: Option<&TlsContext>,
        said: Vec<u8>,
    ) -> Result<()> {
        let index = self.vacancy();
        self.epoll.add(stream.as_fd(), index)?;
        let (inbox, mut outbox) = (Vec::new(), Vec::new());
        let tls = tls.map(|context| TlsEnd::begin(context, &mut outbox));
        let mut connection =
            Connection { stream, peer, tls, inbox, said, outbox, sent: 0, blocked: false };
        connection.flush(&self.epoll, index)?;
        self.slots[index] = Slot::Connection(Box::new(connection));
        Ok(())
    }

    fn vacancy(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Empty);
            self.slots.len() - 1
        })
    }
}

impl Connection {
    fn handle(
        &mut self,
        events: u32,
        epoll: &Epoll,
        index: usize,
        buffer: &mut [u8],
        traffic: &mut Traffic,
    ) -> Result<Verdict> {
        if self.blocked {
            self.flush(epoll, index)?;
        }
        while let Some(count) = self.stream.receive(buffer)? {
            if count == 0 {
                return self.peer.handle_end(traffic);
            }
            let verdict = self.receive(&buffer[..count], traffic)?;
            self.flush(epoll, index)?;
            if verdict == Verdict::Close {
                return Ok(verdict);
            }
            // A short read has emptied the socket; only the end of the stream may still be there.
            if count < buffer.len() && events & CLOSED == 0 {
                break;
            }
        }
        Ok(Verdict::Stay)
    }

    fn receive(&mut self, bytes: &[u8], traffic: &mut Traffic) -> Result<Verdict> {
        let Some(tls) = &mut self.tls else { return self.handle_bytes(bytes, traffic) };
        let mut plain = Vec::new();
        traffic.resumed += u64::from(tls.receive(bytes, &mut plain)?);
        self.handle_bytes(&plain, traffic)
    }

    fn handle_bytes(&mut self, bytes: &[u8], traffic: &mut Traffic) -> Result<Verdict> {
        if self.inbox.is_empty() {
            let (used, verdict) = self.peer.handle(bytes, traffic, &mut self.said)?;
            self.inbox.extend_from_slice(&bytes[used..]);
            return Ok(verdict);
        }
        self.inbox.extend_from_slice(bytes);
        let (used, verdict) = self.peer.handle(&self.inbox, traffic, &mut self.said)?;
        self.inbox.drain(..used);
        Ok(verdict)
    }

    /// Sends until everything is sent or the socket is full. A peer that has gone is noticed when
    /// its end of the stream is read.
    fn flush(&mut self, epoll: &Epoll, index: usize) -> Result<()> {
        match &mut self.tls {
            Some(tls) => tls.seal(&mut self.said, &mut self.outbox)?,
            None if self.outbox.is_empty() => std::mem::swap(&mut self.said, &mut self.outbox),
            None => self.outbox.append(&mut self.said),
        }
        loop {
            if self.sent == self.outbox.len() {
                self.outbox.clear();
                self.sent = 0;
                match &mut self.peer {
                    Peer::Session(session) => session.refill(&mut self.outbox),
                    Peer::Client(client) => client.refill(&mut self.outbox),
                }
                if self.outbox.is_empty() {
                    return self.set_blocked(epoll, index, false);
                }
            }
            match self.stream.send(&self.outbox[self.sent..]) {
                Ok(Some(count)) => self.sent += count,
                Ok(None) => return self.set_blocked(epoll, index, true),
                Err(_) => {
                    self.sent = self.outbox.len();
                    return Ok(());
                }
            }
        }
    }

    fn set_blocked(&mut self, epoll: &Epoll, index: usize, blocked: bool) -> Result<()> {
        if self.blocked != blocked {
            self.blocked = blocked;
            epoll.want_write(self.stream.as_fd(), index, blocked)?;
        }
        Ok(())
    }
}

impl Peer {
    fn handle(
        &mut self,
        bytes: &[u8],
        traffic: &mut Traffic,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Verdict)> {
        match self {
            Self::Client(client) => Ok((client.handle(bytes, traffic, out)?, Verdict::Stay)),
            Self::Session(session) => session.handle(bytes, out),
        }
    }

    fn handle_end(&mut self, traffic: &mut Traffic) -> Result<Verdict> {
        if let Self::Client(client) = self {
            client.handle_end(traffic)?;
        }
        Ok(Verdict::Close)
    }
}
