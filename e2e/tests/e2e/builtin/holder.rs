//! The process that holds the clients of direct pools: its limits, its end, and what it gives up.

use std::{process::Command, time::Duration};

use testkit::{Version, eventually};

use super::direct::{is_lost, pid, server};
use super::held::{PATIENCE, child_of, holders, kill};
use super::life::until_replaced;
use crate::support;

/// More clients than a process may have open files by the limit that many systems begin with.
const MANY: usize = 2000;
/// The number of poolers that may be killed one after the other, each soon after its start
/// (`DEATHS_MAX` in `proxy::holder`).
const DEATHS_MAX: usize = 20;

fn signal(process: u32, signal: &str) {
    let command = format!("kill -{signal} {process}");
    support::run(Command::new("sh").args(["-c", &command]));
}

#[test]
fn a_lobby_without_a_backend_outlives_kills() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    server.sql(
        "postgres",
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'app'",
    );
    assert!(server.backends("postgres").is_empty());
    for _ in 0..3 {
        kill(&server);
    }
    assert_eq!(client.value("SHOW work_mem"), "7MB");
}

#[test]
fn more_clients_than_the_first_limit_of_open_files_outlive_a_kill() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.max_sessions = 2500\nweir.session_pool_size = 2");
    let supervisor = server.supervisor_pid().expect("it runs");
    // The next pooler begins with this limit, and so does its holder.
    let limit = format!("prlimit --pid {supervisor} --nofile=1024:");
    server.sql("postgres", &format!("COPY (SELECT) TO PROGRAM '{limit}'"));
    kill(&server);
    let mut clients: Vec<_> = (0..MANY).map(|_| server.client("postgres")).collect();
    clients[MANY - 1].rows("SET work_mem = '7MB'");
    kill(&server);
    assert_eq!(clients[MANY - 1].value("SHOW work_mem"), "7MB");
    for client in clients.iter_mut().step_by(50) {
        assert_eq!(client.value("SELECT 1"), "1");
    }
}

#[test]
fn the_end_of_the_holder_is_logged_and_never_looks_like_a_crash() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    for name in ["ABRT", "SEGV", "TERM", "KILL"] {
        let mut client = server.client("postgres");
        let holder = child_of(server.pooler_pid()).expect("the holder");
        for ignored in ["HUP", "USR1"] {
            signal(holder, ignored);
        }
        signal(holder, name);
        let how = if name == "KILL" { "(signal 9)" } else { "(status 0)" };
        eventually(name, PATIENCE, || {
            let log = server.log();
            let mut lines = log.lines().filter(|line| line.contains("holds the clients"));
            lines.any(|line| line.contains(how)).then_some(())
        });
        // It was waited for.
        assert_eq!(child_of(server.pooler_pid()), None, "{name}");
        // Backends come to the lobby without it, too.
        client.rows("BEGIN");
        let mut other = server.client("postgres");
        assert_ne!(pid(&mut other), pid(&mut client), "{name}");
        client.rows("COMMIT");
        kill(&server);
        assert!(is_lost(&mut other) && is_lost(&mut client), "{name}");
    }
    assert!(!server.has_crashed());
}

#[test]
fn clients_are_given_up_when_poolers_die_again_and_again() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let mut client = server.client("postgres");
    for _ in 1..DEATHS_MAX {
        kill(&server);
    }
    assert_eq!(client.value("SELECT 1"), "1");
    kill(&server);
    assert!(is_lost(&mut client));
    server.log_contains(&["were killed soon after their start"]);
    assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
    eventually("one holder is left", PATIENCE, || (holders(&server) == 1).then_some(()));
}

#[test]
fn clients_that_the_next_pooler_does_not_want_are_told_at_once() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    let before = server.pooler_pid();
    signal(before, "STOP");
    server.set("weir.data_path", "proxy");
    support::kill9(before);
    drop(until_replaced(&server, before));
    let last = client.read_to_end().iter().find_map(|message| message.error());
    assert!(last.expect("an error").message().contains("restarted"));
    let soon = Duration::from_secs(5);
    eventually("its holder has ended", soon, || (holders(&server) == 1).then_some(()));
}
