//! Backends come: they connect, show their tickets, and enter their lobbies.

use std::{io, os::fd::AsRawFd as _};

use config::Proxied;
use engine::{
    pool::Pool,
    shell::{Attending, Mail},
};
use net::sys::{epoll, process, process::Process, socket};

use super::{
    super::{
        control::{Hello, ToBackend},
        layout,
    },
    BACKEND, Backend, COMING_LOOK_MS, LISTENER, LOOK_MS, Role, Service,
};
use crate::warning;

/// Most backends that are known to have gone. One of which nothing is known counts as silent after
/// five seconds.
const GONE_MAX: usize = 64;

impl Service {
    pub(super) fn accept(&mut self) {
        loop {
            let fd = match socket::accept(self.listener.as_raw_fd()) {
                Ok((fd, _)) => fd,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return self.pause_listening(&error),
                },
            };
            let Ok((process, user)) = socket::peer_credentials(fd.as_raw_fd()) else { continue };
            if user != process::effective_uid() {
                continue;
            }
            let raw = fd.as_raw_fd();
            let process = Process::open(process).ok();
            let number = self.backends.insert(Backend { fd, process, early: None, role: None });
            if self.own.add(raw, epoll::READABLE, BACKEND | number as u64).is_err() {
                self.backends.remove(number);
            }
        }
    }

    /// Stops accepting until the next look, because the event would come again and again.
    fn pause_listening(&mut self, error: &io::Error) {
        warning!("direct_socket: a backend's connection cannot be accepted: {error}");
        let _ = self.own.delete(self.listener.as_raw_fd());
        self.is_listening = false;
    }

    pub(super) fn listen_again(&mut self) {
        let listener = self.listener.as_raw_fd();
        if !self.is_listening {
            self.is_listening = self.own.add(listener, epoll::READABLE, LISTENER).is_ok();
        }
    }

    /// The engine announces a backend. It may have shown its ticket already.
    pub(super) fn expect(&mut self, server: Attending) {
        let is_early = |backend: &Backend| {
            backend.early.as_ref().is_some_and(|hello| is_expected(hello, &server))
        };
        if let Some(at) = self.gone.iter().position(|hello| is_expected(hello, &server)) {
            self.gone.remove(at);
            return self.turn_away(&server, None);
        }
        let early = self.backends.iter().find(|(_, backend)| is_early(backend));
        let early = early.map(|(number, _)| number);
        self.expected.insert(server.ticket.clone(), server);
        if let Some(number) = early
            && let Some(hello) = self.backends[number].early.take()
            && !self.greet(number, hello)
        {
            socket::shutdown(self.backends[number].fd.as_raw_fd(), false);
        }
    }

    /// A backend has ended its connection before the engine has announced it, because Weir did not
    /// answer in time.
    pub(super) fn note_gone(&mut self, hello: Hello) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(hello);
    }

    /// Gives a backend its lobby. Returns false if it cannot serve there; the engine learns why.
    pub(super) fn greet(&mut self, number: usize, hello: Hello) -> bool {
        let Some(server) = self.expected.remove(&hello.ticket) else {
            self.backends[number].early = Some(hello);
            return true;
        };
        if !is_expected(&hello, &server) {
            self.expected.insert(hello.ticket, server);
            return false;
        }
        // It comes back: its former connection has ended, and perhaps this is not known yet.
        if let Some(former) = self.by_serial(server.serial) {
            self.backend_event(former);
        }
        if self.pool(server.pool, Pool::is_lobby_ceded) == Some(true) {
            self.turn_away(&server, Some(Proxied::NotTried));
            return false;
        }
        if hello.layout != layout::LAYOUT {
            self.turn_away(&server, Some(Proxied::NoLibrary));
            return false;
        }
        let Some(at) = self.lobby_of(server.pool) else {
            self.turn_away(&server, Some(Proxied::NoRoom));
            return false;
        };
        let lobby = &mut self.lobbies[at];
        let Some(line) = lobby.assign_line(number) else {
            self.turn_away(&server, Some(Proxied::NoRoom));
            return false;
        };
        lobby.worker = server.worker;
        self.backends[number].role = Some(Role::new(server, at, line));
        // Otherwise it is welcome when its server is held.
        self.held.is_on() || self.welcome(number)
    }

    /// Gives a backend its lobby.
    pub(super) fn welcome(&mut self, number: usize) -> bool {
        let Some(role) = &self.backends[number].role else { return false };
        let (room, line) = (&self.lobbies[role.room].room, role.line);
        let (descriptors, base) = (room.descriptors(), room.base());
        let is_told = self.send(number, ToBackend::Welcome { line, base }, &descriptors);
        if let Some(role) = &mut self.backends[number].role {
            role.is_welcome = is_told;
        }
        is_told
    }

    /// `why`: the reason, if it shows that the pool cannot be direct now.
    fn turn_away(&self, server: &Attending, why: Option<Proxied>) {
        let Attending { server, serial, worker, .. } = *server;
        self.post(worker, Mail::LeftLobby { server, serial, why });
    }

    /// Looks for backends that have entered their lobby. Returns the pause until the next look.
    pub(super) fn welcome_coming(&mut self) -> i32 {
        let mut pause = LOOK_MS;
        let mut came = Vec::new();
        for (_, backend) in &mut self.backends {
            let Some(role) = backend.role.as_mut().filter(|role| !role.came) else { continue };
            if self.lobbies[role.room].room.has_come(role.line) {
                role.came = true;
                came.push((role.server.worker, role.server.server, role.server.serial));
            } else {
                pause = COMING_LOOK_MS;
            }
        }
        for (worker, server, serial) in came {
            self.post(worker, Mail::BackendCame { server, serial });
        }
        pause
    }
}

/// Is this the backend of that server? Other sessions may have read the ticket, as in
/// `pg_stat_activity`.
fn is_expected(hello: &Hello, server: &Attending) -> bool {
    hello.ticket == server.ticket && hello.process == server.process
}

#[cfg(test)]
mod tests {
    use engine::ids::{PoolId, ServerId, WorkerId};

    use super::*;

    #[test]
    fn a_ticket_is_of_use_to_its_backend_only() {
        let (pool, server, worker) = (PoolId(0), ServerId(0), WorkerId(0));
        let ticket = "of 4711".to_owned();
        let expected = Attending { ticket, process: 4711, pool, server, serial: 1, worker };
        for (ticket, process, is_it) in
            [("of 4711", 4711, true), ("of 4711", 4712, false), ("another", 4711, false)]
        {
            let hello = Hello { ticket: ticket.to_owned(), process, layout: layout::LAYOUT };
            assert_eq!(is_expected(&hello, &expected), is_it, "{hello:?}");
        }
    }
}
