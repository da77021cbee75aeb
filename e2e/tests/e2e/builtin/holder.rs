//! The process that holds the clients of direct pools: its limits, its end, and what it gives up.

use std::{fs, path::Path, process::Command, time::Duration};

use testkit::{Builtin, Version, eventually, memory_files};

use super::defects::Stopped;
use super::direct::{is_lost, pid, server};
use super::held::{PATIENCE, child_of, holders, kill};
use super::life::{has_ended, until_replaced};
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

/// Returns the configuration that the supervisor has written for its pooler.
fn configuration(server: &Builtin) -> String {
    let mut found = memory_files(server.supervisor_pid().expect("it runs"), "weir.ini");
    found.next().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
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
    let limit = format!("prlimit --pid {supervisor} --nofile=1024: && cat");
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
        let how = if name == "KILL" { "(signal 9)" } else { "(status 0)" };
        let ends = || {
            let log = server.log();
            let lines = log.lines().filter(|line| line.contains("holds the clients"));
            lines.filter(|line| line.contains(how)).count()
        };
        let before = ends();
        signal(holder, name);
        eventually(name, PATIENCE, || (ends() > before).then_some(()));
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
    // A client that has just logged in may not be in the lobby yet.
    client.rows("SELECT 1");
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

/// A program that acts as the next pooler, and ends when it has the records.
const NEXT: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
def frame():
    letter, length = struct.unpack("!cI", s.recv(5, socket.MSG_WAITALL))
    s.recv(length, socket.MSG_WAITALL)
    return letter.decode()
try:
    s.connect(sys.argv[1])
    s.sendall(sys.argv[2].encode())
    print(frame() + frame())
except (OSError, struct.error):
    print("none")
"#;

/// A program that asks a pooler for everything, in a version that no pooler has.
const STRANGER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
body = struct.pack("!I", 3 << 16) + b"user\0pgbouncer\0database\0pgbouncer\0\0"
s.sendall(struct.pack("!I", len(body) + 4) + body + b"weir: take over 999.999")
answer = b""
while more := s.recv(4096):
    answer += more
print(answer[5:].decode())
"#;

/// Runs a program of the server's system user. Returns the line that it prints.
fn run(server: &Builtin, program: &Path, arguments: &str) -> String {
    let command = format!("/usr/bin/python3 {} {arguments}", program.display());
    let mut client = server.superuser("postgres");
    client.rows("CREATE TEMP TABLE said (line text)");
    client.rows(&format!("COPY said FROM PROGRAM '{command}'"));
    client.value("SELECT line FROM said")
}

#[test]
fn processes_that_end_while_they_take_over_are_counted() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 1");
    let folder = testkit::open_folder("next");
    let [next, stranger] = [("next", NEXT), ("stranger", STRANGER)].map(|(name, text)| {
        fs::write(folder.join(name), text).expect("our own folder");
        folder.join(name)
    });
    let refusal = run(&server, &stranger, "pg_stat_tmp/weir.sock");
    let request = refusal.rsplit_once("is not \"").and_then(|(_, rest)| rest.split_once('"'));
    let arguments = format!("pg_stat_tmp/weir.held \"{}\"", request.expect("it says which").0);
    let mut client = server.client("postgres");
    // Its backend has its socket from now on.
    assert_eq!(client.value("SELECT 1"), "1");
    let before = server.pooler_pid();
    let supervisor = Stopped::new(server.supervisor_pid().expect("it runs"));
    support::kill9(before);
    let mut taken = 0;
    while run(&server, &next, &arguments) == "WS" {
        taken += 1;
        assert!(taken <= DEATHS_MAX, "the holder does not count");
        // Backends serve it meanwhile.
        assert!(taken + 2 > DEATHS_MAX || client.value("SELECT 1") == "1");
    }
    // The killed pooler counts if it had lived for a short time only.
    assert!(taken + 1 >= DEATHS_MAX, "{taken}");
    assert!(is_lost(&mut client));
    server.log_contains(&["were killed soon after their start"]);
    drop(supervisor);
    assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
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
    // Else the next pooler may start with the old value.
    eventually("the supervisor has read the value", PATIENCE, || {
        configuration(&server).contains("\ndata_path = proxy\n").then_some(())
    });
    support::kill9(before);
    drop(until_replaced(&server, before));
    let last = client.read_to_end().iter().find_map(|message| message.error());
    let last = last.expect("an error");
    assert!(last.message().contains("restarted"), "{last:?}\n{}", server.log());
    let soon = Duration::from_secs(5);
    eventually("its holder has ended", soon, || (holders(&server) == 1).then_some(()));
}

/// A stopped process does not notice the end of the server. It would keep the port and its clients.
#[test]
fn a_stop_of_the_server_ends_a_pooler_and_a_holder_that_are_stopped() {
    if !support::only_weir() {
        return;
    }
    for (stop, are_stopped) in
        [("INT", [true, true]), ("INT", [false, true]), ("QUIT", [true, true])]
    {
        let server = server(Version::Installed, "weir.session_pool_size = 2");
        let mut client = server.client("postgres");
        client.rows("SET work_mem = '7MB'");
        let pooler = server.pooler_pid();
        let both = [pooler, child_of(pooler).expect("the holder")];
        let stopped = both.into_iter().zip(are_stopped).filter(|(_, is_stopped)| *is_stopped);
        stopped.for_each(|(process, _)| signal(process, "STOP"));
        server.stop_by(stop);
        server.launch();
        assert_eq!(
            until_replaced(&server, pooler).value("SELECT 1"),
            "1",
            "{stop} {are_stopped:?}"
        );
        for process in both {
            eventually("it has ended", PATIENCE, || has_ended(process).then_some(()));
        }
        assert!(client.read_to_end().iter().all(|message| message.tag == b'E'));
    }
}
