//! Spare servers: when nothing has happened for a while, each pool has as many as it should.

use config::Spares;
use engine::pool::{Gate, Pool};

use super::World;
use crate::exchange::Transport;
use crate::net::ServerSocket;

/// The time that pools have to open and close servers. A demand is remembered for up to two seconds.
const PATIENCE: u64 = 4_000_000;
/// A server that is opened in the place of an old one may be one too many until a worker looks again.
const TURN: u64 = 500_000;

impl World {
    /// Called when nothing can happen now.
    pub(super) fn check_spares(&self) -> Result<(), String> {
        let is_disturbed = self.draining.is_some()
            || self.taking_over.is_some()
            || self.suspended.contains(&true)
            || self.orders.iter().any(|orders| !orders.is_empty());
        if is_disturbed || self.net.now < self.quiet_since + PATIENCE {
            return Ok(());
        }
        let is_new = |server: &ServerSocket| server.opened_at + TURN > self.net.now;
        let has_new = self.net.servers.iter().any(is_new);
        let shared = self.shared.borrow();
        let opens = |pool: &&Pool<Transport>| {
            pool.gate() == Gate::Open && pool.failure.is_none() && pool.counts().1 == 0
        };
        for pool in shared.pools.iter().filter(opens) {
            let Spares { min, max } = pool.settings.spares;
            let idle = pool.parked().count() as u32;
            let has_room = pool.settings.size == 0 || pool.places() < pool.settings.size;
            let is_used = pool.clients > 0 && pool.welcome.is_some();
            let lacks = idle < min && is_used && has_room && !self.setup.is_limited();
            let has_more = max > 0 && idle > max && pool.places() > pool.settings.min_size;
            let exceeds = has_more && !has_new;
            if lacks || exceeds {
                return Err(format!("{idle} spare servers in {:?}, {min} to {max}", pool.key));
            }
        }
        Ok(())
    }

    /// Have the pools had time enough to close their spare servers since then?
    pub(super) fn spares_had_time(&self, since: u64) -> bool {
        !self.setup.has_spares() || self.net.now > since + 2 * PATIENCE
    }
}
