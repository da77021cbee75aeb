//! Asks PostgreSQL about a user that is not in `auth_file`. `auth_query` runs on an ordinary server
//! of a pool (`auth_dbname`, `auth_user`). The client waits for it in the pool's queue, among the
//! clients that have queries.
//!
//! ```text
//!  asked ── request ──┬─ granted ──► ask_on ─► (restore settings …) ─► question … ─► answered
//!                     │               ▲                                                 │
//!                     └─ queued … ────┘             challenge of the client ◄───────────┘
//! ```
//!
//! Only the client's name reaches that server, and only as a parameter (the lesson of
//! CVE-2025-12819).

use std::sync::Arc;

use config::{AuthType, needs_no_search_path};
use wire::frontend;

use crate::admission::pool::Grant;
use crate::engine::Engine;
use crate::ids::{ClientId, Identity, PoolId, ServerId, Waiter};
use crate::lifecycle::close_reason::CloseReason;
use crate::lifecycle::leave::CONFIG_ERROR;
use crate::lifecycle::pair;
use crate::login::auth::{Asking, LoginStep};
use crate::login::auth_answer::{AuthAnswer, Found};
use crate::login::console::is_console;
use crate::login::door::{Door, Step, log_login_failed};
use crate::login::question::Question;
use crate::operator::remarks::remark;
use crate::own_error::{Cause, OwnError};
use crate::relay::ledger::Expect;
use crate::routing::Place;
use crate::server::Preparation;
use crate::session::carried::Order;
use crate::settings::PoolKey;
use crate::shell::{Exchange, Io, Weight};
use crate::vars::{Present, Slots};

/// Precedes the query in its transaction. The owner of a database can set a default `search_path`
/// that leads to his own relations.
const SAFE_SEARCH_PATH: &str =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";

/// The error for the client if PostgreSQL cannot be asked; the log has the reason.
const FAILING: &str = "server login has been failing (server_login_retry)";

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
        if question.database.as_deref().and_then(|name| config.database(name)).is_none() {
            let why = format!("authentication database \"{}\" is not configured.", question.shown);
            remark(self.id, self.client, Weight::Error, &why, io);
            return Some(Step::Refuse(CONFIG_ERROR.into()));
        }
        Some(Step::Ask(question))
    }
}

impl<X: Exchange> Engine<X> {
    /// Asks PostgreSQL about the client's user.
    pub(crate) fn ask_about_user(&mut self, id: ClientId, question: Question, io: &mut impl Io<X>) {
        let now = io.now();
        let Question { auth_user, database, shown, query } = question;
        let entry = database.as_deref().and_then(|name| self.context.config.database(name));
        let Some(entry) = entry else { return self.disconnect(id, CONFIG_ERROR, io) };
        let key = PoolKey { database: entry.name.clone(), user: auth_user, place: Place::Writer };
        let pool = self.pools.of_key(&self.context, &entry, &key);
        if self.pools.exchange.pool(pool, |pool| pool.disabled) {
            let why = format!("authentication database \"{shown}\" is disabled");
            return self.disconnect(id, OwnError::new(Cause::DisabledDatabase, why), io);
        }
        let pool = self.pools.without_primary(&self.context, pool).unwrap_or(pool);
        let asking = Asking { pool, query: query.into(), waiter: None };
        self.clients[id].login_mut().step = LoginStep::Asking(asking);
        let worker = self.context.worker;
        let grant = self.pools.exchange.pool(pool, |pool| pool.request(worker, id, None, now));
        self.take_grant_to_ask(id, grant, io);
    }

    fn take_grant_to_ask(&mut self, id: ClientId, grant: Grant<X::Transport>, io: &mut impl Io<X>) {
        match grant {
            Grant::Server(server) => {
                let server = self.attach(server, io);
                self.ask_on(id, server, io);
            }
            Grant::Queued { ticket, open } => {
                let LoginStep::Asking(asking) = &mut self.clients[id].login_mut().step else {
                    return;
                };
                let since = asking.waiter.map_or(io.now(), |waiter| waiter.since);
                asking.waiter = Some(Waiter { client: id, pool: asking.pool, ticket, since });
                let pool = asking.pool;
                if open {
                    self.open_server(pool, io);
                }
            }
            Grant::Refused(error) => {
                let LoginStep::Asking(asking) = &self.clients[id].login_mut().step else {
                    return;
                };
                let pool = asking.pool;
                let is_secret = self.pools.exchange.pool(pool, |pool| {
                    pool.failure.as_ref().is_some_and(|failure| failure.names_user)
                });
                match is_secret {
                    true => {
                        self.disconnect(id, OwnError::new(Cause::ServerUnreachable, FAILING), io)
                    }
                    false => self.refuse_client(id, &error, io),
                }
            }
            Grant::Closed(reason) => self.disconnect(id, reason, io),
        }
    }

    /// Asks on this server. Settings that a client has left on it are undone first.
    pub(crate) fn ask_on(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let now = io.now();
        let LoginStep::Asking(asking) = &mut self.clients[id].login_mut().step else { return };
        let since = asking.waiter.take().map_or(now, |waiter| waiter.since);
        let server = &mut self.servers[on];
        pair::link(id, &mut self.clients[id], on, server);
        let pool = server.pool;
        self.pools.view(pool).assigned(now.saturating_sub(since));
        let server = &self.servers[on];
        let at_login = &server.welcome.vars;
        let present = Present { vars: &server.vars, at_login, defaults: &[], given: Slots::ALL };
        match at_login.difference(&present, &self.context.names, Order::WhoFirst) {
            Some(sql) => {
                self.servers[on].phase.prepare(Preparation::Restore);
                self.send_own_query(on, &sql, io);
            }
            None => self.send_question(id, on, io),
        }
    }

    /// Continues after the server was asked to undo the settings.
    pub(crate) fn restored(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut self.servers[on];
        let Some(id) = server.client else { return };
        match server.own_error.take() {
            None => {
                server.drop_foreign_settings();
                let carried = server.welcome.vars.carried.clone();
                if !carried.is_empty() {
                    server.vars.change(|vars| vars.carried = carried);
                }
                self.send_question(id, on, io);
            }
            Some(_) => self.answer(on, Err("invalid server parameter".into()), io),
        }
    }

    fn send_question(&mut self, id: ClientId, on: ServerId, io: &mut impl Io<X>) {
        let login = self.clients[id].login_mut();
        let LoginStep::Asking(asking) = &login.step else { return };
        let mut out = Vec::new();
        let mut steps = Vec::new();
        if needs_no_search_path(&asking.query) {
            frontend::parse(&mut out, b"", SAFE_SEARCH_PATH.as_bytes(), frontend::NO_TYPES);
            frontend::bind_text(&mut out, b"", &[]);
            frontend::execute(&mut out, b"", 0);
            steps.extend([Expect::Parse, Expect::Bind, Expect::Execute]);
        }
        frontend::parse(&mut out, b"", asking.query.as_bytes(), frontend::NO_TYPES);
        frontend::bind_text(&mut out, b"", &[Some(login.requested.user.as_bytes())]);
        frontend::describe_portal(&mut out, b"");
        frontend::execute(&mut out, b"", 0);
        frontend::sync(&mut out);
        let server = &mut self.servers[on];
        server.phase.prepare(Preparation::Ask(Some(Box::default())));
        server.own_error = None;
        server.times.asked_at = io.now();
        server.unnamed = 0;
        let last = [Expect::Parse, Expect::Bind, Expect::Describe, Expect::Execute, Expect::Sync];
        steps.extend(last);
        self.ask(on, &steps, 0, &out, io);
    }

    /// Reads the completed reply.
    pub(crate) fn answered(&mut self, on: ServerId, io: &mut impl Io<X>) {
        let server = &mut self.servers[on];
        let error = server.own_error.take();
        let auth_answer: AuthAnswer = server
            .phase
            .auth_answer()
            .and_then(Option::take)
            .map_or_else(AuthAnswer::default, |own| *own);
        self.answer(on, auth_answer.finish(error.as_ref()), io);
    }

    /// Ends the query. The server is released first, so the client may find it in the pool.
    fn answer(&mut self, on: ServerId, answer: Result<Option<Found>, String>, io: &mut impl Io<X>) {
        let server = &mut self.servers[on];
        let Some(id) = server.client else { return };
        pair::part(&mut self.clients[id], server);
        match &answer {
            Ok(_) => self.free(on, io),
            Err(why) => self.close_server(on, CloseReason::Text(why), io),
        }
        match answer {
            Err(_) => self.disconnect(id, CONFIG_ERROR, io),
            Ok(None) => {
                log_login_failed(id, self.clients[id].login_mut(), io);
                self.disconnect(id, OwnError::new(Cause::Password, "no such user"), io);
            }
            Ok(Some(found)) => self.found(id, found, io),
        }
    }

    /// Continues the login as the user that the query returned.
    fn found(&mut self, id: ClientId, found: Found, io: &mut impl Io<X>) {
        let Found { user, secret } = found;
        let credential = self.credentials.of_secret(&user, secret.as_deref());
        let login = self.clients[id].login_mut();
        login.asked = true;
        if login.requested.user != user {
            let database = login.requested.database.clone();
            let identity = Arc::new(Identity { database, user });
            login.requested = identity.clone();
            if let Err(why) = self.door(id).recount_client(identity) {
                return self.disconnect(id, why, io);
            }
        }
        io.resume_client(id);
        let mut door = self.door(id);
        let step = door.challenge_user(Some(credential), io);
        let step = step.unwrap_or_else(|| door.go_on(io));
        self.after_login(id, step, io);
    }

    /// Deals with the loss of the server that the query ran on. A server that was idle may have
    /// been lost earlier, so Weir tries again. With a fresh one it would probably fail again.
    pub(crate) fn ask_again(
        &mut self,
        id: ClientId,
        pool: PoolId,
        was_idle: bool,
        io: &mut impl Io<X>,
    ) {
        let now = io.now();
        if !was_idle {
            return self.disconnect(id, CONFIG_ERROR, io);
        }
        let worker = self.context.worker;
        let grant = self.pools.exchange.pool(pool, |pool| pool.request(worker, id, None, now));
        self.take_grant_to_ask(id, grant, io);
    }
}
