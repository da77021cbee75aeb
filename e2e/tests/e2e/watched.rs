//! Weir's analysis of texts: SHOW FINGERPRINTS, and the advice on auto mode, which is compared with
//! the behaviour of auto mode.

use std::process::Command;
use std::time::Duration;

use testkit::{Pooler, RawClient, Role, eventually, frontend, pooler_binary};

use crate::support::{self, only_weir};

fn text(cell: &Option<String>) -> &str {
    cell.as_deref().unwrap_or_default()
}

#[test]
fn fingerprints_show_what_takes_the_time_and_no_literal_core_strict() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("fingerprints", 1).workers(2).start();
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for (at, client) in clients.iter_mut().enumerate() {
        client.rows(&format!("SELECT length('topsecret{at}') -- topsecret"));
        client.rows("SELECT pg_sleep(0.05)");
        client.rows(
            "BEGIN; ALTER ROLE CURRENT_USER PASSWORD 'topsecret'; \
             ALTER ROLE CURRENT_USER PASSWORD E'top\\'secret'; \
             ALTER ROLE CURRENT_USER PASSWORD $x$topsecret$x$; ROLLBACK",
        );
        client.rows("SET app.key = topsecret");
        assert!(client.query("ALTER ROLE CURRENT_USER PASSWORD topsecret").error.is_some());
        assert!(client.query("ALTER ROLE CURRENT_USER PASSWORD 'a'topsecret'").error.is_some());
        // Uses a prepared statement of the protocol.
        client.send(
            [
                frontend::parse("s", "SELECT length($1)"),
                frontend::bind("", "s", &[Some("topsecret")]),
                frontend::execute("", 0),
                frontend::sync(),
            ]
            .concat(),
        );
        client.read_to_ready();
    }
    let shown = pooler.admin("SHOW FINGERPRINTS").with("database", &database);
    let of = |text: &str| shown.with("text", text);
    // Both protocols give the same fingerprint, and so do both workers.
    assert_eq!(of("select length(?)").only("count"), "4");
    let slow = of("select pg_sleep(?)");
    assert_eq!(slow.only("count"), "2");
    let number = |name: &str| slow.only(name).parse::<u64>().expect("a number");
    assert!((50_000..5_000_000).contains(&number("mean")), "{slow:?}");
    assert!(number("time") >= 100_000 && number("p99") >= 50_000, "{slow:?}");
    assert!(number("received") > 20 && number("sent") > 20, "{slow:?}");
    assert_eq!(of("set app.key = ?").only("count"), "2");
    assert_eq!(of("alter role current_user password ?").only("count"), "4");
    assert_eq!(shown.column("text")[0], "select pg_sleep(?)", "it took the most time");
    let md5 = clients[0].value("SELECT left(md5('select pg_sleep(?)'), 16)");
    assert_eq!(slow.only("fingerprint"), md5);
    let all = format!("{:?}", pooler.admin("SHOW FINGERPRINTS"));
    assert!(!all.contains("topsecret") && !all.contains("secret'"), "{all}");
    // Only users of the console see them.
    assert!(pooler.login(Role::APP, "pgbouncer", Role::APP_PASSWORD).is_err());
    pooler.admin("SET fingerprints = 0");
    assert!(pooler.admin("SHOW FINGERPRINTS").rows.is_empty());
    clients[0].rows("SELECT 1");
    assert!(pooler.admin("SHOW FINGERPRINTS").rows.is_empty());
}

/// Returns clients with each kind of session state, and two without.
fn traffic(pooler: &Pooler, database: &str) -> Vec<RawClient> {
    [
        "SELECT 1",
        "SELECT 2",
        "SET work_mem = '2MB'",
        "LISTEN news",
        "PREPARE one AS SELECT 1",
        "SELECT pg_advisory_lock(7)",
        "CREATE TEMP TABLE mine (a int)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "SELECT setseed(0.5)",
        "DO 'BEGIN END'",
    ]
    .into_iter()
    .enumerate()
    .map(|(at, sql)| {
        let mut client = pooler.client(database);
        client.rows(&format!("SET application_name = 'app-{at}'"));
        let outcome = client.query(sql);
        assert!(outcome.error.is_none(), "{sql}: {:?}", outcome.error);
        client
    })
    .collect()
}

#[test]
fn advice_agrees_with_what_auto_mode_does_core() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("session");
    let mut pooler = setup.set("advise", 1).set("default_pool_size", 20).workers(2).start();
    let clients = traffic(&pooler, &database);
    let advice = pooler.admin("SHOW ADVICE").with("database", &database);
    let figures = ["clients", "sharing", "pinned", "possibly_pinned"]
        .map(|name| advice.only(name).to_owned());
    assert_eq!(figures, ["10", "5", "4", "1"]);
    let reasons = pooler.admin("SHOW REASONS").with("database", &database);
    let with = |effect: &str| {
        let rows = reasons.with("effect", effect);
        let mut words: Vec<_> = rows.column("reason").into_iter().map(str::to_owned).collect();
        words.sort_unstable();
        words.dedup();
        words
    };
    assert_eq!(with("carried"), ["listen", "prepared statement", "setting"]);
    assert_eq!(with("possibly pinned"), ["unknown function"]);
    let pinned = with("pinned");
    let lock = reasons.with("reason", "advisory lock");
    assert_eq!(lock.only("text"), "select pg_advisory_lock(?)");
    assert_eq!(lock.only("application_name"), "app-5");

    let output = support::run(
        Command::new(pooler_binary())
            .args(["advise", "--seconds", "0", "--user", "admin", "--host", "127.0.0.1", "--port"])
            .arg(pooler.port().to_string())
            .env("PGPASSWORD", "admin-secret"),
    );
    for line in [
        "All numbers are upper bounds",
        "would be pinned                 at most 4",
        "possibly pinned                 at most 1",
        "pinned: advisory lock; clients 1",
        "pinned: temporary object; clients 1",
        "carried: setting; clients 10",
        "create temp table mine(a int)",
    ] {
        assert!(output.contains(line), "{line} is not in\n{output}");
    }
    assert_eq!(pooler.admin("SHOW CONFIG").with("key", "advise").only("value"), "1");
    let servers_max: usize = advice.only("servers_max").parse().expect("a number");

    // Does the same in auto mode.
    drop(clients);
    pooler.wait_until_quiet(&database, 20);
    pooler.reconfigure(|ini| {
        ini.set("pool_mode", "auto");
    });
    pooler.reload();
    let clients = traffic(&pooler, &database);
    let reasons = eventually("the clients are pinned", Duration::from_secs(10), || {
        let pins = pooler.admin("SHOW PINS").with("database", &database);
        let mut words: Vec<_> = pins.column("reason").into_iter().map(str::to_owned).collect();
        words.sort_unstable();
        (words.len() == pinned.len()).then_some(words)
    });
    assert_eq!(reasons, pinned);
    // A pool of the advised size suffices: the last client still gets a server.
    pooler.admin(&format!("SET default_pool_size = {servers_max}"));
    assert!(servers_max < 10, "{servers_max}");
    let mut last = pooler.client(&database);
    assert_eq!(text(&last.rows("SELECT 3")[0][0]), "3");
    drop(clients);
}

#[test]
fn weir_advise_leaves_the_key_as_it_was() {
    if !only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let advise = |seconds: &str| {
        support::run(
            Command::new(pooler_binary())
                .args(["advise", "--seconds", seconds, "--user", "admin", "--host", "127.0.0.1"])
                .arg(pooler.configuration())
                .env("PGPASSWORD", "admin-secret"),
        )
    };
    pooler.client(&database).rows("SELECT 1");
    assert!(advise("0").starts_with("No client"));
    let printed = std::thread::scope(|scope| {
        let watching = scope.spawn(|| advise("2"));
        eventually("it is watched", Duration::from_secs(10), || {
            let key = pooler.admin("SHOW CONFIG").with("key", "advise");
            (key.only("value") == "1").then_some(())
        });
        pooler.client(&database).rows("SELECT pg_advisory_lock(1), pg_advisory_unlock_all()");
        watching.join().expect("no panic")
    });
    assert!(printed.contains("pinned: advisory lock; clients 1, times 1"), "{printed}");
    assert_eq!(pooler.admin("SHOW CONFIG").with("key", "advise").only("value"), "0");
    let refused = support::run_any(
        Command::new(pooler_binary())
            .args(["advise", "--seconds", "0", "--user", Role::APP, "--host", "127.0.0.1"])
            .arg(pooler.configuration())
            .env("PGPASSWORD", Role::APP_PASSWORD),
    );
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn many_different_texts_delay_nobody_and_take_no_more_memory() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("fingerprints", 1).set("advise", 1).workers(1).start();
    let mut flood = pooler.client(&database);
    let mut other = pooler.client(&database);
    let mut round = |from: usize| {
        let texts = (from..from + 5_000).map(|n| frontend::query(&format!("SELECT {n} AS c{n}")));
        // Waits for each answer, so that each text is a request of its own.
        let mut longest = Duration::ZERO;
        for (at, text) in texts.enumerate() {
            flood.send(text);
            flood.read_to_ready();
            if at % 500 == 0 {
                let begun = std::time::Instant::now();
                other.rows("SELECT 'other'");
                longest = longest.max(begun.elapsed());
            }
        }
        longest
    };
    round(0);
    let before = pooler.resident_kib();
    let longest = round(5_000);
    let grown = pooler.resident_kib().saturating_sub(before);
    assert!(grown < 2_048, "{grown} KiB more");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let shown = pooler.admin("SHOW FINGERPRINTS").with("database", &database);
    assert_eq!(shown.rows.len(), 500);
    let long = format!("SELECT length('{}')", "x".repeat(1 << 20));
    assert_eq!(flood.value(&long), "1048576");
    assert_eq!(other.value("SELECT 'other'"), "other");
}

/// A job queue may take the process id for its identity, and two clients may have the same one.
#[test]
fn the_log_names_a_pool_whose_clients_ask_for_process_ids() {
    if !support::only_proxied("Weir sees no texts of direct clients") {
        return;
    }
    const SAID: &str = "clients ask for pg_backend_pid(), which may differ";
    let (setup, database) = support::setup("auto");
    let pooler = setup.set("stats_period", 1).start();
    let mut client = pooler.client(&database);
    client.rows("SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid()");
    pooler.log_contains("stats: ");
    assert!(!pooler.log().contains(SAID), "it only compares");
    client.rows("SELECT pg_catalog.pg_backend_pid()");
    pooler.log_contains(&format!("{database}/{}: {SAID}", Role::APP));
}

/// Each client has its own text, so that servers drop the statement of one for that of the other.
#[test]
fn the_log_names_a_pool_whose_servers_prepare_statements_again_and_again() {
    if !only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let setup = setup.set("stats_period", 1).set("max_prepared_statements", 1);
    let pooler = setup.set("default_pool_size", 1).start();
    let mut clients = [1, 2].map(|number| {
        let mut client = pooler.client(&database);
        client.send([frontend::parse("s", &format!("SELECT {number}")), frontend::sync()].concat());
        client.read_to_ready();
        client
    });
    eventually("a line names the key", Duration::from_secs(30), || {
        for _ in 0..20 {
            for client in &mut clients {
                let run =
                    [frontend::bind("", "s", &[]), frontend::execute("", 0), frontend::sync()];
                client.send(run.concat());
                client.read_to_ready();
            }
        }
        pooler
            .log()
            .contains("clients use more of them than max_prepared_statements (1)")
            .then_some(())
    });
}
