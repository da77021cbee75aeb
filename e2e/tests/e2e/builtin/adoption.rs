//! A pooler outlives the supervisor that has started it, with its clients. The next supervisor
//! adopts it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use testkit::{Builtin, RawClient, Role, Version, eventually};

use super::life::{has_ended, until_replaced};
use super::on_both;
use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the log says so once more than it did.
#[track_caller]
fn until_said(server: &Builtin, text: &str, before: usize) {
    eventually(text, PATIENCE, || (said(server, text) > before).then_some(()));
}

fn said(server: &Builtin, text: &str) -> usize {
    server.log().matches(text).count()
}

const ADOPTED: &str = "has kept its clients and serves port";

/// Does something that ends the supervisor, and waits until another one has the pooler.
#[track_caller]
pub(super) fn until_adopted(server: &Builtin, cause: impl FnOnce()) {
    let before = said(server, ADOPTED);
    cause();
    until_said(server, ADOPTED, before);
    eventually("the server serves", PATIENCE, || server.is_ready());
}

/// Kills a backend of the server, so that it ends all its processes and starts them again.
pub(super) fn crash(server: &Builtin) {
    let mut victim = server.superuser("postgres");
    support::kill9(victim.value("SELECT pg_backend_pid()").parse().expect("a number"));
}

/// Logs in through the pooler over the unix socket.
fn local_client(server: &Builtin) -> RawClient {
    eventually("the rule lets it in", PATIENCE, || {
        let mut client = RawClient::connect_unix(server.socket_folder(), server.pooler_port())
            .expect("the pooler has a socket beside the server's");
        let words = [("user", Role::APP), ("database", "postgres")];
        client.authenticate(&words, Role::APP_PASSWORD).ok().map(|_| client)
    })
}

#[test]
fn idle_clients_survive_a_crash_of_the_server() {
    if !support::only_proxied("SQL's PREPARE keeps a backend") {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "weir.connection_proxies = 2");
        server.wait_until_serving();
        let pooler = server.pooler_pid();
        server.set_rules("local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256");
        let mut idle = [local_client(&server), server.client("postgres")];
        for client in &mut idle {
            client.rows("SET work_mem = '7MB'; PREPARE mine AS SELECT 'prepared'");
        }
        let mut busy = server.client("postgres");
        busy.rows("BEGIN");
        until_adopted(&server, || crash(&server));
        assert_eq!(server.pooler_pid(), pooler, "{version:?}");
        for client in &mut idle {
            assert_eq!(client.value("SHOW work_mem"), "7MB", "{version:?}");
            assert_eq!(client.value("EXECUTE mine"), "prepared", "{version:?}");
        }
        // Its transaction was in a backend that is gone.
        assert!(busy.try_read().is_ok_and(|message| message.is_none_or(|it| it.error().is_some())));
        assert_eq!(server.client("postgres").value("SELECT 1"), "1");
    }
}

#[test]
fn a_query_that_is_sent_while_the_server_recovers_is_answered() {
    on_both("", |server| {
        let mut client = server.client("postgres");
        client.rows("SET work_mem = '7MB'");
        let before = said(&server, "all server processes terminated");
        let adopted = said(&server, ADOPTED);
        crash(&server);
        until_said(&server, "all server processes terminated", before);
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        until_said(&server, ADOPTED, adopted);
    });
}

#[test]
fn a_pooler_is_adopted_again_and_again() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let pooler = server.pooler_pid();
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    for _ in 0..2 {
        until_adopted(&server, || support::kill9(server.supervisor_pid().expect("it runs")));
    }
    until_adopted(&server, || crash(&server));
    assert_eq!(server.pooler_pid(), pooler);
    assert_eq!(client.value("SHOW work_mem"), "7MB");
}

/// What the pooler reads is the next supervisor's, and so are its sockets.
#[test]
fn the_next_supervisor_does_all_that_the_first_one_did() {
    on_both("", |server| {
        until_adopted(&server, || crash(&server));
        server.sql("postgres", "CREATE ROLE later LOGIN PASSWORD 'one'");
        let login = |password| server.login("later", "postgres", password);
        eventually("a new role", PATIENCE, || login("one").ok());
        server.sql("postgres", "ALTER ROLE later PASSWORD 'two'");
        eventually("a new password", PATIENCE, || login("one").err());
        assert!(login("two").is_ok());
        server.set("weir.pool_mode", "transaction");
        server.create_functions("postgres");
        let mode = "SELECT value FROM weir_show('CONFIG') AS t(key text, value text) \
                    WHERE key = 'pool_mode'";
        let mut superuser = server.superuser("postgres");
        eventually("a new setting", PATIENCE, || {
            (superuser.value(mode) == "transaction").then_some(())
        });
        // The port stays open while the adopted pooler is replaced.
        let before = server.pooler_pid();
        let mut waiting = {
            support::kill9(before);
            RawClient::connect(server.pooler_port())
        };
        let began = Instant::now();
        until_replaced(&server, before);
        assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
        waiting
            .authenticate(&[("user", "later"), ("database", "postgres")], "two")
            .expect("the next pooler lets it in");
        server.log_contains(&["the pooler has ended", "its status is not known"]);
        let took = server.stop_by("INT");
        assert!(took < Duration::from_secs(2), "it took {took:?}");
        assert!(RawClient::try_connect(server.pooler_port()).is_err(), "it listens still");
    });
}

#[test]
fn a_smart_stop_ends_an_adopted_pooler() {
    on_both("", |server| {
        let mut client = server.client("postgres");
        until_adopted(&server, || crash(&server));
        client.rows("SELECT 1");
        let pooler = server.pooler_pid();
        let took = server.stop_by("TERM");
        assert!(took < Duration::from_secs(5), "it took {took:?}");
        eventually("the pooler has ended", PATIENCE, || has_ended(pooler).then_some(()));
    });
}

/// An error ends the supervisor as `ERROR` ends a statement. The server does not restart for it.
#[test]
fn a_supervisor_that_fails_leaves_its_pooler_to_the_next_one() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    let pid = server.supervisor_pid().expect("it runs");
    until_adopted(&server, || {
        drop(server.sql("postgres", &format!("SELECT pg_cancel_backend({pid})")))
    });
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert!(!server.has_crashed());
}

/// The next supervisor continues it before it asks.
#[test]
fn a_stopped_pooler_keeps_its_clients() {
    on_both("", |server| {
        let mut client = server.client("postgres");
        client.rows("SET work_mem = '7MB'");
        let before = server.pooler_pid();
        let text = before.to_string();
        support::run(std::process::Command::new("sh").args([
            "-c",
            "kill -STOP \"$1\"",
            "kill",
            &text,
        ]));
        support::kill9(server.supervisor_pid().expect("it runs"));
        server.log_contains(&["has kept its clients"]);
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        assert_eq!(server.pooler_pid(), before);
    });
}

#[test]
fn a_pooler_that_is_killed_with_its_supervisor_is_replaced() {
    on_both("", |server| {
        let (pooler, supervisor) = (server.pooler_pid(), server.supervisor_pid().expect("it runs"));
        support::run(
            std::process::Command::new("sh")
                .args(["-c", "kill -9 \"$1\" \"$2\"", "kill"])
                .args([pooler.to_string(), supervisor.to_string()]),
        );
        assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1");
    });
}

/// Connects to the door and says something; prints what comes back.
const KNOCK: &str = "import socket, sys\n\
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n\
    door.connect(sys.argv[1])\n\
    door.settimeout(10)\n\
    door.send(sys.argv[2].encode())\n\
    print(repr(door.recv(100)))\n";

#[test]
fn only_a_supervisor_of_this_start_of_the_server_can_adopt_core_strict() {
    on_both("", |server| {
        let mut client = server.client("postgres");
        let door = server.data().join("pg_stat_tmp/weir.door");
        for text in ["adopt ", "adopt 00000000000000000000000000000000", "cookie x", "files config"]
        {
            let answer = support::run_any(
                std::process::Command::new("python3").args(["-c", KNOCK]).arg(&door).arg(text),
            );
            let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
            assert!(!answer.contains("weir"), "{text}: {answer}");
        }
        server.log_contains(&["a process at the door of the supervisor is sent away"]);
        assert_eq!(client.value("SELECT 1"), "1");
        // The supervisor is still heard.
        server.sql("postgres", "CREATE ROLE later LOGIN PASSWORD 'one'");
        eventually("a new role", PATIENCE, || server.login("later", "postgres", "one").ok());
    });
}

#[test]
fn an_immediate_stop_ends_the_pooler() {
    on_both("", |server| {
        let pooler = server.pooler_pid();
        server.stop_by("QUIT");
        eventually("the pooler has ended", Duration::from_secs(2), || {
            has_ended(pooler).then_some(())
        });
        server.launch();
        until_replaced(&server, pooler);
    });
}

/// A client works while one supervisor after another fails.
#[test]
fn clients_between_transactions_notice_nothing_of_ten_supervisors() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let mut client = server.client("postgres");
    for round in 0..10 {
        let pid = server.supervisor_pid().expect("it runs");
        // The server does not restart for an error, so the client's transactions go on.
        let before = said(&server, ADOPTED);
        server.sql("postgres", &format!("SELECT pg_cancel_backend({pid})"));
        while said(&server, ADOPTED) == before {
            assert_eq!(client.value(&format!("SELECT {round}")), round.to_string());
        }
    }
}

#[test]
fn an_adopted_pooler_ends_with_the_postmaster() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    until_adopted(&server, || crash(&server));
    let pooler = server.pooler_pid();
    server.kill9();
    eventually("the pooler has ended", PATIENCE, || has_ended(pooler).then_some(()));
    server.launch();
    assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1");
}

/// A program that never says that it serves has no clients to keep.
#[test]
fn a_pooler_that_does_not_serve_yet_ends_with_its_supervisor() {
    if !support::only_weir() {
        return;
    }
    let folder = testkit::open_folder("slow");
    let (program, pid) = (folder.join("slow"), folder.join("pid"));
    let script = format!("#!/bin/sh\necho $$ >{}\nexec sleep 600\n", pid.display());
    fs::write(&program, script).expect("our own folder");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our own file");
    testkit::give_away(&folder);
    let server =
        Builtin::start(Version::Installed, &format!("weir.program = '{}'", program.display()));
    let started = || fs::read_to_string(&pid).ok()?.trim().parse::<u32>().ok();
    let before = eventually("the program runs", PATIENCE, started);
    support::kill9(server.supervisor_pid().expect("it runs"));
    eventually("it has ended", PATIENCE, || has_ended(before).then_some(()));
    eventually("the next one is started", PATIENCE, || started().filter(|pid| *pid != before));
}
