//! Log lines about connections, in PgBouncer's form. Lines that are switched off are not formatted.

use std::{fmt, os::fd::RawFd};

use engine::{
    ids::{ClientId, ServerId},
    replication::ReplicationKind,
    shell::{Event, Weight},
};

use super::{
    Sockets,
    request::{Cancel, CancelLine},
};
use crate::{error, log, log::Level, warning};
use net::sys::{Address, socket};

/// The beginning of each line about a connection: `C-0x1a: database/user@address`.
struct Label<'a> {
    side: char,
    fd: RawFd,
    name: (&'a str, &'a str),
    address: &'a dyn fmt::Display,
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (database, user) = self.name;
        let number = self.fd.max(0);
        write!(f, "{}-{number:#x}: {database}/{user}@{}", self.side, self.address)
    }
}

impl Sockets {
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
                        "{label} login attempt: db={database} user={user} tls={tls} \
                         replication={replication}"
                    );
                });
            }
            Event::LoginFailed { client, database, user } if connections => {
                self.client_line(client, (database, user), |label| {
                    log!("{label} login failed: db={database} user={user}");
                });
            }
            Event::ClientClosing { client, name, reason, age, error } => {
                self.client_line(client, name, |label| {
                    if disconnections {
                        log!("{label} closing because: {reason} (age={}s)", age / 1_000_000);
                    }
                    if error && pooler_errors {
                        warning!("{label} pooler error: {reason}");
                    }
                });
            }
            Event::ClientRemark { client, name, weight, message } => {
                self.client_line(client, name, |label| match weight {
                    Weight::Log => log!("{label} {message}"),
                    Weight::Warning => warning!("{label} {message}"),
                    Weight::Error => error!("{label} {message}"),
                });
            }
            Event::ServerComplaint { message } => error!("{message}"),
            Event::CancelOpening { name: (database, user) } => {
                self.cancel_name = Some((database.to_owned(), user.to_owned()));
            }
            Event::ServerOpening { server, name } if connections => self.name_server(server, name),
            Event::ServerClosing { server, name, reason, age } if disconnections => {
                self.server_line(server, name, |label| {
                    log!("{label} closing because: {reason} (age={}s)", age / 1_000_000);
                });
            }
            Event::ReserveTaken { client: Some(client), name } => {
                self.client_line(client, name, |label| {
                    warning!("{label} taking connection from reserve_pool");
                });
            }
            Event::ReserveTaken { client: None, name: (database, user) } => {
                warning!("{database}/{user}: taking connection from reserve_pool");
            }
            Event::ServerLoginFailed { message } => warning!("server login failed: {message}"),
            // PgBouncer's words, in which the key has its old name.
            Event::ConnectQueryFailed { message } => {
                error!("S: error while executing exec_on_query: {message}");
            }
            Event::LoginAttempt { .. }
            | Event::LoginFailed { .. }
            | Event::ServerOpening { .. }
            | Event::ServerClosing { .. } => {}
        }
    }

    /// A server's socket is there; its name is known if such lines are wanted.
    pub(super) fn log_connected(&self, server: ServerId, name: Option<&(String, String)>) {
        let Some((database, user)) = name else { return };
        let fd = self.servers[server.0 as usize].fd;
        if fd < 0 {
            return;
        }
        self.server_line(server, (database, user), |label| match socket::local_address(fd) {
            Ok(from @ Address::Inet(_)) => {
                log!("{label} new connection to server (from {from})");
            }
            _ => log!("{label} new connection to server"),
        });
    }

    /// The connection of a cancel request is there, or has done its work.
    pub(super) fn log_cancel(&self, fd: RawFd, cancel: &Cancel, line: CancelLine) {
        let (Some(name), global) = (&cancel.name, &self.config.global) else { return };
        let address = &server_at(&cancel.address);
        let label = Label { side: 'S', fd, name: (&name.0, &name.1), address };
        match (line, socket::local_address(fd)) {
            (CancelLine::Opened, Ok(from @ Address::Inet(_))) if global.log_connections => {
                log!("{label} new connection to server (from {from})");
            }
            (CancelLine::Opened, _) if global.log_connections => {
                log!("{label} new connection to server");
            }
            (CancelLine::Closed(end), _) if global.log_disconnections => {
                let age = (self.now - cancel.began) / 1_000_000;
                log!("{label} closing because: {} (age={age}s)", end.reason());
            }
            (CancelLine::Opened | CancelLine::Closed(_), _) => {}
        }
    }

    fn client_line(&self, client: ClientId, name: (&str, &str), line: impl FnOnce(Label<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.clients[client.0 as usize].fd;
            let address = self.peer(client).label(self.config.global.listen_port);
            line(Label { side: 'C', fd, name, address: &address });
        }
    }

    fn server_line(&self, server: ServerId, name: (&str, &str), line: impl FnOnce(Label<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.servers.get(server.0 as usize).map_or(-1, |conn| conn.fd);
            let unreached = || {
                let (slot, address) = self.unreached.as_ref()?;
                (*slot == server.0).then(|| address.clone())
            };
            match self.server_address(server).cloned().or_else(unreached) {
                Some(address) => line(Label { side: 'S', fd, name, address: &server_at(&address) }),
                // In the words that PgBouncer has for an address that nobody could tell.
                None => line(Label { side: 'S', fd, name, address: &"(bad-af):0" }),
            }
        }
    }
}

/// How the log names the place of a server: on a unix socket, by its port alone.
fn server_at(address: &Address) -> String {
    match address {
        Address::Unix(path) => {
            let port = path.extension().unwrap_or_default();
            format!("unix:{}", port.display())
        }
        other => other.to_string(),
    }
}
