//! The pooler in the server: `shared_preload_libraries = 'weir'`, and nothing else.
//!
//! * `life.rs`: the pooler's process, the supervisor and the server end and start in any order
//! * `adoption.rs`: a pooler outlives its supervisor, and the next one adopts it
//! * `kills.rs`: `kill -9` of each process, in each phase
//! * `container.rs`: the postmaster is the first process of a container
//! * `process.rs`: the pooler's process has nothing of the server's
//! * `state.rs`: what a session holds is its client's alone
//! * `direct.rs`: pools of port 6543 that are direct
//! * `direct_kills.rs`: `kill -9` of the supervisor and the pooler, at each moment of a direct client
//! * `held.rs`: clients of direct pools outlive `kill -9` of the pooler
//! * `defects.rs`: faults of the proposed built-in pooler
//! * `stuck.rs`: programs that never serve, and a pooler that does not answer any more
//! * `trouble.rs`: what keeps the pooler from starting gets one line in the server's log
//! * `access.rs`: logins are judged as the server does
//! * `methods.rs`: methods beside passwords, maps of names, the right to connect
//! * `parameters.rs`: what the parameters do
//! * `sql.rs`: `pg_pooler_state()` and the other functions and views

mod access;
mod adoption;
mod container;
mod defects;
mod direct;
mod direct_kills;
mod held;
mod holder;
mod kills;
mod life;
mod methods;
mod parameters;
mod process;
mod sql;
mod state;
mod stuck;
mod trouble;

use std::time::Duration;

use testkit::{Builtin, RawClient, Role, Version, eventually};

use crate::support;

const BACKEND: &str = "SELECT pg_backend_pid()";

/// Sets a parameter, and waits until the supervisor has told the pooler of the reload.
fn set_heard(server: &Builtin, parameter: &str, value: &str) {
    let reloads = || server.log().matches("got SIGHUP, re-reading config").count();
    let before = reloads();
    server.set(parameter, value);
    eventually("the pooler reads its configuration again", Duration::from_secs(20), || {
        (reloads() > before).then_some(())
    });
}

/// Runs a test on both versions of PostgreSQL, each with a pooler that serves.
fn on_both(settings: &str, test: impl Fn(Builtin)) {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        eprintln!("on {version:?}");
        test(Builtin::serving_on(version, settings));
    }
}

#[test]
fn one_line_gives_a_pooler_core() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        let mut first = server.wait_until_serving();
        // Clients share servers, and keep their settings.
        first.rows("SET work_mem = '7MB'");
        let mut second = server.client("postgres");
        eventually("the clients have the same server", Duration::from_secs(20), || {
            // Weir may be looking into one client's server when the other client asks.
            let [one, other] = [&mut first, &mut second].map(|client| client.value(BACKEND));
            (one == other).then_some(())
        });
        assert_eq!(second.value("SHOW work_mem"), "4MB", "{version:?}");
        assert_eq!(first.value("SHOW work_mem"), "7MB", "{version:?}");
        assert!(!server.has_crashed());
    }
}

#[test]
fn without_workers_the_server_starts_no_pooler() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::start(Version::Installed, "weir.connection_proxies = 0");
    assert_eq!(server.supervisor_pid(), None);
    assert_eq!(server.sql("postgres", "SHOW weir.proxy_port").len(), 1);
}

#[test]
fn the_parameters_have_their_names_and_defaults() {
    if !support::only_proxied("it is about the default of weir.data_path") {
        return;
    }
    let server = Builtin::start(Version::Installed, "weir.connection_proxies = 0");
    for (name, default) in [
        ("session_pool_size", "10"),
        ("max_sessions", "1000"),
        ("session_schedule", "load-balancing"),
        ("idle_pool_worker_timeout", "0"),
        ("spare_connections", "-1"),
        ("restart_pooler_on_reload", "off"),
        ("proxying_gucs", "off"),
        ("multitenant_proxy", "off"),
        ("pool_mode", "auto"),
        ("data_path", "proxy"),
        ("config_file", ""),
    ] {
        let mut superuser = server.superuser("postgres");
        assert_eq!(superuser.value(&format!("SHOW weir.{name}")), default, "{name}");
    }
    // When a change takes effect.
    let contexts = "SELECT string_agg(substr(name, 6), ' ' ORDER BY name) FROM pg_settings \
                    WHERE name ~ '^weir\\.' AND context =";
    let of = |context: &str| server.superuser("postgres").value(&format!("{contexts} '{context}'"));
    assert_eq!(of("postmaster"), "connection_proxies create_extension proxy_port session_schedule");
    assert_eq!(
        of("sighup"),
        "client_address config_file data_path idle_pool_worker_timeout max_sessions \
         multitenant_proxy pool_mode program proxying_gucs restart_pooler_on_reload \
         session_pool_size spare_connections"
    );
    let port = "SELECT boot_val FROM pg_settings WHERE name = 'weir.proxy_port'";
    assert_eq!(server.superuser("postgres").value(port), "6543");
    let proxies = "SELECT boot_val FROM pg_settings WHERE name = 'weir.connection_proxies'";
    let processors = std::thread::available_parallelism().expect("the number of processors");
    assert_eq!(server.superuser("postgres").value(proxies), processors.get().min(2).to_string());
    for refused in [
        "weir.multitenant_proxy = on",
        "weir.pool_mode = 'all'",
        "weir.data_path = 'all'",
        "weir.session_schedule = 'all'",
        "weir.session_pool_size = 0",
        "weir.max_sessions = 0",
        "weir.proxy_port = 65536",
        "weir.idle_pool_worker_timeout = -1",
        "weir.spare_connections = -2",
        "weir.config_file = E'a\\nb'",
        "weir.nothing = 1",
    ] {
        let outcome = server.superuser("postgres").query(&format!("ALTER SYSTEM SET {refused}"));
        assert!(outcome.error.is_some(), "{refused}");
    }
}

#[test]
fn the_size_of_a_pool_is_that_of_all_workers_together() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 2\nweir.session_pool_size = 1\n");
    let mut clients: Vec<_> = (0..6).map(|_| server.client("postgres")).collect();
    for client in &mut clients[..2] {
        client.rows("BEGIN");
    }
    // Both servers are in use, so the third client waits.
    clients[2].send(testkit::frontend::query("SELECT 1"));
    assert_eq!(server.backends("postgres").len(), 2);
    clients[0].rows("COMMIT");
    assert!(clients[2].read_to_ready().iter().all(|message| message.error().is_none()));
    assert_eq!(server.backends("postgres").len(), 2);
}

/// A server of a pool stays open for a day, so the pools would have all connections one day.
#[test]
fn the_pools_leave_connections_to_the_servers_own_port_core() {
    if !support::only_weir() {
        return;
    }
    let settings = "superuser_reserved_connections = 3\nmax_wal_senders = 0\n\
                    weir.connection_proxies = 1\nweir.session_pool_size = 100";
    for (all, spare, servers) in
        [(14, "", 6), (20, "\nweir.spare_connections = 7", 10), (70, "", 60)]
    {
        let server = Builtin::serving(&format!("max_connections = {all}\n{settings}{spare}"));
        let mut clients: Vec<_> = (0..servers + 5).map(|_| server.client("postgres")).collect();
        for client in &mut clients {
            client.send(testkit::frontend::query("BEGIN"));
        }
        let count = || server.backends("postgres").len();
        eventually("the pool has all it may have", Duration::from_secs(20), || {
            (count() == servers).then_some(())
        });
        // Two less than that: the tests' own connections may end later.
        let ordinary = all - 3 - servers - 2;
        let own: Vec<_> = (0..ordinary)
            .map(|_| RawClient::login(server.port(), Role::APP, "postgres", Role::APP_PASSWORD))
            .collect();
        assert!(own.iter().all(Result::is_ok), "max_connections = {all}: {own:?}");
    }
}

#[test]
fn a_superuser_logs_in_while_the_pools_have_all_connections() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving(
        "max_connections = 12\nsuperuser_reserved_connections = 3\nmax_wal_senders = 0\n\
         weir.connection_proxies = 1\nweir.session_pool_size = 50\nweir.spare_connections = 0",
    );
    let mut clients: Vec<_> = (0..20).map(|_| server.client("postgres")).collect();
    for client in &mut clients {
        client.send(testkit::frontend::query("BEGIN"));
    }
    let ready = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
    let mut superuser = server.superuser("postgres");
    // While a connection of the setup still ends, PostgreSQL refuses one of the pool's logins. The pool
    // tries again after `server_login_retry`, 15 seconds.
    eventually("the pool has all it may have", Duration::from_secs(30), || {
        // One connection is the superuser's.
        (superuser.value(ready) == "8").then_some(())
    });
    let others: Vec<_> = (0..2).map(|_| server.superuser("postgres")).collect();
    assert_eq!(others.len(), 2);
}
