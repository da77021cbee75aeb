//! The keys of an entry of `[databases]`.

use std::time::Duration;

use crate::choice::{
    Balance, DataPath, LoadBalanceHosts, PoolMode, ReadAfterWrite, ReadsGo, ReuseAfterError,
    SslMode, WhenStale,
};
use crate::host::{Host, Ports};
use crate::key::keys;
use crate::pattern::Pattern;
use crate::program::{PasswordCommand, Program};
use crate::weight::Weight;

keys! {
    /// One entry of `[databases]`: where the server connections of a database go, and its limits.
    pub struct Database in Database {
        /// The name clients ask for.
        name: String,
    }

    /// Name of the database on the server. Not set: the name of the entry.
    dbname: Option<String> = unset, reload, acts;
    /// Host names, IP addresses, folders of Unix sockets (`/dir`) or abstract sockets (`@name`).
    /// Several hosts are separated by commas. Not set: the Unix socket in `unix_socket_dir`.
    hosts ("host"): Vec<Host> = unset, reload, acts;
    /// Name of an entry of `[clusters]`, instead of `host`: server connections go to the primary of
    /// that cluster.
    cluster: Option<String> = unset, reload, acts, own;
    /// `standby`: reads may run on standbys of the cluster ([routing.md](routing.md)). Needs
    /// `cluster` and `pool_mode = auto`.
    reads: ReadsGo = "primary", reload, acts, own;
    /// The writes that a read on a standby must see. `session`: those of its own session. `user`:
    /// those of all sessions of its database and user. `strict`: all that were committed before the
    /// read arrived; each read waits for that. `off`: none.
    read_after_write: ReadAfterWrite = "session", reload, acts, own;
    /// A standby whose data is older than this gets no reads; 0 is no limit.
    max_staleness: Duration = "1", reload, acts, own;
    /// A standby that is further behind the primary than this gets no reads; 0 is no limit.
    max_lag_bytes: u32 = "0", reload, acts, own;
    /// A read for which no standby is fresh enough runs on the `primary` at once, or waits (`wait`).
    when_stale: WhenStale = "primary", reload, acts, own;
    /// The longest wait of a read for a standby that is fresh enough. After it the primary runs the
    /// read.
    stale_wait: Duration = "0.2", reload, acts, own;
    /// VOLATILE functions that a standby may run ([routing.md](routing.md#lists)). `*` stands for any
    /// part of a name.
    standby_functions: Vec<String> = "", reload, acts, own;
    /// Functions, tables and views that need the primary ([routing.md](routing.md#lists)). `*` stands
    /// for any part of a name.
    primary_names: Vec<String> = "", reload, acts, own;
    /// Regular expressions of texts that run on the primary ([routing.md](routing.md#lists)).
    primary_texts: Vec<Pattern> = "", reload, acts, own;
    /// Regular expressions of each `application_name` that needs the primary.
    primary_applications: Vec<Pattern> = "", reload, acts, own;
    /// Whether a `session` stays with one standby, or each `statement` may go to another one.
    balance: Balance = "session", reload, acts, own;
    /// TCP port, and suffix of the Unix socket name. With several hosts, a list has one port for
    /// each.
    port: Ports = "5432", reload, acts;
    /// User for the login to the server. Not set: the client's user.
    user: Option<String> = unset, reload, acts;
    /// Password of `user`. Not set: looked up in `auth_file`.
    password: Option<String> = unset, reload, acts, secret;
    /// File whose only line is the password of `user`, instead of `password`. It is read at start and
    /// by each reload. Weir's own.
    password_file: Option<String> = unset, reload, acts, own;
    /// Program that prints the password of `user`, with its arguments. It runs without a shell
    /// ([secrets.md](secrets.md#short-lived-passwords)). Weir's own.
    password_command: Option<Program> = unset, reload, acts, own;
    /// How long a password of `password_command` is valid. After two thirds of that time, the program
    /// runs again. At its end, servers that have logged in with the old password are replaced. Weir's
    /// own.
    password_lifetime: Duration = "600", reload, acts, own;
    /// Overrides the global `auth_user` for this database.
    auth_user: Option<String> = unset, reload, acts;
    /// Overrides the global `auth_query` for this database.
    auth_query: Option<String> = unset, reload, acts;
    /// Overrides the global `auth_dbname` for this database.
    auth_dbname: Option<String> = unset, reload, acts;
    /// Server connections of each pool of this database; -1 inherits `default_pool_size`.
    pool_size: Option<u32> = unset, reload, acts;
    /// Server connections kept open in each pool of this database; -1 inherits the global key.
    min_pool_size: Option<u32> = unset, reload, acts;
    /// Additional server connections of each pool of this database; -1 inherits the global key.
    /// Another spelling is `reserve_pool`.
    reserve_pool_size: Option<u32> = unset, reload, acts;
    /// Limit of its server connections, over all its pools; 0 or -1 inherits the global key.
    max_db_connections: Option<u32> = unset, reload, acts;
    /// Share of each of its pools in a common limit of servers, 1 to 1,000. The limits are
    /// `max_user_connections` and `max_server_connections`. The share counts only while clients
    /// wait because a limit is reached.
    pool_weight: Weight = "1", reload, acts, own;
    /// Limit of client connections of this database; 0 or -1 inherits the global key.
    max_db_client_connections: Option<u32> = unset, reload, acts;
    /// Pool mode of this database. Not set: the global `pool_mode`.
    pool_mode: Option<PoolMode> = unset, reload, acts;
    /// `data_path` of this database's pools. Not set: the global `data_path`. Weir's own.
    data_path: Option<DataPath> = unset, reload, acts, own;
    /// `reuse_after_error` of this database's pools. Not set: the global key. Weir's own.
    reuse_after_error: Option<ReuseAfterError> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls13_ciphers: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_ca_file: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_cert_file: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_ciphers: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_key_file: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_protocols: Option<String> = unset, reload, acts, own;
    /// Overrides the global key for this database. Weir's own.
    server_tls_sslmode: Option<SslMode> = unset, reload, acts, own;
    /// Age at which an unused server connection of this database is closed; 0 inherits the global
    /// key.
    server_lifetime: Option<Duration> = unset, reload, acts;
    /// Overrides the global key for this database; 0 is no limit, -1 inherits. Weir's own.
    server_max_uses: Option<u32> = unset, reload, acts, own;
    /// Overrides the global key for this database; 0 is no limit, -1 inherits. Weir's own.
    server_max_memory: Option<u64> [bytes] = unset, reload, acts, own;
    /// Overrides the global key for this database; 0 is none, -1 inherits. Weir's own.
    min_spare_servers: Option<u32> = unset, reload, acts, own;
    /// Overrides the global key for this database; 0 is no limit, -1 inherits. Weir's own.
    max_spare_servers: Option<u32> = unset, reload, acts, own;
    /// How long a client of this database may wait for a server. Not set: the global key.
    query_wait_timeout: Option<Duration> = unset, reload, acts;
    /// Use several hosts in turn, or one of them until it fails.
    load_balance_hosts: LoadBalanceHosts = "round-robin", reload, acts;
    /// SQL that runs once on each new server connection.
    connect_query: Option<String> = unset, reload, acts;
    /// `client_encoding` of the server connection at login.
    client_encoding: Option<String> = unset, reload, acts;
    /// `datestyle` of the server connection at login.
    datestyle: Option<String> = unset, reload, acts;
    /// `timezone` of the server connection at login.
    timezone: Option<String> = unset, reload, acts;
    /// `application_name` of the server connection at login.
    application_name: Option<String> = unset, reload, acts;
}

impl Database {
    /// Returns the name of the database on the server.
    pub fn dbname(&self) -> &str {
        self.dbname.as_deref().unwrap_or(&self.name)
    }

    /// Returns the program that prints the password of `user`.
    pub fn password_command(&self) -> Option<PasswordCommand> {
        let program = self.password_command.clone()?;
        Some(PasswordCommand { program, lifetime: self.password_lifetime })
    }
}
