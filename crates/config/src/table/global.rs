//! The global keys: PgBouncer's hundred in the order of its `SHOW CONFIG`, then Weir's own.

use std::time::Duration;

use crate::bounds::out_of_bounds;
use crate::choice::{
    AuthType, ConsoleColumns, DataPath, ErrorCodes, LogFormat, MetricsHistograms, MetricsNames,
    PcpCompat, PoolMode, ReuseAfterError, SessionSchedule, SslMode, Unsupported,
};
use crate::key::{Key, Keyed, keys};
use crate::network::Network;
use crate::pattern::Pattern;
use crate::reason::Reason;

keys! {
    /// Everything that is not about one database, one user or one peer.
    pub struct Global in Global {}

    /// Users who may run every console command.
    admin_users: Vec<String> = "", reload, acts;
    /// Add the client's address to its initial `application_name`.
    application_name_add_host: bool = "0", reload, acts;
    /// Database in which `auth_query` runs. Not set: the database that the client asks for.
    auth_dbname: Option<String> = unset, reload, acts;
    /// File with the users and their passwords, or several files. A user in several of them has the
    /// password of the last one.
    auth_file: Option<Vec<String>> = unset, reload, acts;
    /// File with the rules for `auth_type = hba`.
    auth_hba_file: String = "", reload, acts;
    /// File that maps names of certificates or of the operating system to users.
    auth_ident_file: Option<String> = unset, reload, acts;
    /// Options for `auth_type = ldap`, written as in PostgreSQL's HBA file.
    auth_ldap_options: Option<String> = unset, reload, acts, secret;
    /// Query that returns a user's name and password; `$1` is the user name. It runs in `auth_dbname`.
    auth_query: String = "SELECT rolname, CASE WHEN rolvaliduntil < pg_catalog.now() THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid WHERE rolname=$1 AND rolcanlogin", reload, acts;
    /// How clients log in (docs/authentication.md).
    auth_type: AuthType = "md5", reload, acts;
    /// User that runs `auth_query` for users that are not in `auth_file`.
    auth_user: Option<String> = unset, reload, acts;
    /// Time after which an unused database made from the `*` entry is removed.
    autodb_idle_timeout: Duration = "3600", reload, acts;
    /// How long a cancel request may wait for a server connection; 0 is no limit.
    cancel_wait_timeout: Duration = "10", reload, acts;
    /// Longest idle time of a client without a server; 0 is no limit.
    client_idle_timeout: Duration = "0", reload, acts;
    /// Longest time for a client's login; 0 is no limit.
    client_login_timeout: Duration = "60", reload, acts;
    /// Cipher suites offered to clients with TLS 1.3. Not set: the library's choice.
    client_tls13_ciphers: Option<String> = unset, reload, acts;
    /// Authorities that may sign client certificates. If set, clients are asked for one.
    client_tls_ca_file: String = "", reload, acts;
    /// Certificate for clients.
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
    /// Whether clients may or must use TLS.
    client_tls_sslmode: SslMode = "disable", reload, acts;
    /// The configuration file. The next reload reads the file that is named here.
    conffile: Option<String> = unset, reload, acts;
    /// Server connections of each pool (a pair of database and user); 0 is no limit.
    default_pool_size: u32 = "20", reload, acts;
    /// Refuse simple queries, which may contain several statements.
    disable_pqexec: bool = "0", boot, acts;
    /// How long the addresses of a host name are kept.
    dns_max_ttl: Duration = "15", reload, acts;
    /// How long Weir remembers that a host name does not exist.
    dns_nxdomain_ttl: Duration = "15", reload, acts;
    /// How often DNS zones are checked for a new serial number; 0 is never.
    dns_zone_check_period: Duration = "0", reload, acts;
    /// Longest idle time inside a transaction; 0 is no limit.
    idle_transaction_timeout: Duration = "0", reload, acts;
    /// Startup parameters of clients that are ignored without an error.
    ignore_startup_parameters: Vec<String> = "", reload, acts;
    /// Name of the Windows service.
    job_name: String = "pgbouncer", boot, idle("Weir is no Windows service");
    /// TCP addresses or host names to listen on; `*` is all. Empty: no TCP.
    listen_addr: Vec<String> = "" (Url "127.0.0.1"), boot, acts;
    /// Connections that the kernel may hold before Weir accepts them.
    listen_backlog: u32 = "128", boot, acts;
    /// TCP port to listen on, and suffix of the Unix socket name.
    listen_port: u16 = "6432", boot, acts;
    /// Log each successful login.
    log_connections: bool = "1", reload, acts;
    /// Log each disconnection, with its reason.
    log_disconnections: bool = "1", reload, acts;
    /// Log the errors that Weir itself sends to clients.
    log_pooler_errors: bool = "1", reload, acts;
    /// Log a line of statistics every `stats_period`.
    log_stats: bool = "1", reload, acts;
    /// File to log to, besides standard error; opened again on every reload.
    logfile: String = "", reload, acts;
    /// Notice for each client after its login. Empty: none.
    login_notify_message: String = "", reload, acts;
    /// Limit of client connections. The console is exempt. Weir raises its limit of open files as far
    /// as it may. If that is too low for `weir.toml` or a URL, it lets fewer clients in, and the log
    /// says how many.
    max_client_conn: u32 = "100" (Toml "10000", Url "10000"), reload, acts;
    /// Limit of client connections of each database; 0 is no limit.
    max_db_client_connections: u32 = "0", reload, acts;
    /// Limit of server connections of each database, over all its pools; 0 is no limit.
    max_db_connections: u32 = "0", reload, acts;
    /// Longest protocol message. A longer one ends the connection.
    max_packet_size: u32 [bytes] = "2147483647", reload, acts;
    /// Prepared statements kept on each server connection. The key has an effect in the modes auto,
    /// transaction and statement. 0 switches tracking off.
    max_prepared_statements: u32 = "200", reload, acts;
    /// Limit of client connections of each user; 0 is no limit.
    max_user_client_connections: u32 = "0", reload, acts;
    /// Limit of server connections of each user, over all its pools; 0 is no limit.
    max_user_connections: u32 = "0", reload, acts;
    /// Server connections kept open in each pool in use; 0 is none.
    min_pool_size: u32 = "0", reload, acts;
    /// This pooler's number among its `[peers]`, up to 16383; 0 is no peering.
    peer_id: u32 = "0", reload, acts;
    /// File for the process id. A daemon needs it.
    pidfile: String = "", boot, acts;
    /// Size of the buffer of a connection.
    pkt_buf: u32 [bytes] = "4096", boot, idle("connections at rest have no buffer");
    /// When a server goes back to its pool. It goes back at the end of the client's session,
    /// transaction or statement. `auto` is Weir's own mode: transaction pooling that keeps each
    /// client's session state (docs/auto-mode.md).
    pool_mode: PoolMode = "session" (Toml "auto", Url "auto"), reload, acts;
    /// Time after which an empty pool is removed; 0 is never.
    pool_idle_timeout: Duration = "0", reload, acts;
    /// Longest run time of a query; 0 is no limit. Each query of a pipeline has its own time, and
    /// COPY FROM STDIN has it after each message. At the limit, Weir closes the server connection.
    query_timeout: Duration = "0", reload, acts;
    /// Waiting time after which a client gets a notice that it waits; 0 is never.
    query_wait_notify: u32 [seconds] = "5", reload, acts;
    /// How long a client may wait for a server; 0 is no limit.
    query_wait_timeout: Duration = "120", reload, acts;
    /// Additional server connections of a pool when clients wait too long; 0 is none.
    reserve_pool_size: u32 = "0", reload, acts;
    /// Waiting time after which a pool may use its reserve; 0 is never.
    reserve_pool_timeout: Duration = "5", reload, acts;
    /// File to use in place of `/etc/resolv.conf`; it is read again when it has changed.
    resolv_conf: String = "", boot, acts;
    /// Reads of up to 64 KiB from one connection before others are served; 0 is 1 MiB.
    sbuf_loopcnt: u32 = "5", reload, acts;
    /// Iterations of the SCRAM verifiers that Weir makes from plain passwords.
    scram_iterations: u32 = "4096", reload, acts;
    /// Idle time after which a server is checked before use; 0 is always.
    server_check_delay: Duration = "30", reload, acts;
    /// Query that checks a server; `<empty>` is an empty query, an empty text no check.
    server_check_query: String = "<empty>", reload, acts;
    /// Longest time to connect and log in to a server; 0 is no limit.
    server_connect_timeout: Duration = "15", reload, acts;
    /// In session mode, replace a server at the end of a transaction, not of the session.
    server_fast_close: bool = "0", reload, acts;
    /// Idle time after which a server is closed; 0 is never.
    server_idle_timeout: Duration = "600", reload, acts;
    /// Age at which an unused server is closed; 0 uses each server once.
    server_lifetime: Duration = "3600", reload, acts;
    /// Pause after a server has refused a login. After a failed connection, the first pause is 0.1
    /// s, and the longest one is this.
    server_login_retry: Duration = "15", reload, acts;
    /// Query that resets a server when its client leaves, in session mode.
    server_reset_query: String = "DISCARD ALL", reload, acts;
    /// Run `server_reset_query` in every pool mode.
    server_reset_query_always: bool = "0", reload, acts;
    /// Use servers in turn. Otherwise the server that was released last is used first.
    server_round_robin: bool = "0", reload, acts;
    /// Cipher suites offered to servers with TLS 1.3. Not set: the library's choice.
    server_tls13_ciphers: Option<String> = unset, reload, acts;
    /// Authorities that may sign server certificates. Not set: the system's.
    server_tls_ca_file: String = "", reload, acts;
    /// Certificate for servers.
    server_tls_cert_file: String = "", reload, acts;
    /// Cipher suites offered to servers up to TLS 1.2.
    server_tls_ciphers: String = "default", reload, acts;
    /// Private key for `server_tls_cert_file`.
    server_tls_key_file: String = "", reload, acts;
    /// TLS versions allowed for servers: all, secure, or a list of tlsv1.0 to tlsv1.3.
    server_tls_protocols: String = "secure", reload, acts;
    /// Whether servers may or must use TLS.
    server_tls_sslmode: SslMode = "prefer", reload, acts;
    /// Listen with `SO_REUSEPORT`, so that several poolers can share a port.
    so_reuseport: bool = "0", boot, acts;
    /// How often statistics are averaged and logged.
    stats_period: u32 [seconds] = "60", reload, acts;
    /// Users who may run the `SHOW` commands of the console.
    stats_users: Vec<String> = "", reload, acts;
    /// Longest wait for connections to become idle. It applies to `SUSPEND` and to online restarts.
    suspend_timeout: Duration = "10", reload, acts;
    /// Log to syslog.
    syslog: bool = "0", reload, acts;
    /// Syslog facility: daemon, user, local0 and so on. An unknown one is daemon.
    syslog_facility: String = "daemon", reload, acts;
    /// Program name for syslog.
    syslog_ident: String = "pgbouncer", reload, acts;
    /// Accept a client only after its first bytes have arrived.
    tcp_defer_accept: bool = "1", reload, acts;
    /// Send TCP keepalives on client and server connections.
    tcp_keepalive: bool = "1", reload, acts;
    /// Unanswered keepalives after which a connection ends (at most 127); 0 is the system's
    /// default.
    tcp_keepcnt: u32 = "0", reload, acts;
    /// Idle time before the first keepalive (at most 32767); 0 is the system's default.
    tcp_keepidle: u32 [seconds] = "0", reload, acts;
    /// Time between keepalives (at most 32767); 0 is the system's default.
    tcp_keepintvl: u32 [seconds] = "0", reload, acts;
    /// Size of the kernel's buffers of a connection; 0 is the system's default.
    tcp_socket_buffer: u32 [bytes] = "0", reload, acts;
    /// How long sent data may be unacknowledged; 0 is the system's default.
    tcp_user_timeout: u32 [milliseconds] = "0", reload, acts;
    /// Further parameters that Weir keeps for each client. A client keeps the value of its startup
    /// packet. It keeps a later value if PostgreSQL reports it, as with `search_path` from version
    /// 18 on.
    track_extra_parameters: Vec<String> = "IntervalStyle", boot, acts;
    /// Longest transaction; 0 is no limit. At the limit, Weir closes the server connection.
    transaction_timeout: Duration = "0", reload, acts;
    /// Folder of the Unix socket to listen on; `@name` is an abstract socket. Databases without
    /// `host` use a socket in this folder, too. Empty: no Unix socket.
    unix_socket_dir: String = "/tmp" (Url ""), boot, acts;
    /// Group of the Unix socket, by name or number.
    unix_socket_group: String = "", boot, acts;
    /// Permissions of the Unix socket; write a leading 0 for octal.
    unix_socket_mode: u32 = "0777", boot, acts;
    /// User to switch to when started as root.
    user: Option<String> = unset, boot, acts;
    /// Verbosity of the log, from 0 to 3.
    verbose: u32 = unset, reload, acts;
    /// Limit of server connections of the whole process; 0 is no limit. At the limit, Weir closes
    /// the least recently used idle server to open another. Weir's own.
    max_server_connections: u32 = "0", reload, acts;
    /// Treatment of a server whose client's last transaction has failed. `reset`: it is reset as
    /// `pool_mode` says, and used again. `never`: it is closed. With `never`, a server is also
    /// closed if its client disappears during a query. Such pools are proxied
    /// (docs/direct.md). Weir's own.
    reuse_after_error: ReuseAfterError = "reset", reload, acts;
    /// Number of worker threads; 0 is one for every two processors. Weir's own.
    workers: u32 = "0", boot, acts;
    /// How Weir chooses the worker of a new client. `round-robin`: in turn. `random`: at random.
    /// `load-balancing`: the worker with the fewest clients, where a client with TLS counts as
    /// four. The accepting worker keeps the client if it has at most 1/16 more clients than that
    /// worker. Weir's own.
    session_schedule: SessionSchedule = "load-balancing", boot, acts;
    /// Cancel the query of a client whose connection is lost. A client that sends Terminate during
    /// a query is not lost. Weir's own.
    cancel_lost_queries: bool = "1", reload, acts;
    /// Pause between password attempts of a user from one address; 0 is none. The pause begins
    /// after five wrong passwords in a row. An attempt during the pause is checked when the pause
    /// is over, even if it is right. Weir's own.
    auth_failure_delay: Duration = "1", reload, acts;
    /// Limit of clients that log in at the same time by TCP; 0 is no limit. TLS handshakes count.
    /// At the limit, Weir accepts no client until there is room. It disconnects clients that have
    /// not answered for a second, since connecting or since the password request. If there are
    /// none, it disconnects clients that wait for `auth_failure_delay`. Weir's own.
    max_client_logins: u32 = "1000", reload, acts;
    /// Allow core dumps, and debuggers of the same user. Both show passwords and keys. Weir's own.
    core_dumps: bool = "0", boot, acts;
    /// Proxies that send the client's address by the PROXY protocol. The values are addresses and
    /// networks (`10.0.0.0/8`). Each connection from there must begin with a header of version 2.
    /// Other clients must not send one. Weir's own.
    proxy_protocol_trusted: Vec<Network> = "", reload, acts;
    /// Treatment of statements that `pool_mode = auto` cannot pool. The key concerns `currval`,
    /// `lastval`, `setseed` and `LOAD`. They need a session of their own, and a probe cannot see
    /// their effect (docs/auto-mode.md). Weir's own.
    auto_unsupported: Unsupported = "pin", reload, acts;
    /// Regular expressions of texts after which a client keeps its server. The key has an effect
    /// with `pool_mode = auto`. An expression usually matches a function's name. The client keeps
    /// the server until it sends `DISCARD ALL` or leaves. Of a text of more than 64 KiB, only the
    /// first 4 KiB are searched. Weir's own.
    pin_functions: Vec<Pattern> = "", reload, acts;
    /// How long a pinned client may keep its server without using it; 0 is no limit. The key has an
    /// effect with `pool_mode = auto`. Weir's own.
    pin_timeout: Duration = "0", reload, acts;
    /// Choice of the SQLSTATEs of Weir's own errors. `weir`: PostgreSQL's SQLSTATEs, which drivers
    /// know (28P01, 3D000, 53300, 08006, 57P01). `pgbouncer`: PgBouncer's, mostly 08P01.
    /// The error texts are PgBouncer's in both, and both have DETAIL and HINT. Weir's own.
    error_codes: ErrorCodes = "pgbouncer" (Toml "weir", Url "weir"), reload, acts;
    /// Columns of the SHOW commands on the console. `pgbouncer`: exactly those of PgBouncer 1.25.2, since
    /// some monitors count columns. `weir`: Weir's own as well, which `SHOW … EXTENDED` shows in any case.
    /// Weir's own.
    console_columns: ConsoleColumns = "pgbouncer" (Toml "weir", Url "weir"), reload, acts;
    /// Folder of PAM's service files, in place of the system's. The service is `pgbouncer`.
    /// PgBouncer's after 1.25.
    auth_pam_confdir: Option<String> = unset, reload, acts;
    /// Addresses or host names for `/metrics` and the health checks; `*` is all. The pages are
    /// served over HTTP without a password, so allow access from a trusted network only
    /// (docs/metrics.md). Weir's own.
    metrics_addr: Vec<String> = "127.0.0.1", reload, acts;
    /// TCP port of `metrics_addr`; 0 is none. Weir's own.
    metrics_port: u16 = "0" (Toml "9127", Url "9127"), reload, acts;
    /// Addresses or host names for the health checks alone (docs/metrics.md); `*` is all.
    /// Weir's own.
    health_addr: Vec<String> = "*", reload, acts;
    /// TCP port of `health_addr`; 0 is none. Weir's own.
    health_port: u16 = "0", reload, acts;
    /// Names of the metrics. `weir`: Weir's. `pgbouncer_exporter`: those of PgBouncer's exporter
    /// for Prometheus. `both`: both. Weir's own.
    metrics_names: MetricsNames = "weir", reload, acts;
    /// Histograms of times on the page of metrics. `pool`: those of each pool. `total`: all pools
    /// added up. `none`: none. They are four fifths of a page (docs/metrics.md). Weir's own.
    metrics_histograms: MetricsHistograms = "pool", reload, acts;
    /// Count requests by the fingerprint of their text, without its literals, for SHOW FINGERPRINTS.
    /// Weir's own.
    fingerprints: bool = "0", reload, acts;
    /// Watch the clients of pools in another mode than auto, for SHOW ADVICE and `weir advise`.
    /// It changes nothing for clients (docs/auto-mode.md). Weir's own.
    advise: bool = "0", reload, acts;
    /// Keep the checkpoints of so many ended connections, for SHOW TIMINGS; 0 is none. They go from
    /// accept to the end (docs/troubleshooting.md). Each connection needs some 100 bytes, and as much
    /// while it is open. Weir's own.
    connection_timings: u32 = "0", reload, acts;
    /// Show `pooled` as `application_name` of servers without a client for a second. PostgreSQL's
    /// `pg_stat_activity` has it. It costs a statement then, and another one when the server gets its next
    /// client; a busy pool pays nothing (docs/operations.md). Weir's own.
    mark_pooled_servers: bool = "0", reload, acts;
    /// Form of log lines: PgBouncer's, or one JSON object a line. An object has the fields time, level,
    /// pid and message. A line about a connection also has connection, database, user and address.
    /// Weir's own.
    log_format: LogFormat = "pgbouncer", reload, acts;
    /// Show clients' addresses in PostgreSQL's `pg_stat_activity`, on servers that load the library
    /// `weir`. PostgreSQL runs one small statement more when a server goes to another client. The key
    /// has an effect with `pool_mode = auto`. Weir's own.
    server_client_address: bool = "0", reload, acts;
    /// Whether Weir or PostgreSQL's backends handle the queries of clients. `proxy`: Weir does.
    /// `direct`: the backends read and answer the clients' sockets (docs/direct.md). A pool that
    /// cannot be direct is proxied; SHOW POOLS EXTENDED says why, and `weir check-config` warns. `auto`: as
    /// `direct`, without the warning. Weir's own.
    data_path: DataPath = "proxy", reload, acts;
    /// Path of the unix socket at which PostgreSQL's backends fetch the clients that they serve. It
    /// must be the path in PostgreSQL's `weir.control_socket`. Empty: all pools are proxied. Weir's
    /// own.
    direct_socket: String = "", boot, acts;
    /// Least time between two checks of a pool's role and stored settings; 0 is never. Its servers are
    /// replaced if the role or the database was renamed, or dropped and created again, or if stored
    /// settings (`ALTER ROLE … SET`) have changed. An idle server is asked when a client logs in or a
    /// server was opened (docs/authentication.md). Weir's own.
    role_check_interval: Duration = "1", reload, acts;
    /// Number of times that a server is given to clients; then it is closed when it is free. 0 is no
    /// limit. A pool with a limit is proxied (docs/operations.md). Weir's own.
    server_max_uses: u32 = "0", reload, acts;
    /// Private memory of a server's process at which it is closed when it is free; 0 is no limit.
    /// It has an effect only if PostgreSQL runs on this host (docs/operations.md). Weir's own.
    server_max_memory: u64 [bytes] = "0", reload, acts;
    /// Idle servers that each pool with a client has ready beyond its demand; 0 is none. They are
    /// opened before clients need them, within all limits (docs/operations.md). Weir's own.
    min_spare_servers: u32 = "0", reload, acts;
    /// Idle servers that each pool keeps beyond its demand; 0 is no limit. Those above are closed little
    /// by little, the least recently used ones first (docs/operations.md). Weir's own.
    max_spare_servers: u32 = "0", reload, acts;
    /// Addresses or host names for Pgpool-II's tools `pcp_*` (docs/pgpool.md); `*` is all. The
    /// connections have no TLS, and their answers can be read on the network. Weir's own.
    pcp_listen: Vec<String> = "127.0.0.1", reload, acts;
    /// TCP port of `pcp_listen`; 0 is none. The tools' default is 9898. Weir's own.
    pcp_port: u16 = "0", reload, acts;
    /// File of the users of the tools: a line `NAME:MD5` for each, as in `pcp.conf` of Pgpool-II. MD5 is
    /// the output of `pg_md5`. Behind `:read-only`, a user can look but not change anything. Weir's own.
    pcp_file: Option<String> = unset, reload, acts;
    /// Version of Pgpool-II whose tools are used: `4.3`, or from `4.4` on. With the wrong one,
    /// `pcp_node_info` prints values in the wrong places (docs/pgpool.md). Weir's own.
    pcp_compat: PcpCompat = "4.4", reload, acts;
}

impl Global {
    /// Is the value of this key a secret?
    #[must_use]
    pub fn is_secret(key: &str) -> bool {
        Self::row(key).is_some_and(|row| row.key.secret)
    }

    /// Sets a key from its text, as the console's `SET` does; a boot-only key is not changed.
    ///
    /// # Errors
    /// When there is no such key, or the value is invalid.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Reason> {
        let row = Self::row(key).ok_or_else(|| {
            let key = key.to_owned();
            match Key::all().any(|own| own.name == key && own.reaches_outside()) {
                true => Reason::InFileOnly(key),
                false => Reason::UnknownParameter(key),
            }
        })?;
        if row.key.reaches_outside() && !Self::is_pgbouncers(key) {
            return Err(Reason::InFileOnly(key.to_owned()));
        }
        if !row.key.reloadable {
            return Ok(());
        }
        (row.set)(self, text).map_err(|expected| row.key.refuse(text, expected))?;
        out_of_bounds(&row.key, (row.show)(self).as_deref()).map_or(Ok(()), Err)
    }

    /// Is this a key of PgBouncer? They come before Weir's own.
    pub(crate) fn is_pgbouncers(key: &str) -> bool {
        let names = Self::ROWS.iter().map(|row| row.key.name);
        names.take_while(|name| *name != "max_server_connections").any(|name| name == key)
    }

    /// Does this key concern TLS?
    #[must_use]
    pub fn concerns_tls(key: &str) -> bool {
        key.starts_with("client_tls") || key.starts_with("server_tls")
    }

    /// Does the key concern the addresses at which metrics, health checks or PCP are served?
    #[must_use]
    pub fn concerns_address(key: &str) -> bool {
        ["metrics_addr", "metrics_port", "health_addr", "health_port", "pcp_listen", "pcp_port"]
            .contains(&key)
    }

    /// Does the key name Weir's own certificate or private key?
    #[must_use]
    pub fn is_tls_identity(key: &str) -> bool {
        Self::concerns_tls(key) && (key.ends_with("_cert_file") || key.ends_with("_key_file"))
    }

    /// Copies all TLS settings from the running configuration.
    pub(crate) fn keep_tls(&mut self, running: &Self) {
        for row in Self::ROWS.iter().filter(|row| Self::concerns_tls(row.key.name)) {
            (row.copy)(self, running);
        }
    }

    /// Copies from `running` what only a restart may change, and returns the keys that differed.
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
