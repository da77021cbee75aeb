//! Helpers of several topics: the pool modes, the usual poolers, and client programs.

use std::fmt;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use testkit::{Flavour, Pooler, Postgres, RawClient, Role, Setup, eventually, flavour, poll_until};

/// The modes that both poolers support.
pub(crate) const MODES: [&str; 3] = ["session", "transaction", "statement"];

/// A pool mode, and whether consecutive logins or transactions get different servers of at least
/// four.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) mode: &'static str,
    in_turn: bool,
}

/// The ways in which programs and drivers must work as on a direct connection.
pub(crate) const WAYS: [Way; 4] = [
    Way { mode: "session", in_turn: false },
    Way { mode: "session", in_turn: true },
    Way { mode: "auto", in_turn: false },
    Way { mode: "auto", in_turn: true },
];

impl Way {
    /// Returns the way of a mode as the defaults have it.
    pub(crate) const fn of(mode: &'static str) -> Self {
        Self { mode, in_turn: false }
    }

    pub(crate) fn set(self, setup: Setup) -> Setup {
        let setup = setup.set("pool_mode", self.mode);
        match self.in_turn {
            true => setup.set("min_pool_size", 4).set("server_round_robin", 1),
            false => setup,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.mode, if self.in_turn { ", in turn" } else { "" })
    }
}

/// Returns whether the pooler under test is Weir. Prints a note if it is not.
pub(crate) fn only_weir() -> bool {
    let ours = flavour() == Flavour::Weir;
    if !ours {
        eprintln!("left out: PgBouncer does this otherwise");
    }
    ours
}

/// Returns whether the pooler under test is Weir and probes its servers. With the library, servers
/// report their state and are not probed.
pub(crate) fn only_probed() -> bool {
    let reports = testkit::library_is_everywhere();
    if reports {
        eprintln!("left out: it is about the question, which is not asked with the library");
    }
    only_weir() && !reports
}

/// Returns whether the pooler under test is Weir and its pools are proxied. Prints why the test does
/// not concern direct pools, if these are tested (`WEIR_LIBRARY=direct`).
pub(crate) fn only_proxied(why: &str) -> bool {
    let is_direct = testkit::pools_are_direct();
    if is_direct {
        eprintln!("left out in direct pools: {why}");
    }
    only_weir() && !is_direct
}

/// Returns a pooler in this mode and a new database behind it. Both have the same name.
pub(crate) fn pooler(mode: &str) -> (Pooler, String) {
    let (setup, database) = setup(mode);
    (setup.start(), database)
}

/// Returns the setup of a pooler in this mode, to be configured further, and a new database behind
/// it.
pub(crate) fn setup(mode: &str) -> (Setup, String) {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let setup = Pooler::before(postgres).set("pool_mode", mode).database(&database, "");
    (setup, database)
}

/// Connects to the server directly, as role `app`.
#[track_caller]
pub(crate) fn direct(database: &str) -> RawClient {
    RawClient::login(Postgres::shared().port(), Role::APP, database, Role::APP_PASSWORD)
        .expect("the server lets its own role in")
}

/// Waits until exactly `count` clients of a database wait for a server.
#[track_caller]
pub(crate) fn until_waiting(pooler: &Pooler, database: &str, count: u64) {
    eventually(&format!("{count} clients wait"), Duration::from_secs(10), || {
        (pooler.pool_sums(database, ["cl_waiting"]) == [count]).then_some(())
    });
}

/// Waits until a backend of `database` is running `sql`.
#[track_caller]
pub(crate) fn until_running(database: &str, sql: &str) {
    until_running_at(Postgres::shared(), database, sql);
}

/// Waits until a backend of `database` is running `sql`, in any cluster.
#[track_caller]
pub(crate) fn until_running_at(postgres: &Postgres, database: &str, sql: &str) {
    let running = format!(
        "SELECT 1 FROM pg_stat_activity \
         WHERE datname = '{database}' AND state = 'active' AND query = '{sql}'"
    );
    let mut superuser = postgres.superuser("postgres");
    eventually(&format!("{sql} runs"), Duration::from_secs(10), || {
        superuser.rows(&running).pop().map(|_| ())
    });
}

/// Ends a backend of the shared server, and waits until it is gone.
#[track_caller]
pub(crate) fn terminate_and_wait(backend: u32) {
    let mut superuser = Postgres::shared().superuser("postgres");
    superuser.rows(&format!("SELECT pg_terminate_backend({backend}, 10000)"));
}

/// Sends SIGKILL to one process.
pub(crate) fn kill9(pid: u32) {
    run(Command::new("sh").args(["-c", "kill -9 \"$1\"", "kill"]).arg(pid.to_string()));
}

/// Sends SIGINT to one process.
pub(crate) fn interrupt(pid: u32) {
    run(Command::new("sh").args(["-c", "kill -INT \"$1\"", "kill"]).arg(pid.to_string()));
}

/// Waits until the pooler has room for one more client, and logs in.
#[track_caller]
pub(crate) fn until_let_in(pooler: &Pooler, database: &str) -> RawClient {
    eventually("there is room for a client", Duration::from_secs(10), || {
        pooler.login(Role::APP, database, Role::APP_PASSWORD).ok()
    })
}

/// Tries all cases at the same time, each in a thread. Most of their time is waiting.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        let cases: Vec<_> = cases.into_iter().map(|case| scope.spawn(move || test(case))).collect();
        let failures: Vec<_> = cases.into_iter().filter_map(|case| case.join().err()).collect();
        if let Some(first) = failures.into_iter().next() {
            std::panic::resume_unwind(first);
        }
    });
}

/// Runs a program, which must end within a minute and with status 0. Returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = run_any(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// Waits for a pgbench that still runs, and had no error.
#[track_caller]
/// Ends the input of a program, and returns what it prints until its end.
pub(crate) fn end_input(mut program: Child) -> String {
    drop(program.stdin.take());
    let output = program.wait_with_output().expect("our own child");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn pgbench_ends_well(mut bench: Child) {
    assert!(matches!(bench.try_wait(), Ok(None)), "it was over too early");
    let output = bench.wait_with_output().expect("pgbench ends");
    let words = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}\n{complaints}");
    assert!(words.contains("number of failed transactions: 0 (0.000%)"), "{words}");
    assert!(!complaints.contains("error"), "{complaints}");
}

/// Runs a program, which must end within a minute.
#[track_caller]
pub(crate) fn run_any(command: &mut Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let stdout = drain(child.stdout.take().expect("a pipe was asked for"));
    let stderr = drain(child.stderr.take().expect("a pipe was asked for"));
    let status = poll_until(Duration::from_secs(60), || child.try_wait().expect("our own child"));
    if status.is_none() {
        let _ = child.kill();
    }
    let status = child.wait().expect("our own child");
    let collect = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().expect("no panic");
    Output { status, stdout: collect(stdout), stderr: collect(stderr) }
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
