//! Decides from the configuration whether a pool may be direct: whether PostgreSQL's backends serve
//! its clients' sockets (docs/direct.md). The server may still be unfit, which is found out when a
//! connection is opened.

use std::{fmt, net::IpAddr};

use crate::choice::{DataPath, PoolMode, ReuseAfterError, SslMode};
use crate::config::Config;
use crate::host::Host;
use crate::table::{Database, Global};

/// The `direct_socket` of a Weir that PostgreSQL runs itself, in the server's data folder. The
/// library gives it (`extension/supervisor.h`).
const OWN_SOCKET: &str = "pg_stat_tmp/weir.direct";

/// The reason why a pool is proxied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proxied {
    // From the configuration.
    SwitchedOff,
    NoSocket,
    SessionMode,
    StatementMode,
    Cluster,
    SeveralHosts,
    Remote,
    ClientTls,
    ConnectQuery,
    PinFunctions,
    ReuseAfterError,
    MaxUses,
    OwnKeys,
    // From the server.
    NotTried,
    NoLibrary,
    NoAnswer,
    OtherUser,
    TooFewDescriptors,
    // From Weir's own state.
    NoRoom,
}

impl Proxied {
    /// Returns the word in SHOW POOLS.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SwitchedOff => "switched off",
            Self::NoSocket => "no direct_socket",
            Self::SessionMode => "session mode",
            Self::StatementMode => "statement mode",
            Self::Cluster => "cluster",
            Self::SeveralHosts => "several hosts",
            Self::Remote => "remote",
            Self::ClientTls => "client TLS",
            Self::ConnectQuery => "connect_query",
            Self::PinFunctions => "pin_functions",
            Self::ReuseAfterError => "reuse_after_error",
            Self::MaxUses => "server_max_uses",
            Self::OwnKeys => "SCRAM verifier",
            Self::NotTried => "not tried yet",
            Self::NoLibrary => "no library",
            Self::NoAnswer => "no answer",
            Self::OtherUser => "other system user",
            Self::TooFewDescriptors => "too few descriptors",
            Self::NoRoom => "no room",
        }
    }

    /// Returns what an operator can do about it; empty if there is nothing.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::SwitchedOff => "set data_path = direct",
            Self::NoSocket => "set direct_socket, and weir.control_socket in postgresql.conf",
            Self::SessionMode | Self::StatementMode => "use pool_mode = auto or transaction",
            Self::Remote => "give the folder of PostgreSQL's unix socket, or 127.0.0.1, as host",
            Self::MaxUses => "use server_lifetime or server_max_memory",
            Self::OwnKeys => "write the password of user= in place of its verifier",
            Self::NoLibrary => "add weir to PostgreSQL's session_preload_libraries",
            Self::NoAnswer => "compare direct_socket with PostgreSQL's weir.control_socket",
            Self::OtherUser => "run Weir as PostgreSQL's system user",
            Self::TooFewDescriptors => "raise PostgreSQL's limit of open files (LimitNOFILE)",
            Self::NoRoom => "raise Weir's limit of open files (LimitNOFILE)",
            Self::Cluster
            | Self::SeveralHosts
            | Self::ClientTls
            | Self::ConnectQuery
            | Self::PinFunctions
            | Self::ReuseAfterError
            | Self::NotTried => "",
        }
    }
}

impl fmt::Display for Proxied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Global {
    /// Do backends know the socket without `weir.control_socket`, because the server that they
    /// belong to runs this Weir?
    #[must_use]
    pub fn is_own_socket(&self) -> bool {
        self.direct_socket == OWN_SOCKET
    }
}

impl Config {
    /// Returns the data path of (`database`, `user`): the user's, else the database's, else the
    /// global one.
    pub fn data_path(&self, database: &Database, user: &str) -> DataPath {
        let user = self.users.get(user).and_then(|user| user.data_path);
        user.or(database.data_path).unwrap_or(self.global.data_path)
    }

    /// Returns the reason in the configuration why the pool (`database`, `user`) cannot be direct;
    /// `None` if there is none.
    pub fn proxied(&self, database: &Database, user: &str) -> Option<Proxied> {
        if self.data_path(database, user) == DataPath::Proxy {
            return Some(Proxied::SwitchedOff);
        }
        if self.global.direct_socket.is_empty() {
            return Some(Proxied::NoSocket);
        }
        match self.pool_mode(database, user) {
            PoolMode::Session => return Some(Proxied::SessionMode),
            PoolMode::Statement => return Some(Proxied::StatementMode),
            // The library does not look for them in texts.
            PoolMode::Auto if !self.global.pin_functions.is_empty() => {
                return Some(Proxied::PinFunctions);
            }
            PoolMode::Transaction | PoolMode::Auto => {}
        }
        if database.cluster.is_some() {
            return Some(Proxied::Cluster);
        }
        match self.addresses(database).as_slice() {
            [(host, _)] if is_local(host) => {}
            [_] => return Some(Proxied::Remote),
            _ => return Some(Proxied::SeveralHosts),
        }
        if self.global.client_tls_sslmode != SslMode::Disable {
            return Some(Proxied::ClientTls);
        }
        if database.connect_query.as_deref().is_some_and(|query| !query.is_empty()) {
            return Some(Proxied::ConnectQuery);
        }
        // The backend does not tell Weir how the transactions of its clients end.
        if self.reuse_after_error(database, user) == ReuseAfterError::Never {
            return Some(Proxied::ReuseAfterError);
        }
        // Weir does not see how often a backend takes a client from the lobby.
        if self.server_max_uses(database) > 0 {
            return Some(Proxied::MaxUses);
        }
        None
    }
}

/// Is it surely an address of this machine? Sockets cannot be handed to another one.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) | Host::Abstract(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    }
}
