//! The conditions that must hold after each step, and at the end.

use std::collections::HashMap;
use std::fmt::Write as _;

use engine::Drain;

use super::World;
use crate::client::{Phase, Recovery};
use crate::net::Place;
use crate::sql::Tag;

/// Limit of the bytes that a shell keeps for a client: one read from a server, and the replies that
/// Weir adds to it.
const CLIENT_PENDING_MAX: usize = 16 * 1024;
/// Limit of an incomplete message. The messages that Weir must read as a whole are short here.
const HELD_MAX: usize = 24 * 1024;
/// Limit of an incomplete message if texts are examined.
const TEXT_HELD_MAX: usize = 68 * 1024;
/// Statements on a server beyond the limit. An eviction has no effect if its batch fails, but the
/// new statement may belong to another batch.
const STATEMENTS_SPARE: usize = 4;
/// Limit of the bytes that a shell keeps for a server: each small message may add a Parse.
const SERVER_PENDING_MAX: usize = 64 * 1024;

impl World {
    pub(super) fn check(&mut self) -> Result<(), String> {
        self.check_causes()?;
        if let Some(complaint) = self.net.complaints.pop() {
            return Err(complaint);
        }
        for engine in &self.engines {
            engine.look().check_invariants();
        }
        for (at, server) in self.net.servers.iter_mut().enumerate() {
            if server.is_answered() {
                server.backend.has_noticed = false;
            }
            if let Some(complaint) = server.backend.complaints.pop() {
                return Err(format!("server {at}: {complaint}"));
            }
            self.summary.read += std::mem::take(&mut server.backend.read);
            let statements = server.backend.named_statements();
            let most = self.setup.statements_max + STATEMENTS_SPARE;
            if !self.setup.may_have_sessions() && statements > most {
                return Err(format!("{statements} statements on server {at}"));
            }
            for tag in server.backend.inserted.drain(..) {
                self.summary.inserted += 1;
                if !self.inserted.insert(tag) {
                    return Err(format!("{tag} took effect twice"));
                }
            }
            let undone = |tag: &&Tag| self.inserted.contains(*tag);
            let wrong = self.clients.iter().find_map(|client| client.undone.iter().find(undone));
            if let Some(tag) = wrong {
                return Err(format!("{tag} took effect, although it was told to be rolled back"));
            }
            if server.pending.len() > SERVER_PENDING_MAX {
                return Err(format!("{} bytes kept for server {at}", server.pending.len()));
            }
        }
        for (at, client) in self.net.clients.iter().enumerate() {
            if client.pending.len() > CLIENT_PENDING_MAX {
                return Err(format!("{} bytes kept for client {at}", client.pending.len()));
            }
        }
        // Servers that wait for their password have no socket yet.
        let open = self.net.open_servers() + self.net.without_socket.len();
        let counted = self.shared.borrow().servers();
        if counted != open {
            return Err(format!("{open} server sockets are open, the pools count {counted}"));
        }
        for engine in &self.engines {
            let looks = self.setup.may_be_auto();
            if engine.look().held_bytes() > if looks { TEXT_HELD_MAX } else { HELD_MAX } {
                return Err(format!("{} bytes held of one message", engine.look().held_bytes()));
            }
        }
        self.check_sizes()?;
        self.check_links()?;
        self.check_order()
    }

    fn check_sizes(&self) -> Result<(), String> {
        let shared = self.shared.borrow();
        let global = &self.setup.config.global;
        let mut databases: HashMap<&str, u32> = HashMap::new();
        let mut users: HashMap<&str, u32> = HashMap::new();
        for pool in &shared.pools {
            let (servers, places) = (pool.counts().0, pool.places());
            if places > self.setup.pool_size_max + global.reserve_pool_size || servers > places + 1
            {
                return Err(format!("{servers} servers in {:?}", pool.key));
            }
            *databases.entry(&pool.key.database).or_default() += servers;
            *users.entry(&pool.key.user).or_default() += servers;
        }
        let all: u32 = databases.values().sum();
        if shared.limits.servers() != all {
            return Err(format!("{} seats are taken by {all} servers", shared.limits.servers()));
        }
        let opening: u32 = shared.pools.iter().map(|pool| pool.counts().1).sum();
        let turns = shared.limits.openings();
        if turns != opening {
            return Err(format!("{turns} turns are taken by {opening} servers"));
        }
        let most = |counts: &HashMap<&str, u32>| counts.values().copied().max().unwrap_or(0);
        for (count, limit) in [
            (most(&databases), global.max_db_connections),
            (most(&users), global.max_user_connections),
            (all, global.max_server_connections),
        ] {
            if limit > 0 && count > limit {
                return Err(format!("{count} servers where {limit} are allowed"));
            }
        }
        Ok(())
    }

    /// Called when nothing can happen. A client whose every request is answered has no server,
    /// unless it has a session.
    pub(super) fn check_rest(&self) -> Result<(), String> {
        for (at, socket) in self.net.clients.iter().enumerate() {
            let client = &self.clients[at];
            let done = matches!(client.phase, Phase::Running)
                && client.to_send.is_empty()
                && client.reference.is_at_rest()
                && !self.suspended[socket.worker]
                && self.taking_over.is_none()
                && !client.reference.backend.has_numbers
                && !client.reference.backend.is_seeded()
                && !client.reference.backend.settings.has_pins()
                && client.reference.backend.ears.channels().is_empty()
                && socket.up.data.is_empty();
            let idle = self.net.servers.iter().all(|server| server.stalled_until <= self.net.now);
            if done && idle && !client.is_lax && socket.down.data.is_empty() {
                client.check_style().map_err(|why| format!("client {at}: {why}"))?;
            }
            let Some(slot) = socket.slot.filter(|_| done && !self.setup.may_have_sessions()) else {
                continue;
            };
            let on = self.engines[socket.worker].look().server_of(slot);
            let server = on.and_then(|on| self.net.server_slots[socket.worker].get(&on.0));
            let Some(server) = server.map(|at| &self.net.servers[*at]) else { continue };
            // It may have unread bytes, or Weir may be querying it. It is also kept until a cancel
            // request for it is over.
            let idle = server.backend.is_at_rest() && server.stalled_until <= self.net.now;
            let idle = idle && !server.backend.is_unsure() && !self.is_canceling(socket.worker);
            // Requests after a lost BEGIN have run outside the transaction. The reference does not
            // know what they have left, nor whether the client's last requests are answered: Weir
            // does not read the server while the client does not read.
            let is_lost = client.recovery != Recovery::None;
            let is_unknown = server.backend.has_state() || !socket.down.data.is_empty();
            let idle = idle && !(is_lost && is_unknown);
            if idle && server.up.data.is_empty() && server.down.data.is_empty() {
                return Err(format!("client {at} holds a server for nothing"));
            }
        }
        Ok(())
    }

    fn is_canceling(&self, worker: usize) -> bool {
        self.net.cancels.iter().any(|cancel| cancel.worker == worker && !cancel.finished)
    }

    /// After all clients have left, no trace of them remains.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let mut settled_at = None;
        for _ in 0..20_000 {
            let mut actions = Vec::new();
            self.stormy = false;
            self.possible(&mut actions);
            if actions.is_empty() {
                let left: usize =
                    self.engines.iter().map(|engine| engine.look().client_count()).sum();
                let busy: usize =
                    self.engines.iter().map(|engine| engine.look().busy_servers()).sum();
                let is_settled = left == 0 && busy == 0 && self.drained();
                let since = *settled_at.get_or_insert(self.net.now);
                if is_settled && self.spares_had_time(since) {
                    self.summary.servers = self.net.servers.len();
                    return Ok(());
                }
                self.pass_time()?;
                continue;
            }
            let action = self.rng.pick(&actions);
            self.net.now += self.rng.range(1, 100) as u64;
            self.find_excuses(action);
            self.act(action).map_err(|why| format!("{action:?}: {why}"))?;
            self.check().map_err(|why| format!("after {action:?}: {why}"))?;
        }
        Err(format!("something is left behind when all clients are gone\n{}", self.describe()))
    }

    /// A shutdown that waits for the servers sees that all are released.
    fn drained(&self) -> bool {
        self.draining != Some(Drain::WaitForServers) || self.net.open_servers() == 0
    }

    pub(super) fn describe(&mut self) -> String {
        let mut text = String::new();
        for (at, client) in self.clients.iter().enumerate().filter(|(_, client)| !client.is_done())
        {
            let socket = &self.net.clients[at];
            let _ = writeln!(
                text,
                "client {at} (worker {}, {:?}): {:?}, next {:?}, unread {} up {} down, pending {}, \
                 latch {}, blocked {}, awaits {}, lacks {:?}",
                socket.worker,
                socket.slot,
                client.phase,
                client
                    .script
                    .front()
                    .map(|step| format!("{step:?}").chars().take(60).collect::<String>()),
                socket.up.data.len(),
                socket.down.data.len(),
                socket.pending.len(),
                socket.latch,
                socket.blocked,
                client.reference.waits_for(),
                client.hearing.lacks(),
            );
        }
        let open = self.net.servers.iter().enumerate();
        for (at, server) in open.filter(|(_, server)| server.place != Place::Closed) {
            let _ = writeln!(
                text,
                "server {at}: {:?}, unread {} up {} down, pending {}, latch {}",
                server.place,
                server.up.data.len(),
                server.down.data.len(),
                server.pending.len(),
                server.latch,
            );
        }
        for engine in &mut self.engines {
            let report = engine.report(self.net.now);
            for row in report.clients {
                let _ = writeln!(text, "  {:?} {:?} server {}", row.id, row.state, row.server);
            }
            for row in report.servers {
                let _ = writeln!(text, "  {:?} {:?} client {}", row.slot, row.state, row.client);
            }
        }
        text
    }
}
