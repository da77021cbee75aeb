//! One login and one query at a server, for a caller outside of this crate.

use std::{sync::Arc, time::Duration};

use net::{Address, CallerTls};

use crate::{
    login::NO_PASSWORD,
    session::Session,
    target::{Target, addresses},
};

/// The address, the database and the user for a login.
#[derive(Debug)]
pub struct Probe<'a> {
    /// A host name, an address or the folder of a socket.
    pub host: &'a str,
    pub port: u16,
    pub user: &'a str,
    pub database: &'a str,
    pub password: Option<&'a str>,
    /// The TLS settings for connections by TCP.
    pub tls: CallerTls,
    pub timeout: Option<Duration>,
}

/// The answer of a server.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The rows of the query, and the address that answered.
    Rows(Address, Vec<Vec<Option<String>>>),
    /// The server asks for a password, and the caller has none.
    WantsPassword,
}

impl Probe<'_> {
    /// Logs in and executes `sql`.
    ///
    /// # Errors
    /// Why no server answered, or what it said.
    pub fn ask(self, sql: &str) -> Result<Answer, String> {
        self.ask_and_try(sql, &[]).map(|(answer, _)| answer)
    }

    /// Logs in and executes `sql`, then each of `others` by itself. Returns the errors of the others;
    /// `None` for one that works, and none at all if the server wants a password.
    ///
    /// # Errors
    /// Why no server answered, or what it said of the login or of `sql`.
    pub fn ask_and_try(
        self,
        sql: &str,
        others: &[&str],
    ) -> Result<(Answer, Vec<Option<String>>), String> {
        let addresses = addresses(self.host, self.port)?;
        let is_inet = matches!(addresses.first(), Some(Address::Inet(_)));
        let parameters =
            [("user", self.user), ("database", self.database), ("application_name", "weir")];
        let target = Arc::new(Target {
            addresses,
            host: self.host.to_owned(),
            port: self.port,
            user: self.user.to_owned(),
            database: self.database.to_owned(),
            password: self.password.map(str::to_owned),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            tls: if is_inet { self.tls } else { CallerTls::default() },
            connect_timeout: self.timeout,
        });
        match Session::open(&target) {
            Ok((mut session, address)) => {
                let answer = Answer::Rows(address, session.query(sql)?);
                Ok((answer, others.iter().map(|sql| session.query(sql).err()).collect()))
            }
            Err(reason) if reason.ends_with(NO_PASSWORD) => Ok((Answer::WantsPassword, Vec::new())),
            Err(reason) => Err(reason),
        }
    }
}
