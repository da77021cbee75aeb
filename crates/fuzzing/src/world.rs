//! One engine between clients with the bytes of an input and servers that are models or send the
//! bytes of an input. Between two steps everything comes to rest, and every invariant is checked.

mod net;
mod shared;

use std::sync::Arc;

use config::{Config, PoolMode};
use engine::Engine;
use engine::auth::Peer;
use engine::cancel::CancelEnd;
use engine::ids::WorkerId;
use engine::server::CloseReason;

use self::net::Place;
pub(crate) use self::net::{Client, Mind, Net};
use self::shared::Shared;
use crate::cuts::Cuts;
use crate::postgres::{Dialect, Postgres};

/// The maximum number of rounds until everything is at rest. Every round moves at least one byte,
/// and no input has as many. More rounds are a livelock.
const ROUNDS_MAX: usize = 1 << 18;
/// The maximum number of servers. A few clients need fewer, unless servers are opened endlessly.
const SERVERS_MAX: usize = 1_000;

/// The configuration: database `app` for user `alice` (password `secret`).
const BASE: &str = "[databases]\napp = host=10.0.0.1 port=5432\n[pgbouncer]\nauth_type = trust\n";

#[derive(Debug)]
pub(crate) struct World {
    engine: Engine<Shared>,
    shared: Shared,
    pub(crate) net: Net,
    /// The cuts of the servers' bytes.
    cuts: Cuts,
    /// The minds of the next servers, the last one first. Later servers are models.
    pub(crate) next_minds: Vec<Mind>,
}

/// Returns the configuration that all worlds begin with.
pub(crate) fn base_config() -> Config {
    let no_file = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
    let mut config = Config::parse_ini(BASE, "base.ini", &no_file).expect("a sound text");
    config.auth_file.users.insert("alice".into(), "secret".into());
    config.global.pool_mode = PoolMode::Transaction;
    // By default, computing a verifier from the stored password would take most of the time.
    config.global.scram_iterations = 1;
    // The time of the notice depends on waiting times, and the messages must not.
    config.global.query_wait_notify = 0;
    config
}

impl World {
    pub(crate) fn new(config: Config, cuts: Cuts) -> Self {
        let shared = Shared::default();
        let engine = Engine::new(WorkerId(0), Arc::new(config), shared.clone(), [7; 32]);
        let net = Net::default();
        Self { engine, shared, net, cuts, next_minds: Vec::new() }
    }

    /// Opens a connection and returns its number.
    pub(crate) fn connect(&mut self) -> usize {
        let peer = Peer { loopback: true, ..Peer::default() };
        let id = self.engine.notes().accept(peer, self.net.now);
        self.net.clients.push(Client { id, ..Client::default() });
        self.net.clients.len() - 1
    }

    /// Returns a client that has logged in to database `app`. Its login messages are removed.
    pub(crate) fn log_in(&mut self) -> usize {
        let at = self.connect();
        let mut packet = Vec::new();
        wire::frontend::startup(&mut packet, 0, &[("user", "alice"), ("database", "app")]);
        self.send(at, &packet);
        self.net.clients[at].got.clear();
        at
    }

    /// Sends bytes of a client in one piece, and runs until everything is at rest.
    pub(crate) fn send(&mut self, client: usize, bytes: &[u8]) {
        self.net.clients[client].unread.extend_from_slice(bytes);
        self.pump();
    }

    /// Closes the client's socket.
    pub(crate) fn leave(&mut self, client: usize) {
        if let Some(id) = self.net.clients[client].id {
            self.engine.client_closed(id, &mut self.net);
            assert_eq!(self.net.clients[client].id, None, "who has left is closed");
        }
        self.pump();
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.net.now += seconds * 1_000_000;
        self.engine.tick(&mut self.net);
        self.pump();
    }

    /// Lets the first server send these bytes at its next request.
    pub(crate) fn script_first_server(&mut self, said: &[u8]) {
        self.net.servers[0].mind = Mind::Script(said.to_vec());
    }

    /// Returns the numbers of clients and of busy servers in the engine's tables.
    pub(crate) fn table_sizes(&self) -> (usize, usize) {
        (self.engine.look().client_count(), self.engine.look().busy_servers())
    }

    /// Returns the number of clients that the limits of all workers count.
    pub(crate) fn clients_counted(&self) -> u32 {
        self.shared.state(|state| state.limits.clients())
    }

    pub(crate) fn pump(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.deliver_mail() | self.finish_cancel();
            for at in 0..self.net.clients.len() {
                moved |= self.read_client(at);
            }
            for at in 0..self.net.servers.len() {
                moved |= self.connect_server(at) || self.think(at) || self.read_server(at);
            }
            assert!(self.net.servers.len() < SERVERS_MAX, "servers are opened for ever");
            if !moved {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    fn check_invariants(&self) {
        self.engine.look().check_invariants();
        self.shared.state(|state| state.pools.iter().for_each(|pool| pool.check_invariants()));
    }

    fn deliver_mail(&mut self) -> bool {
        let mail = self.shared.state(|state| state.mail.pop_front());
        let Some(mail) = mail else { return false };
        self.engine.handle_mail(mail, &mut self.net);
        self.check_invariants();
        true
    }

    fn finish_cancel(&mut self) -> bool {
        let Some(cancel) = self.net.cancels.pop() else { return false };
        self.engine.cancel_finished(cancel, CancelEnd::Taken, &mut self.net);
        self.check_invariants();
        true
    }

    fn read_client(&mut self, at: usize) -> bool {
        let client = &mut self.net.clients[at];
        let Some(id) = client.id else { return false };
        if client.unread.is_empty() || client.blocked {
            return false;
        }
        client.blocked = true;
        if !self.engine.client_readable(id, &mut self.net) {
            self.check_invariants();
            return true;
        }
        let client = &mut self.net.clients[at];
        client.blocked = false;
        let bytes = std::mem::take(&mut client.unread);
        self.engine.client_bytes(id, &bytes, &mut self.net);
        self.check_invariants();
        true
    }

    fn connect_server(&mut self, at: usize) -> bool {
        let server = &mut self.net.servers[at];
        let Place::Table(id) = server.place else { return false };
        if server.connected {
            return false;
        }
        server.connected = true;
        server.mind = self.next_minds.pop().unwrap_or_else(|| {
            let process_id = 1_000 + u32::try_from(at).expect("few servers");
            Mind::Model(Box::new(Postgres::fresh(Dialect::new(process_id))))
        });
        self.engine.server_connected(id, &mut self.net);
        self.check_invariants();
        true
    }

    /// Lets the server read its input and answer.
    fn think(&mut self, at: usize) -> bool {
        let server = &mut self.net.servers[at];
        if server.inbox.is_empty() || !server.connected {
            return false;
        }
        let bytes = std::mem::take(&mut server.inbox);
        match &mut server.mind {
            Mind::Model(postgres) => {
                postgres.feed(&bytes, &mut server.unread);
                server.left |= postgres.is_closed();
            }
            // The script does not depend on the request.
            Mind::Script(said) => server.unread.append(said),
        }
        true
    }

    fn read_server(&mut self, at: usize) -> bool {
        let server = &self.net.servers[at];
        if server.unread.is_empty() && !server.left {
            return false;
        }
        let id = match server.place {
            Place::Closed => return false,
            Place::Table(id) => id,
            Place::Detached(pool, transport) => {
                let taken =
                    self.engine.parked_readable(pool, |own| *own == transport, &mut self.net);
                taken.expect("a parked server is found by its connection")
            }
        };
        let server = &mut self.net.servers[at];
        if server.unread.is_empty() {
            self.engine.server_closed(id, CloseReason::Lost, &mut self.net);
        } else {
            let len = self.cuts.next(server.unread.len());
            let bytes: Vec<u8> = server.unread.drain(..len).collect();
            self.engine.server_bytes(id, &bytes, &mut self.net);
        }
        self.check_invariants();
        true
    }
}
