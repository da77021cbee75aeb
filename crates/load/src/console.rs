//! One command at the console of a pooler, for a caller outside of this crate.

use std::{env, sync::Arc};

use crate::{
    session::{Outcome, Session},
    target::Wanted,
};

const DATABASE: &str = "pgbouncer";
const HOST: &str = "127.0.0.1";
const PORT: &str = "6432";

/// The address of the console, and the login. A field that is None comes from the environment, as with
/// psql, and then from the defaults `127.0.0.1` and 6432.
#[derive(Clone, Debug, Default)]
pub struct Console {
    pub host: Option<String>,
    pub port: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
}

/// Why a command has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing answers, or the login is refused.
    NoConnection(String),
    /// The connection was lost before the result came.
    Lost(String),
    /// The console's error.
    Refused(String),
}

impl Console {
    /// Logs in and carries out one command.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn ask(&self, command: &str) -> Result<Vec<Outcome>, Failure> {
        let target = self.wanted().and_then(|wanted| wanted.resolve());
        let opened = target.and_then(|target| Session::open(&Arc::new(target)));
        let (mut session, _) = opened.map_err(Failure::NoConnection)?;
        session.outcomes(command).map_err(Failure::Lost)?.map_err(Failure::Refused)
    }

    fn wanted(&self) -> Result<Wanted, String> {
        let unset = |variable: &str| env::var_os(variable).is_none_or(|value| value.is_empty());
        let mut wanted = Wanted::default();
        let set = [
            ("host", self.host.as_deref().or(unset("PGHOST").then_some(HOST))),
            ("port", self.port.as_deref().or(unset("PGPORT").then_some(PORT))),
            ("user", self.user.as_deref()),
            ("password", self.password.as_deref()),
            ("dbname", Some(DATABASE)),
            ("application_name", Some("weir ctl")),
        ];
        for (keyword, value) in set {
            if let Some(value) = value {
                wanted.set(keyword, value)?;
            }
        }
        Ok(wanted)
    }
}
