//! The passwords that programs have printed (`password_command`), and the logins that wait for one.

pub(crate) mod renew;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use config::PasswordCommand;
use engine::{auth::Password, records::PasswordRecord, settings::command_text, shell::Issued};
use tokio::{sync::Notify, time::Instant};

use crate::exchange::{hub::lock, requests::PasswordRequest};

/// The programs that print passwords, and the passwords.
#[derive(Debug, Default)]
pub(crate) struct Passwords {
    sources: Mutex<HashMap<PasswordCommand, Arc<Source>>>,
    /// The configuration may have changed.
    changed: Notify,
    /// The passwords of the process before, after an online restart, until they are used.
    inherited: Mutex<Vec<PasswordRecord>>,
}

/// A database's password, for the metrics.
#[derive(Clone, Debug)]
pub struct PasswordInfo {
    pub database: String,
    /// Runs of the program that failed.
    pub failures: u64,
    /// The time until the end of the password; zero if it has ended, or there is none.
    pub remaining: Duration,
}

/// One program.
#[derive(Debug, Default)]
struct Source {
    state: Mutex<State>,
    /// PostgreSQL has refused the password.
    wake: Notify,
    /// There is a later password.
    superseded: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The last password that the program has printed, and its end.
    current: Option<(Issued, Instant)>,
    /// The numbers of earlier passwords, and their ends, which are still to come.
    superseded: VecDeque<(u64, Instant)>,
    /// Logins that wait for a password.
    waiting: Vec<PasswordRequest>,
    /// The reason of the last run, if it failed.
    failing: Option<String>,
    failures: u64,
    /// The end of the last password was logged.
    end_is_known: bool,
}

impl Passwords {
    pub(crate) fn new(inherited: Vec<PasswordRecord>) -> Self {
        Self { inherited: Mutex::new(inherited), ..Self::default() }
    }

    /// Returns the present passwords for another process.
    pub(crate) fn records(&self) -> Vec<PasswordRecord> {
        let sources = lock(&self.sources);
        sources.iter().filter_map(|(command, source)| source.record(command)).collect()
    }

    /// Wakes `keep`, which compares the configuration again.
    pub(crate) fn change(&self) {
        self.changed.notify_one();
    }

    /// Returns the program's source, if there is one.
    fn known(&self, command: &PasswordCommand) -> Option<Arc<Source>> {
        lock(&self.sources).get(command).cloned()
    }

    /// Returns the program's source, and makes it if there is none.
    fn source(&self, command: &PasswordCommand) -> Arc<Source> {
        let mut sources = lock(&self.sources);
        let new = || Arc::new(Source::new(self.inherited_by(command)));
        Arc::clone(sources.entry(command.clone()).or_insert_with(new))
    }

    /// Takes the password that this program has printed in the process before, and its end.
    fn inherited_by(&self, command: &PasswordCommand) -> Option<(Issued, Instant)> {
        let text = command_text(command);
        let mut inherited = lock(&self.inherited);
        let at = inherited.iter().position(|record| record.command == text)?;
        let record = inherited.swap_remove(at);
        let password = Password(record.password);
        let end = Instant::now() + Duration::from_micros(record.remaining);
        Some((Issued { number: record.number, password }, end))
    }
}

impl Source {
    fn new(current: Option<(Issued, Instant)>) -> Self {
        Self { state: Mutex::new(State { current, ..State::default() }), ..Self::default() }
    }

    fn record(&self, command: &PasswordCommand) -> Option<PasswordRecord> {
        let state = lock(&self.state);
        let (Issued { number, password }, end) = state.current.as_ref()?;
        let remaining = end.saturating_duration_since(Instant::now());
        Some(PasswordRecord {
            command: command_text(command),
            number: *number,
            password: password.0.clone(),
            remaining: remaining.as_micros() as u64,
        })
    }
}
