//! Backends come: they connect, show their tickets, and enter their lobbies.

use std::{io, os::fd::AsRawFd as _};

use config::Proxied;
use engine::{
    pool::Pool,
    shell::{Attending, Mail},
};
use net::sys::{epoll, process, process::Process, socket};

use super::{
    super::control::{Hello, ToBackend},
    BACKEND, Backend, COMING_LOOK_MS, LISTENER, LOOK_MS, Role, Service,
    tickets::{Announced, Shown},
};
use crate::warning;

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
            let number = self.backends.insert(Backend { fd, process, role: None });
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
        match self.tickets.announce(server) {
            Announced::Expected => {}
            Announced::Here(number, hello) => {
                if !self.greet(number, hello) {
                    socket::shutdown(self.backends[number].fd.as_raw_fd(), false);
                }
            }
            Announced::Gone(server) => self.turn_away(&server, None),
        }
    }

    /// Gives a backend its lobby. Returns false if it cannot serve there; the engine learns why.
    pub(super) fn greet(&mut self, number: usize, hello: Hello) -> bool {
        let (server, hello) = match self.tickets.show(number, hello) {
            Shown::Announced(server, hello) => (server, hello),
            Shown::Early => return true,
            Shown::Wrong => return false,
        };
        // It comes back: its former connection has ended, and perhaps this is not known yet.
        if let Some(former) = self.by_serial(server.serial) {
            self.backend_event(former);
        }
        if self.pool(server.pool, Pool::is_lobby_ceded) == Some(true) {
            self.turn_away(&server, Some(Proxied::NotTried));
            return false;
        }
        if hello.layout != room::LAYOUT {
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
