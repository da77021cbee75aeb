//! The lobbies' part of a report for the console and the metrics.

use std::collections::HashMap;

use engine::{ids::PoolId, settings::PoolKey, stats::Stats};

use super::{Lobby, Service};
use crate::exchange::lobby_door::{LobbyReport, LobbyServer};

impl Service {
    pub(super) fn report(&self) -> LobbyReport {
        let mut all = LobbyReport { stats: self.past_stats(), ..LobbyReport::default() };
        for (_, lobby) in &self.lobbies {
            let serials = self.serials(lobby);
            let serial_of = |line: u32| serials.get(&line).copied().unwrap_or(0);
            let rows = lobby.guests.rows(&lobby.room, &self.shared, &serial_of);
            all.servers.extend(serials.values().map(|serial| (*serial, LobbyServer::default())));
            let keeps = |(line, _): &(&u32, &u64)| lobby.room.keeps(**line);
            let keeping: HashMap<u64, u32> =
                serials.iter().filter(keeps).map(|(line, serial)| (*serial, *line)).collect();
            for client in rows {
                let server = client.row.server;
                if server != 0 {
                    let line = keeping.get(&server);
                    let found = LobbyServer {
                        client: client.pointer,
                        kept_since: line.map(|_| client.row.request_at),
                        is_too_large: line.is_some_and(|line| lobby.room.is_too_large(*line)),
                    };
                    all.servers.insert(server, found);
                }
                all.clients.push(client);
            }
            all.stats.push((lobby.pool, self.stats(lobby)));
        }
        all
    }

    /// Returns the serial number of the server at each line.
    fn serials(&self, lobby: &Lobby) -> HashMap<u32, u64> {
        let used = lobby.lines.iter().enumerate();
        let serial = |number: &usize| Some(self.backends[*number].role.as_ref()?.server.serial);
        used.filter_map(|(line, number)| Some((line as u32, serial(number.as_ref()?)?))).collect()
    }

    /// Returns the counters of a lobby.
    pub(super) fn stats(&self, lobby: &Lobby) -> Stats {
        let mut all = lobby.past;
        all += lobby.guests.stats(&lobby.room);
        for line in (0..lobby.lines.len()).map(|line| line as u32) {
            all += lobby.sums(line);
        }
        all - lobby.before
    }

    /// Returns the counters of the lobbies that have ended, of the pools that are there still.
    fn past_stats(&self) -> Vec<(PoolId, Stats)> {
        let is_there = |pool: PoolId, key: &PoolKey| self.pool(pool, |now| now.key == *key);
        let past = self.past.iter().filter(|(pool, key, _)| is_there(*pool, key) == Some(true));
        past.map(|(pool, _, stats)| (*pool, *stats)).collect()
    }

    /// Keeps the counters of a lobby that ends.
    pub(super) fn bequeath(&mut self, lobby: &Lobby) {
        let stats = self.stats(lobby);
        self.past.retain(|(pool, key, _)| *pool != lobby.pool || *key == lobby.key);
        match self.past.iter_mut().find(|(pool, ..)| *pool == lobby.pool) {
            Some((_, _, past)) => *past += stats,
            None => self.past.push((lobby.pool, lobby.key.clone(), stats)),
        }
    }
}
