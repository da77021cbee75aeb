//! The minimum that a pooler on epoll can do. It passes bytes between clients and a few servers and
//! looks only for the end of an answer. Its cost is that of the system calls alone, so it is the
//! lower bound for poolers of this kind.
//!
//! [`ring`] does the same job with io_uring. [`bridge`] passes bytes between TLS and plain sockets.
//!
//! It serves only clients that send one small select at a time and make no mistakes.

mod bridge;
mod ring;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use net::sys::Address;
use wire::frontend;

use crate::socket::{self, Poll, Socket};

/// The end of an answer: ReadyForQuery, outside of a transaction.
const READY: &[u8] = b"Z\0\0\0\x05I";
const BUFFER_BYTES: usize = 16 * 1024;

#[derive(Debug, Args)]
pub(crate) struct RelayOptions {
    /// Address to listen on: 127.0.0.1:PORT or a path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = socket::parse)]
    listen: Address,
    /// The server: 127.0.0.1:PORT or a path
    #[arg(long, value_name = "ADDRESS", value_parser = socket::parse)]
    connect: Address,
    /// Number of connections to the server
    #[arg(long, default_value_t = 20)]
    servers: usize,
    /// Use io_uring instead of epoll
    #[arg(long)]
    ring: bool,
    /// Bridge clients with TLS to a server each: the file of the certificate
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The file of its key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[arg(long, default_value = "bench")]
    user: String,
    #[arg(long, default_value = "bench")]
    database: String,
}

impl RelayOptions {
    fn open_server(&self) -> Result<Socket> {
        Socket::connect(&self.connect)
            .with_context(|| format!("cannot connect to {}", self.connect))
    }

    /// Returns the startup packet for a server.
    fn startup(&self) -> Vec<u8> {
        let mut startup = Vec::new();
        frontend::startup(&mut startup, 0, &[("user", &self.user), ("database", &self.database)]);
        startup
    }
}

/// A socket of the relay. Its index is its epoll token.
#[derive(Debug)]
enum End {
    Listener(Socket),
    /// A client that has not logged in yet.
    Newcomer(Socket),
    Client(Socket),
    /// A server whose login is in progress, with the part of its greeting received so far.
    Opening(Socket, Vec<u8>),
    /// A server, and the index of the client that it serves.
    Server(Socket, Option<usize>),
    Gone,
}

#[derive(Debug)]
struct Relay<'a> {
    options: &'a RelayOptions,
    poll: Poll,
    ends: Vec<End>,
    idle: Vec<usize>,
    /// Clients that wait for a free server. Their bytes stay in the socket meanwhile.
    waiting: VecDeque<usize>,
    /// The messages with which a server ends its login. The relay sends them to its clients.
    greeting: Vec<u8>,
    /// Clients that logged in before the greeting was known.
    early: Vec<usize>,
    buffer: Vec<u8>,
}

/// Serves clients until killed.
pub(crate) fn run(options: &RelayOptions) -> Result<()> {
    let listener = Socket::listen(&options.listen)
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    if options.ring {
        return ring::run(options, listener);
    }
    if let (Some(certificate), Some(key)) = (&options.certificate, &options.key) {
        return bridge::run(options, listener, (certificate, key));
    }
    let mut relay = Relay {
        options,
        poll: Poll::new()?,
        ends: Vec::new(),
        idle: Vec::new(),
        waiting: VecDeque::new(),
        greeting: Vec::new(),
        early: Vec::new(),
        buffer: vec![0; BUFFER_BYTES],
    };
    println!("{}", socket::text(&listener.address()?));
    relay.poll.add(&listener, relay.ends.len())?;
    relay.ends.push(End::Listener(listener));
    loop {
        for at in 0..relay.poll.wait(Duration::from_secs(1))? {
            relay.handle(relay.poll.ready(at).0)?;
        }
    }
}

impl Relay<'_> {
    fn handle(&mut self, index: usize) -> Result<()> {
        match &mut self.ends[index] {
            End::Listener(_) => self.accept(index),
            End::Newcomer(_) => self.hear(index),
            End::Client(_) => match self.idle.pop() {
                Some(server) => self.ask(index, server),
                None => {
                    self.waiting.push_back(index);
                    Ok(())
                }
            },
            End::Opening(..) => self.open(index),
            End::Server(..) => self.answer(index),
            End::Gone => Ok(()),
        }
    }

    fn add(&mut self, end: End) -> Result<()> {
        if let End::Newcomer(stream) | End::Opening(stream, _) = &end {
            self.poll.add(stream, self.ends.len())?;
        }
        self.ends.push(end);
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        while let End::Listener(listener) = &self.ends[listener] {
            let Some(stream) = listener.accept()? else { break };
            self.add(End::Newcomer(stream))?;
        }
        Ok(())
    }

    /// Reads the startup packet of a client, or its end. The first packet makes the relay open its
    /// servers.
    fn hear(&mut self, newcomer: usize) -> Result<()> {
        let End::Newcomer(stream) = &mut self.ends[newcomer] else { return Ok(()) };
        match stream.receive(&mut self.buffer)? {
            None => return Ok(()),
            Some(0) => {
                self.ends[newcomer] = End::Gone;
                return Ok(());
            }
            Some(_) => self.early.push(newcomer),
        }
        if !self.greeting.is_empty() {
            return self.greet();
        }
        if self.early.len() == 1 {
            let startup = self.options.startup();
            for _ in 0..self.options.servers {
                let stream = self.options.open_server()?;
                send(&stream, &startup)?;
                self.add(End::Opening(stream, Vec::new()))?;
            }
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<()> {
        for newcomer in std::mem::take(&mut self.early) {
            let end = std::mem::replace(&mut self.ends[newcomer], End::Gone);
            if let End::Newcomer(stream) = end {
                send(&stream, &self.greeting)?;
                self.ends[newcomer] = End::Client(stream);
            }
        }
        Ok(())
    }

    /// Reads the greeting of a server.
    fn open(&mut self, server: usize) -> Result<()> {
        let End::Opening(stream, said) = &mut self.ends[server] else { return Ok(()) };
        let count = stream.receive(&mut self.buffer)?;
        ensure!(count != Some(0), "the server ended a login");
        said.extend_from_slice(&self.buffer[..count.unwrap_or(0)]);
        if !said.ends_with(READY) {
            return Ok(());
        }
        self.greeting.clone_from(said);
        let end = std::mem::replace(&mut self.ends[server], End::Gone);
        if let End::Opening(stream, _) = end {
            self.ends[server] = End::Server(stream, None);
        }
        self.greet()?;
        self.release(server)
    }

    /// Passes a client's query to the server. If the client has sent anything else, the server goes
    /// to the next client that waits.
    fn ask(&mut self, client: usize, server: usize) -> Result<()> {
        let asked = match &mut self.ends[client] {
            End::Client(stream) => stream.receive(&mut self.buffer)?,
            _ => None,
        };
        match (asked, &mut self.ends[server]) {
            (Some(count), End::Server(stream, serves)) if count > 0 && self.buffer[0] == b'Q' => {
                *serves = Some(client);
                send(stream, &self.buffer[..count])
            }
            (said, _) => {
                if said.is_some() {
                    self.ends[client] = End::Gone;
                }
                self.release(server)
            }
        }
    }

    /// Passes a server's bytes to its client. At the end of an answer, the server goes to the next
    /// client.
    fn answer(&mut self, server: usize) -> Result<()> {
        let End::Server(stream, serves) = &mut self.ends[server] else { return Ok(()) };
        let Some(count) = stream.receive(&mut self.buffer)? else { return Ok(()) };
        ensure!(count > 0, "the server closed a connection");
        let said = &self.buffer[..count];
        let Some(client) = *serves else { return Ok(()) };
        let is_end = said.ends_with(READY);
        if is_end {
            *serves = None;
        }
        if let End::Client(stream) = &mut self.ends[client] {
            send(stream, said)?;
        }
        if is_end { self.release(server) } else { Ok(()) }
    }

    fn release(&mut self, server: usize) -> Result<()> {
        match self.waiting.pop_front() {
            Some(client) => self.ask(client, server),
            None => {
                self.idle.push(server);
                Ok(())
            }
        }
    }
}

/// Sends all bytes at once, which is possible for small messages.
fn send(stream: &Socket, bytes: &[u8]) -> Result<()> {
    // An error means that the peer has gone, which does not matter.
    if let Ok(sent) = stream.send(bytes) {
        ensure!(sent == Some(bytes.len()), "a peer does not read its small messages");
    }
    Ok(())
}
