//! `weir.data_path = direct`: backends of the server that runs Weir serve the clients of port 6543.
//! The other tests of `builtin` also run this way, with WEIR_LIBRARY=direct.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use testkit::{
    Authority, Builtin, Pooler, RawClient, Role, Version, altered_library, eventually, frontend,
};

use super::adoption::{crash, until_adopted};
use super::defects::Stopped;
use super::life::{has_ended, until_replaced};
use crate::support;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const DIRECT: &str = "weir.data_path = direct\nweir.connection_proxies = 1\n";

/// A server whose pool of the role `app` in the database `postgres` is direct.
pub(super) fn server(version: Version, settings: &str) -> Builtin {
    let server = Builtin::start(version, &format!("{DIRECT}{settings}"));
    server.wait_until_serving();
    server.create_functions("postgres");
    // For the tests that kill the postmaster.
    server.sql("postgres", "CHECKPOINT");
    until_direct(&server);
    server
}

/// The columns `data_path` and `why` of the pool in SHOW POOLS.
fn shown(server: &Builtin) -> (String, String) {
    let sql = "SELECT data_path, coalesce(why, '') FROM weir_pools \
               WHERE \"user\" = 'app' AND database = 'postgres'";
    let row = server.sql("postgres", sql).pop().expect("the pool's row");
    let mut words = row.into_iter().map(|word| word.expect("not NULL"));
    (words.next().expect("a word"), words.next().expect("a word"))
}

/// Logs in until the pool is direct: its first client tries a server.
#[track_caller]
pub(super) fn until_direct(server: &Builtin) {
    eventually("the pool is direct", PATIENCE, || {
        server.login(Role::APP, "postgres", Role::APP_PASSWORD).ok()?;
        (shown(server).0 == "direct").then_some(())
    });
}

pub(super) fn pid(client: &mut RawClient) -> u32 {
    client.value("SELECT pg_backend_pid()").parse().expect("a number")
}

/// Has the client's connection ended, with an error or without?
pub(super) fn is_lost(client: &mut RawClient) -> bool {
    client.read_to_end().iter().all(|message| message.tag != b'Z')
}

#[test]
fn one_parameter_makes_the_pools_direct_core() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = server(version, "weir.session_pool_size = 3");
        let mut clients: Vec<_> = (0..30).map(|_| server.client("postgres")).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.rows(&format!("SET application_name = 'client {number}'"));
            client.rows(&format!("PREPARE own AS SELECT 'own {number}'; DEALLOCATE own"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
        }
        assert!(server.backends("postgres").len() <= 3, "{version:?}");
        assert_eq!(shown(&server).0, "direct", "{version:?}");
        // The pooler takes no part: stopped, it holds up nobody.
        let stopped = Stopped::new(server.pooler_pid());
        clients.iter_mut().for_each(|client| assert_eq!(client.value("SELECT 7"), "7"));
        drop(stopped);
        assert!(!server.has_crashed());
    }
}

#[test]
fn a_reload_switches_pools_to_direct_and_back() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.data_path = proxy");
    server.create_functions("postgres");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    assert_eq!(shown(&server), ("proxy".to_owned(), String::new()));
    server.set("weir.data_path", "auto");
    until_direct(&server);
    // Its session was begun by the proxy, and stays there.
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    let mut direct = server.client("postgres");
    direct.rows("SET work_mem = '8MB'");
    server.set("weir.data_path", "proxy");
    assert!(is_lost(&mut direct));
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_eq!(server.client("postgres").value("SHOW work_mem"), "4MB");
    assert_eq!(shown(&server), ("proxy".to_owned(), String::new()));
    let error = server.superuser("postgres").query("ALTER SYSTEM SET weir.data_path = 'x'").error;
    assert_eq!(error.expect("no such path").code(), "22023");
}

#[test]
fn a_killed_pooler_is_back_within_a_second_and_has_its_clients() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    server.sql("postgres", "CREATE TABLE facts (a int); GRANT ALL ON facts TO app");
    for _ in 0..3 {
        let mut at_rest = server.client("postgres");
        let mut busy = server.client("postgres");
        at_rest.rows("SET work_mem = '7MB'");
        busy.rows("BEGIN; TRUNCATE facts; INSERT INTO facts VALUES (1)");
        let before = server.pooler_pid();
        support::kill9(before);
        let began = Instant::now();
        until_replaced(&server, before);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "it took {took:?}");
        assert_eq!(at_rest.value("SHOW work_mem"), "7MB");
        assert_eq!(busy.value("SELECT count(*) FROM facts"), "1");
        busy.rows("COMMIT");
        assert_eq!(busy.value("SELECT 2"), "2");
        assert_eq!(server.client("postgres").value("SELECT count(*) FROM facts"), "1");
    }
    assert!(!server.has_crashed());
}

#[test]
fn clients_at_rest_outlive_a_crash_of_the_server_and_its_supervisor() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = server(version, "");
        let pooler = server.pooler_pid();
        let mut at_rest = server.client("postgres");
        at_rest.rows("SET work_mem = '7MB'");
        at_rest.send([frontend::parse("s", "SELECT 'own'"), frontend::sync()].concat());
        at_rest.read_to_ready();
        for round in 0..3 {
            let mut busy = server.client("postgres");
            busy.rows("BEGIN");
            let backend = pid(&mut busy);
            until_adopted(&server, || match round {
                0 => support::kill9(backend),
                1 => support::kill9(server.supervisor_pid().expect("it runs")),
                _ => crash(&server),
            });
            assert!(is_lost(&mut busy), "{version:?} {round}");
            assert_eq!(at_rest.value("SHOW work_mem"), "7MB", "{version:?} {round}");
            let request =
                [frontend::bind("", "s", &[]), frontend::execute("", 0), frontend::sync()];
            at_rest.send(request.concat());
            let answer = at_rest.read_to_ready();
            let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
            assert_eq!(row[0].as_deref(), Some("own"), "{version:?} {round}");
            assert_eq!(server.pooler_pid(), pooler, "{version:?} {round}");
        }
        // The adopted pooler is told of changes, too.
        server.set("weir.data_path", "proxy");
        assert!(is_lost(&mut at_rest), "{version:?}");
        server.stop_by("INT");
        for name in ["weir.direct", "weir.door", "weir.sock"] {
            assert!(!server.data().join("pg_stat_tmp").join(name).exists(), "{version:?} {name}");
        }
    }
}

#[test]
fn a_terminated_backend_takes_its_client_only() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let mut clients: Vec<_> = (0..3).map(|_| server.client("postgres")).collect();
    clients[1].rows("SET work_mem = '7MB'");
    clients[0].rows("BEGIN");
    let backend = pid(&mut clients[0]);
    server.sql("postgres", &format!("SELECT pg_terminate_backend({backend})"));
    assert!(is_lost(&mut clients[0]));
    assert_eq!(clients[1].value("SHOW work_mem"), "7MB");
    assert_eq!(clients[2].value("SHOW work_mem"), "4MB");
    assert!(!server.has_crashed());
}

#[test]
fn no_process_is_left_when_the_postmaster_is_killed() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let mut clients: Vec<_> = (0..3).map(|_| server.client("postgres")).collect();
    clients[0].rows("BEGIN");
    let (pooler, backend) = (server.pooler_pid(), pid(&mut clients[0]));
    server.kill9();
    for process in [pooler, backend] {
        eventually("it has ended", PATIENCE, || has_ended(process).then_some(()));
    }
    clients.iter_mut().for_each(|client| assert!(is_lost(client)));
    server.launch();
    assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1");
    until_direct(&server);
}

#[test]
fn the_server_stops_in_time_with_direct_clients() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.max_sessions = 2000");
    for (signal, limit) in [("INT", 2), ("TERM", 5)] {
        let mut clients: Vec<_> = (0..1_000).map(|_| server.client("postgres")).collect();
        clients.iter_mut().for_each(|client| drop(client.rows("SELECT 1")));
        if signal == "INT" {
            clients.iter_mut().take(5).for_each(|client| drop(client.rows("BEGIN")));
        }
        let took = server.stop_by(signal);
        assert!(took < Duration::from_secs(limit), "{signal}: it took {took:?}");
        assert!(clients.iter_mut().all(is_lost), "{signal}");
        let before = server.pooler_pid();
        server.launch();
        until_replaced(&server, before);
        until_direct(&server);
    }
}

#[test]
fn a_smart_stop_waits_for_a_direct_clients_transaction() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let (mut client, mut at_rest) = (server.client("postgres"), server.client("postgres"));
    at_rest.rows("SELECT 1");
    server.sql("postgres", "CREATE TABLE facts (a int); GRANT ALL ON facts TO app");
    client.rows("BEGIN; INSERT INTO facts VALUES (1)");
    server.signal("TERM");
    server.log_contains(&["the pooler closes its idle connections"]);
    assert_eq!(client.value("SELECT 1"), "1");
    client.rows("COMMIT");
    server.wait_until_gone();
    assert!(is_lost(&mut client));
    assert!(is_lost(&mut at_rest));
    server.stop();
    server.launch();
    server.wait_until_serving();
    assert_eq!(server.client("postgres").value("SELECT count(*) FROM facts"), "1");
}

/// Each backend goes to the Weir that has opened its connection.
#[test]
fn another_weir_has_direct_pools_of_the_same_server() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let socket = server.socket_folder().join("direct");
    server.set("weir.control_socket", &socket.display().to_string());
    eventually("the server knows the other socket", PATIENCE, || {
        let known = server.superuser("postgres").value("SHOW weir.control_socket");
        (known == socket.display().to_string()).then_some(())
    });
    let mut own = server.client("postgres");
    own.rows("SET work_mem = '7MB'");
    let other = Pooler::before(&server)
        .set("pool_mode", "auto")
        .set("data_path", "direct")
        .set("direct_socket", socket.display())
        .database("postgres", "")
        .start();
    drop(other.client("postgres"));
    let pools = other.admin("SHOW POOLS").with("database", "postgres");
    assert_eq!(pools.only("data_path"), "direct", "{}", other.log());
    let mut others = other.client("postgres");
    others.rows("SET work_mem = '8MB'");
    // Both open servers: each needs a second one.
    own.rows("BEGIN");
    others.rows("BEGIN");
    assert_eq!(server.client("postgres").value("SHOW work_mem"), "4MB");
    assert_eq!(other.client("postgres").value("SHOW work_mem"), "4MB");
    assert_eq!(own.value("SHOW work_mem"), "7MB");
    assert_eq!(others.value("SHOW work_mem"), "8MB");
    drop(other);
    assert_eq!(own.value("SHOW work_mem"), "7MB");
    assert_eq!(shown(&server).0, "direct");
}

#[test]
fn a_ticket_that_nobody_has_given_makes_an_ordinary_session_strict() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let mut client = RawClient::connect(server.port());
    let words = [
        ("user", Role::APP),
        ("database", "postgres"),
        ("weir.report", "1"),
        ("weir.ticket", "own:00112233445566778899aabbccddeeff"),
    ];
    client.authenticate(&words, Role::APP_PASSWORD).expect("the server lets it in");
    assert_eq!(client.value("SELECT 1"), "1");
    server.log_contains(&["weir: the control socket cannot be used"]);
    assert_eq!(server.client("postgres").value("SELECT 1"), "1");
}

#[test]
fn with_tls_for_clients_the_pools_are_proxied_and_say_so() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving(DIRECT);
    server.create_functions("postgres");
    server.offer_tls(&Authority::new("weir test").server());
    eventually("the pooler offers TLS", PATIENCE, || {
        server.login(Role::APP, "postgres", Role::APP_PASSWORD).ok()?;
        (shown(&server) == ("proxy".to_owned(), "client TLS".to_owned())).then_some(())
    });
    let folder = testkit::open_folder("plain");
    let file = folder.join("weir.ini");
    std::fs::write(&file, "client_tls_sslmode = disable\n").expect("our own folder");
    testkit::give_away(&folder);
    server.set("weir.config_file", &file.display().to_string());
    until_direct(&server);
}

#[test]
fn a_standby_serves_directly_and_goes_on_through_its_promotion() {
    if !support::only_weir() {
        return;
    }
    let primary = server(Version::Installed, "");
    let standby = primary.standby();
    standby.wait_until_serving();
    until_direct(&standby);
    let mut client = standby.client("postgres");
    client.rows("SET work_mem = '7MB'");
    assert_eq!(client.value("SELECT pg_is_in_recovery()"), "t");
    standby.sql("postgres", "SELECT pg_promote()");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    client.rows("CREATE TEMP TABLE written (a int)");
    assert_eq!(shown(&standby).0, "direct");
}

/// The library is another version's: it shares the clients by other rules.
#[test]
fn backends_with_another_layout_serve_no_clients() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let other = altered_library(version, "lobby.h", |text| {
            let is_it = |line: &str| line.starts_with("#define LOBBY_LAYOUT ");
            let lines = text.lines().map(|line| match is_it(line) {
                true => "#define LOBBY_LAYOUT 77",
                false => line,
            });
            lines.flat_map(|line| [line, "\n"]).collect()
        });
        let settings = format!("{DIRECT}shared_preload_libraries = '{}'\n", other.display());
        let server = Builtin::start(version, &settings);
        server.wait_until_serving();
        server.create_functions("postgres");
        let mut client = server.client("postgres");
        client.rows("SET work_mem = '7MB'");
        assert_eq!(client.value("SHOW work_mem"), "7MB", "{version:?}");
        assert_eq!(shown(&server), ("proxy".to_owned(), "no library".to_owned()), "{version:?}");
        assert!(!server.has_crashed(), "{version:?}");
    }
}

/// Sends a query. Returns the payloads that came before its end, or `None` if the client is lost.
fn try_ask(client: &mut RawClient, sql: &str) -> Option<Vec<String>> {
    client.try_send(frontend::query(sql)).ok()?;
    let mut heard = Vec::new();
    loop {
        let message = client.try_read().ok()??;
        match message.tag {
            b'A' => {
                let texts: Vec<_> = message.body[4..].split(|byte| *byte == 0).collect();
                heard.push(String::from_utf8_lossy(texts[1]).into_owned());
            }
            b'Z' => return Some(heard),
            _ => {}
        }
    }
}

/// Backends that live on have descriptors of the sockets of clients that have left the lobby.
#[test]
fn a_killed_pooler_loses_clients_that_listen_and_they_notice_it() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 3");
    let (mut rests, mut pinned) = (server.client("postgres"), server.client("postgres"));
    rests.rows("SET work_mem = '7MB'");
    let mut listens: Vec<_> = (0..4).map(|_| server.client("postgres")).collect();
    for client in listens.iter_mut().chain([&mut pinned]) {
        client.rows("SELECT pg_sleep(0.01)");
    }
    pinned.rows("CREATE TEMP TABLE own (a int)");
    listens.iter_mut().for_each(|client| drop(client.rows("LISTEN steady")));
    eventually("they are proxied", PATIENCE, || {
        let pins = server.sql("postgres", "SELECT reason FROM weir_pins");
        (pins.len() == 1).then_some(())
    });
    let before = server.pooler_pid();
    support::kill9(before);
    for client in &mut listens {
        client.set_timeout(PATIENCE);
        assert!(is_lost(client));
    }
    until_replaced(&server, before);
    assert_eq!(rests.value("SHOW work_mem"), "7MB");
    assert_eq!(pinned.value("SELECT count(*) FROM own"), "0");
    let mut next = server.client("postgres");
    next.rows("LISTEN steady");
    server.sql("postgres", "NOTIFY steady, 'x'");
    next.read_until(|message| message.tag == b'A');
    assert!(!server.has_crashed());
}

#[test]
fn no_client_loses_its_channels_and_stays_when_the_pooler_is_killed_strict() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 3");
    let mut clients: Vec<RawClient> = Vec::new();
    for round in 0..6 {
        let before = server.pooler_pid();
        let coming: Vec<_> = (0..12).map(|_| server.client("postgres")).collect();
        let listening = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let listen = scope.spawn(|| {
                let mut all = Vec::new();
                for mut client in coming {
                    client.set_timeout(PATIENCE);
                    let is_there = try_ask(&mut client, "LISTEN steady").is_some();
                    listening.fetch_add(1, Ordering::SeqCst);
                    all.extend(is_there.then_some(client));
                }
                all
            });
            eventually("some listen", PATIENCE, || {
                (listening.load(Ordering::SeqCst) > round).then_some(())
            });
            support::kill9(before);
            let came = listen.join().expect("clients");
            assert!(!came.is_empty(), "those that came later stay");
            clients.extend(came);
        });
        until_replaced(&server, before);
        until_direct(&server);
        clients.retain_mut(|client| try_ask(client, "SELECT 1").is_some());
        let last = format!("round {round}");
        server.sql("postgres", &format!("NOTIFY steady, '{last}'"));
        for client in &mut clients {
            let heard = |client: &mut RawClient| {
                let asked = try_ask(client, "SELECT pg_sleep(0.01)").expect("it is connected");
                asked.contains(&last).then_some(())
            };
            eventually("it hears", PATIENCE, || heard(client));
        }
    }
    assert!(!server.has_crashed());
}

#[test]
fn a_role_that_gets_the_name_of_another_one_gets_none_of_its_backends_core_strict() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    server.sql(
        "postgres",
        "CREATE ROLE boss LOGIN PASSWORD 'of boss'; CREATE ROLE intern LOGIN PASSWORD 'of intern'; \
         CREATE TABLE secrets AS SELECT 7 AS n; GRANT SELECT ON secrets TO boss",
    );
    let login = |name, password| server.login(name, "postgres", password);
    let reads = |client: &mut RawClient| client.query("SELECT n FROM secrets").error.is_none();
    let mut former = eventually("the new roles are known", PATIENCE, || {
        login("intern", "of intern").ok()?;
        login("boss", "of boss").ok()
    });
    assert!(reads(&mut former));
    server.sql(
        "postgres",
        "ALTER ROLE boss RENAME TO away; ALTER ROLE intern RENAME TO boss; \
         ALTER ROLE away RENAME TO intern",
    );
    eventually("the intern with the boss's name reads nothing", PATIENCE, || {
        let mut renamed = login("boss", "of intern").ok()?;
        (!reads(&mut renamed)).then_some(())
    });
    for _ in 0..10 {
        let mut renamed = login("boss", "of intern").expect("the intern's password");
        assert!(!reads(&mut renamed));
    }
    assert!(is_lost(&mut former), "the pool is another role's now");
    let mut renamed = login("intern", "of boss").expect("the boss's password");
    assert!(reads(&mut renamed));
    server.sql(
        "postgres",
        "DROP OWNED BY boss; DROP ROLE boss; CREATE ROLE boss LOGIN PASSWORD 'new'",
    );
    eventually("the role that was created again is served", PATIENCE, || {
        let found = login("boss", "new").ok()?.query("SELECT current_user");
        found.error.is_none().then_some(())
    });
}
