//! `pool_mode = auto`: what a client has in its session is there on whatever server it meets, and
//! nobody else's.

mod columns;
mod connect_query;
mod defects;
mod functions;
mod lending;
mod library;
pub(crate) mod listen;
mod modes;
mod names;
mod numbers;
mod paths;
mod refused;
mod resets;
mod servers;
mod signals;
mod torture;
mod workers;

use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, Setup, eventually, frontend};

use crate::support;

/// A pooler with one worker and `size` servers, so that it is known who gets which.
fn pooler(size: u32) -> (Pooler, String) {
    let (setup, database) = support::setup("auto");
    let setup = for_switching(setup.workers(1).set("default_pool_size", size));
    (setup.start(), database)
}

/// Sets up a pooler for `switch`. A server that is asked about roles stays idle in a direct pool, and
/// `occupy` waits until none is idle.
fn for_switching(setup: Setup) -> Setup {
    if testkit::pools_are_direct() { setup.set("role_check_interval", 0) } else { setup }
}

/// Waits until nobody's last transaction is looked into.
fn settle(pooler: &Pooler) {
    eventually("no server is asked anything", Duration::from_secs(10), || {
        let servers = pooler.admin("SHOW SERVERS");
        (!servers.column("state").contains(&"tested")).then_some(())
    });
}

/// Takes the server away that a client had last, unless the client keeps it: strangers are in a
/// transaction on each that was free, as long as they live, and only a new one is free now.
fn switch(pooler: &Pooler, database: &str) -> Vec<RawClient> {
    settle(pooler);
    if testkit::pools_are_direct() {
        return occupy(pooler, database);
    }
    let servers = pooler.admin("SHOW SERVERS");
    let free =
        servers.column("state").into_iter().filter(|state| matches!(*state, "idle" | "used"));
    let mut strangers: Vec<_> = (0..=free.count()).map(|_| pooler.client(database)).collect();
    for stranger in &mut strangers {
        stranger.rows("BEGIN");
    }
    if let Some(mut last) = strangers.pop() {
        last.rows("COMMIT");
    }
    strangers
}

/// Does the same in a direct pool, whose backends note a little later that they are free. On a busy
/// machine, a stranger may be given a new one although another is free. So the pool may be full
/// already, and is enlarged.
fn occupy(pooler: &Pooler, database: &str) -> Vec<RawClient> {
    pooler.admin("SET default_pool_size = 50");
    let servers = || pooler.admin("SHOW SERVERS").with("database", database);
    let before = servers();
    let before = before.column("remote_pid");
    let mut strangers = Vec::new();
    loop {
        let mut stranger = pooler.client(database);
        stranger.rows("BEGIN");
        let is_new = !before.contains(&&*backend(&mut stranger));
        strangers.push((stranger, is_new));
        let is_any_new = strangers.iter().any(|(_, is_new)| *is_new);
        if is_any_new && !servers().column("state").contains(&"idle") {
            break;
        }
    }
    if let Some(at) = strangers.iter().position(|(_, is_new)| *is_new) {
        strangers.swap_remove(at).0.rows("COMMIT");
    }
    strangers.into_iter().map(|(stranger, _)| stranger).collect()
}

/// Clients keep servers for these reasons. In a direct pool only the backend knows the reason.
#[track_caller]
fn assert_pinned(pooler: &Pooler, reasons: &[&str]) {
    settle(pooler);
    if !testkit::pools_are_direct() {
        assert_eq!(pooler.admin("SHOW PINS").column("reason"), reasons);
        return;
    }
    // A backend notes a little later that its client is at rest.
    eventually("clients keep servers", Duration::from_secs(10), || {
        let kept = pooler.admin("SHOW PINS");
        (kept.column("reason") == vec!["direct pool"; reasons.len()]).then_some(())
    });
}

fn backend(client: &mut RawClient) -> String {
    client.value("SELECT pg_backend_pid()")
}

#[test]
fn settings_go_with_the_client_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    client.rows("SET work_mem = '5MB'; SET search_path = \"$user\", pg_catalog");
    client.rows("SET app.tenant = '7'");
    let before = backend(&mut client);
    let _held = switch(&pooler, &database);
    assert_ne!(backend(&mut client), before);
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    assert_eq!(client.value("SHOW search_path"), "\"$user\", pg_catalog");
    assert_eq!(client.value("SHOW app.tenant"), "7");
    let mut other = pooler.client(&database);
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    assert_eq!(other.value("SELECT coalesce(current_setting('app.tenant', true), '')"), "");
    // Rolled back, it never was.
    client.rows("BEGIN; SET work_mem = '6MB'; ROLLBACK");
    client.rows("BEGIN; SAVEPOINT a; SET work_mem = '7MB'; ROLLBACK TO a; COMMIT");
    client.rows("BEGIN; SET LOCAL work_mem = '8MB'; COMMIT");
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    client.rows("RESET work_mem");
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("SHOW work_mem"), "4MB");
}

#[test]
fn a_server_that_has_the_clients_settings_is_preferred() {
    if !support::only_proxied("the kernel wakes any idle backend") {
        return;
    }
    let (pooler, database) = pooler(2);
    let zones = ["Asia/Tokyo", "Europe/Rome"];
    let mut groups = zones.map(|zone| {
        [(); 3].map(|()| {
            let mut client = pooler.client(&database);
            client.rows(&format!("SET TimeZone = '{zone}'; SET search_path = \"{zone}\""));
            client
        })
    });
    // Each group has had one of the two servers.
    groups.iter_mut().for_each(|group| drop(group[0].rows("BEGIN")));
    let backends = [0, 1].map(|at| backend(&mut groups[at][0]));
    assert_ne!(backends[0], backends[1]);
    groups.iter_mut().for_each(|group| drop(group[0].rows("COMMIT")));
    for at in [0, 1, 2, 1, 0] {
        for ((group, zone), own) in groups.iter_mut().zip(zones).zip(&backends) {
            assert_eq!(&backend(&mut group[at]), own, "{zone}");
            assert_eq!(group[at].value("SHOW TimeZone"), zone);
            assert_eq!(group[at].value("SHOW search_path"), format!("\"{zone}\""));
        }
    }
}

#[test]
fn an_applications_setting_is_found_among_any_number_of_names() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    client.rows("SET app.first = '1'");
    // Whatever has a dot may be a setting; these are not.
    for turn in 0..4 {
        let columns: Vec<_> = (0..200).map(|number| format!("t{turn}.c{number}")).collect();
        client.rows(&format!("SET work_mem = '5MB' /* {} */", columns.join(" ")));
    }
    client.rows("SET app.second = '2'");
    let before = backend(&mut client);
    let _held = switch(&pooler, &database);
    assert_ne!(backend(&mut client), before);
    assert_eq!(client.value("SHOW app.first"), "1");
    assert_eq!(client.value("SHOW app.second"), "2");
    client.rows("RESET app.first");
    drop(client);
    let mut other = pooler.client(&database);
    assert_eq!(other.value("SELECT coalesce(current_setting('app.second', true), '')"), "");
}

#[test]
fn session_state_pins_a_client_until_it_is_gone_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    for (make, end) in [
        ("CREATE TEMP TABLE mine (a int)", "DROP TABLE mine"),
        ("SELECT 1 AS a INTO TEMP mine", "DISCARD TEMP"),
        ("SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)"),
        ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1", "CLOSE mine"),
        ("CREATE TEMP TABLE mine (a int)", "DISCARD ALL"),
    ] {
        let mut client = pooler.client(&database);
        client.rows(make);
        let own = backend(&mut client);
        let _held = switch(&pooler, &database);
        assert_eq!(backend(&mut client), own, "{make}");
        client.rows(end);
        let _held = switch(&pooler, &database);
        assert_ne!(backend(&mut client), own, "{end}");
    }
}

#[test]
fn any_characters_are_carried() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    let all: String = (1..=126_u8).map(char::from).chain("äß€".chars()).collect();
    client.rows(&format!("SELECT set_config('app.every', $every${all}$every$, false)"));
    client.rows("PREPARE odd AS SELECT 'a;b=c\n\t', $1::text");
    for _ in 0..3 {
        let _held = switch(&pooler, &database);
        assert_eq!(client.value("SELECT current_setting('app.every')"), all);
        assert_eq!(client.value("EXECUTE odd('')"), "a;b=c\n\t");
    }
    // PREPARE keeps a backend of a direct pool.
    assert_pinned(&pooler, if testkit::pools_are_direct() { &[""] } else { &[] });
}

/// What is too large to be carried.
#[test]
fn a_session_with_more_than_is_carried_keeps_its_server() {
    if !support::only_probed() {
        return;
    }
    let (pooler, database) = pooler(2);
    let long = "x".repeat(2_000_000);
    let set = "SELECT set_config('app.big', repeat('x', 2000000), false) IS NULL";
    let prepare = format!("PREPARE big AS SELECT length('{long}')");
    for (make, reason, use_it) in [
        (set, "setting", "SELECT length(current_setting('app.big'))"),
        (&prepare, "prepared statement", "EXECUTE big"),
    ] {
        let mut client = pooler.client(&database);
        client.rows(make);
        eventually("it keeps its server", Duration::from_secs(10), || {
            (pooler.admin("SHOW PINS").column("reason") == [reason]).then_some(())
        });
        assert_eq!(client.value(use_it), "2000000");
        let mut other = pooler.client(&database);
        assert_eq!(other.value("SELECT coalesce(current_setting('app.big', true), '')"), "");
        client.rows("DISCARD ALL");
        eventually("it has let go", Duration::from_secs(10), || {
            pooler.admin("SHOW PINS").rows.is_empty().then_some(())
        });
    }
}

#[test]
fn statements_of_sql_go_with_the_client_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for (client, number) in clients.iter_mut().zip([1, 2]) {
        client.rows(&format!("SELECT 0; PREPARE mine (int) AS SELECT $1 + {number}; SELECT 1"));
    }
    for _ in 0..3 {
        for (client, expected) in clients.iter_mut().zip(["11", "12"]) {
            let _held = switch(&pooler, &database);
            assert_eq!(client.value("EXECUTE mine(10)"), expected);
        }
    }
    clients[0].rows("BEGIN; DEALLOCATE mine; ROLLBACK");
    let _held = switch(&pooler, &database);
    let gone = clients[0].query("EXECUTE mine(10)").error.expect("it is gone");
    assert_eq!(gone.code(), "26000");
    assert_eq!(clients[1].value("EXECUTE mine(10)"), "12");
    assert_eq!(pooler.client(&database).value("SELECT count(*) FROM pg_prepared_statements"), "0");
}

#[test]
fn a_statement_that_is_not_possible_at_present_is_not_lost() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let mut client = pooler.client(&database);
    client.rows("CREATE TABLE things AS SELECT 7 AS n");
    client.rows("PREPARE things AS SELECT n FROM things;");
    client.rows("PREPARE other AS SELECT 8");
    client.rows("ALTER TABLE things RENAME TO gone");
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("EXECUTE other"), "8");
    // The backend of a direct pool is kept, and still has the statement.
    let code = if testkit::pools_are_direct() { "42P01" } else { "26000" };
    assert_eq!(client.query("EXECUTE things").error.expect("no table").code(), code);
    client.rows("ALTER TABLE gone RENAME TO things");
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("EXECUTE things"), "7");
    let text = client.value("SELECT statement FROM pg_prepared_statements WHERE name = 'things'");
    assert_eq!(text, "PREPARE things AS SELECT n FROM things;");
}

#[test]
fn a_pinned_client_leaves_no_state_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    client.rows("CREATE TEMP TABLE mine (a int); SET work_mem = '5MB'");
    let own = backend(&mut client);
    drop(client);
    let mut next = pooler.client(&database);
    // A backend of a direct pool ends with the client that has kept it.
    assert_eq!(backend(&mut next) == own, !testkit::pools_are_direct());
    assert_eq!(next.value("SHOW work_mem"), "4MB");
    assert_eq!(next.value("SELECT to_regclass('mine') IS NULL"), "t");
}

#[test]
fn a_tracked_parameter_that_nobody_reports_is_carried() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(1).set("default_pool_size", 8);
    let pooler = setup.set("track_extra_parameters", "work_mem, IntervalStyle").start();
    let startup = [
        ("user", Role::APP),
        ("database", database.as_str()),
        ("work_mem", "5MB"),
        ("IntervalStyle", "iso_8601"),
    ];
    let mut client = RawClient::connect(pooler.port());
    client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
    let mut other = pooler.client(&database);
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    client.rows("SET work_mem = '6MB'");
    settle(&pooler);
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    let before = backend(&mut client);
    let _held = switch(&pooler, &database);
    assert_ne!(backend(&mut client), before);
    assert_eq!(client.value("SHOW work_mem"), "6MB");
    assert_eq!(client.value("SHOW IntervalStyle"), "iso_8601");
    client.rows("RESET work_mem");
    settle(&pooler);
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    assert_eq!(other.value("SHOW IntervalStyle"), "postgres");
}

#[test]
fn reset_goes_back_to_the_startup_packet() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let startup = [
        ("user", Role::APP),
        ("database", database.as_str()),
        ("application_name", "mine"),
        ("options", "-c work_mem=5MB"),
    ];
    let mut client = RawClient::connect(pooler.port());
    client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    client.rows("SET work_mem = '6MB'; SET application_name = 'other'");
    let _held = switch(&pooler, &database);
    assert_eq!(client.value("SHOW work_mem"), "6MB");
    for reset in [
        "RESET ALL",
        "DISCARD ALL",
        "RESET work_mem; RESET application_name",
        "SET work_mem TO DEFAULT; SET application_name TO DEFAULT",
    ] {
        client.rows("SET work_mem = '6MB'; SET application_name = 'other'");
        client.rows(reset);
        let _held = switch(&pooler, &database);
        assert_eq!(client.value("SHOW work_mem"), "5MB", "{reset}");
        assert_eq!(client.value("SHOW application_name"), "mine", "{reset}");
    }
    // The server's own value, if it is the client's, too.
    client.rows("SET application_name = ''");
    for order in ["SELECT 1", "BEGIN; SET application_name = 'other'; ROLLBACK", "SET a.b = 1"] {
        let _held = switch(&pooler, &database);
        client.rows(order);
        assert_eq!(client.value("SHOW application_name"), "", "{order}");
    }
}

#[test]
fn a_kept_server_is_counted_and_its_client_shown_with_the_reason() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.workers(2).set("default_pool_size", 8).start();
    const TEXT: &str = "CREATE TEMP TABLE mine (a int)";
    let own = |console: &str| pooler.admin(console).with("database", &database);
    let kept = |count: u64| {
        assert_pinned(&pooler, &vec!["temporary object"; count as usize]);
        assert_eq!(pooler.pool_sums(&database, ["sv_pinned"]), [count]);
        let shown = own("SHOW CLIENTS");
        let reasons = shown.column("pin_reason").into_iter().filter(|reason| !reason.is_empty());
        assert_eq!(reasons.count() as u64, count);
    };
    // On either worker, in either protocol.
    let mut clients: Vec<_> = (0..4).map(|_| pooler.client(&database)).collect();
    kept(0);
    clients[0].rows(TEXT);
    clients[1].rows(TEXT);
    for client in &mut clients[2..] {
        let run = [frontend::bind("", "", &[]), frontend::execute("", 0), frontend::sync()];
        client.send([frontend::parse("", TEXT), run.concat()].concat());
        client.read_to_ready();
    }
    kept(4);
    // Of the text as SHOW FINGERPRINTS writes it. Weir sees no text in a direct pool.
    let normal = "create temp table mine(a int)";
    let told = support::direct(&database).value(&format!("SELECT left(md5('{normal}'), 16)"));
    let is_direct = testkit::pools_are_direct();
    let (reason, told) = if is_direct { ("direct pool", "") } else { ("temporary object", &*told) };
    let shown = own("SHOW CLIENTS");
    let pins = own("SHOW PINS");
    assert_eq!(pins.column("fingerprint"), [told; 4]);
    for pin in pins.column("client") {
        let client = shown.with("ptr", pin);
        assert_eq!(client.only("pin_reason"), reason);
        assert_eq!(client.only("pin_fingerprint"), told);
        assert!(client.only("pin_age").parse::<u32>().is_ok());
    }
    if !is_direct {
        let events = own("SHOW EVENTS").with("event", "pin");
        let text = format!("temporary object, fingerprint {told}");
        assert_eq!((events.only("text"), events.only("count")), (&*text, "4"));
    }
    clients[1].rows("DROP TABLE mine");
    kept(3);
    clients.truncate(2);
    eventually("the others are gone", Duration::from_secs(10), || {
        (own("SHOW CLIENTS").rows.len() == 2).then_some(())
    });
    kept(1);
}

#[test]
fn statements_without_visible_state_are_refused_with_error() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.set("auto_unsupported", "error").start();
    let mut client = pooler.client(&database);
    for sql in ["SELECT lastval()", "SELECT setseed(0.5)", "LOAD 'plpgsql'"] {
        let error = client.query(sql).error.expect(sql);
        assert_eq!(error.code(), "0A000");
        client.send(frontend::parse("", sql));
        client.send([frontend::bind("", "", &[]), frontend::execute("", 0)].concat());
        client.send(frontend::sync());
        let messages = client.read_to_ready();
        let error = messages.iter().find_map(testkit::Message::error).expect(sql);
        assert_eq!(error.code(), "0A000");
    }
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_kept_server_is_shown_and_not_kept_for_ever() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.set("pin_timeout", 1).set("pin_functions", r"\bkeeps_\w+\(");
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    for name in ["keeps_it", "does_not"] {
        let sql = format!("CREATE FUNCTION {name}() RETURNS int LANGUAGE sql AS 'SELECT 1'");
        support::direct(&database).rows(&sql);
    }
    client.rows("SELECT does_not()");
    eventually("nothing is kept", Duration::from_secs(10), || {
        pooler.admin("SHOW PINS").rows.is_empty().then_some(())
    });
    client.rows("SELECT keeps_it()");
    eventually("it is kept", Duration::from_secs(10), || {
        let pins = pooler.admin("SHOW PINS");
        (pins.column("reason") == ["function"]).then_some(())
    });
    let last = client.read_until(|message| message.tag == b'E');
    let error = last.iter().find_map(testkit::Message::error).expect("it is told why");
    assert_eq!(error.message(), "pin_timeout");
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
}

#[test]
fn a_function_of_postgresqls_own_can_be_named_and_keeps_the_server() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let setup = setup.workers(1).set("default_pool_size", 20);
    let pooler = setup.set("pin_functions", r"\bpg_backend_pid\(").start();
    const SQL: &str = "SELECT pg_backend_pid()";
    let prepare = frontend::parse("named", SQL);
    let execute = frontend::execute("", 0);
    let ways = [
        vec![frontend::query(SQL)],
        vec![frontend::parse("", SQL), frontend::bind("", "", &[]), execute.clone()],
        vec![prepare, frontend::bind("", "named", &[]), execute],
    ];
    let mut held = Vec::new();
    for mut way in ways {
        let mut client = pooler.client(&database);
        if way.len() > 1 {
            way.push(frontend::sync());
        }
        client.send(way.concat());
        let told = client.read_to_ready();
        let told = told.iter().find(|message| message.tag == b'D').expect("its process").row();
        held.extend(switch(&pooler, &database));
        assert_eq!(told, [Some(backend(&mut client))]);
        held.push(client);
    }
}

#[test]
fn a_question_that_fails_is_no_answer() {
    if !support::only_probed() {
        return;
    }
    let (pooler, database) = pooler(2);
    let mut client = pooler.client(&database);
    client.rows("SET statement_timeout = 1");
    eventually("it is looked into", Duration::from_secs(10), || {
        let pins = pooler.admin("SHOW PINS");
        (pins.column("reason") == ["unverified"]).then_some(())
    });
    client.rows("SET statement_timeout = 0");
    eventually("it is known again", Duration::from_secs(10), || {
        pooler.admin("SHOW PINS").rows.is_empty().then_some(())
    });
    assert_eq!(client.value("SHOW statement_timeout"), "0");
}

#[test]
fn settings_are_probed_again_after_a_failed_probe() {
    if !support::only_probed() {
        return;
    }
    let (pooler, database) = pooler(1);
    let mut client = pooler.client(&database);
    let own = backend(&mut client);
    // The question about settings has to wait for this lock, until it is cancelled.
    let mut superuser = Postgres::shared().superuser(&database);
    superuser.rows("BEGIN; LOCK TABLE pg_catalog.pg_settings IN ACCESS EXCLUSIVE MODE");
    client.rows("SET work_mem = '7MB'");
    eventually("the question has failed", Duration::from_secs(10), || {
        let waits = format!("pid = {own} AND wait_event_type = 'Lock'");
        superuser
            .rows(&format!("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waits}"));
        (pooler.admin("SHOW PINS").column("reason") == ["unverified"]).then_some(())
    });
    superuser.rows("ROLLBACK");
    // Whatever it does next: what was not answered is asked again.
    client.rows("DROP TABLE IF EXISTS nothing");
    eventually("it is known", Duration::from_secs(10), || {
        pooler.admin("SHOW PINS").rows.is_empty().then_some(())
    });
    let mut other = pooler.client(&database);
    assert_eq!(backend(&mut other), own);
    assert_eq!(other.value("SHOW work_mem"), "4MB");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
}

#[test]
fn a_name_that_nobody_knows_costs_no_statement() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2);
    let mut client = pooler.client(&database);
    client.send([frontend::parse("mine", "SELECT 7"), frontend::sync()].concat());
    client.read_to_ready();
    let mut answer_to = |name: &str| {
        let ask = [frontend::bind("", name, &[]), frontend::execute("", 0)].concat();
        client.send([ask, frontend::sync()].concat());
        client.read_to_ready()
    };
    let refused = answer_to("nobodys").remove(0).error().expect("there is none");
    assert_eq!(refused.code(), "26000");
    assert_eq!(answer_to("mine")[1].row(), [Some("7".to_owned())]);
}
