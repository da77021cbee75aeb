//! The facts that every machine of a worker may know: its number, the configuration, its counters.

use std::sync::Arc;

use config::{Config, UserSettings};

use crate::ids::{Identity, Micros, WorkerId, micros};
use crate::settings::PoolSettings;
use crate::values::SharedVars;
use crate::vars::TrackedNames;

/// The way in which Weir shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// SIGINT: no server is linked any more; Weir ends when no server is in use.
    WaitForServers,
    /// SIGTERM: no new client is let in; Weir ends when the last client has left.
    WaitForClients,
    /// Another process has taken over: clients that could not move are served until they leave.
    TakenOver,
}

impl Drain {
    /// Is a client refused that connects now?
    pub(crate) fn turns_newcomers_away(self) -> bool {
        match self {
            Self::WaitForServers | Self::WaitForClients => true,
            // A client in the middle of its login cannot be handed over.
            Self::TakenOver => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: WorkerId,
    pub(crate) config: Arc<Config>,
    pub(crate) names: Arc<TrackedNames>,
    pub(crate) shared_vars: SharedVars,
    /// Counts messages, connections and cancel requests of this worker; never 0.
    pub(crate) serial: u64,
    /// A secret of this worker. Salts of unknown users and tags of cancel keys are derived from it.
    pub(crate) seed: [u8; 32],
    pub(crate) drain: Option<Drain>,
    /// Another process has taken over. Backends that start later go to its lobbies.
    pub(crate) has_successor: bool,
    /// Should the next tick disconnect stalled logins that count in a client limit?
    pub(crate) places_wanted: bool,
    /// Has any user its own limits on waiting or idle clients?
    pub(crate) limits_users: bool,
}

impl Context {
    pub(crate) fn new(worker: WorkerId, config: Arc<Config>, seed: [u8; 32]) -> Self {
        Self {
            worker,
            names: Arc::new(TrackedNames::new(&config.global.track_extra_parameters)),
            shared_vars: SharedVars::default(),
            serial: 0,
            seed,
            drain: None,
            has_successor: false,
            places_wanted: false,
            limits_users: limits_users(&config),
            config,
        }
    }

    pub(crate) fn reload(&mut self, config: Arc<Config>) {
        self.limits_users = limits_users(&config);
        self.config = config;
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns `client_idle_timeout` of the client's user, else the global one. `identity`: the
    /// client's.
    pub(crate) fn idle_limit(&self, identity: &Identity) -> Micros {
        let own = self.personal(identity).and_then(|user| user.client_idle_timeout);
        micros(own.unwrap_or(self.config.global.client_idle_timeout))
    }

    /// Returns `query_wait_timeout` of the client's user, else of its database, else the global one.
    /// `pool`: the settings of the client's pool.
    pub(crate) fn wait_limit(&self, identity: &Identity, pool: Option<&PoolSettings>) -> Micros {
        let own = self.personal(identity).and_then(|user| user.query_wait_timeout);
        own.map_or(pool.map_or(0, |pool| pool.query_wait_timeout), micros)
    }

    /// Returns the settings of the user that the client logged in as, who may differ from the
    /// pool's. The name is looked up only if any user has such limits.
    fn personal(&self, identity: &Identity) -> Option<&UserSettings> {
        self.limits_users.then(|| self.config.users.get(&identity.user)).flatten()
    }
}

fn limits_users(config: &Config) -> bool {
    let has = |user: &UserSettings| {
        user.query_wait_timeout.is_some() || user.client_idle_timeout.is_some()
    };
    config.users.values().any(has)
}
