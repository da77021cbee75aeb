//! COPY within pipelines: Syncs that are part of the data stream, failures, and late messages.

use super::{Read, Step, assert_same, extended, ready, send};
use testkit::frontend;

const COPY_IN: &str = "COPY t FROM STDIN";

#[test]
fn copy_in_by_simple_query_core() {
    assert_same(&[
        send(&[frontend::query(COPY_IN)]),
        Read(b'G', 1),
        send(&[
            frontend::copy_data(b"10\tten\n11\tele"),
            frontend::copy_data(b"ven\n"),
            frontend::copy_done(),
        ]),
        ready(1),
        send(&[frontend::query("SELECT * FROM t ORDER BY n")]),
        ready(1),
    ]);
}

#[test]
fn copy_in_with_its_data_in_the_same_write() {
    assert_same(&[
        send(&[
            frontend::query(COPY_IN),
            frontend::copy_data(b"10\tten\n"),
            frontend::copy_done(),
            frontend::query("SELECT count(*) FROM t"),
        ]),
        ready(2),
    ]);
}

#[test]
fn copy_out_by_both_protocols_core() {
    assert_same(&[
        send(&[
            frontend::query("COPY t TO STDOUT"),
            frontend::parse("", "COPY t TO STDOUT"),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            extended("SELECT 'after'", &[]),
            frontend::sync(),
        ]),
        ready(2),
    ]);
}

#[test]
fn copy_in_by_extended_query_core() {
    assert_same(&[
        send(&[
            frontend::parse("", COPY_IN),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::flush(),
        ]),
        Read(b'G', 1),
        send(&[frontend::copy_data(b"20\ttwenty\n"), frontend::copy_done(), frontend::sync()]),
        ready(1),
        send(&[frontend::query("SELECT count(*) FROM t")]),
        ready(1),
    ]);
}

#[test]
fn a_sync_before_the_copy_data_is_ignored_by_the_server() {
    assert_same(&[
        send(&[
            frontend::parse("", COPY_IN),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::sync(),
        ]),
        Read(b'G', 1),
        send(&[
            frontend::copy_data(b"20\ttwenty\n"),
            frontend::sync(),
            frontend::flush(),
            frontend::copy_data(b"21\ttwenty-one\n"),
            frontend::copy_done(),
            frontend::sync(),
        ]),
        ready(1),
        send(&[frontend::query("SELECT count(*) FROM t")]),
        ready(1),
    ]);
}

#[test]
fn a_failed_copy_in_is_an_error_and_no_more() {
    assert_same(&[
        send(&[frontend::query(COPY_IN)]),
        Read(b'G', 1),
        send(&[frontend::copy_data(b"30\tthirty\n"), frontend::copy_fail("changed my mind")]),
        ready(1),
        send(&[frontend::query("SELECT count(*) FROM t")]),
        ready(1),
    ]);
}

#[test]
fn a_failed_copy_in_by_extended_query_skips_to_the_sync() {
    assert_same(&[
        send(&[
            frontend::parse("", COPY_IN),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::flush(),
        ]),
        Read(b'G', 1),
        send(&[
            frontend::copy_fail("changed my mind"),
            extended("SELECT 'skipped'", &[]),
            frontend::sync(),
            extended("SELECT 'after'", &[]),
            frontend::sync(),
        ]),
        ready(2),
    ]);
}

#[test]
fn data_that_the_server_refuses_ends_the_copy_while_more_of_it_comes() {
    assert_same(&[
        send(&[frontend::query(COPY_IN)]),
        Read(b'G', 1),
        send(&[frontend::copy_data(b"not a number\tx\n")]),
        // The server ends the copy here. The client's data after it is discarded.
        ready(1),
        send(&[
            frontend::copy_data(b"31\tlate\n"),
            frontend::copy_data(b"32\tlate\n"),
            frontend::copy_done(),
            frontend::query("SELECT count(*) FROM t"),
        ]),
        ready(1),
    ]);
}

#[test]
fn a_copy_fail_that_comes_late_is_thrown_away() {
    assert_same(&[
        send(&[frontend::query("SELECT 1")]),
        ready(1),
        send(&[frontend::copy_fail("late"), frontend::query("SELECT 2")]),
        ready(1),
    ]);
}

#[test]
fn copy_data_alone_gets_no_answer() {
    assert_same(&[
        send(&[frontend::copy_data(b"1\tone\n"), frontend::copy_done()]),
        send(&[frontend::query("SELECT 'answered'")]),
        ready(1),
    ]);
}

#[test]
fn copy_in_and_out_in_one_simple_query() {
    assert_same(&[
        send(&[frontend::query(&format!("SELECT 1; {COPY_IN}; COPY t TO STDOUT; SELECT 2"))]),
        Read(b'G', 1),
        send(&[frontend::copy_data(b"40\tforty\n"), frontend::copy_done()]),
        ready(1),
    ]);
}

#[test]
fn a_copy_whose_statement_fails_takes_no_data() {
    assert_same(&[
        send(&[
            frontend::query("COPY nowhere FROM STDIN"),
            frontend::copy_data(b"1\n"),
            frontend::copy_done(),
            frontend::query("SELECT 'after'"),
        ]),
        ready(2),
    ]);
}

#[test]
fn a_pipeline_that_fails_before_its_copy_swallows_the_data() {
    assert_same(&[
        send(&[
            extended("SELECT 1/0", &[]),
            frontend::parse("", COPY_IN),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::copy_data(b"50\tfifty\n"),
            frontend::copy_done(),
            frontend::sync(),
            frontend::query("SELECT count(*) FROM t"),
        ]),
        ready(2),
    ]);
}

/// A copy of the extended protocol that has begun.
fn begun() -> [Step; 2] {
    [
        send(&[
            frontend::parse("", COPY_IN),
            frontend::bind("", "", &[]),
            frontend::execute("", 0),
            frontend::flush(),
        ]),
        Read(b'G', 1),
    ]
}

/// Data after which the pooler has not seen the error yet.
fn much_data() -> Vec<u8> {
    let row = frontend::copy_data(format!("60\t{}\n", "x".repeat(1_000)).as_bytes());
    row.repeat(2_000)
}

#[test]
fn a_sync_behind_the_error_of_a_copy_is_answered_core() {
    let bad = || frontend::copy_data(b"not a number\tx\n");
    for end in [frontend::copy_done(), frontend::copy_fail("late"), Vec::new()] {
        for syncs in [1, 3] {
            let [start, go] = begun();
            let sync = frontend::sync().repeat(syncs);
            let data = send(&[bad(), sync, much_data(), end.clone(), frontend::query("SELECT 1")]);
            assert_same(&[start, go, data, ready(syncs + 1)]);
        }
    }
}

#[test]
fn a_sync_before_the_error_of_a_copy_is_ignored_core() {
    let bad = || frontend::copy_data(b"not a number\tx\n");
    for end in [frontend::copy_done(), frontend::copy_fail("late"), Vec::new()] {
        let [start, go] = begun();
        let skipped = frontend::query("SELECT 'skipped'");
        let sync = frontend::sync;
        let data = send(&[sync(), bad(), much_data(), end.clone(), skipped, sync()]);
        assert_same(&[start, go, data, ready(1), send(&[frontend::query("SELECT 1")]), ready(1)]);
    }
}

#[test]
fn a_sync_in_a_copy_that_ends_well_core() {
    let [start, go] = begun();
    let row = frontend::copy_data(b"70\tseventy\n");
    let data = send(&[frontend::sync(), row, frontend::copy_done(), frontend::query("SELECT 1")]);
    assert_same(&[start, go, data, ready(1)]);
}
