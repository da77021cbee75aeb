//! What the parameters do. `builtin.rs` has their names and defaults; other parameters are tested
//! where their subject is.
//!
//! | parameter | tests |
//! |---|---|
//! | `connection_proxies` | `the_state_has_eleven_columns_and_a_row_for_each_worker` |
//! | `session_pool_size` | `the_size_of_a_pool_is_that_of_all_workers_together` |
//! | `proxy_port` | all of `builtin`: no server has the default |
//! | `idle_pool_worker_timeout` | `the_idle_time_of_a_server_begins_with_its_last_use` |
//! | `data_path` | `one_parameter_makes_the_pools_direct` |
//! | `config_file`, `program` | `trouble.rs` |
//! | `create_extension` | `the_extension_is_created_in_the_database_postgres_unless_that_is_switched_off` |
//! | `multitenant_proxy` | `the_parameters_have_their_names_and_defaults`: it must be off |

use std::time::Duration;

use testkit::{Builtin, RawClient, Role, eventually, frontend};

use super::{on_both, set_heard};
use crate::support;

const PATIENCE: Duration = Duration::from_secs(10);

/// The number of clients of each worker, in ascending order.
fn shares(server: &Builtin) -> Vec<u32> {
    let rows = server.sql("postgres", "SELECT n_clients FROM pg_pooler_state() ORDER BY 1");
    rows.iter().map(|row| row[0].as_deref().unwrap_or("").parse().expect("a number")).collect()
}

#[track_caller]
fn until_shares(server: &Builtin, expected: [u32; 2]) {
    eventually(&format!("shares of {expected:?}"), PATIENCE, || {
        (shares(server) == expected).then_some(())
    });
}

fn dealt_by(schedule: &str) -> Builtin {
    let server = Builtin::serving(&format!(
        "weir.connection_proxies = 2\nweir.session_schedule = '{schedule}'\n\
         weir.data_path = proxy"
    ));
    server.create_functions("postgres");
    until_shares(&server, [0, 0]);
    server
}

fn clients(server: &Builtin, count: usize) -> Vec<RawClient> {
    (0..count).map(|_| server.client("postgres")).collect()
}

/// By turns, whatever the workers have already.
#[test]
fn clients_are_dealt_out_by_turns() {
    if !support::only_weir() {
        return;
    }
    let server = dealt_by("round-robin");
    let mut first = clients(&server, 4);
    until_shares(&server, [2, 2]);
    // The clients of one worker leave. A question about the shares is a turn, too. Two clients
    // without a question in between are one for each worker.
    drop((first.remove(2), first.remove(0)));
    until_shares(&server, [0, 2]);
    let _more = clients(&server, 2);
    assert_eq!(shares(&server), [1, 3]);
}

/// To the worker with fewer clients.
#[test]
fn clients_are_dealt_out_by_load() {
    if !support::only_weir() {
        return;
    }
    let server = dealt_by("load-balancing");
    let mut all = clients(&server, 4);
    for _ in 0..8 {
        until_shares(&server, [2, 2]);
        drop(all.remove(0));
        until_shares(&server, [1, 2]);
        all.push(server.client("postgres"));
    }
    assert_eq!(shares(&server), [2, 2]);
}

/// Two clients of a worker, and none of the other, which neither turns nor loads bring.
#[test]
fn clients_are_dealt_out_at_random() {
    if !support::only_weir() {
        return;
    }
    let server = dealt_by("random");
    // It fails once in 2^40 runs.
    let is_uneven = (0..40).any(|_| {
        let two = clients(&server, 2);
        let is_uneven = shares(&server) == [0, 2];
        drop(two);
        until_shares(&server, [0, 0]);
        is_uneven
    });
    assert!(is_uneven);
    let _all = clients(&server, 40);
    // A worker has fewer of 40 with a probability of 1 to 700,000.
    assert!(shares(&server)[0] >= 6, "{:?}", shares(&server));
}

#[test]
fn the_limit_of_clients_is_that_of_all_workers_together_and_can_be_raised() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 2\nweir.max_sessions = 1");
    let login = || server.login(Role::APP, "postgres", Role::APP_PASSWORD);
    let mut all = Vec::new();
    eventually("two clients", PATIENCE, || {
        all.extend(login().ok());
        (all.len() == 2).then_some(())
    });
    assert_eq!(login().expect_err("it is full").code(), "53300");
    set_heard(&server, "weir.max_sessions", "2");
    all.push(eventually("a third client", PATIENCE, || login().ok()));
    assert_eq!(all.len(), 3);
}

#[test]
fn a_server_is_released_when_the_pool_mode_says() {
    if !support::only_proxied("backends restore settings in transaction mode, too") {
        return;
    }
    let server = Builtin::serving(
        "weir.connection_proxies = 1\nweir.session_pool_size = 1\nweir.pool_mode = auto",
    );
    server.create_functions("postgres");
    let two = || (server.client("postgres"), server.client("postgres"));
    {
        let (mut first, mut second) = two();
        first.rows("SET work_mem = '7MB'");
        assert_eq!(second.value("SHOW work_mem"), "4MB");
        assert_eq!(first.value("SHOW work_mem"), "7MB");
    }
    set_heard(&server, "weir.pool_mode", "transaction");
    {
        let (mut first, mut second) = two();
        first.rows("SET work_mem = '7MB'");
        assert_eq!(second.value("SHOW work_mem"), "7MB", "as in PgBouncer");
        second.rows("RESET work_mem");
    }
    set_heard(&server, "weir.pool_mode", "statement");
    {
        let (mut first, _) = two();
        first.send(frontend::query("BEGIN"));
        let answer = first.read_to_end();
        let error = answer.iter().find_map(|message| message.error()).expect("it is refused");
        assert_eq!(error.code(), "0A000");
    }
    let linked = "SELECT sum(sv_active) FROM weir_pools WHERE \"user\" = 'app'";
    let mut superuser = server.superuser("postgres");
    for (mode, expected) in [("transaction", "0"), ("session", "1")] {
        set_heard(&server, "weir.pool_mode", mode);
        let mut client = server.client("postgres");
        client.rows("SELECT 1");
        eventually(mode, PATIENCE, || (superuser.value(linked) == expected).then_some(()));
        drop(client);
        eventually(mode, PATIENCE, || (superuser.value(linked) == "0").then_some(()));
    }
}

/// SET keeps no server, as `on` promises, and is its client's alone. `off` is no
/// different: there is no reason to keep a server for it.
#[test]
fn proxying_gucs_has_no_effect() {
    on_both("weir.connection_proxies = 1\nweir.session_pool_size = 1", |server| {
        server.create_functions("postgres");
        let kept = "SELECT sum(n_dedicated_backends) FROM pg_pooler_state()";
        for value in ["off", "on", "off"] {
            set_heard(&server, "weir.proxying_gucs", value);
            let mut superuser = server.superuser("postgres");
            assert_eq!(superuser.value("SHOW weir.proxying_gucs"), value);
            let (mut first, mut second) = (server.client("postgres"), server.client("postgres"));
            first.rows("/* first */ SET work_mem = '7MB'; SET application_name = 'one'");
            first.rows("BEGIN; SET statement_timeout = '1h'; ROLLBACK");
            first.rows("BEGIN; SET LOCAL lock_timeout = '1h'; COMMIT");
            let show = |client: &mut RawClient| {
                ["work_mem", "application_name", "statement_timeout", "lock_timeout"]
                    .map(|name| client.value(&format!("SHOW {name}")))
            };
            for _ in 0..2 {
                assert_eq!(show(&mut second), ["4MB", "", "0", "0"], "{value}");
                assert_eq!(show(&mut first), ["7MB", "one", "0", "0"], "{value}");
            }
            let pid = "SELECT pg_backend_pid()";
            assert_eq!(first.value(pid), second.value(pid), "{value}");
            assert_eq!(superuser.value(kept), "0", "{value}");
        }
    });
}

/// Unless `restart_pooler_on_reload` is on.
#[test]
fn a_reload_alone_replaces_no_server_and_disconnects_no_client() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1\nweir.session_pool_size = 1");
    let mut client = server.client("postgres");
    let backend = client.value("SELECT pg_backend_pid()");
    for size in ["1", "2"] {
        set_heard(&server, "weir.session_pool_size", size);
        assert_eq!(client.value("SELECT pg_backend_pid()"), backend);
    }
    set_heard(&server, "weir.restart_pooler_on_reload", "on");
    eventually("another backend serves", PATIENCE, || {
        (client.value("SELECT pg_backend_pid()") != backend).then_some(())
    });
}

/// DROP DATABASE works when the pool's connections have been idle for long enough, or after
/// a reload.
#[test]
fn a_database_can_be_dropped_when_its_idle_servers_are_closed() {
    if !support::only_weir() {
        return;
    }
    let ways = [("weir.idle_pool_worker_timeout", "1s"), ("weir.restart_pooler_on_reload", "on")];
    let cases = ["proxy", "direct"].into_iter().flat_map(|path| ways.map(|way| (path, way)));
    support::at_once(cases, |(path, (parameter, value))| {
        let server = Builtin::serving(&format!("weir.data_path = {path}"));
        let mut superuser = server.superuser("postgres");
        let database = server.database();
        let mut client = server.client(&database);
        client.rows("SELECT 1");
        let statement = format!("DROP DATABASE {database}");
        let error = superuser.query(&statement).error.expect("a server connection is there");
        assert_eq!(error.code(), "55006", "{path} {parameter}");
        set_heard(&server, parameter, value);
        eventually(&format!("{path}: the database is dropped by {parameter}"), PATIENCE, || {
            superuser.query(&statement).error.is_none().then_some(())
        });
    });
}
