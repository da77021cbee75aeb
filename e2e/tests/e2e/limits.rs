//! Limits on connections beyond one pool, the reserve and the minimum size of a pool, and the
//! notices to clients that wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, Setup, eventually, frontend};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);
const VIOLATION: (&str, &str) = ("FATAL", "08P01");
const SERVERS: [&str; 5] = ["sv_active", "sv_idle", "sv_used", "sv_tested", "sv_login"];

/// Returns a pooler in transaction mode that a second role may use as well.
fn setup() -> (Setup, String, Role) {
    let (setup, database) = support::setup("transaction");
    let role = Postgres::shared().role(ServerAuth::Scram);
    (setup.secret(&role.name, &role.password), database, role)
}

fn login(pooler: &Pooler, role: &Role, database: &str) -> RawClient {
    pooler.login(&role.name, database, &role.password).expect("the role is known")
}

#[track_caller]
fn refused(pooler: &Pooler, user: &str, database: &str, text: &str) {
    let error = pooler.login(user, database, Role::APP_PASSWORD).expect_err("a refusal");
    assert_eq!(error.summary(), (VIOLATION.0, VIOLATION.1, text));
}

/// Returns the number of servers of a database.
fn servers(pooler: &Pooler, database: &str) -> u64 {
    pooler.pool_sums(database, SERVERS).iter().sum()
}

#[test]
fn the_servers_of_a_database_are_limited_over_all_its_users() {
    let (setup, database, role) = setup();
    let pooler = setup.set("max_db_connections", 2).set("default_pool_size", 5).start();
    let mut held: Vec<_> = (0..2).map(|_| pooler.client(&database)).collect();
    held.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    let mut waiting = RawClient::connect(pooler.port());
    waiting.send(frontend::startup(&[("user", &role.name), ("database", &database)]));
    support::until_waiting(&pooler, &database, 1);
    assert_eq!(servers(&pooler, &database), 2);
    held[0].rows("COMMIT");
    waiting.read_to_ready();
    waiting.send(frontend::query("SELECT 'served'"));
    assert_eq!(waiting.read_to_ready()[1].row(), [Some("served".to_owned())]);
    assert_eq!(servers(&pooler, &database), 2);
}

#[test]
fn an_idle_server_of_another_user_makes_room() {
    let (setup, database, role) = setup();
    let pooler = setup.database(&database, "max_db_connections=1").start();
    let mut app = pooler.client(&database);
    let mut other = login(&pooler, &role, &database);
    for _ in 0..3 {
        assert_eq!(app.value("SELECT current_user"), Role::APP);
        assert_eq!(other.value("SELECT current_user"), role.name);
    }
    assert_eq!(servers(&pooler, &database), 1);
    pooler.log_contains("closing because: evicted");
}

#[test]
fn the_servers_of_a_user_are_limited_over_all_databases_core() {
    let (setup, first, role) = setup();
    let second = Postgres::shared().database();
    let one = "max_user_connections=1";
    let pooler = setup.database(&second, "").user(Role::APP, one).start();
    let mut clients = [&first, &second].map(|database| pooler.client(database));
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    assert_eq!(servers(&pooler, &first) + servers(&pooler, &second), 1);
    assert_eq!(login(&pooler, &role, &first).value("SELECT 1"), "1");
    assert_eq!(servers(&pooler, &first) + servers(&pooler, &second), 2);
}

#[test]
fn the_process_makes_room_by_closing_the_server_used_least_recently() {
    if !support::only_weir() {
        return;
    }
    let (setup, first, role) = setup();
    let second = Postgres::shared().database();
    let pooler = setup.database(&second, "").set("max_server_connections", 2).workers(2).start();
    let mut coldest = pooler.client(&first);
    assert_eq!(coldest.value("SELECT 1"), "1");
    let mut warmer = login(&pooler, &role, &first);
    let kept = warmer.value("SELECT pg_backend_pid()");
    // A server that becomes free while another pool needs room is taken, even if it has just become
    // idle.
    eventually("both servers are idle", PATIENCE, || {
        (pooler.pool_sums(&first, ["sv_idle", "sv_used"]) == [2, 0]).then_some(())
    });
    assert_eq!(pooler.client(&second).value("SELECT 1"), "1");
    let with = |user: &str| {
        let pools = pooler.admin("SHOW POOLS").with("database", &first).with("user", user);
        pools.sum("sv_idle") + pools.sum("sv_used")
    };
    assert_eq!((with(Role::APP), with(&role.name)), (0, 1));
    assert_eq!(warmer.value("SELECT pg_backend_pid()"), kept);
}

/// PostgreSQL has no room for the next server before the backend of the closed one has ended.
#[test]
fn a_server_is_opened_when_the_backend_of_the_evicted_one_has_ended() {
    if !support::only_weir() {
        return;
    }
    let (setup, first, role) = setup();
    let postgres = Postgres::shared();
    let second = postgres.database();
    postgres.sql("postgres", &format!("ALTER ROLE {} CONNECTION LIMIT 1", role.name));
    let pooler = setup.database(&second, "").set("max_server_connections", 1).start();
    for round in 0..100 {
        for database in [&first, &second] {
            let mut client = login(&pooler, &role, database);
            let answer = client.query("SELECT 1");
            assert!(answer.error.is_none(), "round {round}: {:?}", answer.error);
        }
    }
}

#[test]
fn a_server_is_used_again_only_after_success() {
    if !support::only_weir() {
        return;
    }
    for mode in ["transaction", "auto"] {
        let (setup, database) = support::setup(mode);
        let pooler = setup.set("reuse_after_error", "never").set("default_pool_size", 1).start();
        let mut client = pooler.client(&database);
        let first = client.value("SELECT pg_backend_pid()");
        assert_eq!(client.value("SELECT pg_backend_pid()"), first, "{mode}");
        let texts = ["SELECT 1 / 0", "BEGIN; SELECT 1 / 0", "ROLLBACK"];
        assert!(client.query(texts[0]).error.is_some(), "{mode}");
        let second = client.value("SELECT pg_backend_pid()");
        assert_ne!(second, first, "{mode}");
        client.query(texts[1]);
        client.rows(texts[2]);
        let third = client.value("SELECT pg_backend_pid()");
        assert_ne!(third, second, "{mode}");
        client.rows("BEGIN; SAVEPOINT s");
        client.query(texts[0]);
        client.rows("ROLLBACK TO s");
        client.rows("COMMIT");
        assert_eq!(client.value("SELECT pg_backend_pid()"), third, "{mode}");
        pooler.log_contains("client's last transaction failed (reuse_after_error)");
    }
}

/// Two users and two databases use fewer servers than there are pools. All clients must be served,
/// and the limit must hold at every moment.
#[test]
fn a_limit_holds_under_load_and_starves_nobody_core() {
    let (setup, database, role) = setup();
    let limit = 3;
    let pooler = setup.set("max_db_connections", limit).workers(2).start();
    let users = [(Role::APP, Role::APP_PASSWORD), (&role.name, &role.password)];
    let most = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|at| {
                let (user, password) = users[at % 2];
                let (pooler, database) = (&pooler, &database);
                scope.spawn(move || {
                    let mut client = pooler.login(user, database, password).expect("let in");
                    for _ in 0..20 {
                        assert_eq!(client.value("SELECT current_user"), user);
                    }
                })
            })
            .collect();
        let mut most = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            // SHOW counts one pool after the other. If one has just made room for another, both may
            // be counted, but hardly twice in a row.
            let count = || -> u64 {
                let shown = pooler.admin("SHOW DATABASES").with("name", &database);
                shown.only("current_connections").parse().expect("a number")
            };
            most = most.max(count().min(count()).min(count()));
        }
        threads.into_iter().for_each(|thread| thread.join().expect("everybody is served"));
        most
    });
    assert!((1..=limit).contains(&most), "{most} servers");
}

/// Two users have more work than the single server of a database can do.
#[test]
fn users_have_shares_of_a_database_by_weight() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup();
    let pooler = setup
        .database(&database, "max_db_connections=1")
        .user(&role.name, "pool_weight=4")
        .workers(2)
        .start();
    let users = [(Role::APP, Role::APP_PASSWORD), (&role.name, &role.password)];
    let (all, served) = (AtomicU32::new(0), [AtomicU32::new(0), AtomicU32::new(0)]);
    std::thread::scope(|scope| {
        for at in 0..8 {
            let ((user, password), served) = (users[at % 2], &served[at % 2]);
            let (pooler, database, all) = (&pooler, &database, &all);
            scope.spawn(move || {
                let mut client = pooler.login(user, database, password).expect("let in");
                while all.fetch_add(1, Ordering::Relaxed) < 2_000 {
                    assert_eq!(client.value("SELECT current_user FROM pg_sleep(0.002)"), user);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [light, heavy] = served.map(AtomicU32::into_inner);
    let ratio = f64::from(heavy) / f64::from(light.max(1));
    assert!((2.0..8.0).contains(&ratio), "{heavy} and {light} transactions: {ratio:.1} and not 4");
    pooler.log_contains("closing because: evicted");
}

#[test]
fn the_clients_of_a_database_are_limited_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let other = Postgres::shared().database();
    let pooler = setup
        .database(&database, "max_db_client_connections=2")
        .database(&other, "")
        .workers(2)
        .start();
    let kept = [pooler.client(&database), pooler.client(&database)];
    let text = "client connections exceeded (max_db_client_connections)";
    refused(&pooler, Role::APP, &database, text);
    pooler.client(&other);
    drop(kept);
    support::until_let_in(&pooler, &database);
}

#[test]
fn the_clients_of_a_user_are_limited() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup();
    let pooler = setup.user(Role::APP, "max_user_client_connections=1").workers(2).start();
    let kept = pooler.client(&database);
    let text = "client connections exceeded (max_user_client_connections)";
    refused(&pooler, Role::APP, &database, text);
    login(&pooler, &role, &database);
    drop(kept);
    support::until_let_in(&pooler, &database);
}

#[test]
fn the_reserve_opens_for_those_who_have_waited() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .set("default_pool_size", 1)
        .set("reserve_pool_size", 1)
        .set("reserve_pool_timeout", 1)
        .start();
    let mut held = pooler.client(&database);
    held.rows("BEGIN");
    let mut waiting = pooler.client(&database);
    assert_eq!(waiting.value("SELECT 1"), "1");
    assert_eq!(servers(&pooler, &database), 2);
    pooler.log_contains("taking connection from reserve_pool");
    waiting.rows("BEGIN");
    let mut third = pooler.client(&database);
    third.send(frontend::query("SELECT 3"));
    support::until_waiting(&pooler, &database, 1);
    held.rows("COMMIT");
    third.read_to_ready();
    assert_eq!(servers(&pooler, &database), 2, "one for the pool, one of the reserve");
}

#[test]
fn a_pool_in_use_is_filled_to_its_least_size() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("min_pool_size", 3).start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    pooler.wait_for_servers(&database, 3);
}

#[test]
fn a_pool_of_a_forced_user_is_filled_before_the_first_client_comes() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let forced = format!("user={} password={} min_pool_size=2", Role::APP, Role::APP_PASSWORD);
    let pooler = setup.database(&database, &forced).start();
    pooler.wait_for_servers(&database, 2);
}

#[test]
fn a_waiting_client_gets_a_notice() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).set("query_wait_notify", 1).start();
    let mut held = pooler.client(&database);
    held.rows("BEGIN");
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 1"));
    let word = waiting.read();
    assert_eq!(word.tag, b'N');
    let text = "No server connection available in postgres backend, client being queued";
    assert!(format!("{word:?}").contains(text), "{word:?}");
    held.rows("COMMIT");
    assert_eq!(waiting.read_to_ready()[1].row(), [Some("1".to_owned())]);
}

#[test]
fn login_notify_message_is_sent_at_login() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("login_notify_message", "maintenance at noon").start();
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", Role::APP), ("database", &database)]));
    let welcome = client.read_to_ready();
    let word = &welcome[welcome.len() - 2];
    assert_eq!(word.tag, b'N');
    assert!(format!("{word:?}").contains("maintenance at noon"), "{word:?}");
}

#[test]
fn waiting_is_limited_for_a_user_and_for_a_database() {
    if !support::only_weir() {
        return;
    }
    for (of_database, of_user) in [("query_wait_timeout=1", ""), ("", "query_wait_timeout=1")] {
        let (setup, database) = support::setup("transaction");
        let setup = setup.set("default_pool_size", 1).database(&database, of_database);
        let pooler = setup.user(Role::APP, of_user).start();
        let mut held = pooler.client(&database);
        held.rows("BEGIN");
        let mut waiting = pooler.client(&database);
        waiting.send(frontend::query("SELECT 1"));
        let last = waiting.read_to_end().pop().and_then(|last| last.error()).expect("an error");
        assert_eq!(last.summary(), (VIOLATION.0, VIOLATION.1, "query_wait_timeout"));
    }
}

#[test]
fn a_users_clients_may_idle_for_a_time_of_their_own() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup();
    let pooler = setup.user(Role::APP, "client_idle_timeout=1").start();
    let mut other = login(&pooler, &role, &database);
    let mut client = pooler.client(&database);
    let last = client.read_to_end().pop().and_then(|last| last.error()).expect("an error");
    assert_eq!(last.summary(), (VIOLATION.0, VIOLATION.1, "client_idle_timeout"));
    assert_eq!(other.value("SELECT 1"), "1");
}

#[test]
fn simple_queries_may_be_disallowed() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("disable_pqexec", 1).start();
    let mut client = pooler.client(&database);
    let extended = [
        frontend::parse("", "SELECT 7"),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    client.send(extended.concat());
    assert_eq!(client.read_to_ready()[2].row(), [Some("7".to_owned())]);
    client.send(frontend::query("SELECT 7"));
    let last = client.read_to_end().pop().and_then(|last| last.error()).expect("an error");
    assert_eq!(last.summary(), (VIOLATION.0, VIOLATION.1, "PQexec disallowed"));
}

#[test]
fn after_a_refused_login_newcomers_fail_at_once() {
    let postgres = Postgres::shared();
    let pooler = Pooler::before(postgres).database("alias", "dbname=no_such_db").start();
    let refusal = "database \"no_such_db\" does not exist";
    let first = pooler.login(Role::APP, "alias", "").expect_err("a refusal");
    assert!(first.message().contains(refusal), "{first:?}");
    if support::only_weir() {
        assert_eq!(first.code(), "3D000");
        let text =
            format!("server login has been failing, cached error: {refusal} (server_login_retry)");
        refused(&pooler, Role::APP, "alias", &text);
    }
}

#[test]
fn a_smaller_limit_counts_from_the_reload_on() {
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("default_pool_size", 3).start();
    let mut clients: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    clients.iter_mut().for_each(|client| drop(client.rows("COMMIT")));
    assert_eq!(servers(&pooler, &database), 3);
    pooler.reconfigure(|ini| ini.set("default_pool_size", 1));
    pooler.reload();
    eventually("the pool shrinks", Duration::from_secs(10), || {
        (servers(&pooler, &database) == 1).then_some(())
    });
}

#[test]
fn pools_that_nobody_uses_are_forgotten_and_their_numbers_used_again() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup
        .workers(2)
        .database("*", &format!("dbname={database}"))
        .set("autodb_idle_timeout", 1)
        .set("server_idle_timeout", 1)
        .start();
    let mut lasting = pooler.client("lasting");
    assert_eq!(lasting.value("SELECT 'served'"), "served");
    pooler.client(&database).rows("SELECT 1");
    for round in 0..3 {
        for n in 0..10 {
            let mut client = pooler.client(&format!("auto_{round}_{n}"));
            assert_eq!(client.value("SELECT 'served'"), "served");
        }
        eventually("they are forgotten", PATIENCE, || {
            let shown = pooler.admin("SHOW POOLS");
            let names = shown.column("database");
            (!names.iter().any(|name| name.starts_with("auto_"))).then_some(())
        });
        for n in 0..10 {
            pooler.log_contains(&format!(
                "dropping database 'auto_{round}_{n}' as it does not exist anymore or inactive \
                 auto-database"
            ));
        }
        // Pools that are in use or configured are not removed.
        let names = pooler.admin("SHOW POOLS");
        assert_eq!(names.with("database", "lasting").column("cl_active"), ["1"]);
        assert_eq!(names.with("database", &database).column("cl_active"), ["0"]);
        assert_eq!(lasting.value("SELECT 'served'"), "served");
    }
    // A configured pool is removed after its own timeout as well. It begins anew when it is used
    // again.
    pooler.admin("SET pool_idle_timeout = 1");
    eventually("the configured one is forgotten", PATIENCE, || {
        pooler
            .admin("SHOW POOLS")
            .with("database", &database)
            .column("user")
            .is_empty()
            .then_some(())
    });
    pooler.log_contains(&format!("cleaning up idle pool: {database}/app"));
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    let stats = pooler.admin("SHOW STATS_TOTALS").with("database", &database);
    assert_eq!(stats.only("query_count"), "1");
}

/// Connections to the console count as clients. Only administrators are exempt from the limit.
#[test]
fn consoles_count_and_only_operators_are_exempt() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("max_client_conn", 3).set("max_user_client_connections", 2).start();
    let refused = |user: &str, database: &str| -> String {
        let password = format!("{user}-secret");
        let refused = RawClient::login(pooler.port(), user, database, &password);
        refused.expect_err("it is refused").message().to_owned()
    };
    let look = || RawClient::login(pooler.port(), "stats", "pgbouncer", "stats-secret");
    let looking = [look(), look()].map(|console| console.expect("there is room"));
    assert_eq!(
        refused("stats", "pgbouncer"),
        "client connections exceeded (max_user_client_connections)"
    );
    let operators = [pooler.console(), pooler.console(), pooler.console()];
    assert_eq!(refused("app", &database), "no more connections allowed (max_client_conn)");
    let shown = pooler.admin("SHOW DATABASES").with("name", "pgbouncer");
    assert_eq!(shown.only("current_client_connections"), "6");
    drop((looking, operators));
    eventually("there is room again", Duration::from_secs(10), || {
        RawClient::login(pooler.port(), "app", &database, "app-secret").ok()
    });
}
