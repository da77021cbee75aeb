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
    let postgres = Postgres::shared();
    let database = postgres.database();
    postgres.sql(&database, "CREATE TABLE seen (n serial, what text)");
    postgres.sql(&database, "GRANT ALL ON ALL TABLES IN SCHEMA public TO public");
    postgres.sql(&database, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO public");
    let file = script(text);
    let file = file.to_str().expect("a path of ours");
    let output = directly(&database, &[&["-n", "-f", file], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let rows = postgres.sql(&database, "SELECT what FROM seen ORDER BY n");
    rows.into_iter().flatten().map(Option::unwrap_or_default).collect()
}

#[test]
fn scripts_compute_branch_and_keep_results() {
    if !only_weir() {
        return;
    }
    let text = "\
\\set n 40 + :two
INSERT INTO seen (what) VALUES (:n);
SELECT 7 AS a, NULL AS b, ':n' AS c \\gset got_
\\if :got_a > 5
INSERT INTO seen (what) VALUES (:got_a || '!');
\\else
INSERT INTO seen (what) VALUES ('never');
\\endif
SELECT 1 AS one \\; SELECT 2 AS two \\aset
INSERT INTO seen (what) VALUES ((:one + :two)::text);
\\sleep 1 ms
INSERT INTO seen (what) VALUES (coalesce(:got_b::text, 'null') || :client_id);
";
    // Only the simple protocol supports several statements in one query.
    assert_eq!(seen(text, &["-t", "1", "-D", "two=2"]), ["42", "7!", "3", "null0"]);
}

#[test]
fn values_are_parameters_by_the_other_protocols() {
    if !only_weir() {
        return;
    }
    let text = "\
\\set n 42
INSERT INTO seen (what) VALUES ((:n::int + 1)::text);
SELECT it.s AS s FROM (SELECT 'it''s'::text) it(s) \\gset
INSERT INTO seen (what) VALUES (:s);
";
    for protocol in ["extended", "prepared"] {
        assert_eq!(seen(text, &["-t", "1", "-M", protocol]), ["43", "it's"], "{protocol}");
    }
}

#[test]
fn pipelines_need_one_round_trip_and_the_extended_protocol() {
    if !only_weir() {
        return;
    }
    let text = "\
\\startpipeline
INSERT INTO seen (what) VALUES ('a');
INSERT INTO seen (what) VALUES ('b');
\\syncpipeline
INSERT INTO seen (what) VALUES ('c');
\\endpipeline
";
    for protocol in ["extended", "prepared"] {
        assert_eq!(seen(text, &["-t", "1", "-M", protocol]), ["a", "b", "c"], "{protocol}");
    }
    let file = script(text);
    let database = Postgres::shared().database();
    let output = directly(&database, &["-n", "-t", "1", "-f", file.to_str().expect("ours")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("cannot use pipeline mode with the simple query protocol"));
}

#[test]
fn a_pipeline_may_sleep_while_answers_come() {
    if !only_weir() {
        return;
    }
    let text = "\
\\startpipeline
INSERT INTO seen (what) VALUES ('a');
\\syncpipeline
INSERT INTO seen (what) VALUES ('b');
\\sleep 100 ms
INSERT INTO seen (what) VALUES ('c');
\\endpipeline
";
    for protocol in ["extended", "prepared"] {
        let twice = seen(text, &["-t", "2", "-M", protocol]);
        assert_eq!(twice, ["a", "b", "c", "a", "b", "c"], "{protocol}");
    }
}

/// After an error in a pipeline, the server skips its Parse messages up to the Sync. Those after it
/// are executed.
#[test]
fn a_pipeline_is_tried_again_whatever_of_it_was_prepared() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    for sql in [
        "CREATE TABLE seen (n serial, what text)",
        "CREATE SEQUENCE calls",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO public",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO public",
        "CREATE FUNCTION fail_once() RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('calls') = 1 THEN RAISE SQLSTATE '40001'; END IF; END $$",
    ] {
        postgres.sql(&database, sql);
    }
    let file = script(
        "\\startpipeline\nSELECT fail_once();\nINSERT INTO seen (what) VALUES ('b');\n\
         \\syncpipeline\nINSERT INTO seen (what) VALUES ('c');\n\\endpipeline\n",
    );
    let file = file.to_str().expect("a path of ours");
    let arguments = ["-n", "-t", "2", "-M", "prepared", "--max-tries", "2", "-f", file];
    let output = directly(&database, &arguments);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(figure::<u32>(&output, "total number of retries: "), 1);
    let rows = postgres.sql(&database, "SELECT string_agg(what, '' ORDER BY n) FROM seen");
    assert_eq!(rows, [[Some("cbcbc".to_owned())]]);
}

#[test]
fn a_client_whose_script_never_waits_leaves_the_others_their_turns() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    let file = script("\\if :client_id > 0\nSELECT 1;\n\\endif\n");
    let file = file.to_str().expect("a path of ours");
    let json = open_folder("bench").join("out.json");
    let json = json.to_str().expect("a path of ours");
    let output = directly(&database, &["-n", "-c", "2", "-T", "1", "-f", file, "--json", json]);
    assert!(output.status.success(), "{output:?}");
    let figures = fs::read_to_string(json).expect("it was asked for");
    let fewest = figures.split("\"fewest\": ").nth(1).and_then(|rest| rest.split(',').next());
    let fewest: u32 = fewest.and_then(|count| count.parse().ok()).expect(&figures);
    assert!(fewest > 10, "{figures}");

    let file = script("\\set x 1\n");
    let file = file.to_str().expect("a path of ours");
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

/// The operators have the precedence of pgbench's grammar, which for `~` differs from C's.
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
        text.push_str("\\set x debug(");
        for at in 0..6 {
            if at > 0 {
                text.push_str([" + ", " - ", " * ", " | ", " # ", " & "][below(6)]);
            }
            text.push_str(["", "", "~ ", "- ", "+ ", "- ~ ", "~ - "][below(7)]);
            text.push_str(&below(10).to_string());
        }
        text.push_str([")\n", " < 7)\n", " = ~ 1 + 2)\n", " <> 3 is not null)\n"][below(4)]);
    }
    let file = script(&text);
    let database = Postgres::shared().database();
    let arguments = ["-n", "-t", "1", "-f", file.to_str().expect("a path of ours")];
    let results = |output: Output| -> Vec<String> {
        assert!(output.status.success(), "{output:?}");
        let told = stderr(&output);
        let results = told.lines().filter_map(|line| Some(line.split_once("): ")?.1.to_owned()));
        results.collect()
    };
    let own = results(directly(&database, &arguments));
    let port = Postgres::shared().port();
    let mut pgbench = Postgres::client_program("pgbench", port, &database);
    let theirs = results(run_any(pgbench.args(arguments)));
    assert_eq!(own.len(), 400);
    for ((own, theirs), line) in own.iter().zip(&theirs).zip(text.lines()) {
        assert_eq!(own, theirs, "{line}");
    }
}

#[test]
fn a_mistake_in_a_script_is_told_with_its_line() {
    if !only_weir() {
        return;
    }
    let file = script("SELECT 1;\n\\setshell x date\n");
    let file = file.to_str().expect("a path of ours");
    let output = directly("postgres", &["-n", "-f", file]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let wanted = format!("{file}:2: running programs is not supported in command \"setshell\"");
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
fn serialization_failures_are_tried_again() {
    if !only_weir() {
        return;
    }
    let database = Postgres::shared().database();
    initialise(&database);
    let file = script(
        "BEGIN ISOLATION LEVEL SERIALIZABLE;\n\
         SELECT sum(bbalance) AS sum FROM pgbench_branches \\gset\n\
         UPDATE pgbench_branches SET bbalance = :sum + 1;\nEND;\n",
    );
    let file = file.to_str().expect("a path of ours");
    let tried = ["-n", "-c", "4", "-t", "20", "-f", file, "--max-tries", "1000"];
    let output = directly(&database, &tried);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("processed: 80/80"), "{output:?}");
    // Each acknowledged transaction was executed exactly once.
    let rows = Postgres::shared().sql(&database, "SELECT bbalance::text FROM pgbench_branches");
    assert_eq!(rows, [[Some("80".to_owned())]]);
    let output = directly(&database, &["-n", "-c", "4", "-t", "20", "-f", file]);
    assert!(output.status.success(), "failures are no reason to give up: {output:?}");
    let report = stdout(&output);
    assert!(report.contains("number of failed transactions: "), "{report}");
}
