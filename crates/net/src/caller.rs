//! Connections that this process makes as an ordinary client, to PostgreSQL or a pooler. The socket
//! never blocks, and has TLS if both ends agree. `weir bench` uses them; pooling does not. The
//! caller writes and reads the messages.
//!
//! ```text
//!   Connecting ── connected ──► [ Asked ── S ──► Shaking ] ──► Open
//!                                   └─── N ───────────────────┘
//! ```

mod poller;

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
};

use config::{Global, ServerTls, SslMode};
use rustls::pki_types::ServerName;

pub use self::poller::{Event, Poller};
use crate::{
    sys::{Address, process, socket},
    tls::{self, ForServers, Progress, Standing, Tls, TlsError},
};

/// The TLS settings for the other end, in libpq's terms.
#[derive(Clone, Debug, Default)]
pub struct CallerTls {
    context: Option<ForServers>,
    host: String,
}

impl CallerTls {
    /// Reads the files; an empty name is no file. With `verify-full` the certificate must name
    /// `host`.
    ///
    /// # Errors
    /// When a file cannot be read or has the wrong contents. The key in the error is the pooler's
    /// for the same setting (`server_tls_…`).
    pub fn load(
        mode: SslMode,
        host: &str,
        authorities: &str,
        certificate: &str,
        key: &str,
    ) -> Result<Self, TlsError> {
        let context = match mode {
            SslMode::Disable => None,
            sslmode => Some(ForServers::load(&ServerTls {
                sslmode,
                ca_file: authorities.to_owned(),
                cert_file: certificate.to_owned(),
                key_file: key.to_owned(),
                ..Global::default().server_tls()
            })?),
        };
        Ok(Self { context, host: host.to_owned() })
    }

    /// Uses what a pooler made of its keys `server_tls_…`.
    #[must_use]
    pub fn of_pooler(context: Option<&ForServers>, host: &str) -> Self {
        Self { context: context.cloned(), host: host.to_owned() }
    }

    fn begin(&self) -> Result<Tls, String> {
        let Some(context) = &self.context else { return Err("TLS was not requested".into()) };
        let name = match ServerName::try_from(self.host.clone()) {
            Ok(name) => name,
            Err(_) if context.checks_name => {
                return Err(format!("{:?} is not a name that a certificate can have", self.host));
            }
            Err(_) => ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()),
        };
        Tls::connect(context.config.clone(), name).map_err(|error| error.to_string())
    }
}

/// One connection.
#[derive(Debug)]
pub struct Caller {
    fd: OwnedFd,
    state: State,
    /// Bytes that the kernel has not accepted.
    unsent: Vec<u8>,
    sent: usize,
}

#[derive(Debug)]
enum State {
    Connecting,
    /// The request for TLS is sent.
    Asked,
    Shaking(Box<Tls>),
    Secured(Box<Tls>),
    Plain,
}

/// The result of a read.
#[derive(Debug)]
pub enum Received<'b> {
    /// Nothing for the caller; more will come.
    Nothing,
    /// The connection can be used from now on. Comes once, before anything else.
    Open,
    Bytes(&'b [u8]),
    /// The other end has closed it.
    End,
}

/// A buffer to read into, shared by all connections of a thread.
#[derive(Debug)]
pub struct Room {
    raw: Vec<u8>,
    progress: Progress,
}

impl Room {
    /// Returns room for reading `bytes` at a time.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { raw: vec![0; bytes], progress: Progress::default() }
    }
}

impl Caller {
    /// Begins to connect. When the first event arrives, call [`Self::receive`].
    ///
    /// # Errors
    /// When the system refuses a socket, or the other end refuses at once. A unix socket with a
    /// full backlog returns `WouldBlock`: try again later.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let fd = socket::open(address)?;
        if let Address::Inet(_) = address {
            socket::set_nodelay(fd.as_raw_fd())?;
        }
        socket::connect(fd.as_raw_fd(), address)?;
        Ok(Self { fd, state: State::Connecting, unsent: Vec::new(), sent: 0 })
    }

    /// Is unsent output left? Then watch the connection for room, and call [`Self::flush`].
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.unsent.is_empty() || matches!(self.state, State::Connecting)
    }

    /// Does the connection use TLS?
    #[must_use]
    pub fn is_secured(&self) -> bool {
        matches!(self.state, State::Secured(_))
    }

    /// Returns the data that SCRAM binds to (`tls-server-end-point`); empty without TLS.
    #[must_use]
    pub fn end_point(&self) -> Arc<[u8]> {
        match &self.state {
            State::Secured(tls) => tls.end_point(),
            _ => Arc::default(),
        }
    }

    /// Sends bytes, or keeps those that the kernel does not accept now.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let State::Secured(tls) = &mut self.state {
            let mut records = Vec::new();
            tls.send(bytes, &mut records).map_err(io::Error::other)?;
            return self.put(&records);
        }
        self.put(bytes)
    }

    /// Sends the kept bytes.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match socket::send(self.fd.as_raw_fd(), &self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_blocked(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.unsent = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// Reads the available bytes, once. Events are level-triggered, so the rest makes another
    /// event.
    ///
    /// # Errors
    /// When the connection could not be made, is broken, or does not meet the TLS settings.
    pub fn receive<'b>(
        &mut self,
        tls: &CallerTls,
        room: &'b mut Room,
    ) -> Result<Received<'b>, String> {
        if let State::Connecting = self.state {
            return self.connected(tls);
        }
        // One byte answers the request for TLS; what follows it belongs to the handshake.
        let most = if let State::Asked = self.state { 1 } else { room.raw.len() };
        let count = match socket::recv(self.fd.as_raw_fd(), &mut room.raw[..most]) {
            Ok(0) => return Ok(Received::End),
            Ok(count) => count,
            Err(error) if is_blocked(&error) => return Ok(Received::Nothing),
            Err(error) => return Err(error.to_string()),
        };
        match &mut self.state {
            State::Plain => Ok(Received::Bytes(&room.raw[..count])),
            State::Asked => self.answered(tls, room.raw[0]),
            _ => self.open_records(count, room),
        }
    }

    fn connected(&mut self, tls: &CallerTls) -> Result<Received<'static>, String> {
        let failed = |error: io::Error| error.to_string();
        socket::take_error(self.fd.as_raw_fd()).map_err(failed)?;
        if tls.context.is_none() {
            self.state = State::Plain;
            return Ok(Received::Open);
        }
        let mut request = Vec::new();
        wire::frontend::ssl_request(&mut request);
        self.state = State::Asked;
        self.put(&request).map_err(failed)?;
        Ok(Received::Nothing)
    }

    fn answered(&mut self, tls: &CallerTls, answer: u8) -> Result<Received<'static>, String> {
        let is_optional = tls.context.as_ref().is_some_and(|context| context.is_optional);
        match answer {
            b'S' => {
                let mut end = tls.begin()?;
                let mut progress = Progress::default();
                end.receive(&mut [], &mut progress).map_err(|error| error.to_string())?;
                self.state = State::Shaking(Box::new(end));
                self.put(&progress.reply).map_err(|error| error.to_string())?;
                Ok(Received::Nothing)
            }
            b'N' if is_optional => {
                self.state = State::Plain;
                Ok(Received::Open)
            }
            b'N' => Err("server does not support SSL, but SSL was required".into()),
            b'E' => Err("server refuses connections before the login".into()),
            other => Err(format!("received invalid response to SSL negotiation: {other:#04x}")),
        }
    }

    fn open_records<'b>(
        &mut self,
        count: usize,
        room: &'b mut Room,
    ) -> Result<Received<'b>, String> {
        let (State::Shaking(tls) | State::Secured(tls)) = &mut self.state else {
            return Ok(Received::Nothing);
        };
        room.progress.plain.clear();
        let standing = tls.receive(&mut room.raw[..count], &mut room.progress);
        let reply = std::mem::take(&mut room.progress.reply);
        if !reply.is_empty() {
            // A failed handshake is a better error than a failure to send its alert.
            let sent = self.put(&reply);
            if standing.is_ok() {
                sent.map_err(|error| error.to_string())?;
            }
        }
        match standing.map_err(|error| format!("SSL error: {}", tls::reason(&error)))? {
            Standing::Handshaking => return Ok(Received::Nothing),
            // Bytes before the end are returned first; the end comes with the next read.
            Standing::PeerClosed if room.progress.plain.is_empty() => return Ok(Received::End),
            Standing::PeerClosed | Standing::Open => {}
        }
        // The server says nothing of its own before it got the startup packet.
        if matches!(self.state, State::Shaking(_))
            && let State::Shaking(tls) = std::mem::replace(&mut self.state, State::Plain)
        {
            self.state = State::Secured(tls);
            return Ok(Received::Open);
        }
        if room.progress.plain.is_empty() {
            return Ok(Received::Nothing);
        }
        Ok(Received::Bytes(&room.progress.plain))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let count = match socket::send(self.fd.as_raw_fd(), bytes) {
            Ok(count) => count,
            Err(error) if is_blocked(&error) => 0,
            Err(error) => return Err(error),
        };
        self.unsent.extend_from_slice(&bytes[count..]);
        Ok(())
    }
}

/// Raises the number of open files to the hard limit, and returns it.
///
/// # Errors
/// When the system does not return it.
pub fn raise_open_files() -> io::Result<u64> {
    process::raise_file_limit().map(|(limit, _)| limit)
}

/// Returns the name of the process's user; `None` when it has none.
#[must_use]
pub fn own_user() -> Option<String> {
    process::user_by_id(process::effective_uid()).ok().flatten()
}

fn is_blocked(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
