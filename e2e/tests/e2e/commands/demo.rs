//! `weir demo`: it starts a PostgreSQL with a pooler, without prerequisites, and removes all of it
//! at its end.

mod keys;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{only_weir, run};
use testkit::{poll_until, pooler_binary, postgres_program};

#[test]
fn the_demo_shows_a_way_in_and_leaves_nothing_core() {
    if !only_weir() {
        return;
    }
    // With a folder of the test's own, the test can see the files that are left over.
    let folder = testkit::open_folder("demo");
    let mut demo = Command::new(pooler_binary())
        .arg("demo")
        .env("TMPDIR", &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let output = BufReader::new(demo.stdout.take().expect("a pipe was asked for"));
    let mut lines = output.lines().map_while(Result::ok);
    let url = lines
        .find_map(|line| {
            line.split('"').find(|word| word.starts_with("postgresql://")).map(str::to_owned)
        })
        .expect("a connection string");
    let own = std::fs::metadata(format!("/proc/{}", demo.id())).expect("it runs");
    assert_ne!(own.uid(), 0, "the demo serves as root");
    let mut psql = Command::new(postgres_program("psql"));
    let answer = run(psql.args(["-X", "-A", "-t", "-c", "SELECT 'it works'", &url]));
    assert_eq!(answer, "it works\n");
    let mut psql = Command::new(postgres_program("psql"));
    let console = format!("{}pgbouncer", url.strip_suffix("demo").expect("its database"));
    let pools = run(psql.args(["-X", "-A", "-t", "-c", "SHOW POOLS", &console]));
    let pool = pools.lines().find(|line| line.starts_with("demo|")).expect("the pool just used");
    assert!(pool.contains("|auto|"), "{pools}");
    let is_live =
        |line: String| ["pinned", "tx/s  p99 ", "wait p99 "].iter().all(|word| line.contains(word));
    assert!(lines.any(is_live), "no line tells what the pooler does");

    run(Command::new("sh").args(["-c", "kill -INT \"$1\"", "kill", &demo.id().to_string()]));
    let reader = std::thread::spawn(move || lines.count());
    let status = poll_until(Duration::from_secs(20), || demo.try_wait().expect("our own child"));
    if status.is_none() {
        let _ = demo.kill();
        let _ = demo.wait();
    }
    assert_eq!(status.expect("it ends at SIGINT").code(), Some(0));
    reader.join().expect("no panic");
    let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_lab_is_done_with_no_failure_in_any_mode() {
    if !only_weir() {
        return;
    }
    let folder = testkit::open_folder("lab");
    let mut lab = Command::new(pooler_binary());
    // Its exit status is not 0 if a transaction has failed or a mode has not pooled.
    let table = run(lab.args(["demo", "--bench", "1"]).env("TMPDIR", &folder));
    for word in ["direct", "auto", "session", "transaction", "statement", "tps"] {
        assert!(table.contains(word), "no {word} in\n{table}");
    }
}

#[test]
fn the_demo_of_a_cluster_changes_its_primary_and_loses_nothing() {
    if !only_weir() {
        return;
    }
    let folder = testkit::open_folder("demo-cluster");
    let mut drill = Command::new(pooler_binary());
    let table = run(drill.args(["demo", "--cluster", "--drill", "2"]).env("TMPDIR", &folder));
    for line in ["1  switchover  a     b", "2  kill -9     b     ", "all checks have passed"] {
        assert!(table.contains(line), "{line}: {table}");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0);
}

#[test]
fn a_drill_with_asynchronous_standbys_counts_what_is_lost() {
    if !only_weir() {
        return;
    }
    let folder = testkit::open_folder("demo-asynchronous");
    let mut drill = Command::new(pooler_binary());
    let drill = drill.args(["demo", "--cluster", "--drill", "2", "--max-loss", "10000000"]);
    let table = run(drill.env("TMPDIR", &folder));
    for line in ["lost  doubled  at risk", "2  kill -9     b     ", "all checks have passed"] {
        assert!(table.contains(line), "{line}: {table}");
    }
}

#[test]
fn with_the_library_the_demo_shows_a_lock_that_no_text_shows() {
    if !only_weir() {
        return;
    }
    let folder = testkit::open_folder("demo-library");
    let library =
        format!("--library={}", testkit::library_file(testkit::Version::Installed).display());
    let mut demo = Command::new(pooler_binary())
        .args(["demo", &library])
        .env("TMPDIR", &folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let output = BufReader::new(demo.stdout.take().expect("a pipe was asked for"));
    let mut lines = output.lines().map_while(Result::ok);
    let pin = lines.find(|line| line.contains("advisory lock") && line.contains('|'));
    run(Command::new("sh").args(["-c", "kill -INT \"$1\"", "kill", &demo.id().to_string()]));
    let reader = std::thread::spawn(move || lines.count());
    let status = poll_until(Duration::from_secs(20), || demo.try_wait().expect("our own child"));
    if status.is_none() {
        let _ = demo.kill();
        let _ = demo.wait();
    }
    reader.join().expect("no panic");
    assert!(pin.expect("SHOW PINS").trim_start().starts_with("demo"));
    assert_eq!(status.expect("it ends at SIGINT").code(), Some(0));
    let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
