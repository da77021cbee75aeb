//! PAUSE and similar orders of an operator to a running pooler, and how long they take.
//!
//! An order has two steps. First the pools are changed under their locks (`Switches`), so no worker
//! acts against the order. Then mail tells the workers to close what is of no use now. A task that
//! waits for the effect polls the pools some dozen times a second. Texts are those of PgBouncer's
//! console.

use std::{sync::atomic::Ordering, time::Duration};

use engine::{
    pool::Pool,
    switches::{DatabaseSwitches, Switches},
};
use tokio::time::{Instant, sleep};

use super::Controller;
use crate::{
    exchange::{
        hub::lock, lobby_door::LobbyRequest, mail::ShellMail, reports::IN_LOBBY,
        transport::Transport,
    },
    log,
};

/// The interval of checks whether an order is complete.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// The database that is the console.
const CONSOLE: &str = "pgbouncer";

/// An operator's order. Names are those of databases as clients use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Complete when no server is left.
    Pause(Option<String>),
    Resume(Option<String>),
    /// Complete when no message is half read or half sent.
    Suspend,
    Kill(Option<String>),
    /// Names a client by the lower 31 bits of its number.
    KillClient(u64),
    Reconnect(Option<String>),
    /// Complete when the servers to be replaced are closed.
    WaitClose(Option<String>),
    Disable(String),
    Enable(String),
    /// Has Weir replace no lost primary by itself, in one cluster or in all.
    FailoverPause(Option<String>),
    FailoverResume(Option<String>),
    /// Removes a silent member from the clusters that have it.
    FailoverForget(String),
    /// Makes a node the primary of the database's cluster. Complete when it is.
    Switchover {
        database: String,
        node: String,
    },
    /// Makes a node the primary of its cluster. Complete when it is.
    Promote {
        cluster: String,
        node: String,
    },
    /// Takes a standby out of use.
    Detach {
        cluster: String,
        node: String,
    },
    /// Ends this.
    Attach {
        cluster: String,
        node: String,
    },
}

/// Why an order is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("already suspended/paused")]
    Halted,
    #[error("pooler is shutting down")]
    ShuttingDown,
    #[error("pooler is not paused/suspended")]
    NotHalted,
    #[error("database {0} is not paused")]
    NotPaused(String),
    #[error("no such database: {0}")]
    NoDatabase(String),
    #[error("cannot {0} admin db: {CONSOLE}")]
    Console(&'static str),
    #[error("cannot suspend with paused databases")]
    PausedDatabases,
    #[error("client not found")]
    NoClient,
    /// An order about a node of a cluster.
    #[error("{0}")]
    Node(String),
    /// A RESUME has ended the state that was waited for.
    #[error("RESUME came before this order was carried out")]
    Undone,
}

impl Controller {
    /// Carries out an order and returns when it is complete. Dropping the future does not undo the
    /// order.
    ///
    /// # Errors
    /// When the order does not fit the present state.
    pub async fn order(&self, order: Order) -> Result<(), OrderError> {
        match order {
            Order::Pause(None) => {
                self.begin_pause()?;
                self.until_paused(None).await
            }
            Order::Pause(Some(database)) => {
                self.switch(|switches| {
                    refuse_if_halted(switches)?;
                    self.refuse_unknown(&database, "pause")?;
                    switches.database_mut(&database).paused = true;
                    Ok(())
                })?;
                self.until_paused(Some(&database)).await
            }
            Order::Resume(None) => self.resume_all(),
            Order::Resume(Some(database)) => self.resume(&database),
            Order::Suspend => self.suspend().await,
            Order::Kill(database) => self.kill(database).await,
            Order::KillClient(id) => self.kill_client(id).await,
            Order::Reconnect(database) => self.reconnect(database.as_deref()),
            Order::WaitClose(database) => self.wait_close(database.as_deref()).await,
            Order::Disable(database) => {
                self.refuse_unknown(&database, "disable")?;
                self.switch(|switches| {
                    switches.database_mut(&database).disabled = true;
                    Ok(())
                })
            }
            Order::Enable(database) => self.enable(&database),
            Order::FailoverPause(cluster) => {
                self.pause_failovers(cluster.as_deref(), true).await.map_err(OrderError::Node)
            }
            Order::FailoverResume(cluster) => {
                self.pause_failovers(cluster.as_deref(), false).await.map_err(OrderError::Node)
            }
            Order::FailoverForget(member) => {
                self.forget_member(&member).await.map_err(OrderError::Node)
            }
            Order::Switchover { database, node } => {
                self.switch_over(&database, &node).await.map_err(OrderError::Node)
            }
            Order::Promote { cluster, node } => {
                self.promote(&cluster, &node).await.map_err(OrderError::Node)
            }
            Order::Detach { cluster, node } => {
                self.set_detached(&cluster, &node, true).await.map_err(OrderError::Node)
            }
            Order::Attach { cluster, node } => {
                self.set_detached(&cluster, &node, false).await.map_err(OrderError::Node)
            }
        }
    }

    /// Can an order be tried in the present state?
    ///
    /// # Errors
    /// When everything is halted already, or the order does not fit a paused database.
    pub fn order_fits(&self, order: &Order) -> Result<(), OrderError> {
        let switches = self.0.shared.hub.switches();
        match order {
            Order::Pause(_) | Order::Kill(_) => refuse_if_halted(&switches),
            Order::Suspend => {
                refuse_if_halted(&switches)?;
                refuse_if_paused(&switches)
            }
            Order::Resume(_)
            | Order::KillClient(_)
            | Order::Reconnect(_)
            | Order::WaitClose(_)
            | Order::Disable(_)
            | Order::Enable(_)
            | Order::FailoverPause(_)
            | Order::FailoverResume(_)
            | Order::FailoverForget(_)
            | Order::Switchover { .. }
            | Order::Promote { .. }
            | Order::Detach { .. }
            | Order::Attach { .. } => Ok(()),
        }
    }

    /// Begins a PAUSE without waiting for its end.
    pub(crate) fn begin_pause(&self) -> Result<(), OrderError> {
        self.switch(|switches| {
            refuse_if_halted(switches)?;
            switches.paused = true;
            Ok(())
        })
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.0.shared.hub.switches().suspended
    }

    /// RESUME. Databases that were paused by name stay paused. It also works while a shutdown waits
    /// for clients. Otherwise paused clients would wait forever.
    ///
    /// # Errors
    /// When there is nothing to resume, or Weir is shutting down.
    pub fn resume_all(&self) -> Result<(), OrderError> {
        let draining = self.0.shared.draining.load(Ordering::Acquire);
        self.switch(|switches| {
            let is_halted = switches.is_halted() && !switches.held;
            if switches.closed || draining && !is_halted {
                return Err(OrderError::ShuttingDown);
            }
            if !is_halted {
                return Err(OrderError::NotHalted);
            }
            switches.paused = false;
            switches.suspended = false;
            Ok(())
        })?;
        self.0.shared.resume();
        Ok(())
    }

    /// Resumes a suspended pooler when the last operator has left: no one else could.
    pub fn console_abandoned(&self) {
        if self.is_suspended() {
            log!("admin disappeared when suspended, doing RESUME");
            // Another RESUME may have been faster.
            let _ = self.resume_all();
        }
    }

    fn resume(&self, database: &str) -> Result<(), OrderError> {
        self.switch(|switches| {
            self.refuse_unregistered(database, switches)?;
            if !switches.database(database).paused {
                return Err(OrderError::NotPaused(database.to_owned()));
            }
            switches.database_mut(database).paused = false;
            Ok(())
        })
    }

    fn enable(&self, database: &str) -> Result<(), OrderError> {
        self.switch(|switches| {
            self.refuse_unregistered(database, switches)?;
            if database == CONSOLE {
                // PgBouncer's word for both.
                return Err(OrderError::Console("disable"));
            }
            switches.database_mut(database).disabled = false;
            Ok(())
        })
    }

    async fn suspend(&self) -> Result<(), OrderError> {
        let shared = &self.0.shared;
        self.switch(|switches| {
            refuse_if_halted(switches)?;
            refuse_if_paused(switches)?;
            switches.suspended = true;
            Ok(())
        })?;
        shared.gauges.iter().for_each(|gauge| gauge.quiet.store(false, Ordering::Release));
        shared.tell_all(|| ShellMail::Suspend);
        shared.lobby.suspend();
        let patience = Instant::now() + self.config().global.suspend_timeout;
        let mut forced = false;
        let is_quiet = || {
            let mut workers = shared.gauges.iter();
            workers.all(|gauge| gauge.quiet.load(Ordering::Acquire))
                && shared.lobby.quiet.load(Ordering::Acquire)
        };
        while !is_quiet() {
            if !self.is_suspended() {
                return Err(OrderError::Undone);
            }
            if !forced && Instant::now() >= patience {
                forced = true;
                shared.tell_all(|| ShellMail::EndSuspense);
                shared.lobby.send(LobbyRequest::EndSuspense);
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn kill(&self, database: Option<String>) -> Result<(), OrderError> {
        let shared = &self.0.shared;
        let pools = shared.hub.pools();
        let databases: Vec<String> = match &database {
            Some(database) => vec![database.clone()],
            None => pools.iter().map(|pool| lock(pool).key.database.clone()).collect(),
        };
        shared.hub.switch(|switches| {
            refuse_if_halted(switches)?;
            if let Some(database) = &database {
                self.refuse_unknown(database, "kill")?;
            }
            for database in &databases {
                switches.database_mut(database).paused = true;
            }
            Ok(())
        })?;
        // Before the workers read the switches: parked servers must end by KILL and not by a pause.
        shared.tell_all(|| ShellMail::Kill(databases.clone().into()));
        shared.tell_all(|| ShellMail::Review);
        self.until_workers_know().await;
        Ok(())
    }

    async fn kill_client(&self, id: u64) -> Result<(), OrderError> {
        let snapshot = self.snapshot().await;
        let shown = |serial: u64| serial & i32::MAX as u64;
        let found = snapshot.clients.iter().find(|client| shown(client.row.serial) == id);
        let found = found.ok_or(OrderError::NoClient)?;
        let (client, serial) = (found.row.id, found.row.serial);
        if client == IN_LOBBY {
            self.0.shared.lobby.send(LobbyRequest::KillClient(serial));
        } else {
            let mailbox = self.0.shared.hub.mailbox(found.worker);
            mailbox.post(ShellMail::KillClient { client, serial });
        }
        self.until_workers_know().await;
        Ok(())
    }

    fn reconnect(&self, database: Option<&str>) -> Result<(), OrderError> {
        if let Some(database) = database {
            self.refuse_unknown(database, "reconnect")?;
        }
        for pool in self.0.shared.hub.pools() {
            let mut pool = lock(&pool);
            if database.is_none_or(|name| name == pool.key.database) {
                pool.replace_servers();
            }
        }
        self.0.shared.tell_all(|| ShellMail::Review);
        Ok(())
    }

    async fn wait_close(&self, database: Option<&str>) -> Result<(), OrderError> {
        if let Some(database) = database {
            self.refuse_unknown(database, "wait in")?;
        }
        while !self.all_pools(database, |pool| pool.obsolete() == 0) {
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Changes the switches, and has the workers act on the change.
    fn switch(
        &self,
        change: impl FnOnce(&mut Switches) -> Result<(), OrderError>,
    ) -> Result<(), OrderError> {
        let shared = &self.0.shared;
        shared.hub.switch(change)?;
        shared.tell_all(|| ShellMail::Review);
        Ok(())
    }

    /// Refuses a database that is neither configured nor can be made from `*`. The console's name
    /// is refused, too.
    fn refuse_unknown(&self, database: &str, what: &'static str) -> Result<(), OrderError> {
        if database == CONSOLE {
            return Err(OrderError::Console(what));
        }
        match self.config().database(database) {
            Some(_) => Ok(()),
            None => Err(OrderError::NoDatabase(database.to_owned())),
        }
    }

    /// Refuses a database that is neither configured nor was made from `*` before.
    fn refuse_unregistered(&self, database: &str, switches: &Switches) -> Result<(), OrderError> {
        let known = database == CONSOLE
            || self.config().databases.contains_key(database)
            || switches.database(database) != DatabaseSwitches::default()
            || !self.all_pools(Some(database), |_| false);
        if known { Ok(()) } else { Err(OrderError::NoDatabase(database.to_owned())) }
    }

    async fn until_paused(&self, database: Option<&str>) -> Result<(), OrderError> {
        let holds = || {
            let switches = self.0.shared.hub.switches();
            switches.paused || database.is_some_and(|name| switches.database(name).paused)
        };
        while !self.all_pools(database, |pool| pool.counts().0 == 0) {
            if !holds() {
                return Err(OrderError::Undone);
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn all_pools(&self, database: Option<&str>, test: impl Fn(&Pool<Transport>) -> bool) -> bool {
        self.0.shared.hub.pools().iter().all(|pool| {
            let pool = lock(pool);
            database.is_some_and(|name| name != pool.key.database) || test(&pool)
        })
    }

    /// Mail is read in order, so a worker that has answered has carried out earlier orders.
    async fn until_workers_know(&self) {
        self.snapshot().await;
    }
}

fn refuse_if_halted(switches: &Switches) -> Result<(), OrderError> {
    if switches.is_halted() { Err(OrderError::Halted) } else { Ok(()) }
}

fn refuse_if_paused(switches: &Switches) -> Result<(), OrderError> {
    if switches.any_database_paused() { Err(OrderError::PausedDatabases) } else { Ok(()) }
}
