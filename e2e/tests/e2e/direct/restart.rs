//! Online restart (`-R`): the new process has the clients of direct pools, and they notice nothing.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use testkit::{Authority, Pooler, RawClient, eventually, frontend};

use super::{Direct, PATIENCE, ask, execute, pid};
use crate::{restart, support};

impl Direct {
    /// Another process takes over, and the old one ends.
    #[track_caller]
    fn take_over(&mut self) {
        assert_eq!(self.pooler.take_over().code(), Some(0), "{}", self.pooler.log());
        assert_eq!(self.column("data_path"), "direct", "{}", self.pooler.log());
    }

    /// Returns the number and the port of each client by its application_name.
    fn shown_clients(&self) -> BTreeMap<String, String> {
        let shown = self.pooler.admin("SHOW CLIENTS").with("database", &self.database);
        let [names, ids, ports] = ["application_name", "id", "port"].map(|name| shown.column(name));
        let rest = ids.into_iter().zip(ports).map(|(id, port)| format!("{id} {port}"));
        names.into_iter().map(str::to_owned).zip(rest).collect()
    }

    /// Returns the time of the last login, in seconds of the day.
    fn last_login(&self) -> u64 {
        let shown = self.pooler.admin("SHOW CLIENTS").with("database", &self.database);
        let seconds = |text: &str| {
            let time = text.split(' ').nth(1).expect("a date and a time");
            time.split(':').fold(0, |all, part| all * 60 + part.parse::<u64>().expect("a number"))
        };
        shown.column("connect_time").into_iter().map(seconds).max().expect("a client")
    }
}

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).expect("the process is there").count()
}

fn named(direct: &Direct, name: &str) -> RawClient {
    let mut client = RawClient::connect(direct.pooler.port());
    let database = direct.database.as_str();
    let values = [("user", "app"), ("database", database), ("application_name", name)];
    client.send(frontend::startup(&values));
    client.read_to_ready();
    client
}

/// Clients in all phases. Five of them keep a backend.
struct Phases {
    resting: RawClient,
    open: RawClient,
    reads: RawClient,
    copies: RawClient,
    pinned: RawClient,
    listens: RawClient,
    partial: RawClient,
    waits: RawClient,
}

const ROWS: usize = 200_000;
/// The number of clients that keep a backend.
const SIZE: u32 = 5;

impl Phases {
    fn reach(direct: &Direct) -> Self {
        let mut phases = Self {
            resting: named(direct, "resting"),
            open: named(direct, "open"),
            reads: named(direct, "reads"),
            copies: named(direct, "copies"),
            pinned: named(direct, "pinned"),
            listens: named(direct, "listens"),
            partial: named(direct, "partial"),
            waits: named(direct, "waits"),
        };
        // Their age tells them from clients that have come just now.
        phases.resting.rows("SELECT pg_sleep(3)");
        phases.resting.rows("CREATE TABLE IF NOT EXISTS copied (a int); SET work_mem = '5MB'");
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
        phases.listens.rows("CREATE TEMP TABLE own (a int); LISTEN news");
        // All backends are taken now.
        phases.waits.send(frontend::query("SELECT 'waited'"));
        eventually("it waits", PATIENCE, || (direct.waits().len() == 1).then_some(()));
        phases
    }

    /// Brings all clients to the ends of their phases.
    fn end(&mut self) {
        assert_eq!(self.open.value("SHOW work_mem"), "6MB");
        self.open.rows("COMMIT");
        assert!(self.waits.read_to_ready().iter().any(|message| message.tag == b'D'));
        assert_eq!(self.resting.value("SHOW work_mem"), "5MB");
        assert_eq!(ask(&mut self.resting, &[execute("s"), frontend::sync()]), "prepared");
        self.partial.send(&frontend::query("SELECT 'whole'")[8..]);
        assert!(self.partial.read_to_ready().iter().any(|message| message.tag == b'D'));
        let rest = self.reads.read_to_ready();
        assert_eq!(rest.iter().filter(|message| message.tag == b'D').count(), ROWS);
        self.copies.send([frontend::copy_data(b"2\n"), frontend::copy_done()].concat());
        assert!(self.copies.read_to_ready().iter().all(|message| message.error().is_none()));
        self.resting.rows("NOTIFY news, 'text'");
        let heard = self.listens.read_until(|message| message.tag == b'A');
        assert_eq!(heard.last().expect("a notification").tag, b'A');
        let unlock = "SELECT pg_advisory_unlock(77)";
        assert_eq!(self.pinned.value(unlock), "t");
    }
}

#[test]
fn clients_in_all_phases_go_on_in_the_new_process() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(SIZE, |setup| setup.workers(2));
    for restarts in [1, 2] {
        let mut phases = Phases::reach(&direct);
        let (clients, mut backends) = (direct.shown_clients(), direct.backends());
        let login = direct.last_login();
        assert_eq!((clients.len(), backends.len()), (8, SIZE as usize));
        (0..restarts).for_each(|_| direct.take_over());
        assert_eq!(direct.shown_clients(), clients);
        // SHOW reckons in whole seconds.
        assert!(direct.last_login().abs_diff(login) <= 1);
        let mut now = direct.backends();
        backends.sort_unstable();
        now.sort_unstable();
        assert_eq!(now, backends);
        assert_eq!(direct.column("cl_waiting"), "1");
        phases.end();
        assert!(direct.backends().len() <= SIZE as usize);
        drop(phases);
        eventually("they have left", PATIENCE, || {
            (direct.column("cl_active") == "0").then_some(())
        });
        assert_eq!(
            direct.client().value("SELECT count(*) FROM copied"),
            (2 * restarts).to_string()
        );
    }
    direct.pooler.log_contains("handed 8 clients, 5 servers");
    let log = direct.pooler.log();
    assert!(!log.contains("cannot be restored"), "{log}");
}

#[test]
fn orders_and_limits_hold_in_the_new_process() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(2, |setup| {
        setup.set("query_timeout", 8).set("idle_transaction_timeout", 2)
    });
    let mut client = direct.client();
    let mut other = direct.client();
    for restarts in [0, 1, 2] {
        if restarts > 0 {
            direct.take_over();
        }
        client.send(frontend::query("SELECT pg_sleep(60)"));
        support::until_running_at(&direct.postgres, &direct.database, "SELECT pg_sleep(60)");
        client.cancel(direct.pooler.port());
        let error = client.read_to_ready().iter().find_map(|message| message.error());
        assert_eq!(error.expect("it was cancelled").code(), "57014");
        // A late request cancels no other client's query.
        other.send(frontend::query("SELECT pg_sleep(0.5), 7"));
        support::until_running_at(&direct.postgres, &direct.database, "SELECT pg_sleep(0.5), 7");
        client.cancel(direct.pooler.port());
        assert!(other.read_to_ready().iter().all(|message| message.error().is_none()));
    }
    // Weir asks what a client does before it judges. This must not look like a cancel request.
    assert_eq!(ask(&mut other, &[frontend::query("SELECT pg_sleep(5), 8 AS n")]), "");
    client.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running_at(&direct.postgres, &direct.database, "SELECT pg_sleep(60)");
    direct.take_over();
    let told = client.read_to_end();
    let texts: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert!(texts.iter().any(|error| error.message() == "query timeout"), "{texts:?}");
    assert_eq!(other.value("SELECT 9"), "9");
    let kill = direct.pooler.admin("SHOW CLIENTS").with("database", &direct.database);
    direct.pooler.console().rows(&format!("KILL_CLIENT {}", kill.only("id")));
    assert!(other.read_to_end().iter().any(|message| message.error().is_some()));
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
        let own = ask(&mut client, &[execute("s"), frontend::sync()]);
        assert_eq!(own, format!("own {number}"));
        assert_eq!(pid(&mut client), backend);
        client.rows("COMMIT");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Logs in and out. A login may be proxied while a process takes over.
fn visit(port: u16, database: &str, number: usize, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut client = RawClient::connect(port);
        client.send(frontend::startup(&[("user", "app"), ("database", database)]));
        let welcome = client.read_to_ready();
        assert!(welcome.iter().all(|message| message.error().is_none()), "{welcome:?}");
        client.rows(&format!("SET app.own = '{number}'"));
        assert_eq!(client.value("SHOW app.own"), number.to_string());
        client.send(frontend::terminate());
    }
}

#[test]
fn clients_at_work_and_logins_do_not_notice_restarts_and_nothing_leaks_strict() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start_with(4, |setup| setup.workers(2));
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (port, database) = (direct.pooler.port(), direct.database.clone());
    std::thread::scope(|scope| {
        let (done, stop) = (&done, &stop);
        let mut threads: Vec<_> = (0..20)
            .map(|number| {
                let client = direct.client();
                scope.spawn(move || work(client, number, done, stop))
            })
            .collect();
        for number in 0..3 {
            let database = &database;
            threads.push(scope.spawn(move || visit(port, database, number, stop)));
        }
        for _ in 0..4 {
            let target = done.load(Ordering::Relaxed) + 100;
            eventually("the clients go on", PATIENCE, || {
                let failed = threads.iter().any(std::thread::ScopedJoinHandle::is_finished);
                (failed || done.load(Ordering::Relaxed) >= target).then_some(())
            });
            direct.take_over();
            assert!(direct.backends().len() <= 4);
        }
        stop.store(true, Ordering::Relaxed);
    });
    eventually("all have left", PATIENCE, || (direct.column("cl_active") == "0").then_some(()));
    let count = |direct: &Direct| {
        let mut files: Vec<_> = direct.backends().into_iter().map(open_files).collect();
        files.sort_unstable();
        (open_files(direct.pooler.pid()), files)
    };
    let before = count(&direct);
    for _ in 0..3 {
        direct.take_over();
    }
    // A connection to the old process may be closing still.
    eventually("nothing is left over", PATIENCE, || (count(&direct) == before).then_some(()));
}

#[test]
fn a_take_over_that_is_given_up_leaves_all_as_it_was() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(3);
    let mut phases = [direct.client(), direct.client(), direct.client(), direct.client()];
    let [resting, open, leaves, loses] = &mut phases;
    resting.rows("SET work_mem = '5MB'");
    leaves.rows("SELECT 1");
    open.rows("BEGIN");
    loses.rows("BEGIN");
    let backend = pid(loses);
    // The only idle backend knows this client then, and needs nothing of Weir to serve it.
    assert_eq!(resting.value("SHOW work_mem"), "5MB");
    let request = restart::request(&direct.pooler);
    let mut successor = restart::stranger(&direct.pooler, restart::SUCCESSOR, &[&request]);
    let mut successor =
        successor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let mut said = BufReader::new(successor.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("it goes on").expect("text"), "b'WS'");
    // Weir keeps still, and backends serve the clients.
    assert_eq!(resting.value("SHOW work_mem"), "5MB");
    assert_eq!(open.value("SELECT 3"), "3");
    direct.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({backend})"));
    leaves.send(frontend::terminate());
    // It answers for no lobby, so its answer is not understood.
    drop(successor.stdin.take());
    assert!(successor.wait().expect("our own child").success());
    eventually("two clients are left", PATIENCE, || {
        (direct.column("cl_active") == "2").then_some(())
    });
    assert!(loses.read_to_end().iter().any(|message| message.error().is_some()));
    open.rows("COMMIT");
    assert_eq!(resting.value("SHOW work_mem"), "5MB");
    assert_eq!(direct.client().value("SELECT 4"), "4");
    direct.pooler.log_contains("this process continues");
    direct.take_over();
    assert_eq!(phases[0].value("SHOW work_mem"), "5MB");
}

/// Both have asked before the first one gets anything.
#[test]
fn of_two_take_overs_only_the_first_is_served() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(2);
    let mut clients = direct.clients(2);
    clients[0].rows("BEGIN");
    let request = restart::request(&direct.pooler);
    // A program that asks when it is told to.
    let late = format!("import sys\nsys.stdin.read()\n{}", restart::IMPOSTOR);
    let mut second = restart::stranger(&direct.pooler, &late, &[&request, "200"]);
    let second = second.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut first = restart::stranger(&direct.pooler, restart::SUCCESSOR, &[&request]);
    // A take-over waits two seconds for a backend that has logged in and is not in the lobby yet.
    direct.postgres.set("weir.control_socket", "/nowhere/direct");
    clients[1].send(frontend::query("SELECT 2"));
    eventually("a server is on its way", PATIENCE, || {
        let servers = direct.pooler.admin("SHOW SERVERS").with("database", &direct.database);
        servers.column("state").contains(&"direct").then_some(())
    });
    let mut first =
        first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let asked = || direct.pooler.log().matches("another process asks to take over").count();
    eventually("the first one asks", PATIENCE, || (asked() == 2).then_some(()));
    let said = support::end_input(second);
    assert!(said.contains("another process takes over"), "{said}");
    let mut said = BufReader::new(first.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("it goes on").expect("text"), "b'WS'");
    // When it gives up, there is room for the next one.
    first.kill().and_then(|()| first.wait()).expect("our own child");
    direct.pooler.log_contains("this process continues");
    clients[0].rows("COMMIT");
    assert!(clients[1].read_to_ready().iter().any(|message| message.tag == b'D'));
    direct.take_over();
    assert_eq!(clients[0].value("SELECT 3"), "3");
}

/// The new process has another opinion of the pool, so the old one keeps its clients.
#[test]
fn clients_of_a_pool_that_changes_stay_with_the_old_process() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(2);
    let mut old = direct.client();
    old.rows("SET work_mem = '8MB'");
    direct.pooler.reconfigure(|ini| ini.set("pool_mode", "transaction"));
    stays(&mut direct, old);
}

/// The keys of TLS connections cannot be handed over.
#[test]
fn clients_whose_servers_have_tls_stay_with_the_old_process() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::begin(2, |setup| setup.set("server_tls_sslmode", "require"));
    direct.postgres.offer_tls(&Authority::new("weir test").server());
    let mut old = direct.client();
    old.rows("SET work_mem = '8MB'");
    assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
    stays(&mut direct, old);
}

fn stays(direct: &mut Direct, mut old: RawClient) {
    let mut process = direct.pooler.begin_take_over();
    eventually("the new process serves", PATIENCE, || {
        // The console itself is the only client there.
        let shown = direct.pooler.console().query("SHOW CLIENTS").rows.len();
        (shown == 1).then_some(())
    });
    let mut new = direct.client();
    assert_eq!(new.value("SELECT 4"), "4");
    assert_eq!(direct.column("data_path"), "direct", "{}", direct.pooler.log());
    assert_eq!(old.value("SHOW work_mem"), "8MB");
    drop(old);
    assert!(process.wait().expect("the old process ends").success());
    assert_eq!(new.value("SELECT 5"), "5");
}

#[test]
fn pgbench_runs_through_three_restarts() {
    if !support::only_weir() {
        return;
    }
    for protocol in ["simple", "prepared"] {
        let mut direct = Direct::start_with(10, |setup| setup.workers(2));
        let database = direct.database.clone();
        support::run(
            direct
                .pooler
                .client_program("pgbench", &database)
                .args(["-i", "-q", "-n", "-I", "dtGp"]),
        );
        let mut command = direct.pooler.client_program("pgbench", &database);
        // Each client has a thread, since pgbench blocks a thread until a statement is prepared.
        command.args(["-n", "-c", "50", "-j", "50", "-T", "12", "-M", protocol]);
        let bench =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pgbench starts");
        let served = |pooler: &Pooler| {
            let shown = pooler.admin("SHOW STATS_TOTALS").with("database", &database);
            shown.sum("xact_count")
        };
        for _ in 0..3 {
            // The counters begin anew with each process.
            eventually("it is at work", PATIENCE, || (served(&direct.pooler) > 100).then_some(()));
            direct.take_over();
            assert_eq!(
                direct.column("cl_active").parse::<u32>().ok().map(|count| count > 0),
                Some(true)
            );
        }
        support::pgbench_ends_well(bench);
    }
}
