//! Online restart (`-R`): a new process takes over clients and servers, without effects on clients.

mod programs;
mod sessions;
mod waits;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support;
use testkit::{Message, Pooler, RawClient, eventually, frontend, open_folder};

const CLIENTS: u64 = 50;
const RESTARTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a pooler with two workers in this mode.
fn pooler(mode: &str) -> (Pooler, String) {
    let (setup, database) = support::setup(mode);
    (setup.workers(2).start(), database)
}

/// Runs a named statement and returns its only value.
#[track_caller]
fn run(client: &mut RawClient, name: &str, parameter: &str) -> String {
    let bind = frontend::bind("", name, &[Some(parameter)]);
    client.send([bind, frontend::execute("", 0), frontend::sync()].concat());
    let messages = client.read_to_ready();
    let row = messages.iter().find(|m| m.tag == b'D').unwrap_or_else(|| panic!("{messages:?}"));
    row.row().pop().flatten().expect("a value")
}

#[track_caller]
fn prepare(client: &mut RawClient, name: &str, sql: &str) {
    client.send([frontend::parse(name, sql), frontend::sync()].concat());
    let messages = client.read_to_ready();
    assert!(messages.iter().all(|m| m.tag != b'E'), "{messages:?}");
}

/// Sends queries until it is told to stop. Every answer must be the client's own.
fn work(mut client: RawClient, number: u64, done: &AtomicU64, stop: &AtomicBool) {
    let name = format!("client-{number}");
    client.rows(&format!("SET application_name = '{name}'"));
    prepare(&mut client, "mine", &format!("SELECT $1::text || '/{number}'"));
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let tag = format!("{number}.{round}");
        assert_eq!(client.value(&format!("SELECT '{tag}'")), tag);
        assert_eq!(run(&mut client, "mine", &tag), format!("{tag}/{number}"));
        assert_eq!(client.value("SHOW application_name"), name);
        assert_eq!(client.query("BEGIN").tags, ["BEGIN"]);
        let backend = client.value("SELECT pg_backend_pid()");
        assert_eq!(run(&mut client, "mine", &tag), format!("{tag}/{number}"));
        assert_eq!(client.value("SELECT pg_backend_pid()"), backend);
        assert_eq!(client.query("COMMIT").tags, ["COMMIT"]);
        // Uses the unnamed statement in two batches.
        client.send([frontend::parse("", "SELECT $1::text"), frontend::sync()].concat());
        client.read_to_ready();
        assert_eq!(run(&mut client, "", &tag), tag);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

#[track_caller]
fn restart_under_load(mode: &str, servers: u64) {
    let (setup, database) = support::setup(mode);
    let mut pooler = setup.set("default_pool_size", servers).workers(2).start();
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS).map(|_| pooler.client(&database)).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..).zip(clients).collect();
        let (done, stop) = (&done, &stop);
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(number, client)| scope.spawn(move || work(client, number, done, stop)))
            .collect();
        let all_go_on = |target: u64| {
            eventually("the clients go on", Duration::from_secs(60), || {
                let failed = threads.iter().any(std::thread::ScopedJoinHandle::is_finished);
                (failed || done.load(Ordering::Relaxed) >= target).then_some(())
            });
        };
        for _ in 0..RESTARTS {
            all_go_on(done.load(Ordering::Relaxed) + 2 * CLIENTS);
            assert_eq!(pooler.take_over().code(), Some(0));
        }
        all_go_on(done.load(Ordering::Relaxed) + 2 * CLIENTS);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(pooler.log().matches("has taken over").count(), RESTARTS);
    assert_eq!(pooler.log().matches(" stay\n").count(), RESTARTS);
}

#[test]
fn fifty_clients_do_not_notice_five_restarts_in_transaction_mode_core_strict() {
    if support::only_weir() {
        restart_under_load("transaction", 8);
    }
}

#[test]
fn fifty_clients_do_not_notice_five_restarts_in_session_mode_strict() {
    if support::only_weir() {
        restart_under_load("session", CLIENTS);
    }
}

#[test]
fn fifty_clients_do_not_notice_five_restarts_in_auto_mode_strict() {
    if support::only_weir() {
        restart_under_load("auto", 8);
    }
}

#[test]
fn an_open_transaction_goes_along_with_its_server_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("CREATE TABLE kept (n int)");
    client.rows("BEGIN");
    let backend = client.value("SELECT pg_backend_pid()");
    client.rows("INSERT INTO kept VALUES (7)");
    assert_eq!(pooler.take_over().code(), Some(0));
    assert_eq!(client.value("SELECT pg_backend_pid()"), backend);
    assert_eq!(client.query("COMMIT").tags, ["COMMIT"]);
    assert_eq!(client.value("SELECT n FROM kept"), "7");
}

#[test]
fn idle_servers_settings_and_statements_are_taken_over() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("default_pool_size", 1).workers(1).start();
    let mut first = pooler.client(&database);
    let mut second = pooler.client(&database);
    first.rows("SET DateStyle = 'German'");
    prepare(&mut first, "s", "SELECT $1::date");
    prepare(&mut second, "s", "SELECT $1::int + 1");
    let backend = first.value("SELECT pg_backend_pid()");
    pooler.take_over();
    // The server still has the statement names of the old process.
    prepare(&mut second, "t", "SELECT $1::int + 2");
    assert_eq!(run(&mut second, "s", "1"), "2");
    assert_eq!(run(&mut second, "t", "1"), "3");
    assert_eq!(run(&mut first, "s", "2026-02-01"), "01.02.2026");
    assert_eq!(second.value("SELECT '2026-02-01'::date"), "2026-02-01");
    assert_eq!(second.value("SELECT pg_backend_pid()"), backend);
    assert_eq!(second.value("SELECT count(*) FROM pg_prepared_statements"), "3");
}

#[test]
fn a_cancel_key_of_the_old_process_works_in_the_new_one() {
    if !support::only_weir() {
        return;
    }
    for mode in ["session", "transaction"] {
        let (mut pooler, database) = pooler(mode);
        let mut client = pooler.client(&database);
        pooler.take_over();
        const LONG: &str = "SELECT pg_sleep(60)";
        client.send(frontend::query(LONG));
        support::until_running(&database, LONG);
        client.cancel(pooler.port());
        let error = client.read_to_ready().iter().find_map(Message::error);
        assert_eq!(error.expect("an error").code(), "57014", "{mode}");
    }
}

#[test]
fn a_cancel_request_during_the_take_over_reaches_its_query_in_the_old_process() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = pooler("transaction");
    let mut busy = pooler.client(&database);
    const LONG: &str = "SELECT pg_sleep(60)";
    busy.send(frontend::query(LONG));
    support::until_running(&database, LONG);
    let mut old = pooler.begin_take_over();
    pooler.log_contains("has taken over");
    busy.cancel(pooler.port());
    let error = busy.read_to_ready().iter().find_map(Message::error);
    assert_eq!(error.expect("an error").code(), "57014");
    let status = eventually("the old process ends", PATIENCE, || old.try_wait().expect("ours"));
    assert_eq!(status.code(), Some(0));
    assert_eq!(busy.value("SELECT 'served'"), "served");
}

#[test]
fn a_pools_size_holds_over_both_processes() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("default_pool_size", 1).workers(2).start();
    let (mut busy, mut other) = (pooler.client(&database), pooler.client(&database));
    const LONG: &str = "SELECT pg_sleep(3)";
    busy.send(frontend::query(LONG));
    support::until_running(&database, LONG);
    let mut old = pooler.begin_take_over();
    pooler.log_contains("servers in use by the old process");
    let all = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND backend_type = 'client backend' AND state = 'active'";
    // The client waits for the only server, and so is alone with it. The process of the former one may
    // still be ending.
    assert_eq!(other.value(all), "1");
    assert!(busy.read_to_ready().iter().any(|m| m.tag == b'D'));
    let status = eventually("the old process ends", PATIENCE, || old.try_wait().expect("ours"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_query_that_takes_too_long_is_answered_by_the_old_process() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("suspend_timeout", 0.3).workers(2).start();
    let mut busy = pooler.client(&database);
    let mut idle = pooler.client(&database);
    busy.send(frontend::query("SELECT pg_sleep(3)"));
    support::until_running(&database, "SELECT pg_sleep(3)");
    let mut old = pooler.begin_take_over();
    pooler.log_contains("has taken over");
    assert_eq!(idle.value("SELECT 'served'"), "served");
    assert!(matches!(old.try_wait(), Ok(None)), "the old process has left its client");
    let messages = busy.read_to_ready();
    assert!(messages.iter().any(|m| m.tag == b'D'), "{messages:?}");
    assert_eq!(busy.value("SELECT 'still served'"), "still served");
    drop(busy);
    let status = eventually("the old process ends", PATIENCE, || old.try_wait().expect("ours"));
    assert_eq!(status.code(), Some(0));
    assert_eq!(idle.value("SELECT 'served'"), "served");
    assert_eq!(pooler.client(&database).value("SELECT 'new'"), "new");
}

#[test]
fn the_pidfile_and_the_service_manager_know_the_new_process() {
    if !support::only_weir() {
        return;
    }
    let folder = open_folder("restart");
    let path = folder.join("notify");
    let manager = UnixDatagram::bind(&path).expect("a new socket");
    let anybody = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(&path, anybody).expect("our own socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let (setup, database) = support::setup("transaction");
    let pidfile = folder.join("pid");
    let mut pooler = setup
        .set("pidfile", pidfile.display())
        .environment("NOTIFY_SOCKET", path.display())
        .start();
    let mut client = pooler.client(&database);
    let before = pooler.pid();
    let named = || fs::read_to_string(&pidfile).ok().and_then(|text| text.trim().parse().ok());
    assert_eq!(named(), Some(before));
    assert_eq!(pooler.take_over().code(), Some(0));
    let after = pooler.pid();
    assert_ne!(before, after);
    eventually("the pidfile names the new process", PATIENCE, || {
        (named() == Some(after)).then_some(())
    });
    assert_eq!(client.value("SELECT 'served'"), "served");
    let mut heard = Vec::new();
    while !heard.contains(&format!("MAINPID={after}\nREADY=1")) {
        let mut buffer = [0; 4096];
        let len = manager.recv(&mut buffer).expect("the new process says that it is ready");
        heard.push(String::from_utf8_lossy(&buffer[..len]).into_owned());
    }
    assert!(heard.contains(&format!("MAINPID={after}")), "{heard:?}");
    pooler.signal("QUIT");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    assert!(!pidfile.exists());
}

/// A program that acts as a new process and disconnects after reading a number of bytes.
pub(crate) const IMPOSTOR: &str = r#"
import socket, struct, sys
path, request, enough = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_UNIX)
s.connect(path)
body = struct.pack("!I", 3 << 16) + b"user\0pgbouncer\0database\0pgbouncer\0\0"
s.sendall(struct.pack("!I", len(body) + 4) + body + request.encode())
got = b""
while len(got) < enough:
    more = s.recv(enough - len(got))
    if not more:
        break
    got += more
print(got)
"#;

/// A program that acts as a new process and confirms that it has everything.
pub(crate) const SUCCESSOR: &str = r#"
import socket, struct, sys
path, request = sys.argv[1], sys.argv[2]
s = socket.socket(socket.AF_UNIX)
s.connect(path)
body = struct.pack("!I", 3 << 16) + b"user\0pgbouncer\0database\0pgbouncer\0\0"
s.sendall(struct.pack("!I", len(body) + 4) + body + request.encode())
def read(count):
    got = b""
    while len(got) < count:
        more = s.recv(count - len(got))
        assert more
        got += more
    return got
def frame():
    letter, length = struct.unpack("!cI", read(5))
    read(length)
    return letter
print(frame() + frame(), flush=True)
sys.stdin.readline()
s.sendall(b"A" + struct.pack("!II", 4, 1))
answer = b""
while more := s.recv(4096):
    answer += more
print(answer)
"#;

/// Returns a command for a program of the pooler's user that connects to the clients' socket.
pub(crate) fn stranger(pooler: &Pooler, program: &str, args: &[&str]) -> Command {
    let path = pooler.socket_folder().join(format!(".s.PGSQL.{}", pooler.port()));
    let mut command = pooler.command_of_its_user("/usr/bin/python3");
    command.args(["-c", program]).arg(&path).args(args).stdin(Stdio::null());
    command
}

/// Returns the query with which a new process requests the take-over.
#[track_caller]
pub(crate) fn request(pooler: &Pooler) -> String {
    let refusal =
        support::run(&mut stranger(pooler, IMPOSTOR, &["weir: take over 999.999", "200"]));
    assert!(refusal.contains("the versions differ"), "{refusal}");
    let request = refusal.rsplit_once("is not \"").and_then(|(_, rest)| rest.split_once('"'));
    request.expect("it says what it wants").0.to_owned()
}

#[test]
fn a_take_over_is_refused_until_obsolete_servers_are_replaced() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler("transaction");
    let mut client = pooler.client(&database);
    let before = client.value("SELECT pg_backend_pid()");
    let mut console = pooler.console();
    let mut successor = stranger(&pooler, SUCCESSOR, &[&request(&pooler)]);
    let successor = successor.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut successor = successor.spawn().expect("python3 starts");
    let mut said = BufReader::new(successor.stdout.take().expect("a pipe")).lines();
    let mut line = || said.next().expect("it goes on").expect("text");
    assert_eq!(line(), "b'WS'");
    assert_eq!(console.query("RECONNECT").tags, ["RECONNECT"]);
    drop(successor.stdin.take());
    let answer = line();
    assert!(answer.contains("servers must be replaced first"), "{answer}");
    assert!(successor.wait().expect("our own child").success());
    assert_ne!(client.value("SELECT pg_backend_pid()"), before);
    pooler.log_contains("take-over refused");
}

#[test]
fn when_a_take_over_fails_the_old_process_goes_on() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = pooler("transaction");
    let mut idle = pooler.client(&database);
    let mut open = pooler.client(&database);
    prepare(&mut idle, "s", "SELECT $1::int + 1");
    open.rows("BEGIN");
    let backend = open.value("SELECT pg_backend_pid()");
    let request = request(&pooler);
    // The new process disconnects before the state comes, or in the middle of it.
    for enough in ["5", "60", "100"] {
        let got = support::run(&mut stranger(&pooler, IMPOSTOR, &[&request, enough]));
        // Python prints either kind of quote, depending on the text.
        assert_eq!(got.chars().nth(2), Some('W'), "{got}");
        assert_eq!(run(&mut idle, "s", "1"), "2");
        assert_eq!(open.value("SELECT pg_backend_pid()"), backend);
        assert_eq!(pooler.client(&database).value("SELECT 'new'"), "new");
    }
    assert_eq!(open.query("COMMIT").tags, ["COMMIT"]);
    eventually("all three attempts have failed", PATIENCE, || {
        (pooler.log().matches("this process continues").count() == 3).then_some(())
    });
    assert_eq!(pooler.take_over().code(), Some(0));
    assert_eq!(run(&mut idle, "s", "1"), "2");
}

/// PAUSE of all databases, or of the one with `name`.
fn is_not_taken_over(name: impl Fn(&str) -> String, why: impl Fn(&str) -> String) {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = pooler("transaction");
    let mut client = pooler.client(&database);
    pooler.admin(&format!("PAUSE{}", name(&database)));
    let mut old = pooler.begin_take_over();
    let new = pooler.wait_for_exit();
    assert_eq!(new.code(), Some(1));
    let why = why(&database);
    pooler.log_contains(&format!("does not hand over: already suspended/paused{why}\n"));
    assert!(matches!(old.try_wait(), Ok(None)));
    pooler.admin(&format!("RESUME{}", name(&database)));
    assert_eq!(client.value("SELECT 'served'"), "served");
    old.kill().and_then(|()| old.wait()).expect("our own child");
}

#[test]
fn a_paused_pooler_is_not_taken_over() {
    is_not_taken_over(|_| String::new(), |_| String::new());
}

#[test]
fn a_pooler_with_a_paused_database_is_not_taken_over() {
    is_not_taken_over(
        |name| format!(" {name}"),
        |name| format!(": RESUME ends the PAUSE of {name}"),
    );
}

#[test]
fn without_a_running_process_it_starts_normally() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let pooler = setup.argument("-R").start();
    pooler.log_contains("old process not found, try to continue normally");
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
}
