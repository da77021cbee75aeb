//! The pooler in the server: `shared_preload_libraries = 'weir'`, and nothing else.
//!
//! * `life.rs`: the pooler's process, the supervisor and the server end and start in any order
//! * `adoption.rs`: a pooler outlives its supervisor, and the next one adopts it
//! * `kills.rs`: `kill -9` of each process, in each phase
//! * `container.rs`: the postmaster is the first process of a container
//! * `process.rs`: the pooler's process has nothing of the server's
//! * `state.rs`: what a session holds is its client's alone
//! * `defects.rs`: faults of the proposed built-in pooler
//! * `trouble.rs`: what keeps the pooler from starting gets one line in the server's log
//! * `access.rs`: logins are judged as the server does
//! * `methods.rs`: methods beside passwords, maps of names, the right to connect
//! * `sql.rs`: `pg_pooler_state()` and the other functions and views

mod access;
mod adoption;
mod container;
mod defects;
mod kills;
mod life;
mod methods;
mod process;
mod sql;
mod state;
mod trouble;

use std::time::Duration;

use testkit::{Builtin, Version, eventually};

use crate::support;

/// Sets a parameter, and waits until the supervisor has told the pooler of the reload.
fn set_heard(server: &Builtin, parameter: &str, value: &str) {
    let reloads = || server.log().matches("got SIGHUP, re-reading config").count();
    let before = reloads();
    server.set(parameter, value);
    eventually("the pooler reads its configuration again", Duration::from_secs(20), || {
        (reloads() > before).then_some(())
    });
}

#[test]
fn one_line_gives_a_pooler() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        let mut first = server.wait_until_serving();
        let backend = first.value("SELECT pg_backend_pid()");
        // Clients share servers, and keep their settings.
        first.rows("SET work_mem = '7MB'");
        let mut second = server.client("postgres");
        assert_eq!(second.value("SELECT pg_backend_pid()"), backend, "{version:?}");
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
    if !support::only_weir() {
        return;
    }
    let server = Builtin::start(Version::Installed, "weir.connection_proxies = 0");
    for (name, default) in [
        ("session_pool_size", "10"),
        ("max_sessions", "1000"),
        ("session_schedule", "load-balancing"),
        ("idle_pool_worker_timeout", "0"),
        ("restart_pooler_on_reload", "off"),
        ("proxying_gucs", "off"),
        ("multitenant_proxy", "off"),
        ("pool_mode", "auto"),
        ("config_file", ""),
    ] {
        let mut superuser = server.superuser("postgres");
        assert_eq!(superuser.value(&format!("SHOW weir.{name}")), default, "{name}");
    }
    let port = "SELECT boot_val FROM pg_settings WHERE name = 'weir.proxy_port'";
    assert_eq!(server.superuser("postgres").value(port), "6543");
    for refused in ["weir.multitenant_proxy = on", "weir.pool_mode = 'all'", "weir.nothing = 1"] {
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
