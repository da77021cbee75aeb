//! A start by the library in PostgreSQL (`extension/child.c`), and a life under one supervisor after
//! another. A supervisor ends when the server restarts its processes after a crash. Weir then keeps
//! its clients and waits for the next supervisor, which connects to a socket in the data folder, the
//! *door* (`extension/adopt.c`). Weir ends when the server's first process ends.
//!
//! ```text
//!  supervisor                             Weir
//!  starts it with descriptors   ──►
//!  "cookie TEXT"                ──►
//!                               ◄──  "weir 2 VERSION"              clients are served
//!  "files NAME…", their content ──►                                reads them, as on SIGHUP
//!
//!  the next supervisor, through the door:
//!  "adopt TEXT"                 ──►                                the same text as before
//!                               ◄──  "weir 2 VERSION", the sockets it listens on
//! ```
//!
//! The text after `cookie` is known to the processes of one start of the server only. So a
//! supervisor of a server that has been started again cannot adopt a Weir of the server before.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    process::id,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use net::sys::{Epoll, Events, epoll::READABLE, process, rights, socket};
use proxy::{Controller, Handover, Held, Holder, Shutdown, log, warning};

use crate::sys;

/// The form of what is said. The library refuses another one.
const FORM: &str = "weir 2";
/// The first descriptor that a supervisor passes: the sockets on which Weir listens, then the
/// connection to the supervisor, a pipe that ends with the server, the door, and [`FILES`].
const FIRST_FD: RawFd = 3;
/// The files of Weir's configuration. They are in memory and have no names in a folder. A message
/// brings new ones by these names; they then take the places of the old ones.
const FILES: [&str; 4] = ["config", "users", "rules", "maps"];
/// The name of the holder's socket, in the data folder (`extension/supervisor.h`).
const HOLDER: &str = "pg_stat_tmp/weir.held";
/// Time limit for a process that connects to the socket to say what it wants.
const PATIENCE: Duration = Duration::from_secs(1);
const BACKLOG: u32 = 8;
const MESSAGE_LEN_MAX: usize = 256;

/// The tokens of the epoll set, in the order in which their events are dealt with: a supervisor that
/// has ended makes room for the next one.
const SERVER: u64 = 0;
const SUPERVISOR: u64 = 1;
const DOOR: u64 = 2;

/// The descriptors that the supervisor has passed.
#[derive(Debug)]
pub(crate) struct Supervisor {
    connection: Option<UnixStream>,
    /// Reaches its end of file when the server's first process ends.
    server: OwnedFd,
    door: UnixListener,
    /// The first of the descriptors for [`FILES`].
    files: RawFd,
    /// Copies of the listening sockets, for the next supervisor.
    listeners: Vec<OwnedFd>,
    cookie: Vec<u8>,
}

impl Supervisor {
    /// Takes the descriptors that the supervisor has passed. Call it once. `fd` is the first one
    /// behind the listening sockets.
    ///
    /// # Errors
    /// When one of them is not open.
    pub(crate) fn adopt(fd: RawFd) -> anyhow::Result<Self> {
        Self::take(fd).with_context(|| format!("--supervised {fd}"))
    }

    fn take(fd: RawFd) -> io::Result<Self> {
        let connection = sys::adopt_socket(fd)?;
        let server = process::adopt(fd.saturating_add(1))?;
        let door = process::adopt(fd.saturating_add(2))?;
        let files = fd.saturating_add(3);
        (files..).take(FILES.len()).try_for_each(process::close_on_exec)?;
        Ok(Self {
            connection: Some(connection),
            server,
            door: UnixListener::from(door),
            files,
            listeners: (FIRST_FD..fd).map(process::duplicate).collect::<io::Result<_>>()?,
            cookie: Vec::new(),
        })
    }

    /// Starts the process that has the clients of direct pools if this one is killed, and takes those
    /// of a process that was killed. Call it before the first thread is started.
    pub(crate) fn hold_clients(&self) -> (Option<(Holder, Held)>, Option<Handover>) {
        let path = Path::new(HOLDER);
        let holder = match Holder::start(path, self.server.as_fd()) {
            Ok(holder) => holder,
            Err(error) => {
                warning!("clients of direct pools would be lost with this process: {error}");
                return (None, None);
            }
        };
        let handover = proxy::take_over_held(path).unwrap_or_else(|error| {
            warning!("clients of direct pools are lost: {error}");
            None
        });
        (Some(holder), handover)
    }

    /// Tells the supervisor that clients are served. From then on Weir does not end with it, but
    /// with the server. Call it in the first thread.
    ///
    /// # Errors
    /// When the supervisor has ended already, or the system refuses.
    pub(crate) fn follow(mut self, controller: Controller) -> anyhow::Result<()> {
        // The next supervisor learns from the socket which process listens (SO_PEERCRED).
        socket::listen(self.door.as_raw_fd(), BACKLOG)?;
        process::outlive_parent()?;
        let connection = self.connection.as_ref().context("there is no supervisor")?;
        introduce(connection, &[]).context("the supervisor has ended")?;
        let attend = move || {
            match self.attend() {
                Ok(()) => log!("the server has ended, fast exit"),
                Err(error) => warning!("the server cannot be watched, fast exit: {error}"),
            }
            controller.shutdown(Shutdown::Immediate);
        };
        thread::Builder::new().name("weir-lifeline".to_owned()).spawn(attend)?;
        Ok(())
    }

    /// Returns when the server has ended.
    fn attend(&mut self) -> io::Result<()> {
        let epoll = Epoll::new()?;
        epoll.add(self.server.as_raw_fd(), READABLE, SERVER)?;
        epoll.add(self.door.as_raw_fd(), READABLE, DOOR)?;
        if let Some(connection) = &self.connection {
            epoll.add(connection.as_raw_fd(), READABLE, SUPERVISOR)?;
        }
        let mut events = Events::with_room(3);
        loop {
            epoll.wait(&mut events, -1)?;
            let mut tokens: Vec<_> = (0..events.len()).map(|at| events.at(at).0).collect();
            tokens.sort_unstable();
            for token in tokens {
                if token == SERVER {
                    return Ok(());
                }
                if token == SUPERVISOR {
                    self.listen_to_supervisor();
                } else if let Some(connection) = self.open_door() {
                    epoll.add(connection.as_raw_fd(), READABLE, SUPERVISOR)?;
                    self.connection = Some(connection);
                }
            }
        }
    }

    fn listen_to_supervisor(&mut self) {
        let Some(connection) = &self.connection else { return };
        let mut buffer = [0; MESSAGE_LEN_MAX];
        match rights::receive_message(connection.as_raw_fd(), &mut buffer) {
            Ok((0, _)) => {
                log!("the supervisor has ended; clients stay, and the next supervisor is awaited");
                self.connection = None;
            }
            Ok((len, fds)) => self.obey(&buffer[..len], &fds),
            // The connection stays: a supervisor that lives believes that it has one.
            Err(error) => warning!("a message of the supervisor is lost: {error}"),
        }
    }

    fn obey(&mut self, message: &[u8], fds: &[OwnedFd]) {
        let text = String::from_utf8_lossy(message);
        match text.trim_end().split_once(' ') {
            Some(("cookie", cookie)) => self.cookie = cookie.as_bytes().to_vec(),
            Some(("files", names)) => {
                if let Err(error) = self.take_files(names, fds) {
                    warning!("the files of the supervisor cannot be used: {error}");
                }
            }
            _ => warning!("the supervisor says \"{text}\", which has no meaning"),
        }
    }

    fn take_files(&self, names: &str, fds: &[OwnedFd]) -> io::Result<()> {
        for (name, fd) in names.split(' ').zip(fds) {
            let place = (self.files..).zip(FILES).find(|(_, known)| *known == name);
            let (place, _) = place.ok_or(io::ErrorKind::InvalidInput)?;
            process::replace(place, fd)?;
        }
        // So it is done where all reloads are done.
        sys::send_signal(id().cast_signed(), libc::SIGHUP)
    }

    /// Returns the connection of the next supervisor.
    fn open_door(&self) -> Option<UnixStream> {
        match self.admit() {
            Ok(connection) => {
                log!("the next supervisor is there");
                Some(connection)
            }
            Err(error) => {
                warning!("a process at the door of the supervisor is sent away: {error}");
                None
            }
        }
    }

    fn admit(&self) -> io::Result<UnixStream> {
        let (connection, _) = self.door.accept()?;
        let (_, uid) = socket::peer_credentials(connection.as_raw_fd())?;
        if uid != sys::effective_uid() {
            return Err(io::Error::other(format!("it is that of user {uid}")));
        }
        if self.connection.is_some() {
            return Err(io::Error::other("there is a supervisor"));
        }
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        let mut buffer = [0; MESSAGE_LEN_MAX];
        let (len, _) = rights::receive_message(connection.as_raw_fd(), &mut buffer)?;
        let shown = buffer[..len].strip_prefix(b"adopt ");
        if self.cookie.is_empty() || shown != Some(self.cookie.as_slice()) {
            return Err(io::Error::other("it is not of the server that has started Weir"));
        }
        let sockets: Vec<_> = self.listeners.iter().map(|socket| socket.as_raw_fd()).collect();
        introduce(&connection, &sockets)?;
        Ok(connection)
    }
}

fn introduce(connection: &UnixStream, fds: &[RawFd]) -> io::Result<()> {
    let hello = format!("{FORM} {}\n", config::version());
    rights::send_message(connection.as_raw_fd(), hello.as_bytes(), fds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_socket_is_refused() {
        let error = Supervisor::adopt(i32::MAX).unwrap_err();
        assert!(format!("{error:#}").starts_with("--supervised 2147483647: "), "{error:#}");
    }
}
