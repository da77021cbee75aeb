//! One worker's clients, servers and pools, and access to them.
//!
//! `events` receives the events of the shell and passes each to one machine. `work` has the queue
//! of follow-up work, and does it. `tick` checks timeouts, `mail` reads mail of other workers. `notes`
//! notes facts for the shell.
//!
//! The machines are in the folders beside this one. A machine borrows one client, one server or one
//! pool, and returns what follows. These files carry it out:
//!
//! | file | carries out what follows for |
//! |---|---|
//! | `login` | clients that log in |
//! | `seats`, `opening` | servers that are opened: the limits, then the login |
//! | `linking` | clients and servers that are linked, prepared, unlinked and cleaned |
//! | `placing` | servers without a client |
//! | `relay` | messages between a client and its server |
//! | `sessions` | verdicts on what a transaction has left (auto mode) |
//! | `routing` | requests that standbys may run |
//! | `leaving` | clients that end, and their servers |
//! | `losses` | servers that end, and their clients |
//! | `lobbies` | servers and clients of direct pools |
//! | `cancels` | cancel requests and signals |
//! | `listeners` | LISTEN, which moves from servers to listening connections |
//! | `restart` | an online restart |
//! | `orders` | an operator's orders |
//! | `sweeps`, `rerouting` | all clients that something concerns |
//!
//! Some of these files have a type that borrows the tables that it needs, and no others. `Seats` has
//! the servers without clients, `Overdue` the limits of time, `Paths` the requests that standbys may
//! run. Such a type returns what `Engine` has to do next.
//!
//! `tables` has the clients and the servers, `pools` the pools, `views` a cache of them. `look` reads
//! all of these for an operator and the shell, `invariants` checks them in tests.

use std::sync::Arc;

use config::Config;

use crate::cancel::keys::Keys;
use crate::cancel::requests::Cancels;
use crate::context::Context;
use crate::ids::{Identity, WorkerId};
use crate::lifecycle::attend::Lobbies;
use crate::login::auth::Credentials;
use crate::notify::connection::Listeners;
use crate::operator::failures::Failures;
use crate::operator::transactions::Transactions;
use crate::routing::Sessions;
use crate::shell::Exchange;
use crate::watch::Watch;

mod cancels;
mod events;
mod invariants;
mod leaving;
mod linking;
mod listeners;
mod lobbies;
mod login;
mod look;
mod losses;
mod mail;
mod notes;
mod opening;
mod orders;
mod overdue;
mod placing;
pub(crate) mod pools;
mod relay;
mod rerouting;
mod restart;
mod routing;
mod seats;
mod sessions;
mod sweeps;
pub(crate) mod tables;
mod tick;
pub(crate) mod views;
pub(crate) mod work;

use pools::Pools;
use tables::{Clients, Servers};

/// Maximal number of texts that a worker remembers, at 40 bytes each.
const TEXTS_MAX: usize = 4096;

#[derive(Debug)]
pub struct Engine<X> {
    pub(crate) context: Context,
    pub(crate) clients: Clients,
    pub(crate) servers: Servers,
    pub(crate) pools: Pools<X>,
    pub(crate) credentials: Credentials,
    pub(crate) transactions: Transactions,
    /// The signs of known texts (`pool_mode = auto`).
    pub(crate) texts: sql::Cache,
    pub(crate) keys: Keys,
    pub(crate) cancels: Cancels,
    pub(crate) nobody: Arc<Identity>,
    /// Should the next tick look for pools to fill without a client (`min_pool_size`)?
    pub(crate) warms_pools: bool,
    pub(crate) listeners: Listeners,
    /// Follow-up work of the present event.
    pub(crate) work: work::Queue,
    /// A buffer for assembling output; kept for its capacity.
    pub(crate) scratch: Vec<u8>,
    pub(crate) messages: u64,
    /// Set if `fingerprints` or `advise` is.
    pub(crate) watch: Option<Box<Watch>>,
    pub(crate) failures: Failures,
    /// The routed clients' last writes and standbys.
    pub(crate) sessions: Sessions,
    /// The verdicts on known texts, for routing; empty until one is asked for.
    pub(crate) verdicts: Option<Box<sql::Cache<Option<sql::Verdict>>>>,
    pub(crate) lobbies: Lobbies,
}

impl<X: Exchange> Engine<X> {
    pub fn new(worker: WorkerId, config: Arc<Config>, exchange: X, seed: [u8; 32]) -> Self {
        Self {
            clients: Clients::default(),
            servers: Servers::default(),
            pools: Pools::new(exchange),
            credentials: Credentials::default(),
            transactions: Transactions::new(config.global.connection_timings),
            texts: sql::Cache::new(
                u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8])),
                TEXTS_MAX,
            ),
            keys: Keys::default(),
            cancels: Cancels::default(),
            nobody: Arc::new(Identity { database: "(nodb)".into(), user: "(nouser)".into() }),
            warms_pools: true,
            listeners: Listeners::default(),
            work: work::Queue::default(),
            scratch: Vec::new(),
            messages: 0,
            watch: Watch::configured(None, &config),
            failures: Failures::default(),
            sessions: Sessions::default(),
            verdicts: None,
            lobbies: Lobbies::default(),
            context: Context::new(worker, config, seed),
        }
    }

    /// Returns the number of messages read from clients and servers.
    #[inline]
    pub fn messages(&self) -> u64 {
        self.messages
    }
}
