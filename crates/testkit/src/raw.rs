//! A client that speaks the protocol message by message.
//!
//! It blocks, with a time limit on every read. So a test fails instead of hanging if a message
//! never comes. It is not a driver: it checks nothing by itself.

pub mod frontend;
mod login;
mod message;
mod scram;
mod stream;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::delivery;
pub use login::md5_verifier;
pub use message::{Message, Outcome, ServerError};
use stream::Stream;

/// A connection to PostgreSQL or to a pooler.
#[derive(Debug)]
pub struct RawClient {
    stream: Stream,
    buffer: Vec<u8>,
    /// The start of the unread bytes in `buffer`.
    start: usize,
    /// ParameterStatus values seen so far.
    pub parameters: BTreeMap<String, String>,
    /// Process id of BackendKeyData, 0 before login.
    pub pid: i32,
    /// Secret of BackendKeyData, empty before login.
    pub secret: Vec<u8>,
    /// The protocol for the login: 3.`minor`, 0 by default.
    pub minor: u16,
}

impl RawClient {
    /// Connects to a port of 127.0.0.1, without sending anything.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|e| panic!("cannot connect to port {port}: {e}"))
    }

    /// Connects to a port of 127.0.0.1, which may not be listening.
    pub fn try_connect(port: u16) -> io::Result<Self> {
        Stream::tcp(port).map(Self::new)
    }

    /// Uses an existing connection.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        Stream::over(stream).map(Self::new)
    }

    /// Connects to the unix socket of `port` in `folder`, without sending anything.
    pub fn connect_unix(folder: &Path, port: u16) -> io::Result<Self> {
        Stream::unix(&folder.join(format!(".s.PGSQL.{port}"))).map(Self::new)
    }

    /// Sends bytes unchanged.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("cannot write to the socket");
    }

    /// Sends bytes to a peer which may have closed the connection.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends bytes, and waits until the peer has read them, so it gets later bytes by another read.
    #[track_caller]
    pub fn send_apart(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.try_send(bytes)?;
        match &self.stream {
            Stream::Unix(stream) => delivery::wait_until_read(stream),
            Stream::Tcp(stream) => delivery::wait_until_read_over_tcp(stream),
        }
        Ok(())
    }

    /// Returns the next message; panics at the end of the stream or when none comes.
    #[track_caller]
    pub fn read(&mut self) -> Message {
        match self.try_read() {
            Ok(Some(message)) => message,
            Ok(None) => panic!("connection closed where a message was expected"),
            Err(e) => panic!("no message came: {e}"),
        }
    }

    /// Returns the next message, or `None` at the end of the stream. A reset counts as the end.
    pub fn try_read(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(message) = self.buffered_message() {
                self.remember(&message);
                return Ok(Some(message));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Returns messages up to and including the first one for which `last` holds.
    #[track_caller]
    pub fn read_until(&mut self, mut last: impl FnMut(&Message) -> bool) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = match self.try_read() {
                Ok(Some(message)) => message,
                Ok(None) => panic!("connection closed after {messages:?}"),
                Err(e) => panic!("no message came: {e}; so far {messages:?}"),
            };
            let done = last(&message);
            messages.push(message);
            if done {
                return messages;
            }
        }
    }

    /// Returns messages up to and including ReadyForQuery.
    #[track_caller]
    pub fn read_to_ready(&mut self) -> Vec<Message> {
        self.read_until(|message| message.tag == b'Z')
    }

    /// Returns all messages until the peer closes the connection.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match self.try_read() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return messages,
                Err(e) => panic!("connection stays open: {e}; so far {messages:?}"),
            }
        }
    }

    /// Runs a simple query; errors are in the outcome.
    #[track_caller]
    pub fn query(&mut self, sql: &str) -> Outcome {
        self.send(frontend::query(sql));
        Outcome::collect(&self.read_to_ready())
    }

    /// Runs a simple query that must succeed, and returns its rows.
    #[track_caller]
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        let outcome = self.query(sql);
        assert!(outcome.error.is_none(), "{sql}: {:?}", outcome.error);
        outcome.rows
    }

    /// Runs a simple query that must succeed, and returns the first value of its first row.
    #[track_caller]
    pub fn value(&mut self, sql: &str) -> String {
        let row = self.rows(sql).into_iter().next().unwrap_or_else(|| panic!("{sql}: no row"));
        row.into_iter().next().flatten().unwrap_or_else(|| panic!("{sql}: NULL"))
    }

    /// Reads bytes outside of any message, such as the answer to an SSLRequest.
    #[track_caller]
    pub fn read_byte(&mut self) -> u8 {
        while self.start == self.buffer.len() {
            assert!(self.fill().expect("no byte came"), "connection closed");
        }
        let byte = self.buffer[self.start];
        self.start += 1;
        byte
    }

    /// Returns all bytes until the peer closes the connection, without parsing them.
    #[track_caller]
    pub fn read_raw_to_end(&mut self) -> Vec<u8> {
        while self.fill().expect("connection stays open") {}
        self.buffer.split_off(self.start)
    }

    /// Sets the longest wait for a message.
    pub fn set_timeout(&self, limit: Duration) {
        self.stream.set_read_timeout(limit).expect("a timeout above zero");
    }

    /// Returns this end's address; `None` for a unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.stream.local_address()
    }

    /// Tells the peer that nothing more will be sent.
    pub fn shutdown_write(&self) {
        self.stream.shutdown_write().expect("the socket is connected");
    }

    /// Does the same where the peer may have closed the connection.
    pub fn stop_writing(&self) {
        // The socket is closed already then.
        let _ = self.stream.shutdown_write();
    }

    /// Returns a second handle of the socket, to write from another thread while this one reads.
    pub fn writer(&self) -> impl Write + Send + use<> {
        self.stream.try_clone().expect("a second handle of the socket")
    }

    /// Sends a cancel request for this connection over a new one to the same `port`, and waits
    /// until the peer has closed that one.
    #[track_caller]
    pub fn cancel(&self, port: u16) {
        self.cancel_over(Self::connect(port));
    }

    /// Does the same over an open connection.
    #[track_caller]
    pub fn cancel_over(&self, mut canceller: Self) {
        canceller.send(frontend::cancel_request(self.pid, &self.secret));
        assert!(canceller.read_to_end().is_empty(), "a cancel request got an answer");
    }

    fn new(stream: Stream) -> Self {
        let (buffer, parameters) = (Vec::new(), BTreeMap::new());
        Self { stream, buffer, start: 0, parameters, pid: 0, secret: Vec::new(), minor: 0 }
    }

    /// Reads more bytes. Returns false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let mut chunk = [0; 16384];
        loop {
            return match self.stream.read(&mut chunk) {
                Ok(0) => Ok(false),
                Ok(length) => {
                    self.buffer.extend_from_slice(&chunk[..length]);
                    Ok(true)
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(false),
                Err(e) => Err(e),
            };
        }
    }

    fn buffered_message(&mut self) -> Option<Message> {
        let rest = &self.buffer[self.start..];
        let (&tag, after) = rest.split_first()?;
        let length = u32::from_be_bytes(*after.first_chunk::<4>()?);
        let length = usize::try_from(length).expect("usize has 32 bits or more");
        assert!(length >= 4, "impossible length {length} of message {:?}", char::from(tag));
        let body = after.get(4..length)?.to_vec();
        self.start += 1 + length;
        Some(Message { tag, body })
    }

    fn remember(&mut self, message: &Message) {
        match message.tag {
            b'S' => {
                let (key, value) = message.parameter();
                self.parameters.insert(key, value);
            }
            b'K' if message.body.len() >= 8 => {
                let (pid, secret) = message.body.split_at(4);
                self.pid = pid.try_into().map_or(0, i32::from_be_bytes);
                self.secret = secret.to_vec();
            }
            _ => {}
        }
    }
}
