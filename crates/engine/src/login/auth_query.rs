//! Asks PostgreSQL about a user that is not in `auth_file`. `auth_query` runs on an ordinary server
//! of a pool (`auth_dbname`, `auth_user`). The client waits for it in the pool's queue, among the
//! clients that have queries. `engine/login.rs` carries out the steps.
//!
//! ```text
//!  asked ── request ──┬─ granted ──► ask ─►    (restore settings …) ─► question … ─► answered
//!                     │               ▲                                                 │
//!                     └─ queued … ────┘             challenge of the client ◄───────────┘
//! ```
//!
//! Only the client's name reaches that server, and only as a parameter (the lesson of
//! CVE-2025-12819).

use std::sync::Arc;

use config::{AuthType, needs_no_search_path};
use wire::frontend;

use crate::ids::{Identity, Micros};
use crate::lifecycle::pair::{self, Pair};
use crate::login::auth::{Login, LoginStep};
use crate::login::auth_answer::{AuthAnswer, Found};
use crate::login::console::is_console;
use crate::login::door::{Door, Step};
use crate::login::question::Question;
use crate::operator::remarks::remark;
use crate::own_error::CONFIG_ERROR;
use crate::relay::ledger::Expect;
use crate::server::{Preparation, Server};
use crate::session::carried::Order;
use crate::shell::{Exchange, Io, Weight};
use crate::vars::{Present, Slots, TrackedNames};

/// Precedes the query in its transaction. The owner of a database can set a default `search_path`
/// that leads to his own relations.
const SAFE_SEARCH_PATH: &str =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";

/// The error for the client if PostgreSQL cannot be asked; the log has the reason.
pub(crate) const FAILING: &str = "server login has been failing (server_login_retry)";

impl<X: Exchange> Door<'_, X> {
    /// Asks PostgreSQL about the client's user, if the configuration says so.
    pub(super) fn ask_about_user(&mut self, io: &mut impl Io<X>) -> Option<Step> {
        let requested = self.login().requested.clone();
        let Identity { database, user } = &*requested;
        let config = self.context.config.clone();
        let is_console = is_console(&config, database);
        if config.global.auth_type == AuthType::Pam && !is_console {
            let entry = config.database(database);
            let asks = entry
                .is_some_and(|entry| entry.auth_user.as_deref().is_some_and(|it| !it.is_empty()));
            if asks {
                let why = "PAM can't be used together with database authentication";
                remark(self.id, self.client, Weight::Error, why, io);
                return Some(Step::Refuse(CONFIG_ERROR.into()));
            }
        }
        let question = Question::new(&config, database, is_console, user)?;
        let entry = question.database.as_deref().and_then(|name| config.database(name));
        let Some(entry) = entry else {
            let why = format!("authentication database \"{}\" is not configured.", question.shown);
            remark(self.id, self.client, Weight::Error, &why, io);
            return Some(Step::Refuse(CONFIG_ERROR.into()));
        };
        Some(Step::Ask(entry, question))
    }
}

impl<X: Exchange> Door<'_, X> {
    /// Continues the login as the user that the query returned.
    pub(crate) fn found(&mut self, found: Found, io: &mut impl Io<X>) -> Step {
        let Found { user, secret } = found;
        let credential = self.credentials.of_secret(&user, secret.as_deref());
        let login = self.client.login_mut();
        login.asked = true;
        if login.requested.user != user {
            let database = login.requested.database.clone();
            let identity = Arc::new(Identity { database, user });
            login.requested = identity.clone();
            if let Err(why) = self.recount_client(identity) {
                return Step::Refuse(why);
            }
        }
        io.resume_client(self.id);
        let step = self.challenge_user(Some(credential), io);
        step.unwrap_or_else(|| self.go_on(io))
    }
}

impl Login {
    /// Returns the messages that ask PostgreSQL about its user, and the replies to them.
    fn question(&self) -> Option<(Vec<u8>, Vec<Expect>)> {
        let LoginStep::Asking(asking) = &self.step else { return None };
        let mut out = Vec::new();
        let mut steps = Vec::new();
        if needs_no_search_path(&asking.query) {
            frontend::parse(&mut out, b"", SAFE_SEARCH_PATH.as_bytes(), frontend::NO_TYPES);
            frontend::bind_text(&mut out, b"", &[]);
            frontend::execute(&mut out, b"", 0);
            steps.extend([Expect::Parse, Expect::Bind, Expect::Execute]);
        }
        frontend::parse(&mut out, b"", asking.query.as_bytes(), frontend::NO_TYPES);
        frontend::bind_text(&mut out, b"", &[Some(self.requested.user.as_bytes())]);
        frontend::describe_portal(&mut out, b"");
        frontend::execute(&mut out, b"", 0);
        frontend::sync(&mut out);
        steps.extend([
            Expect::Parse,
            Expect::Bind,
            Expect::Describe,
            Expect::Execute,
            Expect::Sync,
        ]);
        Some((out, steps))
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Links the server to the client, and asks about the client's user. Settings that another client
    /// has left on it are undone first.
    pub(crate) fn ask_about_user(&mut self, io: &mut impl Io<X>) {
        let now = io.now();
        let LoginStep::Asking(asking) = &mut self.client.login_mut().step else { return };
        let since = asking.waiter.take().map_or(now, |waiter| waiter.since);
        pair::lend(self.id, self.client, self.on, self.server);
        self.pool.view.assigned(now.saturating_sub(since));
        match self.server.way_to_login_values(&self.context.names) {
            Some(sql) => {
                self.server.phase.prepare(Preparation::Restore);
                self.server.send_own_query(self.on, &sql, self.context, io);
            }
            None => self.send_question(io),
        }
    }

    /// Continues after the server was asked to undo the settings.
    pub(crate) fn restored(&mut self, io: &mut impl Io<X>) -> Result<(), String> {
        if self.server.own_error.take().is_some() {
            return Err("invalid server parameter".into());
        }
        self.server.has_login_values();
        self.send_question(io);
        Ok(())
    }

    fn send_question(&mut self, io: &mut impl Io<X>) {
        let Some((out, steps)) = self.client.login_mut().question() else { return };
        self.server.begin_question(io.now());
        self.server.ask(self.on, &steps, 0, &out, self.context, io);
    }
}

impl Server {
    /// Returns the statements that undo what a client has set, before the server is asked.
    fn way_to_login_values(&self, names: &TrackedNames) -> Option<Vec<u8>> {
        let at_login = &self.welcome.vars;
        let present = Present { vars: &self.vars, at_login, defaults: &[], given: Slots::ALL };
        at_login.difference(&present, names, Order::WhoFirst)
    }

    /// The server has undone the settings.
    fn has_login_values(&mut self) {
        self.drop_foreign_settings();
        let carried = self.welcome.vars.carried.clone();
        if !carried.is_empty() {
            self.vars.change(|vars| vars.carried = carried);
        }
    }

    /// Begins to ask about a user.
    fn begin_question(&mut self, now: Micros) {
        self.phase.prepare(Preparation::Ask(Some(Box::default())));
        self.begin_to_ask(now);
        self.unnamed.destroy();
    }

    /// Takes the completed reply.
    ///
    /// # Errors
    /// Returns the reason if the query has failed.
    pub(crate) fn take_answer(&mut self) -> Result<Option<Found>, String> {
        let error = self.own_error.take();
        let answer = self.phase.auth_answer().and_then(Option::take);
        answer.map_or_else(AuthAnswer::default, |own| *own).finish(error.as_ref())
    }
}
