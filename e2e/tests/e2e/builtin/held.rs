//! `kill -9` of the pooler with clients in direct pools: the next pooler takes them over.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use testkit::{Builtin, RawClient, Role, Version, eventually, frontend};

use super::direct::{is_lost, pid, server};
use super::life::{has_ended, until_replaced};
use crate::support;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const ROWS: usize = 200_000;
/// The number of clients that keep a backend.
const SIZE: usize = 4;

/// Kills the pooler, and waits until the next one serves.
#[track_caller]
pub(super) fn kill(server: &Builtin) {
    let before = server.pooler_pid();
    support::kill9(before);
    drop(until_replaced(server, before));
}

fn ask(client: &mut RawClient, messages: &[Vec<u8>]) -> String {
    client.send(messages.concat());
    let answer = client.read_to_ready();
    assert!(answer.iter().all(|message| message.error().is_none()), "{answer:?}");
    let row = answer.iter().rfind(|message| message.tag == b'D').map(|message| message.row());
    row.and_then(|row| row.into_iter().next().flatten()).unwrap_or_default()
}

fn execute(name: &str) -> Vec<u8> {
    [frontend::bind("", name, &[]), frontend::execute("", 0), frontend::sync()].concat()
}

/// Clients in all phases.
struct Phases {
    resting: RawClient,
    open: RawClient,
    reads: RawClient,
    copies: RawClient,
    pinned: RawClient,
    partial: RawClient,
    waits: RawClient,
}

impl Phases {
    fn reach(server: &Builtin) -> Self {
        let client = || server.client("postgres");
        let mut phases = Self {
            resting: client(),
            open: client(),
            reads: client(),
            copies: client(),
            pinned: client(),
            partial: client(),
            waits: client(),
        };
        phases.resting.rows("SET work_mem = '5MB'");
        let prepare = frontend::parse("s", "SELECT 'prepared'");
        assert_eq!(ask(&mut phases.resting, &[prepare, frontend::sync()]), "");
        phases.partial.send(&frontend::query("SELECT 'whole'")[..8]);
        phases.open.rows("BEGIN; SET LOCAL work_mem = '6MB'");
        let text = format!("SELECT repeat('x', 1000) FROM generate_series(1, {ROWS})");
        phases.reads.send(frontend::query(&text));
        assert_eq!(phases.reads.read().tag, b'T');
        phases.copies.send(frontend::query("COPY copied FROM STDIN"));
        assert_eq!(phases.copies.read().tag, b'G');
        phases.copies.send(frontend::copy_data(b"1\n"));
        phases.pinned.rows("SELECT pg_advisory_lock(77)");
        // All backends are taken now.
        phases.waits.send(frontend::query("SELECT 'waited'"));
        phases
    }

    /// Brings all clients to the ends of their phases.
    fn end(&mut self) {
        assert_eq!(self.open.value("SHOW work_mem"), "6MB");
        self.open.rows("COMMIT");
        assert!(self.waits.read_to_ready().iter().any(|message| message.tag == b'D'));
        assert_eq!(self.resting.value("SHOW work_mem"), "5MB");
        assert_eq!(ask(&mut self.resting, &[execute("s")]), "prepared");
        self.partial.send(&frontend::query("SELECT 'whole'")[8..]);
        assert!(self.partial.read_to_ready().iter().any(|message| message.tag == b'D'));
        let rest = self.reads.read_to_ready();
        assert_eq!(rest.iter().filter(|message| message.tag == b'D').count(), ROWS);
        self.copies.send([frontend::copy_data(b"2\n"), frontend::copy_done()].concat());
        assert!(self.copies.read_to_ready().iter().all(|message| message.error().is_none()));
        assert_eq!(self.pinned.value("SELECT pg_advisory_unlock(77)"), "t");
    }
}

fn all_phases(version: Version) -> Builtin {
    let server = server(version, &format!("weir.session_pool_size = {SIZE}"));
    server.sql("postgres", "CREATE TABLE copied (a int); GRANT ALL ON copied TO app");
    server
}

#[test]
fn clients_in_all_phases_go_on_in_the_next_pooler() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = all_phases(version);
        for kills in [1, 2, 1] {
            let mut phases = Phases::reach(&server);
            let mut backends = server.backends("postgres");
            backends.sort_unstable();
            for _ in 0..kills {
                let before = server.pooler_pid();
                support::kill9(before);
                eventually("another pooler", PATIENCE, || {
                    (server.pooler_pid() != before).then_some(())
                });
            }
            phases.end();
            let mut now = server.backends("postgres");
            now.sort_unstable();
            assert_eq!(now, backends, "{version:?} {kills}");
            // Direct again, and no other client's session.
            let mut fresh = server.client("postgres");
            assert_eq!(fresh.value("SHOW work_mem"), "4MB");
        }
        assert!(!server.has_crashed(), "{version:?}");
    }
}

#[test]
fn the_next_pooler_cancels_limits_and_disconnects_them() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let (mut client, mut other) = (server.client("postgres"), server.client("postgres"));
    other.rows("SET work_mem = '7MB'");
    for _ in 0..2 {
        kill(&server);
        client.send(frontend::query("SELECT pg_sleep(60)"));
        eventually("it runs", PATIENCE, || {
            let sql = "SELECT count(*) FROM pg_stat_activity \
                       WHERE query = 'SELECT pg_sleep(60)' AND state = 'active'";
            (server.sql("postgres", sql)[0][0].as_deref() == Some("1")).then_some(())
        });
        client.cancel(server.pooler_port());
        let error = client.read_to_ready().iter().find_map(|message| message.error());
        assert_eq!(error.expect("it was cancelled").code(), "57014");
    }
    server.set("weir.data_path", "proxy");
    assert!(is_lost(&mut other));
    assert!(is_lost(&mut client));
}

/// Uses the client's own settings and statements until it is told to stop.
fn work(mut client: RawClient, number: usize, done: &AtomicU64, stop: &AtomicBool) {
    client.rows(&format!("SET application_name = 'client {number}'"));
    let prepare = frontend::parse("s", &format!("SELECT 'own {number}'"));
    assert_eq!(ask(&mut client, &[prepare, frontend::sync()]), "");
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
        client.rows("BEGIN");
        let backend = pid(&mut client);
        assert_eq!(ask(&mut client, &[execute("s")]), format!("own {number}"));
        assert_eq!(pid(&mut client), backend);
        client.rows("COMMIT");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs in and out. A login during a kill may fail.
fn visit(server: &Builtin, number: usize, stop: &AtomicBool) {
    let mut visits = 0;
    while !stop.load(Ordering::Relaxed) {
        let login = || server.login(Role::APP, "postgres", Role::APP_PASSWORD);
        // The connection may end at any message.
        let Ok(Ok(mut client)) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(login))
        else {
            continue;
        };
        let own = format!("{number}.{visits}");
        let sql = format!("SET app.own = '{own}'; SHOW app.own");
        let _ = client.try_send(frontend::query(&sql));
        // A client that was not direct yet is lost without an answer.
        while let Ok(Some(message)) = client.try_read() {
            if message.tag == b'D' {
                assert_eq!(message.row()[0].as_deref(), Some(own.as_str()));
            }
            if message.tag == b'Z' {
                visits += 1;
                break;
            }
        }
        let _ = client.try_send(frontend::terminate());
    }
    assert!(visits > 0);
}

pub(super) fn child_of(process: u32) -> Option<u32> {
    let list = format!("/proc/{process}/task/{process}/children");
    fs::read_to_string(list).ok()?.split_whitespace().last()?.parse().ok()
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("the process is there").count()
}

/// The holders of poolers of this server that have not ended.
pub(super) fn holders(server: &Builtin) -> usize {
    let folder = fs::canonicalize(server.data()).expect("the data folder");
    let processes = fs::read_dir("/proc").expect("the kernel's table").flatten();
    let is_holder = |process: &Path| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let cwd = fs::read_link(process.join("cwd")).unwrap_or_default();
        name.trim_end() == "weir-holder" && cwd == folder
    };
    processes.filter(|process| is_holder(&process.path())).count()
}

#[test]
fn clients_at_work_do_not_notice_kills_and_nothing_leaks() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = server(version, "weir.session_pool_size = 4");
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (done, stop, server) = (&done, &stop, &server);
            let mut threads: Vec<_> = (0..20)
                .map(|number| {
                    let client = server.client("postgres");
                    scope.spawn(move || work(client, number, done, stop))
                })
                .collect();
            threads.extend((0..3).map(|number| scope.spawn(move || visit(server, number, stop))));
            for round in 0..8 {
                eprintln!("{version:?}, round {round}: {}", done.load(Ordering::Relaxed));
                let target = done.load(Ordering::Relaxed) + 200;
                eventually("the clients go on", PATIENCE, || {
                    let failed = threads.iter().any(std::thread::ScopedJoinHandle::is_finished);
                    (failed || done.load(Ordering::Relaxed) >= target).then_some(())
                });
                if threads.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                    eprintln!("{}", server.log());
                    break;
                }
                let before = server.pooler_pid();
                support::kill9(before);
                let next = eventually("another pooler", PATIENCE, || {
                    Some(server.pooler_pid()).filter(|next| *next != before)
                });
                // In each second round, it is killed as soon as it serves.
                if round % 2 == 1 {
                    support::kill9(next);
                    eventually("another pooler", PATIENCE, || {
                        (server.pooler_pid() != next).then_some(())
                    });
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(!server.has_crashed(), "{version:?}");
        server.wait_until_serving();
        assert!(server.backends("postgres").len() <= 4, "{version:?}");
        let count = || {
            let supervisor = server.supervisor_pid().expect("it runs");
            let mut files: Vec<_> =
                server.backends("postgres").into_iter().map(open_files).collect();
            files.sort_unstable();
            (open_files(supervisor), open_files(server.pooler_pid()), files, holders(&server))
        };
        kill(&server);
        let mut before = count();
        eventually("it is at rest", PATIENCE, || {
            let now = count();
            (std::mem::replace(&mut before, now.clone()) == now && now.3 == 1).then_some(())
        });
        for _ in 0..3 {
            kill(&server);
        }
        eventually("nothing is left over", PATIENCE, || (count() == before).then_some(()));
    }
}

#[test]
fn a_pooler_that_dies_while_it_takes_over_loses_nobody() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "weir.session_pool_size = 2");
    let mut clients: Vec<_> = (0..200).map(|_| server.client("postgres")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.rows(&format!("SET application_name = 'client {number}'"));
    }
    clients[0].rows("BEGIN");
    let backend = pid(&mut clients[0]);
    let supervisor = server.supervisor_pid().expect("it runs");
    let mut before = server.pooler_pid();
    support::kill9(before);
    for round in 0..8 {
        before = eventually("the next one starts", PATIENCE, || {
            let child = child_of(supervisor)?;
            (child != before && !has_ended(child)).then_some(child)
        });
        // It dies a little later in each round: before, during or after the take-over.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(8 * round) {
            std::hint::spin_loop();
        }
        support::kill9(before);
    }
    server.wait_until_serving();
    assert_eq!(pid(&mut clients[0]), backend);
    clients[0].rows("COMMIT");
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.value("SHOW application_name"), format!("client {number}"));
    }
    eventually("one holder is left", PATIENCE, || (holders(&server) == 1).then_some(()));
}

#[test]
fn without_its_holder_the_pooler_serves_and_a_kill_loses_its_clients() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    support::kill9(child_of(server.pooler_pid()).expect("the holder"));
    eventually("it has ended", PATIENCE, || (holders(&server) == 0).then_some(()));
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    kill(&server);
    assert!(is_lost(&mut client));
    assert_eq!(server.client("postgres").value("SELECT 1"), "1");
    assert!(!server.has_crashed());
}

/// A pooler that is told to end takes its clients with it.
#[test]
fn a_pooler_that_ends_by_itself_leaves_nothing_to_the_next_one() {
    if !support::only_weir() {
        return;
    }
    let server = server(Version::Installed, "");
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    let before = server.pooler_pid();
    support::run(Command::new("sh").args(["-c", &format!("kill -QUIT {before}")]));
    drop(until_replaced(&server, before));
    assert!(is_lost(&mut client));
    assert_eq!(holders(&server), 1);
    server.stop_by("INT");
    eventually("no holder is left", PATIENCE, || (holders(&server) == 0).then_some(()));
    assert!(!server.data().join("pg_stat_tmp/weir.held").exists());
}
