//! Programs that never serve, and a pooler that does not answer any more. The supervisor ends them,
//! and the server is not harmed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use testkit::{Builtin, RawClient, Version, eventually};

use super::defects::Stopped;
use super::life::{has_ended, until_replaced};
use crate::support;

/// The time that the supervisor gives a program, and a pooler that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
const LATE: &str = "weir: the pooler has not served within 10 s of its start and is ended";

/// A program that notes each of its starts. `$2` is its connection to the supervisor.
struct Program {
    path: PathBuf,
    pids: PathBuf,
}

impl Program {
    fn new(script: &str) -> Self {
        let folder = testkit::open_folder("stuck");
        let own = Self { path: folder.join("program"), pids: folder.join("pids") };
        let text = format!("#!/bin/sh\necho $$ >>{}\n{script}\n", own.pids.display());
        fs::write(&own.path, text).expect("our own folder");
        fs::set_permissions(&own.path, fs::Permissions::from_mode(0o755)).expect("our own file");
        testkit::give_away(&folder);
        own
    }

    fn start(&self) -> Builtin {
        let program = format!("weir.program = '{}'", self.path.display());
        Builtin::start(Version::Installed, &program)
    }

    /// Waits until it was started this many times. Returns the processes.
    fn starts(&self, count: usize) -> Vec<u32> {
        eventually(&format!("{count} starts"), 3 * PATIENCE, || {
            let text = fs::read_to_string(&self.pids).ok()?;
            let pids: Vec<_> = text.lines().map(|pid| pid.parse().expect("a number")).collect();
            (pids.len() >= count).then_some(pids)
        })
    }
}

fn said(server: &Builtin, text: &str) -> usize {
    server.log().matches(text).count()
}

/// It is ended after ten seconds and started again. Meanwhile the server works, and stops in time.
#[track_caller]
fn is_ended_and_tried_again(script: &str, (stop, limit): (&str, Duration)) {
    let program = Program::new(script);
    let server = program.start();
    let first = program.starts(1)[0];
    let began = Instant::now();
    let mut direct = server.superuser("postgres");
    let backend = direct.value("SELECT pg_backend_pid()");
    // A client is not refused, since the next program may serve.
    let _waits = RawClient::connect(server.pooler_port());
    program.starts(2);
    let took = began.elapsed();
    assert!(took > PATIENCE - Duration::from_secs(1) && took < PATIENCE * 3 / 2, "{took:?}");
    assert!(has_ended(first), "the first one runs still");
    assert_eq!(said(&server, LATE), 1);
    assert_eq!(direct.value("SELECT pg_backend_pid()"), backend);
    assert!(!server.has_crashed());
    drop(direct);
    let took = server.stop_by(stop);
    assert!(took < limit, "{stop}: it took {took:?}");
    for pid in program.starts(2) {
        eventually("the program has ended", PATIENCE, || has_ended(pid).then_some(()));
    }
}

const FAST: (&str, Duration) = ("INT", Duration::from_secs(2));
const SMART: (&str, Duration) = ("TERM", Duration::from_secs(5));

#[test]
fn a_program_that_sleeps_is_ended_and_tried_again() {
    if support::only_weir() {
        is_ended_and_tried_again("exec sleep 600", FAST);
    }
}

#[test]
fn a_program_that_loops_and_ignores_signals_is_ended_and_tried_again() {
    if support::only_weir() {
        is_ended_and_tried_again("trap '' INT QUIT TERM HUP\nwhile :; do :; done", FAST);
    }
}

/// Its child has the sockets, too.
#[test]
fn a_program_with_children_that_writes_garbage_is_ended_and_tried_again() {
    if support::only_weir() {
        let garbage = "head -c 100000 /dev/zero | tr '\\000' '\\001' >&2";
        is_ended_and_tried_again(&format!("sleep 600 &\n{garbage}\nwait"), SMART);
    }
}

/// The text goes to the server's log, which a terminal may show.
#[test]
fn what_a_program_says_is_shown_without_its_control_characters() {
    if !support::only_weir() {
        return;
    }
    let garbage = "head -c 4000 /dev/zero | tr '\\000' 'x'";
    let program = Program::new(&format!(
        "{{ printf '\\033[31m\\001\\377\"%%s'; {garbage}; }} | dd bs=8k iflag=fullblock >&$2\n\
         exec sleep 600"
    ));
    let server = program.start();
    server.log_contains(&["it says \"?[31m??\"%sxxx", "not \"weir 2 ...\""]);
    let starts = program.starts(3);
    assert!(has_ended(starts[0]));
    assert!(!server.log().contains('\u{1b}'));
    assert!(!server.has_crashed());
}

/// It says that it serves, and nothing more is heard of it.
#[test]
fn a_program_that_stops_answering_is_ended_and_tried_again() {
    if !support::only_weir() {
        return;
    }
    // One that closes its connection to the supervisor lives on without the connection.
    support::at_once(
        ["exec sleep 600", "exec sleep 600 >&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-"],
        |rest| {
            let program = Program::new(&format!("eval \"echo 'weir 2 x' >&$2\"\n{rest}"));
            let server = program.start();
            let first = program.starts(1)[0];
            let began = Instant::now();
            program.starts(2);
            assert!(began.elapsed() > PATIENCE - Duration::from_secs(1), "{:?}", began.elapsed());
            assert!(has_ended(first), "{rest}");
            server.log_contains(&["weir: the pooler has not answered for 10 s and is ended"]);
            assert_eq!(server.superuser("postgres").value("SELECT 1"), "1");
            assert!(!server.has_crashed());
            let took = server.stop_by("INT");
            assert!(took < Duration::from_secs(2), "it took {took:?}");
        },
    );
}

/// Experiment E-3: a process of the server's own would restart it with most of these.
#[test]
fn no_exit_status_of_a_pooler_that_has_served_restarts_the_server_strict() {
    if !support::only_weir() {
        return;
    }
    let statuses = ["0", "1", "2", "3", "4", "255"];
    let program = Program::new(&format!(
        "eval \"echo 'weir 2 x' >&$2\"\nset {}\nshift $(($(wc -l <$(dirname $0)/pids) - 1))\n\
         exit ${{1:-0}}",
        statuses.join(" ")
    ));
    let server = program.start();
    let mut direct = server.superuser("postgres");
    let backend = direct.value("SELECT pg_backend_pid()");
    program.starts(statuses.len() + 1);
    for status in statuses {
        server.log_contains(&[&format!("has ended: child process exited with exit code {status}")]);
    }
    assert_eq!(direct.value("SELECT pg_backend_pid()"), backend);
    assert!(!server.has_crashed());
}

/// Its clients would wait for ever.
#[test]
fn a_pooler_that_stops_answering_is_replaced() {
    if !support::only_proxied("the next pooler takes direct clients over") {
        return;
    }
    let server = Builtin::serving("");
    let mut direct = server.superuser("postgres");
    let backend = direct.value("SELECT pg_backend_pid()");
    let mut client = server.client("postgres");
    client.rows("SELECT 1");
    let before = server.pooler_pid();
    let stopped = Stopped::new(before);
    assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
    // It cannot be continued any more.
    std::mem::forget(stopped);
    assert!(has_ended(before));
    assert!(client.read_to_end().iter().all(|message| message.tag != b'Z'));
    server.log_contains(&["weir: the pooler has not answered for 10 s and is ended"]);
    assert_eq!(direct.value("SELECT pg_backend_pid()"), backend);
    assert!(!server.has_crashed());
}

/// One that is only slow is kept.
#[test]
fn a_pooler_that_answers_within_ten_seconds_is_kept() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let mut client = server.client("postgres");
    let pooler = server.pooler_pid();
    for _ in 0..2 {
        let stopped = Stopped::new(pooler);
        server.superuser("postgres").rows("SELECT pg_sleep(6.5)");
        drop(stopped);
        assert_eq!(client.value("SELECT 1"), "1");
    }
    assert_eq!(server.pooler_pid(), pooler);
}
