//! Faults of the proposed built-in pooler (D-01 to D-16), none of which Weir may have. Those about
//! logins are in `access.rs`, those about session state in `state.rs`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{Builtin, Postgres, RawClient, Role, Version, eventually, frontend};

use super::direct;
use crate::support;

const PATIENCE: Duration = Duration::from_secs(10);

fn signal(pid: u32, name: &str) {
    let command = format!("kill -{name} \"$1\"");
    support::run(Command::new("sh").args(["-c", &command, "kill", &pid.to_string()]));
}

/// Continues a process at the end of a test, however that ends.
pub(super) struct Stopped(u32);

impl Stopped {
    pub(super) fn new(pid: u32) -> Self {
        signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

fn postmaster(server: &Builtin) -> u32 {
    let text = fs::read_to_string(server.data().join("postmaster.pid")).expect("the server runs");
    text.lines().next().and_then(|line| line.parse().ok()).expect("a process id")
}

/// The descriptors of the pooler, which the server may look at: it is of the same system user.
fn descriptors(server: &Builtin) -> u32 {
    let sql = format!("SELECT count(*) FROM pg_ls_dir('/proc/{}/fd')", server.pooler_pid());
    server.superuser("postgres").value(&sql).parse().expect("a number")
}

fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// D-02: the reference served the client first that had come last.
#[test]
fn waiting_clients_are_served_in_their_order() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1\nweir.session_pool_size = 1");
    server.create_functions("postgres");
    let mut holder = server.client("postgres");
    let mut clients: Vec<_> = (0..5).map(|_| server.client("postgres")).collect();
    holder.rows("BEGIN");
    let mut superuser = server.superuser("postgres");
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(frontend::query("SELECT extract(epoch FROM clock_timestamp())"));
        let waiting = "SELECT sum(cl_waiting) FROM weir_pools WHERE \"user\" = 'app'";
        eventually("it waits", PATIENCE, || {
            (superuser.value(waiting) == (at + 1).to_string()).then_some(())
        });
    }
    holder.rows("COMMIT");
    let times: Vec<f64> = clients
        .iter_mut()
        .map(|client| {
            let answer = client.read_to_ready();
            let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
            row[0].as_deref().and_then(|text| text.parse().ok()).expect("a time")
        })
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// D-03: a connection that is opened slowly held up all clients.
#[test]
fn a_server_that_accepts_slowly_delays_only_clients_that_need_it() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1");
    server.sql("postgres", "CREATE ROLE other LOGIN PASSWORD 'x'");
    eventually("the role is known", PATIENCE, || server.login("other", "postgres", "x").ok());
    server.sql(
        "postgres",
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
                            WHERE usename = 'other'",
    );
    server.create_functions("postgres");
    let mut superuser = server.superuser("postgres");
    let mut client = server.client("postgres");
    client.rows("SELECT 1");
    let (longest, late) = std::thread::scope(|threads| {
        let stopped = Stopped::new(postmaster(&server));
        let late = threads.spawn(|| {
            let mut late = server.login("other", "postgres", "x").expect("it is let in");
            late.value("SELECT current_user")
        });
        let connecting = "SELECT sum(sv_login) FROM weir_pools WHERE \"user\" = 'other'";
        eventually("the pooler waits for the server on its behalf", PATIENCE, || {
            (superuser.value(connecting) == "1").then_some(())
        });
        let longest = (0..200).map(|_| {
            let began = Instant::now();
            client.rows("SELECT 1");
            began.elapsed()
        });
        let longest = longest.max().expect("some queries");
        assert!(!late.is_finished(), "the server has let it in although it is stopped");
        drop(stopped);
        (longest, late.join().expect("no panic"))
    });
    assert!(longest < Duration::from_millis(500), "a query took {longest:?}");
    assert_eq!(late, "other");
}

/// D-04: the handshakes of the reference blocked.
#[test]
fn clients_that_stop_in_the_handshake_delay_nobody() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1\nweir.max_sessions = 2000");
    let stalled: Vec<_> = (0..300)
        .map(|_| {
            let mut client = RawClient::connect(server.pooler_port());
            client.send(frontend::ssl_request());
            client
        })
        .collect();
    let began = Instant::now();
    assert_eq!(server.client("postgres").value("SELECT 1"), "1");
    assert!(began.elapsed() < Duration::from_secs(1), "it took {:?}", began.elapsed());
    drop(stalled);
}

/// D-05: clients that only connect, such as checks of a load balancer, were never freed.
#[test]
fn connections_without_a_login_leave_nothing_behind() {
    if !support::only_weir() {
        return;
    }
    // Without this key, the kernel hides the process from all.
    let file = testkit::folder("settings").join("weir.ini");
    fs::write(&file, "core_dumps = 1\n").expect("our own folder");
    testkit::give_away(&file);
    let server = Builtin::serving(&format!("weir.config_file = '{}'", file.display()));
    drop(server.client("postgres"));
    let before = descriptors(&server);
    for _ in 0..3_000 {
        drop(RawClient::connect(server.pooler_port()));
    }
    eventually("their descriptors are closed", PATIENCE, || {
        (descriptors(&server) <= before + 2).then_some(())
    });
    assert_eq!(server.client("postgres").value("SELECT 1"), "1");
}

/// D-06: a length that a client announces is no memory.
#[test]
fn announced_lengths_take_no_memory() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let pooler = server.pooler_pid();
    let mut logged_in = server.client("postgres");
    let before = resident_kb(pooler);
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = RawClient::connect(server.pooler_port());
            let _ = client.try_send([0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0]);
            client
        })
        .collect();
    let _ = logged_in.try_send([b'Q', 0x7f, 0xff, 0xff, 0xff, b'x']);
    // A large result passes in pieces.
    let mut reader = server.client("postgres");
    reader.rows("SELECT length(x) FROM (SELECT repeat('x', 100000000) AS x) AS t");
    clients.iter_mut().for_each(|client| drop(client.read_raw_to_end()));
    let after = resident_kb(pooler);
    assert!(after < before + 20_000, "{before} kB, then {after} kB");
}

/// D-07: the time without use begins with the last use.
#[test]
fn the_idle_time_of_a_server_begins_with_its_last_use() {
    if !support::only_weir() {
        return;
    }
    // With a second server, the client could change to that one. The first clients of a direct pool
    // are proxied, so they change, too.
    let settings = "weir.session_pool_size = 1\nweir.idle_pool_worker_timeout = '1s'";
    let proxied = Builtin::serving(&format!("weir.data_path = proxy\n{settings}"));
    idle_time_begins_with_the_last_use(&proxied);
    drop(proxied);
    idle_time_begins_with_the_last_use(&direct::server(Version::Installed, settings));
}

fn idle_time_begins_with_the_last_use(server: &Builtin) {
    let mut client = server.client("postgres");
    let backend = client.value("SELECT pg_backend_pid()");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(client.value("SELECT pg_backend_pid()"), backend);
    }
    let pid: u32 = backend.parse().expect("a number");
    eventually("the idle server is closed", PATIENCE, || {
        (!server.backends("postgres").contains(&pid)).then_some(())
    });
}

/// D-08: all clients of a backend had the same key.
#[test]
fn a_cancel_request_hits_its_own_clients_query_only_strict() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1\nweir.session_pool_size = 1");
    let (mut first, mut second) = (server.client("postgres"), server.client("postgres"));
    first.rows("SELECT 1");
    second.send(frontend::query("SELECT pg_sleep(1)"));
    support::until_running_at(&server, "postgres", "SELECT pg_sleep(1)");
    first.cancel(server.pooler_port());
    assert!(second.read_to_ready().iter().all(|message| message.error().is_none()));
    second.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running_at(&server, "postgres", "SELECT pg_sleep(60)");
    second.cancel(server.pooler_port());
    let answer = second.read_to_ready();
    let error = answer.iter().find_map(|message| message.error()).expect("it is cancelled");
    assert_eq!(error.code(), "57014");
    // Too late, so without effect.
    second.cancel(server.pooler_port());
    assert_eq!(first.value("SELECT 1"), "1");
}

/// D-11: errors without severity or SQLSTATE.
#[test]
fn a_limit_is_told_as_an_error_of_the_server() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 1\nweir.max_sessions = 1");
    let _one = eventually("the only place is free", PATIENCE, || {
        server.login(Role::APP, "postgres", Role::APP_PASSWORD).ok()
    });
    let refused = server.login(Role::APP, "postgres", Role::APP_PASSWORD).expect_err("it is full");
    assert_eq!((refused.severity(), refused.code()), ("FATAL", "53300"));
    assert!(!refused.message().is_empty());
}

/// D-13, D-14: other databases, and clients that are interrupted.
#[test]
fn clients_that_are_interrupted_hurt_nobody() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.create_functions("postgres");
    let pooler = server.pooler_pid();
    let database = server.database();
    assert_eq!(server.client(&database).value("SELECT 1"), "1");
    for name in ["INT", "KILL"] {
        let mut pgbench = Postgres::client_program("pgbench", server.pooler_port(), &database);
        let script = testkit::folder("script").join("sleep.sql");
        fs::write(&script, "SELECT pg_sleep(0.01);\n").expect("our own folder");
        let mut child = pgbench
            .args(["-n", "-c", "10", "-T", "60", "-f"])
            .arg(&script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbench runs");
        let clients = "SELECT sum(n_clients) FROM pg_pooler_state()";
        let mut superuser = server.superuser("postgres");
        eventually("ten clients", PATIENCE, || (superuser.value(clients) == "10").then_some(()));
        signal(child.id(), name);
        child.wait().expect("our own child");
        eventually("no client is left", PATIENCE, || {
            (superuser.value(clients) == "0").then_some(())
        });
    }
    assert_eq!(server.pooler_pid(), pooler);
    assert!(!server.has_crashed());
}

/// D-15: a blocked proxy blocked the postmaster.
#[test]
fn a_stopped_pooler_does_not_hold_up_the_server() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let _stopped = Stopped::new(server.pooler_pid());
    for _ in 0..20 {
        let _waits = RawClient::connect(server.pooler_port());
    }
    let began = Instant::now();
    for at in 0..10 {
        server.sql("postgres", &format!("CREATE ROLE r{at} LOGIN PASSWORD 'x'"));
        server.reload();
    }
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    assert!(server.supervisor_pid().is_some());
}
