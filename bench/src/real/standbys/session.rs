//! A client's connection that may be lost.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Outcome, RawClient, frontend};

use crate::run::Setting;

/// The longest wait for a message, longer than any row waits.
const SILENCE_MAX: Duration = Duration::from_secs(120);

type Cells = Vec<Vec<Option<String>>>;

pub(super) struct Session(RawClient);

impl Session {
    /// Logs in without a password.
    pub(super) fn open(port: u16) -> Result<Self> {
        let mut client = RawClient::try_connect(port)?;
        client.set_timeout(SILENCE_MAX);
        let who = [("user", Setting::USER), ("database", Setting::DATABASE)];
        client.try_send(frontend::startup(&who))?;
        let mut session = Self(client);
        session.answer()?;
        Ok(session)
    }

    /// Runs a statement and returns its rows.
    pub(super) fn run(&mut self, sql: &str) -> Result<Cells> {
        self.0.try_send(frontend::query(sql))?;
        self.answer()
    }

    /// Runs a query and returns the first value of its first row.
    pub(super) fn number(&mut self, sql: &str) -> Result<u32> {
        let value = self.run(sql)?.into_iter().next().and_then(|row| row.into_iter().next()?);
        Ok(value.context("no value")?.parse()?)
    }

    fn answer(&mut self) -> Result<Cells> {
        let mut messages = Vec::new();
        loop {
            let message = self.0.try_read()?.context("the connection was closed")?;
            let is_last = message.tag == b'Z';
            messages.push(message);
            if is_last {
                break;
            }
        }
        let outcome = Outcome::collect(&messages);
        match outcome.error {
            Some(error) => bail!("{} {}", error.code(), error.message()),
            None => Ok(outcome.rows),
        }
    }
}
