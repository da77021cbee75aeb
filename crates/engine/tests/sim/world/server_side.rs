//! Actions of servers, and of the shell with their sockets.

use super::{Action, Side, World};
use crate::net::{Place, READ_LEN_MAX};
use crate::reference::show_all;
use crate::sabotage::Sabotage;
use engine::server::CloseReason;

impl World {
    pub(super) fn possible_for_server(&mut self, at: usize, actions: &mut Vec<Action>) {
        let server = &self.net.servers[at];
        if let Place::Table(worker, id) = server.place {
            if server.connecting {
                return actions.push(Action::Connect(at));
            }
            if !server.pending.is_empty() && server.up.room() > 0 {
                actions.push(Action::ShellFlushesServer(at));
            }
            // The server is not read while the client's kernel buffer is full.
            let stalled = self.engines[worker].look().client_of(id).is_some_and(|client| {
                let at = self.net.client_slots[worker].get(&client.0);
                at.is_some_and(|at| !self.net.clients[*at].pending.is_empty())
            });
            let is_left = self.suspended[worker] && self.engines[worker].look().server_at_rest(id);
            if server.latch && !stalled && !is_left {
                actions.push(Action::ShellReadsServer(at));
            }
        }
        let server = &self.net.servers[at];
        let is_heard = server.stalled_until <= self.net.now;
        if server.latch && is_heard && matches!(server.place, Place::Detached { .. }) {
            actions.push(Action::ShellHearsParked(at));
        }
        if server.stalled_until > self.net.now {
            return;
        }
        let backend = &server.backend;
        if !backend.out.is_empty() && server.down.room() > 0 {
            actions.push(Action::ServerWrites(at));
        }
        if backend.is_gone() || server.connecting {
            return;
        }
        let has_input = !server.up.data.is_empty() || server.up.is_at_end();
        if has_input && backend.out.is_empty() {
            actions.push(Action::ServerReads(at));
        }
        if server.wakes_at.is_some_and(|moment| self.net.now >= moment) {
            actions.push(Action::ServerWakes(at));
        }
        if self.setup.chatty && backend.is_running() && self.stormy && self.rng.once_in(500) {
            actions.push(Action::ServerChats(at));
        }
        if backend.has_news() {
            actions.push(Action::ServerTellsNews(at));
        }
        let idle = matches!(server.place, Place::Detached { .. });
        if self.setup.sluggish && self.stormy && self.rng.once_in(2000) {
            actions.push(Action::ServerStalls(at));
        }
        let rarity = match idle {
            true => 120,
            false if backend.ears.is_listener() => 400,
            false => 4000,
        };
        if self.setup.stormy && self.stormy && self.rng.once_in(rarity) {
            actions.push(Action::ServerDies(at));
        }
    }

    pub(super) fn connect(&mut self, at: usize) {
        let fails = self.setup.stormy && self.stormy && self.rng.once_in(8);
        let server = &mut self.net.servers[at];
        let Place::Table(worker, id) = server.place else { return };
        server.connecting = false;
        let (engine, mut io) = self.engine(worker);
        if fails {
            engine.server_closed(id, CloseReason::ConnectFailed, &mut io);
        } else {
            engine.server_connected(id, &mut io);
        }
    }

    pub(super) fn shell_reads_server(&mut self, at: usize) {
        let hides = self.net.harms(Sabotage::HideEnd, 1);
        let server = &mut self.net.servers[at];
        let Place::Table(worker, id) = server.place else { return };
        if server.down.is_at_end() {
            server.latch = false;
            if hides {
                return;
            }
            let (engine, mut io) = self.engine(worker);
            return engine.server_closed(id, CloseReason::Lost, &mut io);
        }
        let available = server.down.data.len().min(READ_LEN_MAX);
        if available == 0 {
            server.latch = false;
            let (engine, mut io) = self.engine(worker);
            return engine.server_quiet(id, &mut io);
        }
        let bytes = server.down.read(self.rng.chunk(available));
        server.latch = !server.down.data.is_empty() || server.down.ended;
        // A server that has just sent something is not checked before use.
        server.died_idle = false;
        self.net.log(|| format!("  from server {at}: {}", show_all(&bytes)));
        let (engine, mut io) = self.engine(worker);
        engine.server_bytes(id, &bytes, &mut io);
    }

    pub(super) fn shell_hears_parked(&mut self, at: usize) {
        let Place::Detached { home, pool } = self.net.servers[at].place else { return };
        self.net.servers[at].latch = false;
        let (engine, mut io) = self.engine(home);
        engine.parked_readable(pool, |own| *own == at, &mut io);
    }

    pub(super) fn server_reads(&mut self, at: usize) {
        let server = &mut self.net.servers[at];
        if server.up.is_at_end() {
            server.backend.die(None);
            return self.after_death(at);
        }
        let count = self.rng.chunk(server.up.data.len());
        let bytes = server.up.read(count);
        server.backend.feed(&bytes);
        self.run_server(at);
    }

    pub(super) fn run_server(&mut self, at: usize) {
        let now = self.net.now;
        let skips = self.net.sabotage == Some(Sabotage::SkipReset);
        let server = &mut self.net.servers[at];
        server.backend.skips_reset = skips;
        while server.backend.step().is_some() {}
        // It commits or begins, and dies before it sends the first byte of the answer.
        let begins = std::mem::take(&mut server.backend.begins_lone);
        let mute = self.setup.stormy && self.stormy;
        let mute = mute && (begins || !server.backend.inserted.is_empty());
        if mute && self.rng.once_in(if begins { 3 } else { 20 }) {
            server.backend.out.clear();
            server.backend.die(None);
        }
        server.wakes_at =
            server.backend.sleep().map(|millis| server.wakes_at.unwrap_or(now + millis * 1000));
        if server.backend.is_gone() {
            self.after_death(at);
        }
    }

    pub(super) fn server_writes(&mut self, at: usize) {
        let server = &mut self.net.servers[at];
        let count = self.rng.chunk(server.backend.out.len()).min(server.down.room());
        let (count, dies) = self.speak(Side::Server, count);
        let server = &mut self.net.servers[at];
        let taken = server.down.write(&server.backend.out[..count]);
        server.backend.out.drain(..taken);
        server.latch = true;
        if dies {
            server.backend.out.clear();
            server.backend.die(None);
        }
        if server.backend.is_gone() {
            self.after_death(at);
        }
    }

    /// Lets a server die at any byte that it sends.
    pub(super) fn server_dies(&mut self, at: usize) {
        self.net.log(|| format!("server {at} dies"));
        let last_words = self.rng.once_in(2);
        let lost = self.rng.below(self.net.servers[at].backend.out.len() + 1);
        let backend = &mut self.net.servers[at].backend;
        if last_words && backend.is_running() {
            backend.die(Some(("57P01", "terminating connection due to administrator command")));
        } else {
            backend.out.truncate(lost);
            backend.die(None);
        }
        self.after_death(at);
    }

    fn after_death(&mut self, at: usize) {
        let server = &mut self.net.servers[at];
        if !server.up.broken {
            let ears = &server.backend.ears;
            if ears.is_listener() {
                self.setup.bus.count_loss();
            } else if self.setup.keeps_clients && ears.has_listened() {
                self.setup.bus.count_deafened();
                if let Place::Table(worker, id) = server.place
                    && let Some(client) = self.engines[worker].look().client_of(id)
                    && let Some(client) = self.net.client_slots[worker].get(&client.0)
                {
                    self.clients[*client].hearing.lost_server(ears.ended());
                }
            }
            server.died_idle = matches!(server.place, Place::Detached { .. });
            // The news takes time to arrive.
            server.stalled_until = self.net.now + self.rng.below(10_000) as u64;
        }
        server.wakes_at = None;
        server.up.broken = true;
        server.up.data.clear();
        if server.backend.out.is_empty() {
            server.down.ended = true;
            server.latch = true;
        }
    }
}
