//! The facts that every machine of a worker may know: its number, the configuration, its counters.

use std::sync::Arc;

use config::{Config, UserSettings};

use crate::ids::WorkerId;
use crate::shell::Drain;
use crate::values::SharedVars;
use crate::vars::TrackedNames;

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
