//! The relay with io_uring instead of a system call for each socket.
//!
//! It differs from the relay on epoll in one point: it receives a client's bytes before a server is
//! free, and they wait in their buffer instead of the socket. One permanent request to receive
//! costs less than a new one for each message.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};

use super::{READY, RelayOptions};
use crate::socket::{self, Socket};
use crate::sys::ring::{Buffer, News, Ring};

/// A socket of the relay. Its index is its token in the ring, which owns the sockets.
#[derive(Debug)]
enum End {
    Listener(Socket),
    /// A client that has not logged in yet.
    Newcomer,
    Client,
    /// A server whose login is in progress, with the part of its greeting received so far.
    Opening(Vec<u8>),
    /// A server, and the index of the client that it serves.
    Server(Option<usize>),
    Gone,
}

struct Relay<'a> {
    options: &'a RelayOptions,
    ring: Ring,
    ends: Vec<End>,
    idle: Vec<usize>,
    /// Clients that wait for a free server, and their queries.
    waiting: VecDeque<(usize, Buffer)>,
    /// The messages with which a server ends its login. The relay sends them to its clients.
    greeting: Vec<u8>,
    /// Clients that logged in before the greeting was known.
    early: Vec<usize>,
}

/// Serves clients until killed.
pub(super) fn run(options: &RelayOptions, listener: Socket) -> Result<()> {
    let mut ring = Ring::new().context("no io_uring")?;
    println!("{}", socket::text(&listener.address()?));
    ring.add_listener(listener.as_fd(), 0)?;
    let mut relay = Relay {
        options,
        ring,
        ends: vec![End::Listener(listener)],
        idle: Vec::new(),
        waiting: VecDeque::new(),
        greeting: Vec::new(),
        early: Vec::new(),
    };
    loop {
        relay.ring.wait()?;
        while let Some((index, news)) = relay.ring.next()? {
            relay.handle(index, news)?;
        }
    }
}

impl Relay<'_> {
    fn handle(&mut self, index: usize, news: News) -> Result<()> {
        match (&mut self.ends[index], news) {
            (End::Listener(_), _) => self.accept(index),
            (End::Client, News::Bytes(said)) if self.ring.bytes(&said)[0] == b'Q' => {
                match self.idle.pop() {
                    Some(server) => self.ask(index, said, server),
                    None => {
                        self.waiting.push_back((index, said));
                        Ok(())
                    }
                }
            }
            (End::Server(_), News::Bytes(said)) => self.answer(index, said),
            (End::Newcomer, News::Bytes(said)) => {
                self.ring.free(said);
                self.hear(index)
            }
            (End::Opening(_), News::Bytes(said)) => self.open(index, said),
            (End::Opening(_) | End::Server(_), _) => bail!("the server closed a connection"),
            (End::Newcomer | End::Client | End::Gone, news) => {
                if let News::Bytes(said) = news {
                    self.ring.free(said);
                }
                self.ends[index] = End::Gone;
                Ok(self.ring.remove(index)?)
            }
        }
    }

    fn add(&mut self, stream: Socket, end: End) -> Result<usize> {
        let index = self.ends.len();
        self.ring.add(stream.as_fd(), index)?;
        self.ends.push(end);
        Ok(index)
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        while let End::Listener(listener) = &self.ends[listener] {
            let Some(stream) = listener.accept()? else { break };
            self.add(stream, End::Newcomer)?;
        }
        Ok(())
    }

    /// Handles the startup packet of a client. The first one makes the relay open its servers.
    fn hear(&mut self, newcomer: usize) -> Result<()> {
        self.early.push(newcomer);
        if !self.greeting.is_empty() {
            return self.greet();
        }
        if self.early.len() == 1 {
            let startup = self.options.startup();
            for _ in 0..self.options.servers {
                let stream = self.options.open_server()?;
                let server = self.add(stream, End::Opening(Vec::new()))?;
                self.ring.send_copy(server, &startup)?;
            }
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<()> {
        for newcomer in std::mem::take(&mut self.early) {
            if let End::Newcomer = self.ends[newcomer] {
                self.ring.send_copy(newcomer, &self.greeting)?;
                self.ends[newcomer] = End::Client;
            }
        }
        Ok(())
    }

    /// Reads the greeting of a server.
    fn open(&mut self, server: usize, bytes: Buffer) -> Result<()> {
        let End::Opening(said) = &mut self.ends[server] else { return Ok(()) };
        said.extend_from_slice(self.ring.bytes(&bytes));
        self.ring.free(bytes);
        if !said.ends_with(READY) {
            return Ok(());
        }
        self.greeting.clone_from(said);
        self.ends[server] = End::Server(None);
        self.greet()?;
        self.release(server)
    }

    fn ask(&mut self, client: usize, said: Buffer, server: usize) -> Result<()> {
        self.ends[server] = End::Server(Some(client));
        Ok(self.ring.send(server, said)?)
    }

    /// Passes a server's bytes to its client. At the end of an answer, the server goes to the next
    /// client.
    fn answer(&mut self, server: usize, said: Buffer) -> Result<()> {
        let End::Server(serves) = &mut self.ends[server] else { return Ok(()) };
        let is_end = self.ring.bytes(&said).ends_with(READY);
        match if is_end { serves.take() } else { *serves } {
            Some(client) => self.ring.send(client, said)?,
            None => self.ring.free(said),
        }
        if is_end { self.release(server) } else { Ok(()) }
    }

    fn release(&mut self, server: usize) -> Result<()> {
        match self.waiting.pop_front() {
            Some((client, said)) => self.ask(client, said, server),
            None => {
                self.idle.push(server);
                Ok(())
            }
        }
    }
}
