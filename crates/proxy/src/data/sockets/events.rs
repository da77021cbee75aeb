//! Log lines about connections, in PgBouncer's form. Lines that are switched off are not formatted.

use std::{fmt, os::fd::RawFd};

use config::Source;
use engine::{
    ids::{ClientId, ServerId},
    journal::EventKind,
    replication::ReplicationKind,
    shell::{Event, OwnQuery, Weight},
};

use super::{
    Sockets,
    connect::CONNECT_FAILED,
    request::{Cancel, CancelLine},
};
use crate::{
    error,
    exchange::hub::lock,
    log,
    log::{About, Level},
    log_at, warning,
};
use net::sys::{Address, socket};

impl Sockets {
    /// Notes an error or a pin for the flight recorder.
    pub(super) fn note_event(&self, event: &Event<'_>) {
        let (kind, name, text) = match *event {
            Event::ClientClosing { name, reason, error: true, .. } => {
                (EventKind::ClientError, name, reason)
            }
            Event::LoginFailed { database, user, .. } => {
                (EventKind::LoginFailed, (database, user), "")
            }
            Event::ServerClosing { name, reason, failed: true, .. } => {
                (EventKind::ServerFailed, name, reason)
            }
            Event::ServerLoginFailed { name, message, .. } => {
                (EventKind::ServerLoginFailed, name, message)
            }
            Event::Pinned { name, reason } => (EventKind::Pin, name, reason),
            Event::ClientClosing { .. }
            | Event::ServerClosing { .. }
            | Event::LoginAttempt { .. }
            | Event::ClientRemark { .. }
            | Event::ServerOpening { .. }
            | Event::CancelOpening { .. }
            | Event::ReserveTaken { .. }
            | Event::ServerLoginWorks { .. }
            | Event::BadReport { .. }
            | Event::PrincipalChanged { .. }
            | Event::OwnQueryFailed { .. } => return,
        };
        lock(&self.shared.journal).note(kind, name, text, self.now);
    }

    pub(super) fn log_event(&mut self, event: &Event<'_>) {
        let global = &self.config.global;
        let (connections, disconnections) = (global.log_connections, global.log_disconnections);
        let pooler_errors = global.log_pooler_errors;
        match *event {
            Event::LoginAttempt { client, name, replication } if connections => {
                let replication = replication.map_or("no", ReplicationKind::parameter);
                self.client_line(client, name, |label| {
                    let (database, user) = name;
                    let tls = self.client_tls(client);
                    let tls = if tls.is_empty() { "no" } else { &tls };
                    log!(
                        of label,
                        "login attempt: db={database} user={user} tls={tls} \
                         replication={replication}"
                    );
                });
            }
            Event::LoginFailed { client, database, user } if connections => {
                self.client_line(client, (database, user), |label| {
                    log!(of label, "login failed: db={database} user={user}");
                });
            }
            Event::ClientClosing { client, name, reason, age, error } => {
                self.client_line(client, name, |label| {
                    if disconnections {
                        log!(of label, "closing because: {reason} (age={}s)", age / 1_000_000);
                    }
                    if error && pooler_errors {
                        warning!(of label, "pooler error: {reason}");
                    }
                });
            }
            Event::ClientRemark { client, name, weight, message } => {
                self.client_line(client, name, |label| match weight {
                    Weight::Log => log!(of label, "{message}"),
                    Weight::Warning => warning!(of label, "{message}"),
                    Weight::Error => error!(of label, "{message}"),
                });
            }
            Event::CancelOpening { name: (database, user) } => {
                self.cancel_name = Some((database.to_owned(), user.to_owned()));
            }
            Event::ServerOpening { server, name } if connections => self.name_server(server, name),
            Event::ServerClosing { server, name, reason, age, repeats, .. } => {
                self.log_server_closing(server, name, (reason, age, repeats));
            }
            Event::ReserveTaken { client: Some(client), name } => {
                self.client_line(client, name, |label| {
                    warning!(of label, "taking connection from reserve_pool");
                });
            }
            Event::ReserveTaken { client: None, name: (database, user) } => {
                warning!("{database}/{user}: taking connection from reserve_pool");
            }
            Event::ServerLoginFailed { message, repeats, .. }
                if !repeats || self.config.source == Source::Ini =>
            {
                warning!("server login failed: {message}");
            }
            Event::ServerLoginWorks { name: (database, user), refused, after } => {
                let seconds = after as f64 / 1_000_000.0;
                let plural = if refused == 1 { "" } else { "s" };
                log!(
                    "server login of {database}/{user} succeeds again, {seconds:.1} s and {refused} \
                     refused attempt{plural} after the first refusal"
                );
            }
            Event::BadReport { name } => log_bad_report(name),
            Event::PrincipalChanged { name } => log_changed_principal(name),
            Event::OwnQueryFailed { name, query, message, repeats } => {
                self.log_failed_query(name, query, (message, repeats));
            }
            Event::LoginAttempt { .. }
            | Event::LoginFailed { .. }
            | Event::ServerOpening { .. }
            | Event::ServerLoginFailed { .. }
            | Event::Pinned { .. } => {}
        }
    }

    fn log_server_closing(
        &mut self,
        server: ServerId,
        name: (&str, &str),
        (reason, age, repeats): (&str, u64, bool),
    ) {
        let is_unreached = reason == CONNECT_FAILED;
        if is_unreached {
            self.note_silence(server);
        }
        // Each attempt has a line in PgBouncer's log. Weir's has one for the outage.
        let level = match (is_unreached || repeats) && self.config.source != Source::Ini {
            true => Level::Debug,
            false => Level::Log,
        };
        if self.config.global.log_disconnections {
            self.server_line(server, name, |label| {
                log_at!(of label, level, "closing because: {reason} (age={}s)", age / 1_000_000);
            });
        }
    }

    /// Logs that PostgreSQL refuses a query of Weir's own, and what follows from it.
    #[cold]
    fn log_failed_query(
        &self,
        (database, user): (&str, &str),
        query: OwnQuery,
        (message, repeats): (&str, bool),
    ) {
        let (what, effect) = match query {
            // PgBouncer's text, with the key's old name.
            OwnQuery::Connect if self.config.source == Source::Ini => {
                return error!("S: error while executing exec_on_query: {message}");
            }
            OwnQuery::Connect => ("connect_query", "the server connections are used all the same"),
            OwnQuery::Check => {
                ("server_check_query", "server connections are closed in place of being used again")
            }
            OwnQuery::Reset => {
                ("server_reset_query", "a server connection is closed when its client leaves it")
            }
            OwnQuery::Forget => {
                ("the query that ends a client's session", "its server connection is closed")
            }
        };
        if !repeats {
            error!("{database}/{user}: {what} fails: {message}; {effect}");
        }
    }

    /// Logs a new server connection. The name is known if such lines are wanted.
    pub(super) fn log_connected(&self, server: ServerId, name: Option<&(String, String)>) {
        let Some((database, user)) = name else { return };
        let fd = self.servers[server.0 as usize].fd;
        if fd < 0 {
            return;
        }
        self.server_line(server, (database, user), |label| match socket::local_address(fd) {
            Ok(from @ Address::Inet(_)) => {
                log!(of label, "new connection to server (from {from})");
            }
            _ => log!(of label, "new connection to server"),
        });
    }

    /// Logs that a cancel request's connection is made, or has ended.
    pub(super) fn log_cancel(&self, fd: RawFd, cancel: &Cancel, line: CancelLine) {
        let (Some(name), global) = (&cancel.name, &self.config.global) else { return };
        let address = &server_at(&cancel.address);
        let label = about('S', fd, (&name.0, &name.1), address);
        match (line, socket::local_address(fd)) {
            (CancelLine::Opened, Ok(from @ Address::Inet(_))) if global.log_connections => {
                log!(of label, "new connection to server (from {from})");
            }
            (CancelLine::Opened, _) if global.log_connections => {
                log!(of label, "new connection to server");
            }
            (CancelLine::Closed(end), _) if global.log_disconnections => {
                let age = (self.now - cancel.began) / 1_000_000;
                log!(of label, "closing because: {} (age={age}s)", end.reason());
            }
            (CancelLine::Opened | CancelLine::Closed(_), _) => {}
        }
    }

    fn client_line(&self, client: ClientId, name: (&str, &str), line: impl FnOnce(About<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.clients[client.0 as usize].fd;
            let address = self.peer(client).label(self.config.global.listen_port);
            line(about('C', fd, name, &address));
        }
    }

    fn server_line(&self, server: ServerId, name: (&str, &str), line: impl FnOnce(About<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.servers.get(server.0 as usize).map_or(-1, |conn| conn.fd);
            let unreached = || {
                let (slot, address) = self.unreached.as_ref()?;
                (*slot == server.0).then(|| address.clone())
            };
            match self.server_address(server).cloned().or_else(unreached) {
                Some(address) => line(about('S', fd, name, &server_at(&address))),
                // PgBouncer's text for an unknown address.
                None => line(about('S', fd, name, &"(bad-af):0")),
            }
        }
    }
}

fn about<'a>(
    side: char,
    fd: RawFd,
    (database, user): (&'a str, &'a str),
    address: &'a dyn fmt::Display,
) -> About<'a> {
    About { side, number: Some(fd.max(0).unsigned_abs().into()), database, user, address }
}

/// Returns the server's address for the log; a unix socket is shown by its port alone.
pub(super) fn server_at(address: &Address) -> String {
    match address {
        Address::Unix(path) => {
            let port = path.extension().unwrap_or_default();
            format!("unix:{}", port.display())
        }
        other => other.to_string(),
    }
}

fn log_changed_principal((database, user): (&str, &str)) {
    log!(
        "{database}/{user}: role, database or stored settings have changed in PostgreSQL, so the \
         pool's server connections are replaced"
    );
}

fn log_bad_report((database, user): (&str, &str)) {
    warning!(
        "{database}/{user}: the library weir in PostgreSQL reports a session's state in a form that \
         Weir cannot read, so the client keeps its server, or Weir asks the server itself; install \
         library and program of the same version"
    );
}
