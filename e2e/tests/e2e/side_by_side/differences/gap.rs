//! The changes of PgBouncer itself between 1.18 and 1.25.2, and those of 1.26 that only add.

use super::Difference;

pub(in super::super) const GAP: &[Difference] = &[
    Difference {
        why: "The login line says whether it is for replication since 1.24, and lines of a login name its database from the startup packet on since 1.21.",
        lines: &[
            (
                "*",
                "- log LOG C-N: (nodb)/* login attempt: db=* tls=no => + log LOG C-N: %/* login attempt: db=* tls=no replication=no",
            ),
            (
                "*",
                "- log LOG C-N: * login attempt: db=* tls=no => + log LOG C-N: * login attempt: db=* tls=no replication=no",
            ),
            (
                "*",
                "- log * C-N: (nodb)/* closing because: * => + log * C-N: %/* closing because: *",
            ),
            ("*", "- log * C-N: (nodb)/* pooler error: * => + log * C-N: %/* pooler error: *"),
            ("*", "- log * C-N: (nodb)/* login failed: * => + log * C-N: %/* login failed: *"),
            ("*", "- log * C-N: (nodb)/* no such user: * => + log * C-N: %/* no such user: *"),
            (
                "scram: *",
                "- log ERROR C-N: (nodb)/* password authentication failed => + log ERROR C-N: %/* password authentication failed",
            ),
        ],
    },
    Difference {
        why: "search_path is tracked since 1.26.",
        lines: &[("startup: search_path", "- *"), ("startup: search_path", "+ *")],
    },
    Difference {
        why: "A refused login's closing line has PostgreSQL's text.",
        lines: &[(
            "*",
            "- log LOG S-N: * closing because: login failed (age=Ns) => + log LOG S-N: * closing because: % (age=Ns)",
        )],
    },
    Difference {
        why: "A cancel request has no database in the log any more, and that it is being sent is told to who debugs only.",
        lines: &[
            (
                "session: a cancelled query",
                "- log LOG C-N: {db}/* closing because: * => + log LOG C-N: (nodb)/* closing because: *",
            ),
            ("session: a cancel*", "- log LOG started sending cancel request"),
        ],
    },
    Difference {
        why: "What 1.18 does not know at all: replication (1.23), `options` taken apart (1.20), protocol extensions declined (1.20), keys in quotes, more than one protocol version.",
        lines: &[
            ("startup: replication nonsense", "- *"),
            ("startup: replication nonsense", "+ *"),
            ("startup: replication off", "- *"),
            ("startup: replication off", "+ *"),
            ("options: options*", "- *"),
            ("options: options*", "+ *"),
            ("startup: protocol extension", "- *"),
            ("startup: protocol extension", "+ *"),
            ("startup: protocol 3.2", "- *"),
            ("startup: protocol 3.2", "+ *"),
            ("boot: 'max_client_conn' = 7", "- *"),
            ("boot: 'max_client_conn' = 7", "+ *"),
            ("boot: a quoted name", "- *"),
            ("boot: a quoted name", "+ *"),
        ],
    },
    Difference {
        why: "A startup packet must end with its terminator.",
        lines: &[
            ("startup: SSLRequest", "- error S[FATAL] C[08P01] M[no *]"),
            ("startup: SSLRequest", "- log * no username supplied*"),
            (
                "startup: SSLRequest",
                "+ error S[FATAL] C[08P01] M[invalid startup packet layout: expected terminator as last byte]",
            ),
            (
                "startup: SSLRequest",
                "+ log * invalid startup packet layout: expected terminator as last byte*",
            ),
            ("startup: no terminator", "- error S[FATAL] C[08P01] M[no *]"),
            ("startup: no terminator", "- log * no such database: app*"),
            ("startup: no terminator", "- log LOG C-N: (nodb)/app@* login *"),
            (
                "startup: no terminator",
                "+ error S[FATAL] C[08P01] M[invalid startup packet layout: expected terminator as last byte]",
            ),
            (
                "startup: no terminator",
                "+ log * invalid startup packet layout: expected terminator as last byte*",
            ),
            ("startup: a key without a value", "- error S[FATAL] C[08P01] M[no *]"),
            ("startup: a key without a value", "- log * no username supplied*"),
            (
                "startup: a key without a value",
                "+ error S[FATAL] C[08P01] M[invalid startup packet layout: expected terminator as last byte]",
            ),
            (
                "startup: a key without a value",
                "+ log * invalid startup packet layout: expected terminator as last byte*",
            ),
            ("refused by the pooler: no user", "- log * no username supplied*"),
            (
                "refused by the pooler: no user",
                "+ log * invalid startup packet layout: expected terminator as last byte*",
            ),
            ("startup: bytes behind the terminator", "- error S[FATAL] C[08P01] M[no *]"),
            ("startup: bytes behind the terminator", "- log * no such database: app*"),
            ("startup: bytes behind the terminator", "- log LOG C-N: (nodb)/app@* login *"),
            (
                "startup: bytes behind the terminator",
                "+ error S[FATAL] C[08P01] M[invalid startup packet layout: expected terminator as last byte]",
            ),
            (
                "startup: bytes behind the terminator",
                "+ log * invalid startup packet layout: expected terminator as last byte*",
            ),
        ],
    },
    Difference {
        why: "SHOW STATE is of 1.19.",
        lines: &[
            ("*", "- error S[ERROR] C[08P01] M[invalid command 'SHOW STATE', use SHOW HELP;]"),
            ("*", "- log * 'SHOW STATE', use SHOW HELP;"),
            ("*", "+ column key 25"),
            ("*", "+ column value 25"),
            ("*", "+ row"),
            ("*", "+ CommandComplete(SHOW)"),
            ("shows: psql lists", "- PgBouncer 1.18.0"),
            ("shows: psql, *", "- ERROR:  invalid command 'SHOW STATE', use SHOW HELP;"),
            (
                "shows: psql, a table of lists",
                "- it ends: exit status: 1 => + it ends: exit status: 0",
            ),
            ("shows: psql, *", "+ active|yes"),
            ("shows: psql, *", "+ paused|no"),
            ("shows: psql, *", "+ suspended|no"),
        ],
    },
    Difference {
        why: "More columns.",
        lines: &[
            ("*", "- column reserve_pool 23"),
            ("*", "+ column reserve_pool_size 23"),
            ("*", "+ column server_lifetime 23"),
            ("*", "+ column load_balance_hosts 25"),
            ("*", "+ column max_client_connections 23"),
            ("*", "+ column current_client_connections 23"),
            ("*", "+ column pool_size 25"),
            ("*", "+ column reserve_pool_size 25"),
            ("*", "+ column max_user_connections 23"),
            ("*", "+ column current_connections 23"),
            ("*", "+ column max_user_client_connections 23"),
            ("*", "+ column replication 25"),
            ("*", "+ column prepared_statements 23"),
            ("*", "+ column id 23"),
            ("*", "+ column total_* 1700"),
            ("*", "+ column avg_* 1700"),
            ("*", "+ column server_assignment_count 1700"),
            ("*", "+ column client_parse_count 1700"),
            ("*", "+ column server_parse_count 1700"),
            ("*", "+ column bind_count 1700"),
        ],
    },
    Difference {
        why: "The line of statistics counts more.",
        lines: &[
            (
                "boot: stats_period = 0",
                "- log LOG stats: N xacts/s, N queries/s, in * => + log LOG stats: N xacts/s, N queries/s, N client parses/s, N server parses/s, N binds/s, in *",
            ),
            (
                "counted: the line",
                "- log LOG stats: N xacts/s, N queries/s, in * => + log LOG stats: N xacts/s, N queries/s, N client parses/s, N server parses/s, N binds/s, in *",
            ),
        ],
    },
    Difference {
        why: "Clients are told which pooler it is, since 1.26.",
        lines: &[("*", "+ parameter pgbouncer.*")],
    },
    Difference {
        why: "More rows.",
        lines: &[
            ("*", "+ row list=peers items=0"),
            ("*", "+ row list=peer_pools items=0"),
            ("shows: TOTALS", "+ row name=total_server_assignment_count value=*"),
            ("shows: TOTALS", "+ row name=total_ps_* value=0"),
            ("shows: TOTALS", "+ row name=avg_server_assignment_count value=*"),
            ("shows: TOTALS", "+ row name=avg_ps_* value=*"),
            ("shows: MEM", "+ row name=peer_cache *"),
            ("shows: MEM", "+ row name=prepared_statement_cache *"),
            ("shows: MEM", "+ row name=client_prepared_statement_cache *"),
            ("shows: MEM", "+ row name=server_prepared_statement_cache *"),
        ],
    },
    Difference {
        why: "A console client that waits for nothing is idle.",
        lines: &[(
            "*",
            "- row type=C user=* database=pgbouncer state=active * => + row type=C user=* database=pgbouncer state=idle *",
        )],
    },
    Difference {
        why: "Keys that are newer than 1.18.",
        lines: &[
            ("*", "+ row key=auth_ident_file *"),
            ("*", "+ row key=auth_ldap_options *"),
            ("*", "+ row key=auth_dbname *"),
            ("*", "+ row key=cancel_wait_timeout *"),
            ("*", "+ row key=client_tls13_ciphers *"),
            ("*", "+ row key=server_tls13_ciphers *"),
            ("*", "+ row key=max_db_client_connections *"),
            ("*", "+ row key=max_user_client_connections *"),
            ("*", "+ row key=max_prepared_statements *"),
            ("*", "+ row key=peer_id *"),
            ("*", "+ row key=pool_idle_timeout *"),
            ("*", "+ row key=query_wait_notify *"),
            ("*", "+ row key=scram_iterations *"),
            ("*", "+ row key=track_extra_parameters *"),
            ("*", "+ row key=transaction_timeout *"),
            ("*", "+ row key=login_notify_message *"),
            ("*", "+ row key=auth_pam_confdir *"),
            ("set: auth_dbname = postgres", "- error S[ERROR] C[08P01] M[SET failed]"),
            ("set: auth_dbname = postgres", "+ CommandComplete(SET auth_dbname=postgres)"),
            ("set: auth_dbname = postgres", "- log * SET failed"),
            (
                "set: track_extra_parameters = IntervalStyle",
                "- error S[ERROR] C[08P01] M[SET failed]",
            ),
            (
                "set: track_extra_parameters = IntervalStyle",
                "+ CommandComplete(SET track_extra_parameters=IntervalStyle)",
            ),
            ("set: track_extra_parameters = IntervalStyle", "- log * SET failed"),
        ],
    },
    Difference {
        why: "Other defaults: TLS to servers is preferred, ciphers are `default`, the check is the empty query, auth_query names schemas; and tcp_defer_accept is a switch.",
        lines: &[
            ("*", "- row key=auth_query *"),
            ("*", "+ row key=auth_query *"),
            ("*", "- row key=server_tls_sslmode *"),
            ("*", "+ row key=server_tls_sslmode *"),
            ("*", "- row key=server_tls_ciphers *"),
            ("*", "+ row key=server_tls_ciphers *"),
            ("*", "- row key=client_tls_ciphers *"),
            ("*", "+ row key=client_tls_ciphers *"),
            ("*", "- row key=server_check_query *"),
            ("*", "+ row key=server_check_query *"),
            (
                "set: what *",
                "- row key=tcp_defer_accept value=45 * => + row key=tcp_defer_accept value=1 *",
            ),
        ],
    },
    Difference {
        why: "The version as such.",
        lines: &[
            ("*", "- parameter server_version=1.18.0/bouncer"),
            ("*", "+ parameter server_version=1.25.2/bouncer"),
            ("*", "- row version=PgBouncer 1.18.0"),
            ("any: the console, whoever", "- DataRow[Some(\"PgBouncer 1.18.0\")]"),
            ("no connections: the console", "- DataRow[Some(\"PgBouncer 1.18.0\")]"),
            ("boot: all may be admins of nothing", "- DataRow[Some(\"PgBouncer 1.18.0\")]"),
        ],
    },
    Difference {
        why: "A failed RELOAD is told since 1.23.",
        lines: &[
            ("reload: *", "- CommandComplete(RELOAD)"),
            (
                "reload: *",
                "+ error S[ERROR] C[F0000] M[RELOAD failed, see logs for additional details] D[*",
            ),
            ("reload: *", "+ log * RELOAD failed, see logs for additional details"),
        ],
    },
    Difference {
        why: "SIGTERM waits for clients, SIGINT says for what, and SIGQUIT is obeyed, since 1.23.",
        lines: &[
            (
                "*",
                "- log LOG got SIGINT, shutting down => + log LOG got SIGINT, shutting down, waiting for all servers connections to be released",
            ),
            ("signals: TERM with *", "- *"),
            ("signals: TERM with *", "+ *"),
            (
                "signals: QUIT with a client",
                "- it ends: signal: 3 (SIGQUIT) => + it ends: exit status: 0",
            ),
            ("signals: QUIT with a client", "+ log LOG got SIGQUIT, fast exit"),
        ],
    },
    Difference {
        why: "KILL needs no name any more.",
        lines: &[
            (
                "verbs: KILL without an argument",
                "- error S[ERROR] C[08P01] M[a database is required] => + CommandComplete(KILL)",
            ),
            (
                "verbs: KILL without an argument",
                "- error S[ERROR] C[08P01] M[database * is not paused]",
            ),
            ("verbs: KILL without an argument", "+ CommandComplete(RESUME)"),
            ("verbs: KILL without an argument", "- log *"),
            ("verbs: KILL without an argument", "+ log LOG KILL command issued"),
            ("orders: KILL without an argument", "- *"),
            ("orders: KILL without an argument", "+ *"),
        ],
    },
    Difference {
        why: "KILL_CLIENT is of 1.24.",
        lines: &[
            ("console odds: KILL_CLIENT without an argument", "- *"),
            ("console odds: KILL_CLIENT without an argument", "+ *"),
        ],
    },
    Difference {
        why: "Query is called by its name.",
        lines: &[(
            "no simple queries: simple",
            "- log ERROR C-N: {db}/*client used 'Q' packet type => + log ERROR C-N: {db}/*client used \"Query\" packet type",
        )],
    },
    Difference {
        why: "What a server says when it refuses a login is told with its SQLSTATE.",
        lines: &[
            ("trust: *", "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]"),
            ("names: *", "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]"),
            ("star: *", "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]"),
            (
                "a login that fails: *",
                "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]",
            ),
            ("quoting: *", "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]"),
            (
                "refused by the server: *",
                "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]",
            ),
            (
                "boot: auth_file: the same user twice",
                "- error S[FATAL] C[08P01] M[*] => + error S[FATAL] V[FATAL] C[%] M[*]",
            ),
        ],
    },
    Difference {
        why: "Who comes soon after a failed login is told at once why.",
        lines: &[
            (
                "a login that fails: and again",
                "- error S[FATAL] C[08P01] M[client_login_timeout (server down)] => + error S[FATAL] C[08P01] M[server login has been failing, cached error: % (server_login_retry)] H[%",
            ),
            (
                "a login that fails: and again",
                "- log * C-N: * because: client_login_timeout (server down) * => + log * C-N: * because: server login has been failing, % (server_login_retry) *",
            ),
            (
                "a login that fails: and again",
                "- log * C-N: * pooler error: client_login_timeout (server down) => + log * C-N: * pooler error: server login has been failing, % (server_login_retry)",
            ),
        ],
    },
    Difference {
        why: "Names of databases that come with `*` are logged in other words.",
        lines: &[(
            "*",
            "- log LOG C-N: (nodb)/(nouser)@* registered new auto-database: db=* => + log LOG C-N: (nodb)/(nouser)@* registered new auto-database: *",
        )],
    },
    Difference {
        why: "A pidfile that is in the way is named.",
        lines: &[(
            "command line: *",
            "- log FATAL pidfile exists, another instance running? => + log FATAL pidfile '{dir}/pid' exists, another instance running?",
        )],
    },
    Difference {
        why: "Names and folders that cannot be had: one that can is enough, and a unix socket is a must.",
        lines: &[
            ("boot: unix_socket_dir = /nonexistent/dir", "- *"),
            ("boot: unix_socket_dir = /nonexistent/dir", "+ *"),
            (
                "boot: listen_addr = *",
                "- log FATAL getaddrinfo('*', '{port}') = * [-N] => + log WARNING getaddrinfo('*', '{port}') = *",
            ),
            (
                "boot: listen_addr = *",
                "+ log FATAL failed to listen on any address in listen_addr list: *",
            ),
        ],
    },
    Difference {
        why: "A database that is gone has no name either.",
        lines: &[("reload: a database that is gone", "- log LOG C-N: second/* login attempt: *")],
    },
    Difference {
        why: "A key without a default goes back to none with a reload.",
        lines: &[(
            "set: a reload forgets it",
            "- row key=auth_user value=pgbouncer * => + row key=auth_user value=NULL *",
        )],
    },
];
