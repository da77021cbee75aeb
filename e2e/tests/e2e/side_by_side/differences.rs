//! All that may differ: [`GAP`], since Debian has 1.18 and Weir replaces 1.25.2; [`INTENDED`]; and
//! [`OPEN`], what Weir is still to do as PgBouncer does it.
//!
//! Each has its reason, and its lines as pairs: which cases, and which line there, where `-` is
//! PgBouncer's and `+` Weir's. `*` stands for anything.

/// One reason and the lines it explains.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) why: &'static str,
    pub(super) lines: &'static [(&'static str, &'static str)],
}

pub(super) const ALL: [&[Difference]; 3] = [GAP, INTENDED, OPEN];

/// What PgBouncer itself changed between 1.18 and 1.25.2.
const GAP: &[Difference] = &[
    Difference {
        why: "The login line says whether it is for replication since 1.24.",
        lines: &[
            ("*", "- log LOG C-N: *login attempt: db=* tls=no"),
            ("*", "+ log LOG C-N: *login attempt: db=* tls=no replication=no"),
        ],
    },
    Difference {
        why: "Lines of a login name its database from the startup packet on since 1.21.",
        lines: &[
            ("*", "- log LOG C-N: (nodb)/*"),
            ("*", "- log WARNING C-N: (nodb)/*"),
            ("*", "+ log LOG C-N: */*closing because: password authentication failed*"),
            ("*", "+ log LOG C-N: */*closing because: \"trust\" authentication failed*"),
            ("*", "+ log LOG C-N: */*closing because: no such database: *"),
            ("*", "+ log WARNING C-N: */*pooler error: password authentication failed*"),
            ("*", "+ log WARNING C-N: */*pooler error: \"trust\" authentication failed*"),
            ("*", "+ log WARNING C-N: */*pooler error: no such database: *"),
            ("*", "+ log LOG C-N: */* login failed: db=*"),
        ],
    },
    Difference {
        why: "Replication connections are of 1.23; what names none of them is an ordinary one.",
        lines: &[
            (
                "startup: replication nonsense",
                "- error *unsupported startup parameter: replication]",
            ),
            ("startup: replication nonsense", "- the end"),
            ("startup: replication nonsense", "+ *"),
        ],
    },
    Difference {
        why: "SHOW STATE is of 1.19.",
        lines: &[
            ("*", "- error S[ERROR] C[08P01] M[invalid command 'SHOW STATE', use SHOW HELP;]"),
            ("*", "- log * 'SHOW STATE', use SHOW HELP;"),
            ("*", "- log WARNING *'SHOW STATE', use SHOW HELP;"),
            ("*", "+ column key 25"),
            ("*", "+ column value 25"),
            ("*", "+ row"),
            ("*", "+ CommandComplete(SHOW)"),
        ],
    },
    Difference {
        why: "SHOW DATABASES has more columns.",
        lines: &[
            ("*", "- column reserve_pool 23"),
            ("*", "+ column reserve_pool_size 23"),
            ("*", "+ column server_lifetime 23"),
            ("*", "+ column load_balance_hosts 25"),
            ("*", "+ column max_client_connections 23"),
            ("*", "+ column current_client_connections 23"),
        ],
    },
    Difference {
        why: "SHOW USERS has more columns.",
        lines: &[
            ("*", "+ column pool_size 25"),
            ("*", "+ column reserve_pool_size 25"),
            ("*", "+ column max_user_connections 23"),
            ("*", "+ column current_connections 23"),
            ("*", "+ column max_user_client_connections 23"),
        ],
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
        ],
    },
    Difference {
        why: "Other defaults: TLS to servers is preferred, ciphers are `default`, the check is the empty query.",
        lines: &[
            ("*", "- row key=server_tls_sslmode *"),
            ("*", "+ row key=server_tls_sslmode *"),
            ("*", "- row key=server_tls_ciphers *"),
            ("*", "+ row key=server_tls_ciphers *"),
            ("*", "- row key=client_tls_ciphers *"),
            ("*", "+ row key=client_tls_ciphers *"),
            ("*", "- row key=server_check_query *"),
            ("*", "+ row key=server_check_query *"),
        ],
    },
    Difference {
        why: "The version as such.",
        lines: &[
            ("*", "- parameter server_version=1.18.0/bouncer"),
            ("*", "+ parameter server_version=1.25.2/bouncer"),
            ("*", "- row version=PgBouncer 1.18.0"),
        ],
    },
    Difference {
        why: "More columns of clients and servers.",
        lines: &[
            ("*", "+ column replication 25"),
            ("*", "+ column prepared_statements 23"),
            ("*", "+ column id 23"),
        ],
    },
];

/// What Weir does otherwise on purpose: at most twenty.
const INTENDED: &[Difference] = &[
    Difference {
        why: "Keys of Weir's own.",
        lines: &[
            ("*", "+ row key=workers *"),
            ("*", "+ row key=proxy_protocol_trusted *"),
            ("*", "+ row key=max_server_connections *"),
            ("*", "+ row key=cancel_lost_queries *"),
            ("*", "+ row key=auth_failure_delay *"),
            ("*", "+ row key=max_client_logins *"),
            ("*", "+ row key=core_dumps *"),
        ],
    },
    Difference {
        why: "A key that is set in vain is named.",
        lines: &[("boot: job_name = me", "+ log WARNING job_name is set, *")],
    },
    Difference {
        why: "Weir says that it is Weir.",
        lines: &[
            ("*", "+ row version=PgBouncer 1.25.2 (Weir *"),
            ("*", "- PgBouncer 1.18.0"),
            ("*", "- libevent *"),
            ("*", "- adns: *"),
            ("*", "- tls: *"),
            ("*", "- systemd: *"),
            ("*", "+ PgBouncer 1.25.2"),
            ("*", "+ Weir *"),
        ],
    },
    Difference {
        why: "The line of the start names Weir and its threads.",
        lines: &[("*", "- log LOG process up: *"), ("*", "+ log LOG process up: *")],
    },
    Difference {
        why: "A key is refused with the reason and what would be right.",
        lines: &[("*", "+ log ERROR invalid value *: expected *")],
    },
    Difference {
        why: "Numbers out of range are refused, where PgBouncer wraps them round or stores them.",
        lines: &[
            ("*", "- CommandComplete(SET *=-5)"),
            ("*", "- CommandComplete(SET *=-1)"),
            ("*", "- CommandComplete(SET *=99999999999)"),
            ("*", "- CommandComplete(SET *=nan)"),
            ("*", "- CommandComplete(SET *=inf)"),
            ("*", "+ error S[ERROR] C[08P01] M[SET failed]"),
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
            ("*", "+ log ERROR {dir}/*"),
        ],
    },
];

/// Mistakes of Weir's that are known and not put right yet.
const OPEN: &[Difference] = &[
    Difference {
        why: "A connection that is closed without a byte is not to be logged.",
        lines: &[(
            "*",
            "+ log LOG C-N: (nodb)/(nouser)@N.N.N.N:N closing because: client unexpected eof (age=Ns)",
        )],
    },
    Difference {
        why: "What the console refuses is to be logged, as an ERROR and as a pooler error.",
        lines: &[
            ("*", "- log ERROR SET failed"),
            ("*", "- log ERROR admin access needed"),
            ("*", "- log ERROR no such database: *"),
            ("*", "- log ERROR already suspended/paused"),
            ("*", "- log ERROR invalid command *"),
            ("*", "- log ERROR bad arguments"),
            ("*", "- log ERROR a database is required"),
            ("*", "- log ERROR database * is not paused"),
            ("*", "- log ERROR cannot *"),
            ("*", "- log WARNING C-N: pgbouncer/*pooler error: *"),
        ],
    },
];

#[test]
fn differences_that_are_meant_are_few_and_have_reasons() {
    assert!(INTENDED.len() <= 20);
    assert!(ALL.iter().copied().flatten().all(|difference| !difference.why.is_empty()));
}
