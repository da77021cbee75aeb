//! The holder's part of the lobbies (`crate::holder`): the next process takes the lobbies over if
//! this one is killed.
//!
//! * A client is on the list before a backend can take it, until its place is free again.
//! * A backend is on the list before it gets the lobby, until it has left or ended. So its server
//!   must have logged in, and a copy of the server's socket is kept here.

use std::{
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use engine::{
    records::{HeldRecord, LineRecord, LobbyRecord, PoolRecord},
    shell::Attending,
};
use net::sys::{process, process::Process, socket};

use super::{
    super::{
        control::Unnamed,
        held::{HeldList, Key},
        layout,
    },
    Backend, COMING_LOOK_MS, LOOK_MS, Role, Service,
};
use crate::{
    exchange::{lobby_door, lobby_door::LobbyRequest, mail::ShellMail},
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
    /// It is not on the list.
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
    /// The connection to the holder of a process that was killed. It ends when the connection does,
    /// if there is another holder under its name.
    before: Option<UnixStream>,
}

impl Succession {
    pub(crate) fn new(held: Held, before: Option<UnixStream>) -> Self {
        let Held { list, name } = held;
        Self { list, name, before }
    }

    /// Is there a holder with the lobbies of a process that was killed?
    pub(super) fn follows_a_crash(&self) -> bool {
        self.before.is_some()
    }
}

impl Service {
    /// Takes the list.
    pub(super) fn begin_list(&mut self) {
        let Some(succession) = &mut self.succession else { return };
        self.held = std::mem::take(&mut succession.list);
        let ahead = self.shared.clock.now().cast_signed() - process::monotonic_us().cast_signed();
        let record = HeldRecord::Process { seed: self.shared.seed, ahead };
        self.held.put(Key::Process, &[], &record);
    }

    /// `names`: of the tracked parameters; none if they are not known yet.
    pub(super) fn hold_lobby(&self, at: usize, names: &[String]) {
        if !self.held.is_on() {
            return;
        }
        let lobby = &self.lobbies[at];
        let Some(pool) = self.pool(lobby.pool, PoolRecord::of) else { return };
        let record = LobbyRecord {
            pool: lobby.pool.0,
            layout: layout::LAYOUT,
            base: lobby.room.base(),
            backends: lobby.room.backends(),
            places: lobby.room.places(),
            ..LobbyRecord::default()
        };
        let (pool, names) = (Box::new(pool), names.to_vec());
        let record = HeldRecord::Lobby { lobby: record, pool, names };
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

    /// Notes a backend with its server; without a server, if Weir has closed it and the backend ends
    /// as soon as it has no client.
    pub(super) fn hold_line(&self, number: usize, home: Option<&lobby_door::Home>) {
        let Backend { fd, process, role } = &self.backends[number];
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
        let record = HeldRecord::Line {
            line,
            server: home.map(|home| Box::new(home.records.clone())),
            names: home.map_or_else(Vec::new, |home| home.names.clone()),
        };
        self.held.put(Key::Line(role.room, role.line), &fds, &record);
    }

    /// The worker of a server has told its records.
    pub(super) fn home_found(&mut self, serial: u64, home: Option<Box<lobby_door::Home>>) {
        let Some(number) = self.by_serial(serial) else { return };
        let is_awaited = |role: &Role| matches!(role.home, Home::Unknown) && !role.is_closed;
        let Some(at) = self.backends[number].role.as_ref().filter(|role| is_awaited(role)) else {
            return;
        };
        let at = at.room;
        let found = match home {
            Some(home) => {
                self.hold_lobby(at, &home.names);
                self.hold_line(number, Some(&home));
                Home::Held(home.socket)
            }
            None => Home::None,
        };
        let Some(role) = &mut self.backends[number].role else { return };
        role.home = found;
        if !role.is_welcome && !self.welcome(number) {
            socket::shutdown(self.backends[number].fd.as_raw_fd(), false);
        }
    }

    /// Completes the succession: all imported servers come onto the list first. Nothing else is done
    /// before, so that the holder of the process before has the same state if this process dies.
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
        let Some(succession) = self.succession.take() else { return };
        // The holder of the process before ends when its connection does. It takes the clients with
        // it if it has lost its name, so the name comes first.
        if let Err(error) = succession.name.publish() {
            warning!("clients of direct pools would be lost with this process: {error}");
            // It keeps the same descriptors as this process, and its name.
            self.succession = Some(succession);
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
