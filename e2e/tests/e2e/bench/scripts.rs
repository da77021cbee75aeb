//! Custom scripts: their commands, and the handling of errors in them.

use std::{fs, path::PathBuf, process::Output};

use crate::support::{only_weir, run_any};
use testkit::{Postgres, free_port, open_folder};

use super::{directly, figure, initialise, processed, stderr, stdout};

/// Writes a file with this text.
pub(super) fn script(text: &str) -> PathBuf {
    let path = open_folder("bench").join("script.sql");
    fs::write(&path, text).expect("the folder is ours");
    path
}

/// Runs the script. Returns the rows that it has written to the table `seen`.
fn seen(text: &str, arguments: &[&str]) -> Vec<String> {
    seen_by(text, |database, file| directly(database, &[&["-n", "-f", file], arguments].concat()))
}

/// Lets `run` run the script in a database. Returns the rows that it has written to the table `seen`.
fn seen_by(text: &str, run: impl FnOnce(&str, &str) -> Output) -> Vec<String> {
    let postgres = Postgres::shared();
    let database = postgres.database();
    postgres.sql(&database, "CREATE TABLE seen (n serial, what text)");
    postgres.sql(&database, "GRANT ALL ON ALL TABLES IN SCHEMA public TO public");
    postgres.sql(&database, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO public");
    let file = script(text);
    let file = file.to_str().expect("a path of ours");
    let output = run(&database, file);
    assert!(output.status.success(), "{output:?}");
    let rows = postgres.sql(&database, "SELECT what FROM seen ORDER BY n");
    rows.into_iter().flatten().map(Option::unwrap_or_default).collect()
}

#[test]
fn values_are_text_by_the_simple_protocol_and_parameters_by_the_others() {
    if !only_weir() {
        return;
    }
    let text = "\
\\set n random(42, 42) % 43
INSERT INTO seen (what) VALUES ((:n::int + 1)::text);
\\set n :n - :client_id * 2 - :scale
\\sleep 1 ms
INSERT INTO seen (what) VALUES (:n::int::text);
";
    for protocol in ["simple", "extended", "prepared"] {
        let twice = seen(text, &["-t", "2", "-M", protocol, "-s", "7"]);
        assert_eq!(twice, ["43", "35", "43", "35"], "{protocol}");
    }
}

#[test]
fn a_client_whose_script_never_waits_leaves_the_others_their_turns() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    let file = script("\\set x 1\n");
    let file = file.to_str().expect("a path of ours");
    let json = open_folder("bench").join("out.json");
    let json = json.to_str().expect("a path of ours");
    let output = directly(&database, &["-n", "-c", "2", "-T", "1", "-f", file, "--json", json]);
    assert!(output.status.success(), "{output:?}");
    let figures = fs::read_to_string(json).expect("it was asked for");
    let fewest = figures.split("\"fewest\": ").nth(1).and_then(|rest| rest.split(',').next());
    let fewest: u32 = fewest.and_then(|count| count.parse().ok()).expect(&figures);
    assert!(fewest > 10, "{figures}");

    for how in [["-t", "20000", "-n"], ["-t", "20000", "-R1e9"], ["-t", "20", "-C"]] {
        let output = directly(&database, &[&["-n", "-f", file], &how[..]].concat());
        let count = how[1];
        assert!(stdout(&output).contains(&format!("processed: {count}/{count}\n")), "{output:?}");
    }
}

#[test]
fn a_rate_that_cannot_be_kept_makes_no_run_longer() {
    if !only_weir() {
        return;
    }
    let file = script("SELECT pg_sleep(0.01);\n");
    let file = file.to_str().expect("a path of ours");
    let output =
        directly(&Postgres::shared().database(), &["-n", "-T", "1", "-R", "1000", "-f", file]);
    assert!(output.status.success(), "{output:?}");
    // A thousand transactions are due, and at most a hundred are possible in the time.
    assert!(processed(&output) <= 101, "{output:?}");
}

#[test]
fn expressions_come_to_what_pgbench_makes_of_them() {
    if !only_weir() {
        return;
    }
    let mut seed = 1_u32;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % limit
    };
    let mut text = String::new();
    for _ in 0..400 {
        text.push_str("\\set x ");
        for at in 0..6 {
            if at > 0 {
                text.push_str([" + ", " - ", " * ", " / ", " % "][below(5)]);
            }
            text.push_str(["", "", "- ", "+ ", "- - ", "-"][below(6)]);
            text.push_str(&(1 + below(9)).to_string());
        }
        text.push_str("\nINSERT INTO seen (what) VALUES (:x);\n");
    }
    let own = seen(&text, &["-t", "1"]);
    let theirs = seen_by(&text, |database, file| {
        let port = Postgres::shared().port();
        let mut pgbench = Postgres::client_program("pgbench", port, database);
        run_any(pgbench.args(["-n", "-t", "1", "-f", file]))
    });
    assert_eq!(own.len(), 400);
    for ((own, theirs), line) in own.iter().zip(&theirs).zip(text.lines().step_by(2)) {
        assert_eq!(own, theirs, "{line}");
    }
}

#[test]
fn a_mistake_in_a_script_is_told_with_its_line() {
    if !only_weir() {
        return;
    }
    let file = script("SELECT 1;\n\\gset\n");
    let file = file.to_str().expect("a path of ours");
    let output = directly("postgres", &["-n", "-f", file]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wanted = format!("{file}:2: invalid command in command \"gset\"");
    assert!(stderr(&output).contains(&wanted), "{output:?}");
}

#[test]
fn clients_that_meet_an_error_give_up_and_the_first_is_shown() {
    if !only_weir() {
        return;
    }
    let file = script("SELECT 1 / (:client_id - 1);\n");
    let json = open_folder("bench").join("out.json");
    let output = directly(
        &Postgres::shared().database(),
        &[
            "-n",
            "-c",
            "3",
            "-t",
            "5",
            "-f",
            file.to_str().expect("ours"),
            "--json",
            json.to_str().expect("ours"),
        ],
    );
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let report = stdout(&output);
    assert!(report.contains("processed: 10/15"), "{report}");
    assert!(report.contains("number of clients that gave up: 1"), "{report}");
    let error = "client 1 script 0 aborted in command 0 query 0: ERROR:  division by zero";
    assert!(report.contains(&format!("first error: {error}")), "{report}");
    assert!(stderr(&output).contains("Run was aborted"), "{output:?}");
    let json = fs::read_to_string(json).expect("it was asked for");
    assert!(json.contains("\"transactions\": 10") && json.contains(error), "{json}");
    assert!(json.contains("\"fewest\": 0") && json.contains("\"most\": 5"), "{json}");
    assert!(json.contains("\"latencies_us\": {"), "{json}");
}

#[test]
fn missing_tables_and_missing_databases_are_clear_errors() {
    if !only_weir() {
        return;
    }
    let empty = directly(&Postgres::shared().database(), &["-S"]);
    assert_eq!(empty.status.code(), Some(1), "{empty:?}");
    assert!(stderr(&empty).contains("weir bench -i"), "{empty:?}");
    let nowhere = directly("no_such_database", &["-S"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(stderr(&nowhere).contains("database \"no_such_database\" does not exist"));
    let port = free_port().to_string();
    let silent = directly("postgres", &["-S", "-h", "127.0.0.1", "-p", &port]);
    let wanted =
        format!("connection to server at \"127.0.0.1\", port {port} failed: Connection refused\n");
    assert!(stderr(&silent).contains(&wanted), "{silent:?}");
}

#[test]
fn a_serialization_failure_is_counted_and_ends_no_client() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    initialise(&database);
    let file = script(
        "BEGIN ISOLATION LEVEL SERIALIZABLE;\nSELECT sum(bbalance) FROM pgbench_branches;\n\
         UPDATE pgbench_branches SET bbalance = bbalance + 1;\nEND;\n",
    );
    let file = file.to_str().expect("a path of ours");
    let output = directly(&database, &["-n", "-c", "4", "-t", "50", "-f", file]);
    assert!(output.status.success(), "{output:?}");
    let failed: u32 = figure(&output, "number of failed transactions: ");
    assert!(failed > 0, "{output:?}");
    // Each acknowledged transaction was executed exactly once.
    let done = 200 - failed;
    assert!(stdout(&output).contains(&format!("processed: {done}/200\n")), "{output:?}");
    let rows = Postgres::shared().sql(&database, "SELECT bbalance::text FROM pgbench_branches");
    assert_eq!(rows, [[Some(done.to_string())]]);
}
