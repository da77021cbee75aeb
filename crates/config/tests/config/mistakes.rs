//! Every mistake is reported with file, line and key, and with the nearest valid word.

use crate::{ini, ini_mistakes};

#[test]
fn each_mistake_in_the_main_section() {
    let cases = [
        (
            "listen_prot = 1",
            "listen_prot: unknown parameter: pgbouncer/listen_prot (did you mean \"listen_port\"?)",
        ),
        ("banana = 1", "banana: unknown parameter: pgbouncer/banana"),
        (
            "reserve_pool = 1",
            "reserve_pool: unknown parameter: pgbouncer/reserve_pool (did you mean \"reserve_pool_size\"?)",
        ),
        (
            "listen_port = 6432 ; the port",
            "listen_port: invalid value \"6432 ; the port\" for parameter listen_port: expected whole number from 0 to 65535; a comment needs a line of its own",
        ),
        (
            "listen_port = 65536",
            "listen_port: invalid value \"65536\" for parameter listen_port: expected whole number from 0 to 65535",
        ),
        (
            "max_client_conn = -1",
            "max_client_conn: invalid value \"-1\" for parameter max_client_conn: expected whole number from 0 to 4294967295",
        ),
        (
            "log_stats = yes",
            "log_stats: invalid value \"yes\" for parameter log_stats: expected 0 or 1",
        ),
        (
            "query_timeout = 5s",
            "query_timeout: invalid value \"5s\" for parameter query_timeout: expected seconds, 0 or more",
        ),
        (
            "pool_mode = transactoin",
            "pool_mode: invalid value \"transactoin\" for parameter pool_mode: expected one of session, transaction, statement, auto (did you mean \"transaction\"?)",
        ),
        (
            "auth_dbname = pgbouncer",
            "auth_dbname: cannot use the reserved \"pgbouncer\" database as an auth_dbname",
        ),
        (
            "peer_id = 16384",
            "peer_id: invalid value \"16384\" for parameter peer_id: at most 16383",
        ),
        (
            "max_prepared_statements = 2147483648",
            "max_prepared_statements: invalid value \"2147483648\" for parameter max_prepared_statements: at most 2147483647",
        ),
        (
            "tcp_keepidle = 32768",
            "tcp_keepidle: invalid value \"32768\" for parameter tcp_keepidle: at most 32767",
        ),
        (
            "tcp_keepintvl = 86400",
            "tcp_keepintvl: invalid value \"86400\" for parameter tcp_keepintvl: at most 32767",
        ),
        (
            "tcp_keepcnt = 128",
            "tcp_keepcnt: invalid value \"128\" for parameter tcp_keepcnt: at most 127",
        ),
        (
            "min_spare_servers = 4\nmax_spare_servers = 3",
            "min_spare_servers: min_spare_servers = 4 is above max_spare_servers = 3: set it to at most 3, or max_spare_servers to at least 4 or to 0, which is no limit",
        ),
        ("listen_port", "syntax error in configuration"),
        ("= 1", "syntax error in configuration"),
        ("'listen_port = 1", "syntax error in configuration"),
        ("[databases", "syntax error in configuration"),
        ("[database]\nx = y", "unknown section: database (did you mean \"databases\"?)"),
    ];
    for (line, expected) in cases {
        let found = ini_mistakes(&format!("[pgbouncer]\n{line}\n"));
        assert_eq!(found, [format!("test.ini:2: {expected}")], "{line}");
    }
}

#[test]
fn each_mistake_in_an_entry() {
    let long = "d".repeat(64);
    let cases = [
        ("databases", "pgbouncer = host=a", "pgbouncer: database name \"pgbouncer\" is reserved"),
        (
            "databases",
            "a = host=b min_spare_servers=2 max_spare_servers=1",
            "a.min_spare_servers: min_spare_servers = 2 is above max_spare_servers = 1: set it to at most 1, or max_spare_servers to at least 2 or to 0, which is no limit",
        ),
        (
            "databases",
            "a = host=b hots=c",
            "a.hots: unrecognized connection parameter: hots (did you mean \"host\"?)",
        ),
        (
            "databases",
            "a = host='b",
            "a: syntax error in connection string: a value in single quotes ends with one, and a quote within is doubled, as in 'it''s'",
        ),
        (
            "databases",
            "a = postgres://u:secret@host/a",
            "a: syntax error in connection string: a URL has no place here, write host=… port=… dbname=… user=… password=…",
        ),
        ("databases", "a = host=", "a: syntax error in connection string"),
        ("databases", "a = port=0", "a.port: invalid port: 0"),
        ("databases", "a = port=x", "a.port: invalid port: x"),
        ("databases", "a = host=b,c port=1,x", "a.port: invalid port: 1,x"),
        ("databases", "a = host=b port=1,2", "a.port: invalid number of ports: 1,2"),
        ("databases", "a = host=b,c,d port=1,2", "a.port: invalid number of ports: 1,2"),
        (
            "databases",
            "a = pool_mode=transactions",
            "a.pool_mode: invalid pool mode: transactions (did you mean \"transaction\"?)",
        ),
        (
            "databases",
            "a = pool_size=many",
            "a.pool_size: invalid value \"many\" for parameter pool_size: expected whole number from 0 to 4294967295",
        ),
        (
            "databases",
            "a = auth_dbname=pgbouncer",
            "a.auth_dbname: cannot use the reserved \"pgbouncer\" database as an auth_dbname",
        ),
        (
            "databases",
            &format!("{long} = host=a"),
            &format!("{long}: database name is longer than 63 bytes"),
        ),
        (
            "users",
            "u = pool_mod=session",
            "u.pool_mod: unrecognized user parameter: pool_mod (did you mean \"pool_mode\"?)",
        ),
        ("users", "u = pool_mode", "u: syntax error in user settings"),
        ("peers", "0 = host=a", "0: id of a peer must be a number from 1 to 16383"),
        ("peers", "one = host=a", "one: id of a peer must be a number from 1 to 16383"),
        ("peers", "1 = port=5", "1: host was not provided for peer 1"),
        ("peers", "1 = host=a dbname=b", "1.dbname: unrecognized connection parameter: dbname"),
    ];
    for (section, line, expected) in cases {
        let found = ini_mistakes(&format!("[pgbouncer]\n[{section}]\n{line}\n"));
        assert_eq!(found, [format!("test.ini:3: {expected}")], "{line}");
    }
}

/// The process itself may be among its peers or not, as in PgBouncer.
#[test]
fn peers_that_no_cancel_request_reaches_are_told() {
    let own = "listen_addr = 10.0.0.1\nunix_socket_dir = /run/one\npeer_id = 1";
    for (keys, peers, expected) in [
        (own, "1 = host=/run/one\n2 = host=/run/two", vec![]),
        (own, "2 = host=/run/two\n3 = host=/run/two port=7000", vec![]),
        ("", "", vec![]),
        ("", "1 = host=a", vec!["test.ini:3: 1: [peers] has no effect: peer_id is not set"]),
        (
            own,
            "1 = host=/run/one",
            vec![
                "test.ini:7: peer_id: [peers] has no process besides 1: cancel requests of other \
                 processes are refused",
            ],
        ),
        (
            own,
            "2 = host=a,b\n3 = host=/run/one\n4 = host=10.0.0.1\n5 = host=a\n5 = host=c\n6 = host=c",
            vec![
                "test.ini:7: 5: peer defined again: the last definition counts",
                "test.ini:3: 2: only the first host has an effect: a",
                "test.ini:4: 3: peer 3 has an address of this process: cancel requests for that peer \
                 are lost",
                "test.ini:5: 4: peer 4 has an address of this process: cancel requests for that peer \
                 are lost",
                "test.ini:8: 6: peer 6 has the address of peer 5: cancel requests of one of them are \
                 lost",
            ],
        ),
    ] {
        let config = ini(&format!("\n[peers]\n{peers}\n[pgbouncer]\n{keys}\n"));
        let found: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{peers}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once() {
    let found = ini_mistakes("stray = 1\n[databases]\na = port=x color=red\n[nonsense]\nx = y\n");
    assert_eq!(
        found,
        [
            "test.ini:1: stray: value without section: stray",
            "test.ini:3: a.port: invalid port: x",
            "test.ini:3: a.color: unrecognized connection parameter: color",
            "test.ini:4: unknown section: nonsense",
            "test.ini: main section missing from config file",
        ]
    );
}

#[test]
fn a_database_needs_a_host_where_there_is_no_socket_folder() {
    let text = "[pgbouncer]\nunix_socket_dir =\n[databases]\na =\nb = host=x\n";
    assert_eq!(ini_mistakes(text), ["test.ini:4: a: no host, and unix_socket_dir is empty"]);
}

#[test]
fn a_mistake_knows_its_section() {
    let error = config::Config::parse_ini("[databases]\na = port=x\n", "f", &crate::no_file);
    let mistakes = error.unwrap_err().mistakes;
    assert_eq!((mistakes[0].section.as_str(), mistakes[0].key.as_str()), ("databases", "a.port"));
}

#[test]
fn secrets_are_neither_debugged_nor_described() {
    let config = ini("[pgbouncer]\n[databases]\na = host=h user=u password=hush\n");
    assert!(!format!("{config:?}").contains("hush"));
    assert!(!config::describe(&config).contains("hush"));
    assert!(format!("{config:?}").contains("(secret)"));
}

#[test]
fn the_rest_of_a_password_is_not_repeated() {
    for rest in ["of=it", "of=it port=nowhere", "of=it it=all"] {
        let text =
            format!("[databases]\nd = host=x password=half {rest} reserve_pool=3\n[pgbouncer]\n");
        let told = format!("{:?}", ini_mistakes(&text));
        assert!(told.contains("after a password") && !told.contains("of:"), "{told}");
        assert!(!told.contains("reserve") && !told.contains("it:"), "{told}");
    }
}

/// PgBouncer takes these in silence.
#[test]
fn values_that_are_not_meant_are_warned_of() {
    let cases = [
        (
            "auth_file = users.txt ; the users",
            "auth_file: the text behind ; belongs to the value: put comments on lines of their own",
        ),
        ("listen_port = 1", "listen_port: set again: the value of line 2 has no effect"),
    ];
    for (line, expected) in cases {
        let config = ini(&format!("[pgbouncer]\nlisten_port = 2\n{line}\n"));
        let found: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(found, [format!("test.ini:3: {expected}")], "{line}");
    }
    let quiet = "[pgbouncer]\nauth_query = SELECT $1, ${} FROM f('${a')\nlogfile = a;b\n";
    assert_eq!(ini(quiet).warnings, []);
}
