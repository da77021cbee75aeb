//! No client is disconnected without a cause. If the engine disconnects a client, an event must
//! have happened that leaves no other way.

use config::PoolMode;
use engine::Drain;
use engine::report::ServerState;
use engine::shell::Mail;

use super::operator::Order;
use super::{Action, World};
use crate::client::{Client, Phase};
use crate::net::Place;

/// The log's reasons for closing servers that the operator does not want.
const BY_ORDER: [&str; 3] = ["pause mode", "connect string changed", "database removed"];

impl World {
    /// Before each step: finds the clients that the engine may disconnect in it.
    pub(super) fn find_excuses(&mut self, action: Action) {
        self.net.clients.iter_mut().for_each(|client| client.excused = false);
        for at in 0..self.net.servers.len() {
            let server = &self.net.servers[at];
            let Place::Table(worker, id) = server.place else { continue };
            let connects = matches!(action, Action::Connect(its) if its == at);
            if !server.backend.is_gone() && !connects {
                continue;
            }
            // A server that is checked before use is replaced without the client noticing.
            let excused = !(server.died_idle && self.setup.checks_always());
            let Some(client) = self.engines[worker].look().client_of(id).filter(|_| excused) else {
                continue;
            };
            let report = self.engines[worker].report(self.net.now);
            let row = report.servers.iter().find(|row| row.slot == Some(id));
            // A server that is being probed cannot be replaced.
            let is_tested = row.is_some_and(|row| row.state == ServerState::Tested);
            let is_used = row.is_some() && (!is_tested || self.setup.may_be_auto());
            if let (true, Some(found)) = (is_used, self.net.client_slots[worker].get(&client.0)) {
                self.net.clients[*found].excused = true;
                // PostgreSQL's last message may reach this client, too.
                self.clients[*found].may_end |= !connects;
            }
        }
        for (worker, queue) in self.shared.borrow().mail.iter().enumerate() {
            for (_, mail) in queue {
                if let Mail::Refuse { waiter, .. } = mail
                    && let Some(at) = self.net.client_slots[worker].get(&waiter.client.0)
                {
                    self.net.clients[*at].excused = true;
                }
            }
        }
        if let Action::Order(worker) = action {
            self.excuse_ordered(worker);
        }
        self.excuse_waiting();
    }

    /// Clients that the operator wants disconnected.
    fn excuse_ordered(&mut self, worker: usize) {
        let order = self.orders[worker].front();
        // Another client may have the slot now.
        let is_there = match order {
            Some(Order::KillClient(slot, serial)) => {
                let report = self.engines[worker].report(self.net.now);
                report.clients.iter().any(|row| row.id == *slot && row.serial == *serial)
            }
            _ => false,
        };
        for (client, socket) in self.clients.iter().zip(&mut self.net.clients) {
            socket.excused |= socket.worker == worker
                && match order {
                    Some(Order::Kill(name)) => client.who.database == *name,
                    Some(Order::KillClient(slot, _)) => is_there && socket.slot == Some(*slot),
                    Some(Order::EndSuspense) => true,
                    _ => false,
                };
        }
    }

    /// Clients whose pool has no server and has just failed to open one.
    fn excuse_waiting(&mut self) {
        for pool in &self.shared.borrow().pools {
            if pool.failure.is_none() || !pool.has_none_open() {
                continue;
            }
            for (at, socket) in self.net.clients.iter_mut().enumerate() {
                let who = &self.clients[at].who;
                socket.excused |= who.is_of(&pool.key, self.setup.forced_user(&who.database));
            }
        }
    }

    fn is_disabled(&self, client: &Client, reason: &str) -> bool {
        let database = client.who.database.as_str();
        self.net.disabled.contains(database)
            && reason == format!("database \"{database}\" is disabled")
    }

    /// After each step: was there a cause for every disconnected client?
    pub(super) fn check_causes(&mut self) -> Result<(), String> {
        if self.net.thrown_out.is_empty() {
            return Ok(());
        }
        self.excuse_waiting();
        for (at, reason) in std::mem::take(&mut self.net.thrown_out) {
            self.summary.thrown_out += 1;
            let client = &self.clients[at];
            let draining = match self.draining {
                None | Some(Drain::TakenOver) => false,
                Some(Drain::WaitForClients) => reason == "pooler is shutting down",
                Some(Drain::WaitForServers) => reason.ends_with("shutting down"),
            };
            let lost_session =
                client.may_lose_session && reason.starts_with("server refused session settings: ");
            let in_statement = self.setup.mode == PoolMode::Statement;
            let allowed = self.net.clients[at].excused
                || client.may_end
                || draining
                || lost_session
                || client.who.is_wrong
                || self.is_disabled(client, &reason)
                || (in_statement && reason.contains("not allowed in statement"))
                || self.setup.may_expire(&reason);
            // A server that was closed by an order has not failed.
            let blames =
                BY_ORDER.iter().any(|why| reason.contains(&format!("cached error: {why}")));
            if !allowed || blames {
                return Err(format!("client {at} was thrown out without a cause: {reason}"));
            }
            let client = &mut self.clients[at];
            client.may_end = true;
            let ordered = matches!(reason.as_str(), "suspend_timeout" | "admin forced disconnect");
            if ordered && !matches!(client.phase, Phase::Running) {
                // A message in the middle of the login is not the answer to its requests.
                client.phase = Phase::Leaving;
            }
        }
        Ok(())
    }
}
