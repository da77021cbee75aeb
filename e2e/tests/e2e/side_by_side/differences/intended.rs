//! Weir's intended differences, at most twenty.

use super::Difference;

pub(in super::super) const INTENDED: &[Difference] = &[
    Difference {
        why: "Keys of Weir's own.",
        lines: &[
            ("*", "+ row key=workers *"),
            ("*", "+ row key=session_schedule *"),
            ("*", "+ row key=proxy_protocol_trusted *"),
            ("*", "+ row key=max_server_connections *"),
            ("*", "+ row key=cancel_lost_queries *"),
            ("*", "+ row key=auth_failure_delay *"),
            ("*", "+ row key=max_client_logins *"),
            ("*", "+ row key=core_dumps *"),
            ("*", "+ row key=auto_unsupported *"),
            ("*", "+ row key=pin_functions *"),
            ("*", "+ row key=pin_timeout *"),
            ("*", "+ row key=error_codes *"),
            ("*", "+ row key=metrics_addr *"),
            ("*", "+ row key=metrics_port *"),
            ("*", "+ row key=health_addr *"),
            ("*", "+ row key=health_port *"),
            ("*", "+ row key=metrics_names *"),
            ("*", "+ row key=metrics_histograms *"),
            ("*", "+ row key=fingerprints *"),
            ("*", "+ row key=advise *"),
            ("*", "+ row key=connection_timings *"),
            ("*", "+ row key=mark_pooled_servers *"),
            ("*", "+ row key=log_format *"),
            ("*", "+ row key=server_client_address *"),
            ("*", "+ row key=data_path *"),
            ("*", "+ row key=direct_socket *"),
            ("*", "+ row key=role_check_interval *"),
            ("*", "+ row key=server_max_uses *"),
            ("*", "+ row key=server_max_memory *"),
            ("*", "+ row key=reuse_after_error *"),
            ("*", "+ row key=console_columns *"),
            ("*", "+ log LOG SHOW * has PgBouncer's columns only, *"),
            ("*", "+ log * server * is *"),
        ],
    },
    Difference {
        why: "Keys without effect, readable files of secrets, changes and holders of servers are named.",
        lines: &[
            ("*", "+ log WARNING *: every user of this machine can read *"),
            ("*", "+ log WARNING * query_wait_timeout: *"),
            ("*", "+ notice S[NOTICE] C[00000] M[RELOAD changed the configuration] *"),
            ("boot: job_name = me", "+ log WARNING job_name is set, *"),
            (
                "reload: a key that needs a restart",
                "+ log WARNING listen_backlog was changed; the change takes effect at the next start",
            ),
            (
                "boot: auth_hba_file = /nonexistent/hba",
                "+ log WARNING /nonexistent/hba: could not open auth_hba_file: No such file or directory",
            ),
            ("boot: resolv_conf = /nonexistent/resolv", "+ log WARNING /nonexistent/resolv: *"),
            (
                "set: logfile = /nonexistent/x",
                "+ log ERROR Cannot open logfile: '/nonexistent/x': No such file or directory",
            ),
            (
                "set: logfile = /nonexistent/x",
                "+ notice S[NOTICE] C[00000] M[logfile could not be opened, keeping the old log]",
            ),
            (
                "set: auth_file = /nonexistent/u",
                "+ log ERROR could not open auth_file /nonexistent/u: No such file or directory",
            ),
            ("*", "+ log WARNING {dir}/pooler.ini:N: *: set again: *"),
            (
                "boot: a user twice",
                "+ log WARNING {dir}/pooler.ini:N: app: user defined again: the last definition counts",
            ),
            (
                "boot: a name twice",
                "+ log WARNING {dir}/pooler.ini:N: d: database defined again: the last definition counts",
            ),
        ],
    },
    Difference {
        why: "Weir says that it is Weir.",
        lines: &[
            ("*", "+ row version=PgBouncer 1.25.2*"),
            ("any: the console, whoever", "+ DataRow[Some(\"PgBouncer 1.25.2*"),
            ("no connections: the console", "+ DataRow[Some(\"PgBouncer 1.25.2*"),
            ("boot: all may be admins of nothing", "+ DataRow[Some(\"PgBouncer 1.25.2*"),
            ("shows: psql lists", "+ PgBouncer 1.25.2*"),
            ("command line: version*", "- PgBouncer 1.18.0"),
            ("*", "- libevent *"),
            ("*", "- adns: *"),
            ("*", "- tls: *"),
            ("*", "- systemd: *"),
            ("command line: version*", "+ PgBouncer 1.25.2"),
            ("command line: version*", "+ Weir *"),
            ("*", "- log LOG process up: *"),
            ("*", "+ log LOG process up: *"),
        ],
    },
    Difference {
        why: "--help and SHOW HELP name what Weir has.",
        lines: &[
            ("command line: no argument", "+ *"),
            ("command line: help", "- *"),
            ("command line: help", "+ *"),
            ("command line: help, long", "- *"),
            ("command line: help, long", "+ *"),
            ("shows: HELP", "- *"),
            ("shows: HELP", "+ *"),
            ("console odds: HELP", "- *"),
            ("console odds: HELP", "+ *"),
        ],
    },
    Difference {
        why: "A key is refused with the reason and what would be right; errors have a HINT or a DETAIL.",
        lines: &[
            ("*", "- error * => + error * H[%"),
            ("*", "- error * => + error * D[%"),
            ("set: *", "+ log ERROR invalid value *: expected *"),
            ("orders: SET of an empty value", "+ log ERROR invalid value *: expected *"),
            (
                "set: auth_dbname = pgbouncer",
                "+ log ERROR cannot use the reserved \"pgbouncer\" database as an auth_dbname",
            ),
        ],
    },
    Difference {
        why: "What cannot work is refused: numbers that are none or out of range, which PgBouncer wraps round.",
        lines: &[
            ("set: *", "- CommandComplete(SET *=-5)"),
            ("set: *", "- CommandComplete(SET *=-1)"),
            ("set: *", "- CommandComplete(SET *=99999999999)"),
            ("set: *", "- CommandComplete(SET *=nan)"),
            ("set: *", "- CommandComplete(SET *=inf)"),
            ("set: *", "+ error S[ERROR] C[08P01] M[SET failed]*"),
            ("set: *", "+ log * SET failed"),
            ("set: what *", "- row key=default_pool_size *"),
            ("set: what *", "+ row key=default_pool_size *"),
            ("set: what *", "- row key=max_packet_size *"),
            ("set: what *", "+ row key=max_packet_size *"),
            ("set: what *", "- row key=server_idle_timeout *"),
            ("set: what *", "+ row key=server_idle_timeout *"),
            ("boot: max_client_conn = -1", "- *"),
            ("boot: max_client_conn = -1", "+ *"),
            ("boot: max_packet_size = -5", "- *"),
            ("boot: max_packet_size = -5", "+ *"),
            ("boot: a port out of range", "- *"),
            ("boot: a port out of range", "+ *"),
            ("boot: a pool size that is no number", "- *"),
            ("boot: a pool size that is no number", "+ *"),
            ("boot: a user's wrong limit", "- *"),
            ("boot: a user's wrong limit", "+ *"),
        ],
    },
    Difference {
        why: "Mistakes in a file are told all at once, with file, line and key.",
        lines: &[
            ("*", "- log ERROR syntax error in *"),
            ("*", "- log ERROR invalid value * in configuration *"),
            ("*", "- log ERROR unknown parameter: *"),
            ("*", "- log ERROR unrecognized *"),
            ("*", "- log ERROR error processing include file *"),
            ("*", "- log ERROR fill_defaults fail"),
            ("*", "- log ERROR invalid section * in configuration *"),
            ("*", "- log ERROR could not load file *"),
            ("*", "- log ERROR include nesting level too deep *"),
            ("*", "- log ERROR invalid port: many"),
            ("*", "- log ERROR invalid pool mode: *"),
            ("*", "- log ERROR database name \"pgbouncer\" is reserved"),
            ("*", "- log WARNING too long db name: x*"),
            ("*", "- log ERROR load_init_file: main section missing from config file"),
            ("*", "- log ERROR broken auth file"),
            ("*", "- log ERROR username too long in auth file"),
            ("*", "+ log ERROR {dir}/*"),
            ("command line: a folder", "+ log ERROR could not load file \"{dir}\": Is a directory"),
            (
                "boot: auth_type = cert",
                "- log ERROR auth_type=cert requires * => + log ERROR auth_type: auth_type=cert requires *",
            ),
            (
                "boot: client_tls_sslmode = require",
                "- log ERROR To allow TLS * => + log ERROR client_tls_sslmode: To allow TLS *",
            ),
            ("boot: a name that is too long", "- log ERROR cannot create database, no memory?"),
            ("reload: by SIGHUP", "- authentication 5 and 4 bytes"),
            ("reload: by SIGHUP", "- log * not allowed*"),
        ],
    },
    Difference {
        why: "In session mode a client has its server from its login on (docs/decisions/005).",
        lines: &[
            (
                "shows: POOLS with a client",
                "- row database={db} * sv_active=0 * sv_idle=1 * => + row database={db} * sv_active=1 * sv_idle=0 *",
            ),
            (
                "session: an unknown message",
                "+ log LOG S-N: * new connection to server (from N.N.N.N:N)",
            ),
            ("startup: a value the server does not take", "- *"),
            ("startup: a value the server does not take", "+ *"),
            (
                "startup: the tracked ones",
                "- parameter DateStyle=German => + parameter DateStyle=German%",
            ),
            (
                "startup: a long value",
                "- parameter application_name=x% => + parameter application_name=x%",
            ),
        ],
    },
    Difference {
        why: "A server that has refused a client's values is as it was opened, and the next client gets it.",
        lines: &[(
            "startup: a long value",
            "- log LOG S-N: * new connection to server (from N.N.N.N:N)",
        )],
    },
    Difference {
        why: "Free connections are not kept in lists, and a client has no buffer that could be looked into while it is answered.",
        lines: &[
            ("*", "- row list=free_clients items=% => + row list=free_clients items=%"),
            ("*", "- row list=free_servers items=% => + row list=free_servers items=%"),
            ("shows: ACTIVE_SOCKETS", "- row type=C user=admin *"),
            ("shows: SOCKETS", "- row type=C user=admin % => + row type=C user=admin %"),
        ],
    },
    Difference {
        why: "What drivers set at first and their empty queries are accepted, and the console can be used where simple queries are not allowed, and by root over the unix socket.",
        lines: &[
            ("shutdown: the console of a unix user", "- error S[FATAL] C[08P01] M[not allowed]"),
            ("shutdown: the console of a unix user", "- the end"),
            ("shutdown: the console of a unix user", "+ authentication 0 and 0 bytes"),
            ("shutdown: the console of a unix user", "+ parameter *"),
            ("shutdown: the console of a unix user", "+ key of 8 bytes"),
            ("shutdown: the console of a unix user", "+ ReadyForQuery(I)"),
            ("shutdown: the console of a unix user", "- log * pgbouncer/pgbouncer@*"),
            ("shutdown: the console of a unix user", "+ log * pgbouncer/pgbouncer@*"),
            ("no simple queries: *", "- log * pgbouncer/admin@*"),
            ("shows: a driver's SET of the digits", "- error S[ERROR] C[08P01] M[SET failed]"),
            ("shows: a driver's SET of the digits", "- log * SET failed"),
            ("shows: a driver's SET of the digits", "+ notice S[NOTICE] C[00000] M[SET ignored]"),
            ("shows: a driver's SET of the digits", "+ CommandComplete(SET)"),
            (
                "*",
                "- error S[ERROR] C[08P01] M[invalid command '', use SHOW HELP;] => + EmptyQueryResponse()",
            ),
            ("*", "- log * invalid command '', use SHOW HELP;"),
            (
                "shows: a lone semicolon",
                "- error S[ERROR] C[08P01] M[invalid command ';', use SHOW HELP;] => + EmptyQueryResponse()",
            ),
            ("shows: a lone semicolon", "- log * invalid command ';', use SHOW HELP;"),
            (
                "shows: a comment",
                "- error S[ERROR] C[08P01] M[invalid command '-- nothing', use SHOW HELP;] => + EmptyQueryResponse()",
            ),
            ("shows: a comment", "- log * invalid command '-- nothing', use SHOW HELP;"),
        ],
    },
    Difference {
        why: "A name that stands for `*` is a database when it is used, and not by being paused.",
        lines: &[(
            "star: PAUSE of one",
            "- log LOG C-N: pgbouncer/* registered new auto-database: templateN",
        )],
    },
    Difference {
        why: "The farewell of a server is the last a client hears.",
        lines: &[
            ("session: the backend ends", "- error S[FATAL] C[08P01] M[server conn crashed?]"),
            ("*: a lost backend", "- error S[FATAL] C[08P01] M[server conn crashed?]"),
        ],
    },
    Difference {
        why: "A client that goes while it waits is noticed, and a query that nobody waits for any more is cancelled, and then the server is kept (cancel_lost_queries).",
        lines: &[
            ("full pool: who waits goes away", "- never: POOLS *"),
            (
                "transaction: gone in a query",
                "- log LOG S-N: * client disconnect while server was not ready (age=Ns)",
            ),
            (
                "transaction: gone in a query",
                "+ log LOG S-N: * successfully sent cancel request (age=Ns)",
            ),
            ("transaction: the unnamed statement", "- log LOG S-N: * new connection to server *"),
        ],
    },
    Difference {
        why: "A cancel request that can hit nothing is not passed on, and one for the console is told as by PostgreSQL.",
        lines: &[
            ("session: a cancel of an idle one", "- *"),
            ("session: a cancel of an idle one", "+ *"),
            ("pausing: a pause that waits is cancelled", "- *"),
            ("pausing: a pause that waits is cancelled", "+ *"),
        ],
    },
    Difference {
        why: "A server that is not to be used any more goes at once: one whose reset or check fails, one that is idle at RECONNECT, and one that was opened in another pool_mode, when its client has done.",
        lines: &[
            ("reload: a new mode", "+ log LOG S-*: * closing because: close_needed *"),
            (
                "ordered: RECONNECT, then WAIT_CLOSE",
                "- log LOG S-N: * closing because: database configuration changed * => + log LOG S-N: * closing because: obsolete connection *",
            ),
            ("a reset that fails: the server goes", "+ *"),
            ("a check that fails: the server goes", "+ *"),
        ],
    },
    Difference {
        why: "What begins no startup packet is told what it is; cancel keys may be long, as in protocol 3.2.",
        lines: &[
            ("startup: an HTTP request", "- *"),
            ("startup: an HTTP request", "+ *"),
            (
                "startup: a cancel request that is too long",
                "- log LOG C-N: * closing because: bad cancel request (age=Ns)",
            ),
            (
                "startup: a cancel request that is too long",
                "+ log LOG C-N: * closing because: failed cancel request (age=Ns)",
            ),
        ],
    },
    Difference {
        why: "A login tells nobody which users and secrets there are, and what is wrong with messages of a login is said, in Weir's words or PostgreSQL's.",
        lines: &[
            (
                "md5: an answer without its zero",
                "+ log * C-N: * closing because: invalid password packet size (age=Ns)",
            ),
            (
                "md5: an answer without its zero",
                "+ log * C-N: * pooler error: invalid password packet size",
            ),
            ("md5: the console, a user who may not", "+ authentication 5 and 4 bytes"),
            ("scram: a hash in the file", "+ authentication 11 and 0 bytes"),
            (
                "scram: a hash in the file",
                "- log ERROR C-N: * SCRAM authentication failed: user has MDN secret",
            ),
            ("scram: a hash in the file", "+ log ERROR C-N: * password authentication failed"),
            ("scram: a first message *", "- log ERROR C-N: * malformed SCRAM message (*"),
            ("scram: a first message *", "+ log ERROR C-N: * malformed SCRAM message: *"),
        ],
    },
    Difference {
        why: "Errors of the system are told in its words, and before the listeners are opened.",
        lines: &[
            ("boot: pidfile = /nonexistent/pid", "- log LOG kernel file descriptor limit: *"),
            ("boot: pidfile = /nonexistent/pid", "- log LOG listening on *"),
            (
                "names: a name that is not there",
                "- log WARNING DNS lookup failed: *: result=N => + log WARNING DNS lookup failed: *: %",
            ),
            (
                "boot: unix_socket_group = nosuchgroup",
                "- log FATAL could not find group 'nosuchgroup': Success => + log FATAL could not find group 'nosuchgroup'",
            ),
            ("boot: unix_socket_group = nosuchgroup", "- log *"),
            (
                "boot: logfile = /nonexistent/log",
                "- log % FATAL Cannot open logfile: * => + log FATAL Cannot open logfile: *",
            ),
        ],
    },
    Difference {
        why: "What asks nothing of a server needs none, and no file is looked for where none is named.",
        lines: &[
            (
                "transaction, more: a Flush alone",
                "- log LOG S-N: * client disconnect while server was not ready (age=Ns)",
            ),
            ("transaction, more: an empty query", "- log LOG S-N: * new connection to server *"),
            (
                "boot: no auth_file at all",
                "- log ERROR could not open auth_file : No such file or directory",
            ),
        ],
    },
];
