//! One thread with one epoll, which moves bytes between sockets and the state machines of the
//! benchmark: the sessions of the canned server and the clients of the load generator. Both run in
//! one loop so that together they cost less than the pooler, and the pooler is the part that is
//! saturated.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use net::sys::Address;

use crate::client::Client;
use crate::frame::put;
use crate::server::{self, Session};
use crate::socket::{Poll, Socket};
use crate::tls::{TlsContext, TlsEnd};
use crate::traffic::Traffic;

const READ_BYTES: usize = 64 * 1024;
/// The maximum number of random draws in search of a client at rest.
const DRAWS_MAX: usize = 1_000;

/// The event loop and its connections.
#[derive(Debug)]
pub(crate) struct Reactor {
    poll: Poll,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots emptied in this turn. They are not reused in it, since events for them may be pending.
    emptied: Vec<usize>,
    buffer: Vec<u8>,
    sessions: u32,
    /// The TLS settings of the clients. Without them, the clients do not use TLS.
    pub(crate) tls: Option<TlsContext>,
    pub(crate) traffic: Traffic,
}

#[derive(Debug)]
enum Slot {
    Empty,
    Listener(Socket),
    Connection(Box<Connection>),
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    peer: Peer,
    tls: Option<TlsEnd>,
    /// The beginning of a message that is still incomplete.
    inbox: Vec<u8>,
    /// Plain bytes that the peer has produced, before encryption.
    said: Vec<u8>,
    /// Bytes to send, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// The socket is full: wait until it is writable.
    blocked: bool,
}

/// The future of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Stay,
    Close,
}

#[derive(Debug)]
enum Peer {
    Client(Client),
    Session(Box<Session>),
}

impl Reactor {
    pub(crate) fn new(traffic: Traffic) -> Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            slots: Vec::new(),
            free: Vec::new(),
            emptied: Vec::new(),
            buffer: vec![0; READ_BYTES],
            sessions: 0,
            tls: None,
            traffic,
        })
    }

    /// Serves as the canned PostgreSQL at `address`. Returns the address with the port that the
    /// system chose.
    pub(crate) fn listen(&mut self, address: &Address) -> Result<Address> {
        let listener =
            Socket::listen(address).with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.address()?;
        let index = self.vacancy();
        self.poll.add(&listener, index)?;
        self.slots[index] = Slot::Listener(listener);
        Ok(address)
    }

    /// Adds a client of the load generator and begins its login.
    pub(crate) fn open_client(&mut self, socket: Socket) -> Result<()> {
        let mut said = Vec::new();
        let client = Client::start(&mut self.traffic, &mut said);
        let tls = self.tls.clone();
        self.open(socket, Peer::Client(client), tls.as_ref(), said)
    }

    /// Calls `act` for every client and sends the bytes that it appends.
    pub(crate) fn each_client(
        &mut self,
        mut act: impl FnMut(&mut Client, &mut Traffic, &mut Vec<u8>),
    ) -> Result<()> {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Connection(connection) = slot
                && let Peer::Client(client) = &mut connection.peer
            {
                act(client, &mut self.traffic, &mut connection.said);
                connection.flush(&self.poll, index)?;
            }
        }
        Ok(())
    }

    /// Ends clients at rest with Terminate, until `left` clients are left.
    pub(crate) fn leave(&mut self, left: usize) -> Result<()> {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Slot::Connection(connection) = slot
                && let Peer::Client(client) = &connection.peer
                && client.is_idle()
                && self.traffic.ready > left
            {
                put(&mut connection.said, b'X', &[]);
                connection.flush(&self.poll, index)?;
                *slot = Slot::Empty;
                self.emptied.push(index);
                self.traffic.ready -= 1;
            }
        }
        Ok(())
    }

    /// Lets all clients begin to send queries, or as many as may be at work at a time.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.traffic.running = true;
        if self.traffic.sessions.at_work == 0 {
            return self.each_client(|client, traffic, out| client.ask(traffic, out));
        }
        self.traffic.turns = self.traffic.sessions.at_work.min(self.traffic.ready);
        self.give_turns()
    }

    /// Lets a random client send a query that was due at `due`. Returns false if no client at rest
    /// was found.
    pub(crate) fn ask_somebody(&mut self, due: Instant) -> Result<bool> {
        for _ in 0..DRAWS_MAX {
            if self.draw_asker(due)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets random clients send queries, until the wanted number is at work.
    fn give_turns(&mut self) -> Result<()> {
        while self.traffic.turns > 0 {
            self.traffic.turns -= usize::from(self.draw_asker(Instant::now())?);
        }
        Ok(())
    }

    /// Draws a random slot. If it has a client at rest, sends its query and returns true.
    fn draw_asker(&mut self, due: Instant) -> Result<bool> {
        let index = self.traffic.draw(self.slots.len());
        if let Slot::Connection(connection) = &mut self.slots[index]
            && let Peer::Client(client) = &mut connection.peer
            && client.is_idle()
        {
            client.ask_due(due, &mut self.traffic, &mut connection.said);
            connection.flush(&self.poll, index)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Waits at most `timeout` for events and handles them.
    ///
    /// # Errors
    ///
    /// When an answer is wrong, or the pooler ends a client's connection unexpectedly. A figure
    /// measured beside a mistake has no value.
    pub(crate) fn turn(&mut self, timeout: Duration) -> Result<()> {
        for at in 0..self.poll.wait(timeout)? {
            let (index, may_end) = self.poll.ready(at);
            match &mut self.slots[index] {
                Slot::Empty => {}
                Slot::Listener(_) => self.accept(index)?,
                Slot::Connection(connection) => {
                    let verdict = connection.handle(
                        may_end,
                        &self.poll,
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
            let Some(socket) = listener.accept()? else { break };
            self.sessions += 1;
            self.open(
                socket,
                Peer::Session(Box::new(server::session(self.sessions))),
                None,
                Vec::new(),
            )?;
        }
        Ok(())
    }

    fn open(
        &mut self,
        socket: Socket,
        peer: Peer,
        tls: Option<&TlsContext>,
        said: Vec<u8>,
    ) -> Result<()> {
        let index = self.vacancy();
        self.poll.add(&socket, index)?;
        let (inbox, mut outbox) = (Vec::new(), Vec::new());
        let tls = tls.map(|context| TlsEnd::begin(context, &mut outbox));
        let mut connection =
            Connection { socket, peer, tls, inbox, said, outbox, sent: 0, blocked: false };
        connection.flush(&self.poll, index)?;
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
        may_end: bool,
        poll: &Poll,
        index: usize,
        buffer: &mut [u8],
        traffic: &mut Traffic,
    ) -> Result<Verdict> {
        if self.blocked {
            self.flush(poll, index)?;
        }
        while let Some(count) = self.socket.receive(buffer)? {
            if count == 0 {
                return self.peer.handle_end(traffic);
            }
            let verdict = self.receive(&buffer[..count], traffic)?;
            self.flush(poll, index)?;
            if verdict == Verdict::Close {
                return Ok(verdict);
            }
            // A short read has emptied the socket. Only the end of the stream may be left.
            if count < buffer.len() && !may_end {
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

    /// Sends until everything is sent or the socket is full. A broken connection is noticed when
    /// the end of its stream is read.
    fn flush(&mut self, poll: &Poll, index: usize) -> Result<()> {
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
                    return self.set_blocked(poll, index, false);
                }
            }
            match self.socket.send(&self.outbox[self.sent..]) {
                Ok(Some(count)) => self.sent += count,
                Ok(None) => return self.set_blocked(poll, index, true),
                Err(_) => {
                    self.sent = self.outbox.len();
                    return Ok(());
                }
            }
        }
    }

    fn set_blocked(&mut self, poll: &Poll, index: usize, blocked: bool) -> Result<()> {
        if self.blocked != blocked {
            self.blocked = blocked;
            poll.want_write(&self.socket, index, blocked)?;
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
            Self::Session(session) => {
                session.feed(bytes, out);
                let verdict = if session.is_closed() { Verdict::Close } else { Verdict::Stay };
                Ok((bytes.len(), verdict))
            }
        }
    }

    fn handle_end(&mut self, traffic: &mut Traffic) -> Result<Verdict> {
        if let Self::Client(client) = self {
            client.handle_end(traffic)?;
        }
        Ok(Verdict::Close)
    }
}
