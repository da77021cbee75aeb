//! The facts that every machine of a worker may know: its number, the configuration, its counters.

use std::sync::Arc;

use config::{Config, UserSettings};

use crate::ids::WorkerId;
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
}

fn limits_users(config: &Config) -> bool {
    let has = |user: &UserSettings| {
        user.query_wait_timeout.is_some() || user.client_idle_timeout.is_some()
    };
    config.users.values().any(has)
}
