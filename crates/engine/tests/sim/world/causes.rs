//! Nobody is thrown out without a cause: whenever the engine ends a client of its own will,
//! something must have happened that leaves no other way.

use config::PoolMode;
use engine::Drain;
use engine::report::{ServerPlace, ServerState};
use engine::shell::Mail;

use super::{Action, World};
use crate::client::Phase;
use crate::net::Place;

impl World {
    /// Before each step: whom may the engine throw out in it?
    pub(super) fn find_excuses(&mut self, action: Action) {
        self.net.clients.iter_mut().for_each(|client| client.excused = false);
        for at in 0..self.net.servers.len() {
            let server = &self.net.servers[at];
            let Place::Table(worker, id) = server.place else { continue };
            let connects = matches!(action, Action::Connect(its) if its == at);
            if !server.backend.is_gone() && !connects {
                continue;
            }
            // A server that is asked first whether it lives is replaced unnoticed.
            let excused = !(server.died_idle && self.setup.checks_always());
            let Some(client) = self.engines[worker].client_of(id).filter(|_| excused) else {
                continue;
            };
            let report = self.engines[worker].report(self.net.now);
            let row = report.servers.iter().find(|row| row.place == ServerPlace::Table(id));
            let is_used = row.is_some_and(|row| row.state != ServerState::Tested);
            if let (true, Some(found)) = (is_used, self.net.client_slots[worker].get(&client.0)) {
                self.net.clients[*found].excused = true;
                // What PostgreSQL said last may reach it, too.
                self.clients[*found].may_end = true;
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
        self.excuse_waiting();
    }

    /// Whose pool has no server, and has just failed to get one.
    fn excuse_waiting(&mut self) {
        for pool in &self.shared.borrow().pools {
            let (servers, opening) = pool.counts();
            if pool.failure.is_none() || servers != opening {
                continue;
            }
            for (at, socket) in self.net.clients.iter_mut().enumerate() {
                let who = &self.clients[at].who;
                let here = who.database == pool.key.database && who.user == pool.key.user;
                socket.excused |= here;
            }
        }
    }

    /// After each step: had everybody who was thrown out given a cause?
    pub(super) fn check_causes(&mut self) -> Result<(), String> {
        if self.net.thrown_out.is_empty() {
            return Ok(());
        }
        self.excuse_waiting();
        for (at, reason) in std::mem::take(&mut self.net.thrown_out) {
            self.summary.thrown_out += 1;
            let client = &self.clients[at];
            let logs_in = matches!(client.phase, Phase::Login(_));
            let draining = match self.draining {
                None => false,
                Some(Drain::WaitForClients) => reason == "pooler is shutting down",
                Some(Drain::WaitForServers) => reason.ends_with("shutting down"),
            };
            let in_statement = self.setup.mode == PoolMode::Statement;
            let allowed = self.net.clients[at].excused
                || client.may_end
                || draining
                || (client.who.is_wrong && logs_in)
                || (in_statement && reason.contains("not allowed in statement"))
                || self.setup.may_expire(&reason);
            if !allowed {
                return Err(format!("client {at} was thrown out without a cause: {reason}"));
            }
            self.clients[at].may_end = true;
        }
        Ok(())
    }
}
