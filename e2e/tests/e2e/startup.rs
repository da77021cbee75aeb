//! The first bytes of a connection: refused, ignored and answered ones.

use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, frontend};

/// Returns the error that the pooler sends before it closes the connection.
#[track_caller]
fn refusal(pooler: &Pooler, bytes: &[u8]) -> (String, String, String) {
    let mut client = RawClient::connect(pooler.port());
    client.send(bytes);
    let messages = client.read_to_end();
    let error = messages.iter().find_map(Message::error).unwrap_or_else(|| panic!("{messages:?}"));
    let (severity, code, text) = error.summary();
    (severity.to_owned(), code.to_owned(), text.to_owned())
}

#[track_caller]
fn assert_refused(pooler: &Pooler, bytes: &[u8], text: &str) {
    let expected = ("FATAL".to_owned(), "08P01".to_owned(), text.to_owned());
    assert_eq!(refusal(pooler, bytes), expected);
}

#[test]
fn tls_and_gssapi_are_declined_and_the_login_goes_on() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::ssl_request());
    assert_eq!(client.read_byte(), b'N');
    client.send(frontend::gssenc_request());
    assert_eq!(client.read_byte(), b'N');
    client.authenticate(&[("user", Role::APP), ("database", &database)], "").expect("a login");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_startup_packet_must_name_a_user() {
    let (pooler, _) = support::pooler("transaction");
    assert_refused(&pooler, &frontend::startup(&[("database", "x")]), "no username supplied");
}

#[test]
fn the_database_defaults_to_the_users_name() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.database(Role::APP, &format!("dbname={database}")).start();
    let mut client = RawClient::connect(pooler.port());
    client.authenticate(&[("user", Role::APP)], "").expect("a login");
    assert_eq!(client.value("SELECT current_database()"), database);
}

#[test]
fn protocol_two_is_refused() {
    let (pooler, _) = support::pooler("transaction");
    let packet =
        [&16u32.to_be_bytes()[..], &0x0002_0000u32.to_be_bytes(), b"user\0\0\0\0"].concat();
    assert_refused(&pooler, &packet, "old V2 protocol not supported");
}

#[test]
fn an_unknown_startup_parameter_is_refused_unless_it_is_to_be_ignored() {
    let startup = |database: &str| {
        frontend::startup(&[
            ("user", Role::APP),
            ("database", database),
            ("extra_float_digits", "3"),
        ])
    };
    let (pooler, database) = support::pooler("transaction");
    let text = "unsupported startup parameter: extra_float_digits";
    assert_refused(&pooler, &startup(&database), text);

    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("ignore_startup_parameters", "extra_float_digits").start();
    let mut client = RawClient::connect(pooler.port());
    client.send(startup(&database));
    assert_eq!(client.read_to_ready().last().expect("ReadyForQuery").body, b"I");
}

#[test]
fn settings_within_options_are_taken_or_refused_one_by_one() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("ignore_startup_parameters", "extra_float_digits").start();
    let login = |options: &str| {
        let mut client = RawClient::connect(pooler.port());
        let startup = [("user", Role::APP), ("database", &*database), ("options", options)];
        client.authenticate(&startup, "").map(|_| client)
    };
    let mut client = login("-c application_name=by\\ option --TimeZone=UTC").expect("a login");
    assert_eq!(client.value("SHOW application_name"), "by option");
    assert_eq!(client.value("SHOW timezone"), "UTC");
    assert!(login("-c extra_float_digits=2").is_ok());
    let refused = login("-c geqo=off").expect_err("geqo is not tracked");
    assert_eq!(refused.message(), "unsupported startup parameter in options: geqo");
    let refused = login("geqo").expect_err("not a setting");
    assert_eq!(
        refused.message(),
        "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
    );
}

/// Each of PostgreSQL's names and aliases of encodings, in another spelling, is reported as by
/// PostgreSQL itself.
#[test]
fn an_encoding_in_another_spelling_is_reported_as_by_postgresql() {
    if !support::only_weir() {
        return;
    }
    let spellings = "eucjp euc-jp unicode UNICODE utf-8 Utf_8 latin1 ISO-8859-1 iso885915 koi8 \
        win1252 windows-1251 sjis shift_jis mskanji gb18030 win_936 alt tcvn5712 win949 sql_ascii \
        eucjis2004 iso88595 johab windows950";
    let reported = |mut client: RawClient, database: &str, startup: &[(&str, &str)]| {
        let both = [("user", Role::APP), ("database", database)];
        let login = client.authenticate(&[&both, startup].concat(), Role::APP_PASSWORD);
        let messages = login.unwrap_or_else(|error| panic!("{startup:?}: {}", error.message()));
        let prefix = b"client_encoding\0";
        let told = messages.iter().filter(|message| message.tag == b'S');
        let told = told.filter_map(|message| message.body.strip_prefix(prefix)).next_back();
        String::from_utf8(told.expect("it is reported").to_vec()).expect("ASCII")
    };
    for mode in ["session", "transaction", "statement", "auto"] {
        let (pooler, database) = support::pooler(mode);
        for spelling in spellings.split_whitespace() {
            let option = format!("-cclient_encoding={spelling}");
            for startup in [("client_encoding", spelling), ("options", &option)] {
                let direct = RawClient::connect(Postgres::shared().port());
                let direct = reported(direct, &database, &[startup]);
                let through = reported(RawClient::connect(pooler.port()), &database, &[startup]);
                assert_eq!(through, direct, "{mode}: {startup:?}");
            }
        }
    }
}

#[test]
fn the_clients_address_is_added_to_its_name_when_it_starts() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("application_name_add_host", 1).start();
    let login = |parameters: &[(&str, &str)]| {
        let mut client = RawClient::connect(pooler.port());
        let both = [("user", Role::APP), ("database", &*database)];
        client.authenticate(&[&both, parameters].concat(), "").expect("a login");
        client
    };
    let mut named = login(&[("application_name", "mine")]);
    let name = named.value("SHOW application_name");
    let port = name.strip_prefix("mine - 127.0.0.1:").expect("its address");
    assert!(port.parse::<u16>().is_ok_and(|port| port > 0), "{name}");
    let shown = pooler.admin("SHOW CLIENTS").with("database", &database);
    assert_eq!(shown.only("application_name"), name);
    // Only the name in the startup packet is extended. The client may change it later.
    named.rows("SET application_name = 'later'");
    assert_eq!(named.value("SHOW application_name"), "later");
    let name = login(&[]).value("SHOW application_name");
    assert!(name.starts_with("app - 127.0.0.1:"), "{name}");
    let name = pooler.unix_client(&database).value("SHOW application_name");
    let process = format!("app - unix({}@", std::process::id());
    assert!(name.starts_with(&process), "{name}");
    assert!(name.ends_with(&format!("):{}", pooler.port())), "{name}");
}

#[test]
fn unknown_extensions_and_newer_minor_versions_are_negotiated_down() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let mut packet = frontend::startup(&[
        ("user", Role::APP),
        ("database", &database),
        ("_pq_.something", "on"),
    ]);
    // Protocol 3.9, of which only the parts of 3.2 are defined.
    packet[4..8].copy_from_slice(&196_617u32.to_be_bytes());
    let mut client = RawClient::connect(pooler.port());
    client.send(packet);
    let messages = client.read_to_ready();
    let answers: Vec<_> = messages.iter().filter(|m| m.tag == b'v').collect();
    assert_eq!(answers.len(), 1, "{messages:?}");
    assert_eq!(answers[0].body[..4], [0, 3, 0, 2]);
    assert!(answers[0].body.ends_with(b"_pq_.something\0"), "{answers:?}");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_startup_packet_may_arrive_byte_by_byte_core() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = RawClient::connect(pooler.port());
    for byte in frontend::startup(&[("user", Role::APP), ("database", &database)]) {
        client.send([byte]);
    }
    client.read_to_ready();
    for byte in frontend::query("SELECT 'byte by byte'") {
        client.send([byte]);
    }
    assert_eq!(client.read_to_ready()[1].row(), [Some("byte by byte".to_owned())]);
}

#[test]
fn a_query_may_come_in_the_same_write_as_the_startup_packet() {
    let (pooler, database) = support::pooler("transaction");
    let mut client = RawClient::connect(pooler.port());
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    client.send([startup, frontend::query("SELECT 'at once'")].concat());
    client.read_to_ready();
    assert_eq!(client.read_to_ready()[1].row(), [Some("at once".to_owned())]);
}

#[test]
fn bytes_sent_behind_an_ssl_request_are_not_taken_for_the_login_core_strict() {
    let (pooler, database) = support::pooler("transaction");
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let both = [frontend::ssl_request(), startup].concat();
    let mut client = RawClient::connect(pooler.port());
    client.send(&both);
    // An attacker in the middle could have inserted them; see CVE-2021-3935.
    let messages: Vec<u8> = client.read_raw_to_end();
    assert!(!messages.contains(&b'Z'), "{}", messages.escape_ascii());
}

#[test]
fn connect_query_runs_once_on_each_new_server_and_its_errors_are_told_to_the_log_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    support::direct(&database).rows("CREATE TABLE opened (pid int)");
    let sql = "INSERT INTO opened SELECT pg_backend_pid(); SET TimeZone = 'Asia/Tokyo'";
    let mut pooler = setup
        .database(
            &database,
            &format!("dbname={database} connect_query='{}'", sql.replace('\'', "''")),
        )
        .start();
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for client in &mut clients {
        assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
        assert_eq!(client.value("SELECT count(*) FROM opened WHERE pid = pg_backend_pid()"), "1");
    }
    let [first, second] = &mut clients;
    first.rows("BEGIN");
    second.rows("BEGIN");
    assert_eq!(first.value("SELECT count(*) FROM opened"), "2");
    first.rows("COMMIT");
    second.rows("COMMIT");

    // An error is logged and has no other effect.
    pooler.reconfigure(|ini| {
        ini.database(
            &database,
            &format!("host=127.0.0.1 port={} connect_query='wrong'", Postgres::shared().port()),
        );
    });
    pooler.reload();
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    pooler.log_contains("error while executing exec_on_query: ERROR: syntax error at or near");
    assert_eq!(first.value("SELECT count(*) FROM opened WHERE pid = pg_backend_pid()"), "0");
}
