//! The relay by io_uring: what the same job costs if the kernel is not asked by a call for each socket.
//!
//! What differs: a client's bytes are received before there is a server for them, and wait in their
//! buffer and not in the socket, since a request that stays costs less than one made anew each time.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail};

use super::{READY, RelayOptions};
use crate::socket::{Listener, Stream};
use crate::sys::ring::{Buffer, News, Ring};

/// One end of the relay, by the index that is its token. The sockets are the ring's.
#[derive(Debug)]
enum End {
    Listener(Listener),
    /// Has not been greeted yet.
    Newcomer,
    Client,
    /// A server that has said so much of its greeting.
    Opening(Vec<u8>),
    /// A server, and whom it serves.
    Server(Option<usize>),
    Gone,
}

struct Relay<'a> {
    options: &'a RelayOptions,
    ring: Ring,
    ends: Vec<End>,
    idle: Vec<usize>,
    /// Clients, and what they ask.
    waiting: VecDeque<(usize, Buffer)>,
    /// What a server says to somebody who logs in, and so does the relay.
    greeting: Vec<u8>,
    /// Who came before that was known.
    early: Vec<usize>,
}

/// Serves until killed.
pub(super) fn run(options: &RelayOptions, listener: Listener) -> Result<()> {
    let mut ring = Ring::new().context("no io_uring")?;
    println!("{}", listener.address()?);
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

    fn add(&mut self, stream: Stream, end: End) -> Result<usize> {
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

    /// A newcomer has said who it is. With the first one the servers are opened.
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

    /// A server lets us in.
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

    /// What the server has said goes to its client, and with the end of it the server to the next.
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
