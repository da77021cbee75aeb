//! What the engine and the sockets have to say, in PgBouncer's log lines. What is switched off is
//! not even formatted.

use std::{fmt, os::fd::RawFd};

use engine::{
    ids::{ClientId, ServerId},
    replication::ReplicationKind,
    shell::Event,
};

use super::Sockets;
use crate::{error, log, log::Level, sys::socket, warning};

/// What stands before each line about a connection: `C-0x1a: database/user@address`.
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
            Event::LoginTrouble { client, name, reason } => {
                self.client_line(client, name, |label| error!("{label} {reason}"));
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
            Event::ServerLoginFailed { server, name, message } => {
                self.server_line(server, name, |label| {
                    warning!("{label} server login failed: {message}");
                });
            }
            Event::ConnectQueryFailed { server, name, message } => {
                self.server_line(server, name, |label| {
                    warning!("{label} error while executing connect_query: {message}");
                });
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
            Ok(from @ crate::Address::Inet(_)) => {
                log!("{label} new connection to server (from {from})");
            }
            _ => log!("{label} new connection to server"),
        });
    }

    fn client_line(&self, client: ClientId, name: (&str, &str), line: impl FnOnce(Label<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.clients[client.0 as usize].fd;
            line(Label { side: 'C', fd, name, address: self.peer(client) });
        }
    }

    fn server_line(&self, server: ServerId, name: (&str, &str), line: impl FnOnce(Label<'_>)) {
        if log::enabled(Level::Warning) {
            let fd = self.servers.get(server.0 as usize).map_or(-1, |conn| conn.fd);
            let address = self.shared.server_socket(fd).unwrap_or_default().address;
            line(Label { side: 'S', fd, name, address: &address });
        }
    }
}
