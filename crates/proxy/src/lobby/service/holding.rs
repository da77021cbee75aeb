//! The holder's part of the lobbies (`crate::holder`): the next process takes the lobbies over if
//! this one is killed.
//!
//! * A client is on the list before a backend can take it, until its place is free again.
//! * A backend is on the list before it gets the lobby, until it has left or ended. So its server
//!   must have logged in, and a copy of the server's socket is kept here.
//! * An entry names open descriptors. So the list is changed before one of them is closed.

use std::{
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use config::Global;
use engine::{
    pool::Pool,
    records::{HeldRecord, LineRecord, LobbyRecord, PoolRecord, ProcessRecord},
    shell::Attending,
    vars::TrackedNames,
};
use net::sys::{epoll, process, process::Process, socket};

use super::{
    super::{
        control::Unnamed,
        held::{HeldList, Key},
    },
    Backend, COMING_LOOK_MS, HOLDER, LOOK_MS, Role, Service,
};
use crate::{
    exchange::{lobby_door, lobby_door::LobbyRequest, mail::ShellMail},
    frame::{DONE, write_frame},
    holder::Held,
    warning,
};

/// The time in which the servers of the process before must be on the list.
const SUCCESSION_MAX: Duration = Duration::from_secs(2);
/// The pause before they are asked for again.
const HOME_PAUSE: Duration = Duration::from_millis(1);

/// The connection of a backend's server.
#[derive(Debug)]
pub(super) enum Home {
    /// Its worker was not asked, or the server has not logged in yet.
    Unknown,
    /// It is not on the list: the connection is encrypted, or has ended.
    None,
    /// It is on the list with this descriptor.
    Held(#[expect(dead_code, reason = "it is kept open for the holder")] OwnedFd),
}

/// The change from the holder of the process before to this process's own.
#[derive(Debug)]
pub(crate) struct Succession {
    /// The list, until the thread has it.
    list: HeldList,
    /// The name under which the next process will find the holder.
    name: Unnamed,
    /// This process's own holder, until the thread has it.
    holder: Option<Process>,
    /// The holder of a process that was killed.
    before: Option<Predecessor>,
}

/// The holder of a process that was killed.
#[derive(Debug)]
pub(crate) struct Predecessor {
    pub(crate) connection: UnixStream,
    /// The number of processes in a row that were killed soon after their start.
    pub(crate) deaths: u32,
}

impl Succession {
    pub(crate) fn new(held: Held, before: Option<Predecessor>) -> Self {
        let Held { list, name, holder } = held;
        Self { list, name, holder: Some(holder), before }
    }

    /// Is there a holder with the lobbies of a process that was killed?
    pub(super) fn follows_a_crash(&self) -> bool {
        self.before.is_some()
    }
}

impl Service {
    /// Takes the list, and watches the holder.
    pub(super) fn begin_list(&mut self, global: &Global) -> io::Result<()> {
        let Some(succession) = &mut self.succession else { return Ok(()) };
        self.held = std::mem::take(&mut succession.list);
        self.holder = succession.holder.take();
        if let Some(holder) = &self.holder {
            self.own.add(holder.fd(), epoll::READABLE, HOLDER)?;
        }
        let ahead = self.shared.clock.now().cast_signed() - process::monotonic_us().cast_signed();
        let record = ProcessRecord {
            seed: self.shared.seed,
            ahead,
            names: TrackedNames::new(&global.track_extra_parameters).all().to_vec(),
            deaths: succession.before.as_ref().map_or(0, |before| before.deaths),
        };
        self.held.put(Key::Process, &[], &HeldRecord::Process(record));
        Ok(())
    }

    /// The holder has ended. Nothing is held from now on.
    pub(super) fn holder_ended(&mut self) {
        let Some(holder) = self.holder.take() else { return };
        let _ = self.own.delete(holder.fd());
        let how = holder.wait().map_or_else(|error| error.to_string(), |ended| ended.to_string());
        warning!(
            "the process that holds the clients of direct pools has ended ({how}): they would be lost \
             with this one"
        );
        self.hold_nothing();
    }

    fn hold_nothing(&mut self) {
        self.held = HeldList::default();
        let numbers: Vec<_> = self.backends.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(role) = &mut self.backends[number].role else { continue };
            role.home = Home::None;
            if !role.is_welcome {
                self.welcome_or_end(number);
            }
        }
    }

    pub(super) fn hold_lobby(&self, at: usize) {
        if !self.held.is_on() {
            return;
        }
        let lobby = &self.lobbies[at];
        // Its number may be another pool's.
        let own = |pool: &Pool<_>| (pool.key == lobby.key).then(|| PoolRecord::of(pool));
        let Some(pool) = self.pool(lobby.pool, own).flatten() else { return };
        // A login that is refused later makes it void, and the list would not be told.
        let pool = PoolRecord { proven: None, ..pool };
        let record = LobbyRecord {
            pool: lobby.pool.0,
            layout: room::LAYOUT,
            base: lobby.room.base(),
            backends: lobby.room.backends(),
            places: lobby.room.places(),
            ..LobbyRecord::default()
        };
        let record = HeldRecord::Lobby { lobby: record, pool: Box::new(pool) };
        self.held.put(Key::Lobby(at), &lobby.room.descriptors(), &record);
    }

    pub(super) fn hold_guest(&self, at: usize, place: u32) {
        if !self.held.is_on() {
            return;
        }
        let lobby = &self.lobbies[at];
        let Some(record) = lobby.guests.record_of(place) else { return };
        let record = HeldRecord::Guest(Box::new(record));
        self.held.put(Key::Guest(at, place), &[lobby.room.socket(place)], &record);
    }

    /// Notes a backend with its server. Without a server, the next process only waits until the
    /// backend has ended, which it does as soon as it has no client.
    pub(super) fn hold_line(&self, number: usize, home: Option<&lobby_door::Home>) {
        let Backend { fd, process, role, .. } = &self.backends[number];
        let Some(role) = role.as_ref().filter(|role| self.held.is_on() && !role.has_left) else {
            return;
        };
        let mut fds = vec![fd.as_raw_fd()];
        fds.extend(process.as_ref().map(Process::fd));
        fds.extend(home.map(|home| home.socket.as_raw_fd()));
        let line = LineRecord {
            line: role.line,
            server: home.map_or(0, |_| role.server.serial),
            came: role.came,
            has_process: process.is_some(),
            ..LineRecord::default()
        };
        let record =
            HeldRecord::Line { line, server: home.map(|home| Box::new(home.records.clone())) };
        self.held.put(Key::Line(role.room, role.line), &fds, &record);
    }

    /// The worker of a server has told its records.
    pub(super) fn home_found(&mut self, serial: u64, home: Option<Box<lobby_door::Home>>) {
        let Some(number) = self.by_serial(serial) else { return };
        let is_awaited = |role: &Role| matches!(role.home, Home::Unknown) && !role.is_closed;
        let Some(at) = self.backends[number].role.as_ref().filter(|role| is_awaited(role)) else {
            return;
        };
        // The pool may have learnt something from this server.
        self.hold_lobby(at.room);
        self.hold_line(number, home.as_deref());
        let Some(role) = &mut self.backends[number].role else { return };
        role.home = home.map_or(Home::None, |home| Home::Held(home.socket));
        if !role.is_welcome {
            self.welcome_or_end(number);
        }
    }

    fn welcome_or_end(&mut self, number: usize) {
        if !self.welcome(number) {
            socket::shutdown(self.backends[number].fd.as_raw_fd(), false);
        }
    }

    /// Completes the succession: all imported servers come onto the list first. Nothing else is done
    /// before, so that another process can begin where this one has begun if this one dies.
    pub(super) fn succeed(&mut self) {
        let end = Instant::now() + SUCCESSION_MAX;
        while !self.request_homes() && Instant::now() < end {
            match self.requests.recv_timeout(HOME_PAUSE) {
                Ok(LobbyRequest::Home { serial, home }) => self.home_found(serial, home),
                Ok(other) => self.deferred.push_back(other),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let Some(Succession { name, before, .. }) = self.succession.take() else { return };
        if let Err(error) = name.publish() {
            warning!("clients of direct pools would be lost with this process: {error}");
            self.hold_nothing();
        }
        // The list of the process before gets out of date from now on.
        if let Some(before) = before {
            // It may have ended.
            let _ = write_frame(&before.connection, DONE, b"");
        }
    }

    /// Asks for the records of servers that are not on the list yet. Returns the pause until the
    /// next look.
    pub(super) fn hold_servers(&self) -> i32 {
        match self.request_homes() {
            true => LOOK_MS,
            false => COMING_LOOK_MS,
        }
    }

    /// Returns whether all servers are on the list.
    fn request_homes(&self) -> bool {
        let mut is_complete = true;
        if !self.held.is_on() {
            return is_complete;
        }
        for (_, backend) in &self.backends {
            let Some(role) = &backend.role else { continue };
            let is_due = matches!(role.home, Home::Unknown) && !role.is_closed && !role.has_left;
            if is_due {
                is_complete = false;
                let Attending { server, serial, worker, .. } = role.server;
                let mail = ShellMail::TellHome { server, serial };
                self.shared.hub.mailbox(worker).post(mail);
            }
        }
        is_complete
    }
}
