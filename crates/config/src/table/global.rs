//! The global keys: PgBouncer's hundred in the order of its `SHOW CONFIG`, then Weir's own.

use std::time::Duration;

use crate::bounds::out_of_bounds;
use crate::choice::{AuthType, PoolMode, SessionSchedule, SslMode, Unsupported};
use crate::key::{Keyed, keys};
use crate::network::Network;
use crate::pattern::Pattern;
use crate::reason::Reason;

keys! {
    /// Everything that is not about one database, one user or one peer.
    pub struct Global in Global {}

    /// Users who may run every command of the console.
    admin_users: Vec<String> = "", reload, acts;
    /// Add the client's address to the `application_name` it starts with.
    application_name_add_host: bool = "0", reload, acts;
    /// Database in which `auth_query` runs. Not set: the database the client asks for.
    auth_dbname: Option<String> = unset, reload, acts;
    /// File with the users and their secrets.
    auth_file: Option<String> = unset, reload, acts;
    /// File with the rules for `auth_type = hba`.
    auth_hba_file: String = "", reload, acts;
    /// File that maps names proven by certificate or by the operating system to users.
    auth_ident_file: Option<String> = unset, reload, acts;
    /// Options for `auth_type = ldap`, written as in PostgreSQL's HBA file.
    auth_ldap_options: Option<String> = unset, reload, acts, secret;
    /// Query that looks up a user and its secret; `$1` is the user name.
    auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname=$1 AND rolcanlogin", reload, acts;
    /// How clients prove who they are (docs/authentication.md).
    auth_type: AuthType = "md5", reload, acts;
    /// User that runs `auth_query` for users that are not in `auth_file`.
    auth_user: Option<String> = unset, reload, acts;
    /// Time after which an unused database made from the `*` entry is forgotten.
    autodb_idle_timeout: Duration = "3600", reload, acts;
    /// How long a cancel request may wait for a server connection; 0 is for ever.
    cancel_wait_timeout: Duration = "10", reload, acts;
    /// Longest silence of a client that holds no server; 0 is for ever.
    client_idle_timeout: Duration = "0", reload, acts;
    /// Time a client has to log in; 0 is for ever.
    client_login_timeout: Duration = "60", reload, acts;
    /// Cipher suites offered to clients with TLS 1.3. Not set: the library's choice.
    client_tls13_ciphers: Option<String> = unset, reload, acts;
    /// Certificates of the authorities that may sign client certificates, which are then asked for.
    client_tls_ca_file: String = "", reload, acts;
    /// Certificate shown to clients.
    client_tls_cert_file: String = "", reload, acts;
    /// Cipher suites offered to clients up to TLS 1.2.
    client_tls_ciphers: String = "default", reload, acts;
    /// Diffie-Hellman parameters for clients: auto, none or legacy.
    client_tls_dheparams: String = "auto", reload,
        idle("key exchange is by elliptic curves only");
    /// Elliptic curve for clients: auto, none or a name.
    client_tls_ecdhcurve: String = "auto", reload, acts;
    /// Private key for `client_tls_cert_file`.
    client_tls_key_file: String = "", reload, acts;
    /// TLS versions allowed for clients: all, secure, or a list of tlsv1.0 to tlsv1.3.
    client_tls_protocols: String = "secure", reload, acts;
    /// How much TLS is asked of clients.
    client_tls_sslmode: SslMode = "disable", reload, acts;
    /// The configuration file; the next reload reads the file named here.
    conffile: Option<String> = unset, reload, acts;
    /// Server connections of each pool, that is of each pair of database and user; 0 is no limit.
    default_pool_size: u32 = "20", reload, acts;
    /// Refuse simple queries, and with them several statements in one string.
    disable_pqexec: bool = "0", boot, acts;
    /// How long the addresses of a host name are kept.
    dns_max_ttl: Duration = "15", reload, acts;
    /// How long it is kept that a host name does not exist.
    dns_nxdomain_ttl: Duration = "15", reload, acts;
    /// How often DNS zones are checked for a new serial number; 0 is never.
    dns_zone_check_period: Duration = "0", reload, acts;
    /// Longest idle time inside a transaction; 0 is for ever.
    idle_transaction_timeout: Duration = "0", reload, acts;
    /// Startup parameters of clients that are ignored without an error.
    ignore_startup_parameters: Vec<String> = "", reload, acts;
    /// Name of the Windows service.
    job_name: String = "pgbouncer", boot, idle("Weir is no Windows service");
    /// TCP addresses or host names to listen on; `*` is all. Empty: no TCP.
    listen_addr: Vec<String> = "" (Url "127.0.0.1"), boot, acts;
    /// Connections the kernel may hold that are not accepted yet.
    listen_backlog: u32 = "128", boot, acts;
    /// TCP port to listen on, and suffix of the Unix socket name.
    listen_port: u16 = "6432", boot, acts;
    /// Log each successful login.
    log_connections: bool = "1", reload, acts;
    /// Log each disconnection, with its reason.
    log_disconnections: bool = "1", reload, acts;
    /// Log the error messages that the pooler sends to clients.
    log_pooler_errors: bool = "1", reload, acts;
    /// Log a line of statistics every `stats_period`.
    log_stats: bool = "1", reload, acts;
    /// File to log to, besides standard error; opened again on every reload.
    logfile: String = "", reload, acts;
    /// Notice sent to each client when it has logged in. Empty: none.
    login_notify_message: String = "", reload, acts;
    /// Client connections in all; the console is exempt.
    max_client_conn: u32 = "100", reload, acts;
    /// Client connections of each database; 0 is no limit.
    max_db_client_connections: u32 = "0", reload, acts;
    /// Server connections of each database in all its pools; 0 is no limit.
    max_db_connections: u32 = "0", reload, acts;
    /// Longest protocol message; a longer one ends the connection.
    max_packet_size: u32 [bytes] = "2147483647", reload, acts;
    /// Prepared statements kept on each server connection in the modes auto, transaction and statement;
    /// 0 switches their tracking off.
    max_prepared_statements: u32 = "200", reload, acts;
    /// Client connections of each user; 0 is no limit.
    max_user_client_connections: u32 = "0", reload, acts;
    /// Server connections of each user in all its pools; 0 is no limit.
    max_user_connections: u32 = "0", reload, acts;
    /// Server connections kept open in each pool in use; 0 is none.
    min_pool_size: u32 = "0", reload, acts;
    /// This pooler's number among its `[peers]`, up to 16383; 0 is no peering.
    peer_id: u32 = "0", reload, acts;
    /// File that holds the process id while Weir runs; needed to run as a daemon.
    pidfile: String = "", boot, acts;
    /// Size of the buffer of a connection.
    pkt_buf: u32 [bytes] = "4096", boot, idle("connections at rest have no buffer");
    /// When a server goes back to its pool: behind its client's session, transaction or statement.
    /// Or `auto`, Weir's own: behind the transaction, and the session is kept (docs/auto-mode.md).
    pool_mode: PoolMode = "session" (Toml "auto", Url "auto"), reload, acts;
    /// Time after which an empty pool is forgotten; 0 is never.
    pool_idle_timeout: Duration = "0", reload, acts;
    /// Longest query, counted from the last that its client has sent; 0 is for ever. Its server
    /// connection is closed.
    query_timeout: Duration = "0", reload, acts;
    /// Waiting time after which a client is told, by a notice, that it waits; 0 is never.
    query_wait_notify: u32 [seconds] = "5", reload, acts;
    /// How long a client may wait for a server; 0 is for ever.
    query_wait_timeout: Duration = "120", reload, acts;
    /// Server connections a pool may open beyond its size when clients wait; 0 is none.
    reserve_pool_size: u32 = "0", reload, acts;
    /// Waiting time after which the reserve of a pool opens; 0 keeps it closed.
    reserve_pool_timeout: Duration = "5", reload, acts;
    /// File to use in place of `/etc/resolv.conf`.
    resolv_conf: String = "", boot, acts;
    /// Reads of one connection, of up to 64 KiB, before others get their turn; 0 is 1 MiB.
    sbuf_loopcnt: u32 = "5", reload, acts;
    /// Iterations of the SCRAM verifiers Weir makes from plain passwords.
    scram_iterations: u32 = "4096", reload, acts;
    /// Idle time after which a server connection is probed before use; 0 is always.
    server_check_delay: Duration = "30", reload, acts;
    /// Query that probes a server connection; `<empty>` is an empty query, an empty text no probe.
    server_check_query: String = "<empty>", reload, acts;
    /// Time a server connection has to be opened and logged in; 0 is for ever.
    server_connect_timeout: Duration = "15", reload, acts;
    /// In session mode, close servers marked for closing between transactions already.
    server_fast_close: bool = "0", reload, acts;
    /// Idle time after which a server connection is closed; 0 is never.
    server_idle_timeout: Duration = "600", reload, acts;
    /// Age at which an unused server connection is closed; 0 uses each one once.
    server_lifetime: Duration = "3600", reload, acts;
    /// Pause after a failed connection or login to a server.
    server_login_retry: Duration = "15", reload, acts;
    /// Query that cleans a server connection when its client leaves, in session mode.
    server_reset_query: String = "DISCARD ALL", reload, acts;
    /// Run `server_reset_query` in every pool mode.
    server_reset_query_always: bool = "0", reload, acts;
    /// Use servers in turn, instead of the one released last.
    server_round_robin: bool = "0", reload, acts;
    /// Cipher suites offered to servers with TLS 1.3. Not set: the library's choice.
    server_tls13_ciphers: Option<String> = unset, reload, acts;
    /// Certificates of the authorities that may sign server certificates; without it, the system's.
    server_tls_ca_file: String = "", reload, acts;
    /// Certificate shown to servers.
    server_tls_cert_file: String = "", reload, acts;
    /// Cipher suites offered to servers up to TLS 1.2.
    server_tls_ciphers: String = "default", reload, acts;
    /// Private key for `server_tls_cert_file`.
    server_tls_key_file: String = "", reload, acts;
    /// TLS versions allowed for servers: all, secure, or a list of tlsv1.0 to tlsv1.3.
    server_tls_protocols: String = "secure", reload, acts;
    /// How much TLS is asked of servers.
    server_tls_sslmode: SslMode = "prefer", reload, acts;
    /// Listen with `SO_REUSEPORT`, so that several poolers can share a port.
    so_reuseport: bool = "0", boot, acts;
    /// How often statistics are averaged and logged.
    stats_period: u32 [seconds] = "60", reload, acts;
    /// Users who may run the `SHOW` commands of the console.
    stats_users: Vec<String> = "", reload, acts;
    /// Time for buffers to drain in `SUSPEND`, and for busy clients to follow in an online restart.
    suspend_timeout: Duration = "10", reload, acts;
    /// Log to syslog.
    syslog: bool = "0", reload, acts;
    /// Facility given to syslog: daemon, user, local0 and so on. An unknown one is daemon.
    syslog_facility: String = "daemon", reload, acts;
    /// Program name given to syslog.
    syslog_ident: String = "pgbouncer", reload, acts;
    /// Accept a client only when its first bytes are there.
    tcp_defer_accept: bool = "1", reload, acts;
    /// Send TCP keepalives on client and server connections.
    tcp_keepalive: bool = "1", reload, acts;
    /// Keepalives without an answer that end a connection, at most 127; 0 is the system's default.
    tcp_keepcnt: u32 = "0", reload, acts;
    /// Silence after which keepalives start, at most 32767; 0 is the system's default.
    tcp_keepidle: u32 [seconds] = "0", reload, acts;
    /// Time between keepalives, at most 32767; 0 is the system's default.
    tcp_keepintvl: u32 [seconds] = "0", reload, acts;
    /// Size of the kernel's buffers of a connection; 0 is the system's default.
    tcp_socket_buffer: u32 [bytes] = "0", reload, acts;
    /// Time sent data may stay without acknowledgement; 0 is the system's default.
    tcp_user_timeout: u32 [milliseconds] = "0", reload, acts;
    /// Further parameters that are kept for each client: what it came with, and what it has set since,
    /// if PostgreSQL reports that, as it does of `search_path` from version 18 on.
    track_extra_parameters: Vec<String> = "IntervalStyle", boot, acts;
    /// Longest transaction; 0 is for ever. Its server connection is closed.
    transaction_timeout: Duration = "0", reload, acts;
    /// Folder of the Unix socket to listen on, and of that of a database without `host`; `@name`
    /// is an abstract socket. Empty: no Unix socket.
    unix_socket_dir: String = "/tmp" (Url ""), boot, acts;
    /// Group of the Unix socket, by name or number.
    unix_socket_group: String = "", boot, acts;
    /// Permissions of the Unix socket; write a leading 0 for octal.
    unix_socket_mode: u32 = "0777", boot, acts;
    /// User to become when started as root.
    user: Option<String> = unset, boot, acts;
    /// How much to log, from 0 to 3.
    verbose: u32 = unset, reload, acts;
    /// Server connections of the whole process; 0 is no limit. Room for another one is made by closing
    /// the idle one that was used least recently. Weir's own.
    max_server_connections: u32 = "0", reload, acts;
    /// Threads that carry the traffic; 0 is one for every two processors. Weir's own.
    workers: u32 = "0", boot, acts;
    /// Which worker a new client is given to: `round-robin`, each in turn; `random`, by lot;
    /// `load-balancing`, the one with the fewest clients, of whom those with TLS count four times.
    /// The worker that accepts a client keeps it if it has at most a sixteenth more than that one.
    /// Weir's own.
    session_schedule: SessionSchedule = "load-balancing", boot, acts;
    /// Cancel the query of a client that is lost while it runs; PostgreSQL would finish it for
    /// nobody. A client that says goodbye in mid-query is not lost. Weir's own.
    cancel_lost_queries: bool = "1", reload, acts;
    /// Pause between proofs of a user from one address, once five in a row were wrong: the next one is
    /// looked at when it is over, be it right or wrong. 0 is none. Weir's own.
    auth_failure_delay: Duration = "1", reload, acts;
    /// Clients that may be logging in at a time by TCP, TLS handshakes included; 0 is no limit. At the
    /// limit nobody is accepted until there is room, and who has kept Weir waiting for a second has to
    /// go: since it connected, or since it was asked for its password. If nobody has, those go who wait
    /// for `auth_failure_delay`. Weir's own.
    max_client_logins: u32 = "1000", reload, acts;
    /// Let the kernel write core dumps, and debuggers of the same user look into the process: both
    /// show passwords and keys. Weir's own.
    core_dumps: bool = "0", boot, acts;
    /// Proxies whose connections begin with a PROXY protocol header of version 2, which tells where
    /// the client is: addresses and networks (`10.0.0.0/8`). Others must not send one. Weir's own.
    proxy_protocol_trusted: Vec<Network> = "", reload, acts;
    /// With `pool_mode = auto`: what becomes of a statement that needs a session of its own and
    /// leaves nothing by which that could be seen: `currval`, `lastval`, `setseed`, `LOAD` (docs/auto-mode.md).
    /// Weir's own.
    auto_unsupported: Unsupported = "pin", reload, acts;
    /// With `pool_mode = auto`: a client that sends a text with a match of one of these regular
    /// expressions in it, as of the function's name, keeps its server from then on, until it sends
    /// `DISCARD ALL` or leaves. Every text is searched, but of one of more than 64 KiB the first
    /// 4 KiB. Weir's own.
    pin_functions: Vec<Pattern> = "", reload, acts;
    /// With `pool_mode = auto`: how long a client may keep a server without using it, because of
    /// something it has there; 0 is no limit. Weir's own.
    pin_timeout: Duration = "0", reload, acts;
    /// Folder with the services of PAM, in place of the system's; the service is called `pgbouncer`.
    /// PgBouncer's after 1.25.
    auth_pam_confdir: Option<String> = unset, reload, acts;
}

impl Global {
    /// Is this a key whose value nobody is to see?
    #[must_use]
    pub fn is_secret(key: &str) -> bool {
        Self::row(key).is_some_and(|row| row.key.secret)
    }

    /// Sets one key from its text, as the console's `SET` does: a boot-only key is left alone.
    ///
    /// # Errors
    /// When there is no such key, or that is no value for it.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Reason> {
        let row = Self::row(key).ok_or_else(|| Reason::UnknownParameter(key.to_owned()))?;
        if !row.key.reloadable {
            return Ok(());
        }
        (row.set)(self, text).map_err(|expected| row.key.refuse(text, expected))?;
        out_of_bounds(&row.key, (row.show)(self).as_deref()).map_or(Ok(()), Err)
    }

    /// Does this key concern TLS?
    #[must_use]
    pub fn concerns_tls(key: &str) -> bool {
        key.starts_with("client_tls") || key.starts_with("server_tls")
    }

    /// Does the key name half of what we show of ourselves, a certificate or its private key?
    #[must_use]
    pub fn is_tls_identity(key: &str) -> bool {
        Self::concerns_tls(key) && (key.ends_with("_cert_file") || key.ends_with("_key_file"))
    }

    /// All that is said of TLS to servers: other texts mean other connections.
    #[must_use]
    pub fn server_tls(&self) -> Vec<String> {
        let rows = Self::ROWS.iter().filter(|row| row.key.name.starts_with("server_tls"));
        rows.map(|row| (row.exact)(self).unwrap_or_default()).collect()
    }

    /// Takes everything that concerns TLS from the running configuration.
    pub fn keep_tls(&mut self, running: &Self) {
        for row in Self::ROWS.iter().filter(|row| Self::concerns_tls(row.key.name)) {
            (row.copy)(self, running);
        }
    }

    /// Takes over from `running` what only a restart may change, and names the keys that differed.
    pub fn keep_boot_only(&mut self, running: &Self) -> Vec<&'static str> {
        let mut kept = Vec::new();
        for row in Self::ROWS.iter().filter(|row| !row.key.reloadable) {
            if (row.show)(self) != (row.show)(running) {
                kept.push(row.key.name);
                (row.copy)(self, running);
            }
        }
        kept
    }
}
