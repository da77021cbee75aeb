//! The minimum that a bridge for TLS would cost. It passes the bytes of each client to a socket of
//! the client's own, and back. In a direct pool, backends would serve the other ends of these
//! sockets, since they cannot decrypt. Here each of them is a connection to the canned server.
//!
//! The TLS is Weir's own. Nothing is parsed, no client waits for a server, and nothing is counted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use config::{Global, SslMode};
use net::Tls;
use net::tls::{ForClients, Progress};
use rustls::ServerConfig;

use super::{BUFFER_BYTES, RelayOptions, send};
use crate::socket::{self, Poll, Socket};

/// A socket of the bridge. Its index is its epoll token.
#[derive(Debug)]
enum End {
    Listener(Socket),
    /// A client that has not asked for TLS yet.
    Newcomer(Socket),
    /// A client, and the index of its own server.
    Client(Socket, Box<Tls>, usize),
    /// A server, and the index of its client.
    Server(Socket, usize),
    Gone,
}

struct Bridge<'a> {
    options: &'a RelayOptions,
    config: Arc<ServerConfig>,
    poll: Poll,
    ends: Vec<End>,
    buffer: Vec<u8>,
    records: Vec<u8>,
    progress: Progress,
}

/// Serves clients until killed.
pub(super) fn run(
    options: &RelayOptions,
    listener: Socket,
    (certificate, key): (&Path, &Path),
) -> Result<()> {
    let clients = ForClients::load(&Global {
        client_tls_sslmode: SslMode::Require,
        client_tls_cert_file: certificate.display().to_string(),
        client_tls_key_file: key.display().to_string(),
        ..Global::default()
    })?;
    let mut bridge = Bridge {
        options,
        config: clients.context("no TLS for clients")?.config,
        poll: Poll::new()?,
        ends: Vec::new(),
        buffer: vec![0; BUFFER_BYTES],
        records: Vec::new(),
        progress: Progress::default(),
    };
    println!("{}", socket::text(&listener.address()?));
    bridge.poll.add(&listener, bridge.ends.len())?;
    bridge.ends.push(End::Listener(listener));
    loop {
        for at in 0..bridge.poll.wait(Duration::from_secs(1))? {
            let (index, _) = bridge.poll.ready(at);
            match &bridge.ends[index] {
                End::Listener(_) => bridge.accept(index)?,
                End::Newcomer(_) => bridge.begin(index)?,
                End::Client(..) => bridge.ask(index)?,
                End::Server(..) => bridge.answer(index)?,
                End::Gone => {}
            }
        }
    }
}

impl Bridge<'_> {
    fn accept(&mut self, listener: usize) -> Result<()> {
        while let End::Listener(listener) = &self.ends[listener] {
            let Some(stream) = listener.accept()? else { break };
            self.poll.add(&stream, self.ends.len())?;
            self.ends.push(End::Newcomer(stream));
        }
        Ok(())
    }

    /// Agrees to the client's SSLRequest, and opens its server.
    fn begin(&mut self, index: usize) -> Result<()> {
        let End::Newcomer(client) = std::mem::replace(&mut self.ends[index], End::Gone) else {
            return Ok(());
        };
        match client.receive(&mut self.buffer)? {
            None => self.ends[index] = End::Newcomer(client),
            Some(0) => {}
            Some(_) => {
                send(&client, b"S")?;
                let tls = Box::new(Tls::accept(Arc::clone(&self.config))?);
                let server = self.options.open_server()?;
                let at = self.ends.len();
                self.poll.add(&server, at)?;
                self.ends.push(End::Server(server, index));
                self.ends[index] = End::Client(client, tls, at);
            }
        }
        Ok(())
    }

    /// Passes a client's bytes to its server.
    fn ask(&mut self, index: usize) -> Result<()> {
        let End::Client(client, tls, server) = &mut self.ends[index] else { return Ok(()) };
        let server = *server;
        let Some(count) = client.receive(&mut self.buffer)? else { return Ok(()) };
        self.progress.plain.clear();
        self.progress.reply.clear();
        if count == 0 || tls.receive(&mut self.buffer[..count], &mut self.progress).is_err() {
            (self.ends[index], self.ends[server]) = (End::Gone, End::Gone);
            return Ok(());
        }
        if !self.progress.reply.is_empty() {
            send(client, &self.progress.reply)?;
        }
        match &mut self.ends[server] {
            End::Server(stream, _) if !self.progress.plain.is_empty() => {
                send(stream, &self.progress.plain)
            }
            _ => Ok(()),
        }
    }

    /// Passes a server's bytes to its client.
    fn answer(&mut self, index: usize) -> Result<()> {
        let End::Server(server, client) = &mut self.ends[index] else { return Ok(()) };
        let client = *client;
        let Some(count) = server.receive(&mut self.buffer)? else { return Ok(()) };
        if count == 0 {
            (self.ends[index], self.ends[client]) = (End::Gone, End::Gone);
            return Ok(());
        }
        let End::Client(stream, tls, _) = &mut self.ends[client] else { return Ok(()) };
        self.records.clear();
        tls.send(&self.buffer[..count], &mut self.records)?;
        send(stream, &self.records)
    }
}
