//! Sharing of servers by clients: limits, order, modes, and clients that leave.

pub(crate) mod fairness;
mod leaving;
pub(crate) mod recycled;
mod reloaded;
mod spares;

use std::collections::BTreeSet;

use crate::support;
use testkit::{Pooler, Postgres, RawClient, frontend};

const BACKEND_PID: &str = "SELECT pg_backend_pid()";

/// Returns the backend that answered.
fn pid(client: &mut RawClient) -> String {
    client.value(BACKEND_PID)
}

#[test]
fn transaction_mode_takes_the_server_back_after_each_transaction_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut first = pooler.client(&database);
    let mut second = pooler.client(&database);
    assert_eq!(pid(&mut first), pid(&mut second));
    first.rows("BEGIN");
    let in_transaction = pid(&mut first);
    assert_eq!(pid(&mut first), in_transaction);
    first.rows("COMMIT");
    assert_eq!(pid(&mut second), in_transaction);
}

#[test]
fn a_failed_transaction_keeps_its_server_until_rollback() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut failing = pooler.client(&database);
    failing.rows("BEGIN");
    assert_eq!(failing.query("SELECT 1/0").status, b'E');
    let mut waiting = pooler.client(&database);
    waiting.send(frontend::query("SELECT 'served'"));
    support::until_waiting(&pooler, &database, 1);
    assert_eq!(failing.query("SELECT 1").error.expect("aborted").code(), "25P02");
    assert_eq!(failing.query("ROLLBACK").status, b'I');
    assert_eq!(waiting.read_to_ready()[1].row(), [Some("served".to_owned())]);
}

#[test]
fn session_mode_keeps_the_server_until_the_client_leaves_core() {
    let (setup, database) = support::setup("session");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut first = pooler.client(&database);
    let server = pid(&mut first);
    let next = std::thread::scope(|scope| {
        // PgBouncer lets the client in and lets its query wait. Weir reports the server's own
        // process id at login, so it lets the login wait.
        let second = scope.spawn(|| pid(&mut pooler.client(&database)));
        support::until_waiting(&pooler, &database, 1);
        assert_eq!(pid(&mut first), server);
        first.send(frontend::terminate());
        second.join().expect("no panic")
    });
    assert_eq!(next, server);
}

#[test]
fn session_mode_wipes_what_a_session_left_core_strict() {
    let (setup, database) = support::setup("session");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut first = pooler.client(&database);
    let server = pid(&mut first);
    first.rows(
        "SET search_path = elsewhere; CREATE TEMP TABLE mine (n int); PREPARE mine AS SELECT 1",
    );
    first.rows("SELECT pg_advisory_lock(7)");
    first.send(frontend::terminate());

    let mut second = pooler.client(&database);
    assert_eq!(pid(&mut second), server);
    assert_eq!(second.value("SHOW search_path"), "\"$user\", public");
    assert_eq!(second.value("SELECT to_regclass('pg_temp.mine') IS NULL"), "t");
    assert_eq!(second.value("SELECT count(*) FROM pg_prepared_statements"), "0");
    assert_eq!(
        second.value(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        ),
        "0"
    );
}

#[test]
fn the_reset_query_is_the_configured_one() {
    let (setup, database) = support::setup("session");
    let pooler =
        setup.set("default_pool_size", 1).set("server_reset_query", "RESET work_mem").start();
    let mut first = pooler.client(&database);
    let default = first.value("SHOW work_mem");
    first.rows("SET work_mem = '77MB'; SET search_path = elsewhere");
    first.send(frontend::terminate());
    let mut second = pooler.client(&database);
    assert_eq!(second.value("SHOW work_mem"), default);
    assert_eq!(second.value("SHOW search_path"), "elsewhere");
}

#[test]
fn statement_mode_refuses_a_transaction_block_core() {
    let (pooler, database) = support::pooler("statement");
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    assert_eq!(client.query("SELECT 2; SELECT 3").tags, ["SELECT 1", "SELECT 1"]);
    client.send(frontend::query("BEGIN"));
    let last = client.read_to_end().pop().expect("an error");
    assert_eq!(
        last.error().expect("an error").summary(),
        ("FATAL", "08P01", "transaction blocks not allowed in statement pooling mode")
    );
    pooler.wait_until_quiet(&database, 1);
    assert_eq!(pooler.client(&database).value("SELECT 4"), "4");
}

#[test]
fn no_more_servers_than_the_pool_size_are_used_core() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 3).workers(2).start();
    let servers: BTreeSet<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = pooler.client(&database);
                    (0..20)
                        .map(|_| client.value("SELECT pg_backend_pid() FROM pg_sleep(0.002)"))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    assert!(servers.len() <= 3, "{servers:?}");
    assert!(Postgres::shared().backends(&database).len() <= 3);
    pooler.wait_until_quiet(&database, 3);
}

#[test]
fn each_database_and_each_user_has_servers_of_its_own_core_strict() {
    let postgres = Postgres::shared();
    let role = postgres.role(testkit::ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let other = postgres.database();
    let pooler = setup
        .set("default_pool_size", 1)
        .database(&other, "")
        .database("alias", &format!("dbname={database}"))
        .secret(&role.name, &role.password)
        .start();
    let mut servers = BTreeSet::new();
    for name in [database.as_str(), &other, "alias"] {
        let mut client = pooler.client(name);
        let expected = if name == "alias" { &database } else { name };
        assert_eq!(client.value("SELECT current_database()"), expected);
        servers.insert(pid(&mut client));
        let mut client = pooler.login(&role.name, name, &role.password).expect("a login");
        assert_eq!(client.value("SELECT current_user"), role.name);
        servers.insert(pid(&mut client));
    }
    assert_eq!(servers.len(), 6);
}

#[test]
fn a_database_or_a_user_may_have_a_mode_of_its_own() {
    let (setup, _) = support::setup("transaction");
    let postgres = Postgres::shared();
    let sessions = postgres.database();
    let role = postgres.role(testkit::ServerAuth::Scram);
    let pooler = setup
        .set("default_pool_size", 1)
        .database(&sessions, "pool_mode=session")
        .secret(&role.name, &role.password)
        .user(&role.name, "pool_mode=transaction")
        .start();

    let mut by_database = pooler.client(&sessions);
    by_database.rows("SET work_mem = '3MB'");
    assert_eq!(pooler.pool_sums(&sessions, ["sv_active"]), [1], "a session keeps its server");

    let mut by_user = pooler.login(&role.name, &sessions, &role.password).expect("a login");
    by_user.rows("SELECT 1");
    let mut other = pooler.login(&role.name, &sessions, &role.password).expect("a login");
    assert_eq!(pid(&mut by_user), pid(&mut other));
}

#[test]
fn any_database_is_reached_through_the_wildcard_core() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let pooler = Pooler::before(postgres).set("pool_mode", "transaction").database("*", "").start();
    assert_eq!(pooler.client(&database).value("SELECT current_database()"), database);
}

#[test]
fn a_server_can_be_reached_over_its_unix_socket() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let folder = postgres.socket_folder().display();
    let pooler = Pooler::before(postgres)
        .secret("postgres", "")
        .database_at(&database, &format!("host={folder} port={}", postgres.port()))
        .start();
    let mut client = pooler.login("postgres", &database, "").expect("a login");
    assert_eq!(client.value("SELECT inet_server_addr() IS NULL"), "t");
}

#[test]
fn each_client_keeps_the_settings_it_came_with_core_strict() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut clients: Vec<RawClient> = [("one", "UTC"), ("two", "Asia/Tokyo")]
        .into_iter()
        .map(|(name, zone)| {
            let mut client = RawClient::connect(pooler.port());
            let startup = [
                ("user", "app"),
                ("database", database.as_str()),
                ("application_name", name),
                ("TimeZone", zone),
            ];
            client.authenticate(&startup, "").expect("a login");
            assert_eq!(client.parameters["application_name"], name);
            assert_eq!(client.parameters["TimeZone"], zone);
            client
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(clients[0].value("SHOW application_name"), "one");
        assert_eq!(clients[1].value("SHOW application_name"), "two");
        assert_eq!(clients[0].value("SHOW timezone"), "UTC");
        assert_eq!(clients[1].value("SHOW timezone"), "Asia/Tokyo");
    }
    clients[0].rows("SET application_name = 'changed'");
    assert_eq!(clients[1].value("SHOW application_name"), "two");
    assert_eq!(clients[0].value("SHOW application_name"), "changed");
}

#[test]
fn values_that_differ_by_case_alone_are_not_taken_for_each_other_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let mut clients = ["\"Ab\"", "\"aB\""].map(|schema| {
        let table = format!("CREATE TABLE {schema}.whose AS SELECT '{schema}' AS name");
        support::direct(&database).rows(&format!("CREATE SCHEMA {schema}; {table}"));
        let mut client = RawClient::connect(pooler.port());
        let startup = [
            ("user", "app"),
            ("database", &*database),
            ("search_path", schema),
            ("application_name", schema),
        ];
        client.authenticate(&startup, "").expect("a login");
        (client, schema)
    });
    for _ in 0..2 {
        for (client, schema) in &mut clients {
            assert_eq!(client.value("SELECT name FROM whose"), *schema);
            assert_eq!(client.value("SHOW application_name"), *schema);
        }
    }
}

#[test]
fn an_unreported_setting_stays_with_its_client_strict() {
    if !support::only_weir() {
        return;
    }
    for mode in ["transaction", "statement"] {
        let (setup, database) = support::setup(mode);
        let setup = setup.set("default_pool_size", 1);
        let pooler = setup.set("track_extra_parameters", "work_mem, IntervalStyle").start();
        let mut other = pooler.client(&database);
        let mut owner = RawClient::connect(pooler.port());
        let startup = [("user", "app"), ("database", database.as_str()), ("work_mem", "5MB")];
        owner.authenticate(&startup, "").expect("a login");
        for sql in ["SELECT 1", "RESET ALL", "DISCARD ALL"] {
            assert_eq!(owner.value("SHOW work_mem"), "5MB");
            owner.query(sql);
            assert_eq!(owner.value("SHOW work_mem"), "5MB", "behind {sql} in {mode} mode");
            owner.query(sql);
            assert_eq!(other.value("SHOW work_mem"), "4MB", "behind {sql} in {mode} mode");
        }
        assert_eq!(pid(&mut other), pid(&mut owner));
    }
}

/// PgBouncer does the same since 1.26. Before, every client of the server would have been
/// read-only.
#[test]
fn a_client_that_makes_itself_read_only_is_alone_with_that() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", 1).start();
    let [mut reader, mut writer] = [(); 2].map(|()| pooler.client(&database));
    reader.rows("SET default_transaction_read_only = on");
    for _ in 0..2 {
        assert_eq!(reader.value("SHOW transaction_read_only"), "on");
        assert_eq!(writer.value("SHOW transaction_read_only"), "off");
    }
    assert_eq!(pooler.client(&database).value("SHOW transaction_read_only"), "off");
}

#[test]
fn a_client_is_told_the_servers_parameters_at_login() {
    let (pooler, database) = support::pooler("transaction");
    let direct = support::direct(&database);
    // The second login is answered from the parameters of the first one's server.
    for _ in 0..2 {
        let pooled = pooler.client(&database);
        let without = |parameters: &std::collections::BTreeMap<String, String>| {
            let mut rest = parameters.clone();
            rest.remove("application_name");
            // Removes the pooler's own parameters.
            rest.retain(|name, _| !name.starts_with("pgbouncer."));
            rest
        };
        assert_eq!(without(&pooled.parameters), without(&direct.parameters));
    }
}

#[test]
fn in_session_mode_the_process_id_told_is_the_servers() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("session");
    let mut clients: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
    for client in &mut clients {
        assert_eq!(client.value(BACKEND_PID), client.pid.to_string());
    }
}
