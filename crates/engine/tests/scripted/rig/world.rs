//! Engines, net and clock together. Moves bytes and mail until nothing moves any more.

use std::sync::Arc;

use config::Config;
use engine::Engine;
use engine::auth::Peer;
use engine::ids::WorkerId;
use engine::server::CloseReason;

use super::net::{ClientEnd, Net, Place, Transport};
use super::shared::Shared;
use crate::messages::{authentication_ok, key_data, ready, status};

/// More rounds than this without coming to rest is a livelock.
const ROUNDS_MAX: usize = 20_000;

/// The parameters that a server reports at login.
pub(crate) const PARAMETERS: [(&str, &str); 7] = [
    ("server_version", "15.0"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("application_name", ""),
    ("IntervalStyle", "postgres"),
];

pub(crate) struct World {
    pub(crate) engines: Vec<Engine<Shared>>,
    pub(crate) config: Arc<Config>,
    pub(crate) shared: Shared,
    pub(crate) net: Net,
    /// Are new servers connected and logged in without a script?
    pub(crate) automatic: bool,
    /// The number of bytes that one read returns.
    pub(crate) chunk: usize,
    pub(crate) mail_is_held: bool,
    /// The worker that reads no mail.
    pub(crate) inattentive: Option<usize>,
    /// The number of letters that are delivered although mail is held.
    pub(crate) letters_let_through: usize,
    /// Are events of servers' sockets held back?
    pub(crate) servers_are_held: bool,
    /// Are clients not read?
    pub(crate) clients_are_held: bool,
}

impl World {
    pub(crate) fn new(workers: usize, config: Config) -> Self {
        let shared = Shared::new(workers);
        let config = Arc::new(config);
        let engine =
            |worker| Engine::new(WorkerId(worker as u16), config.clone(), shared.clone(), [7; 32]);
        Self {
            engines: (0..workers).map(engine).collect(),
            config: config.clone(),
            shared: shared.clone(),
            net: Net::starting_at(1_000_000),
            automatic: true,
            chunk: usize::MAX,
            mail_is_held: false,
            inattentive: None,
            letters_let_through: 0,
            servers_are_held: false,
            clients_are_held: false,
        }
    }

    /// Opens a new connection and returns its number.
    pub(crate) fn connect(&mut self, worker: usize, peer: Peer) -> usize {
        let id = self.engines[worker].notes().accept(peer, self.net.now);
        self.net.clients.push(ClientEnd { worker, id, ..ClientEnd::default() });
        self.net.clients.len() - 1
    }

    pub(crate) fn tick(&mut self) {
        for worker in 0..self.engines.len() {
            self.engines[worker].tick(&mut self.net.io(worker));
        }
        self.pump();
    }

    pub(crate) fn crowd_out(&mut self) {
        for worker in 0..self.engines.len() {
            self.engines[worker].crowd_out(&mut self.net.io(worker));
        }
        self.pump();
    }

    pub(crate) fn pump(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.deliver_mail();
            for at in 0..self.net.clients.len() {
                moved |= self.read_client(at);
            }
            for at in 0..self.net.servers.len() {
                moved |= self.log_in_server(at) || self.read_server(at);
            }
            self.check_invariants();
            if !moved {
                return;
            }
        }
        panic!("the engines do not come to rest");
    }

    /// The client closes its side after a Terminate that Weir need not read.
    pub(crate) fn say_goodbye(&mut self, at: usize) {
        let end = &self.net.clients[at];
        let (worker, Some(id)) = (end.worker, end.id) else { return };
        self.engines[worker].client_left(id, &mut self.net.io(worker));
        self.pump();
    }

    pub(crate) fn check_invariants(&self) {
        self.engines.iter().for_each(|engine| engine.look().check_invariants());
        self.shared.state(|state| {
            for pool in &state.pools {
                pool.check_invariants();
            }
        });
    }

    fn deliver_mail(&mut self) -> bool {
        let mut moved = false;
        for worker in 0..self.engines.len() {
            while let Some(mail) = self.next_mail(worker) {
                self.engines[worker].handle_mail(mail, &mut self.net.io(worker));
                moved = true;
            }
        }
        moved
    }

    fn next_mail(&mut self, worker: usize) -> Option<engine::shell::Mail<Transport>> {
        let is_held = self.mail_is_held && self.letters_let_through == 0;
        if is_held || self.inattentive == Some(worker) {
            return None;
        }
        let mail = self.shared.state(|state| state.mail[worker].pop_front())?;
        self.letters_let_through = self.letters_let_through.saturating_sub(1);
        Some(mail)
    }

    fn read_client(&mut self, at: usize) -> bool {
        if self.clients_are_held {
            return false;
        }
        let end = &mut self.net.clients[at];
        let worker = end.worker;
        let Some(id) = end.id else { return false };
        if end.left && (end.blocked || end.unread.is_empty()) {
            self.engines[worker].client_closed(id, &mut self.net.io(worker));
            assert_eq!(self.net.clients[at].id, None, "who has left is closed");
            return true;
        }
        if end.blocked || (end.unread.is_empty() && !end.poked) {
            return false;
        }
        end.blocked = true;
        if !self.engines[worker].client_readable(id, &mut self.net.io(worker)) {
            return true;
        }
        let end = &mut self.net.clients[at];
        end.blocked = false;
        end.poked = false;
        if end.unread.is_empty() {
            self.engines[worker].client_quiet(id, &mut self.net.io(worker));
            return true;
        }
        let len = end.unread.len().min(self.chunk);
        let bytes: Vec<u8> = end.unread.drain(..len).collect();
        self.engines[worker].client_bytes(id, &bytes, &mut self.net.io(worker));
        true
    }

    fn read_server(&mut self, at: usize) -> bool {
        let end = &self.net.servers[at];
        let is_quiet = end.unread.is_empty() && !end.left && !end.poked;
        if self.servers_are_held || !end.connected || is_quiet {
            return false;
        }
        let worker = end.worker;
        let id = match end.place {
            Place::Closed => return false,
            Place::Table(id) => id,
            Place::Detached(pool, transport) => {
                let io = &mut self.net.io(worker);
                match self.engines[worker].parked_readable(pool, |own| *own == transport, io) {
                    Some(id) => id,
                    None => return false,
                }
            }
        };
        let by = self.engines[worker].look().receiver_of(id);
        if by.is_some_and(|by| self.net.is_slow(worker, by)) {
            return false;
        }
        let end = &mut self.net.servers[at];
        if !end.unread.is_empty() {
            let len = end.unread.len().min(self.chunk);
            let bytes: Vec<u8> = end.unread.drain(..len).collect();
            self.engines[worker].server_bytes(id, &bytes, &mut self.net.io(worker));
        } else if end.left {
            let io = &mut self.net.io(worker);
            self.engines[worker].server_closed(id, CloseReason::Lost, io);
        } else {
            end.poked = false;
            self.engines[worker].server_quiet(id, &mut self.net.io(worker));
        }
        true
    }

    /// Connects a server and logs it in.
    fn log_in_server(&mut self, at: usize) -> bool {
        let end = &mut self.net.servers[at];
        let Place::Table(id) = end.place else { return false };
        if end.connected || !self.automatic {
            return false;
        }
        end.connected = true;
        let worker = end.worker;
        self.engines[worker].server_connected(id, &mut self.net.io(worker));
        let end = &mut self.net.servers[at];
        end.startup = std::mem::take(&mut end.got);
        end.unread.extend(server_welcome(at));
        true
    }
}

/// The process id of a server. It is also the server's secret.
pub(crate) fn pid_of(server: usize) -> u32 {
    1_000 + server as u32
}

/// PostgreSQL's messages after a successful login.
pub(crate) fn server_welcome(server: usize) -> Vec<u8> {
    server_welcome_with(server, &[])
}

/// PostgreSQL's messages after a successful login, with further parameters.
pub(crate) fn server_welcome_with(server: usize, more: &[(&str, &str)]) -> Vec<u8> {
    let pid = pid_of(server);
    let all = PARAMETERS.iter().chain(more);
    let parameters: Vec<u8> = all.flat_map(|(name, value)| status(name, value)).collect();
    let key = key_data(pid, &pid.to_be_bytes());
    [authentication_ok(), parameters, key, ready('I')].concat()
}
