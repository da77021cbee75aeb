//! Large messages, and clients that read slowly: their data is not kept in memory.

use std::io::Write;
use std::time::Duration;

use crate::support;
use testkit::{Pooler, RawClient, eventually, frontend};

/// The growth that buffers and the allocator may cause, in KiB. The data itself is much larger.
const GROWTH_MAX_KIB: u64 = 6 * 1024;
const MIB: usize = 1024 * 1024;

/// Returns a pooler that has done some of everything, so that only the growth by the test is
/// measured.
fn warm_pooler() -> (Pooler, String) {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.workers(2).start();
    let sql = "SELECT repeat('x', 1000) FROM generate_series(1, 5000)";
    let mut clients: Vec<RawClient> = (0..4).map(|_| pooler.client(&database)).collect();
    for client in &mut clients {
        client.rows(sql);
    }
    (pooler, database)
}

#[track_caller]
fn assert_no_growth(pooler: &Pooler, before: u64) {
    let grown = pooler.resident_kib().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "grown by {grown} KiB");
}

#[test]
fn a_client_that_does_not_read_its_result_costs_no_memory_core() {
    let (pooler, database) = warm_pooler();
    let before = pooler.resident_kib();
    let mut slow = pooler.client(&database);
    let sql = "SELECT repeat('x', 10000) FROM generate_series(1, 20000)";
    slow.send(frontend::query(sql));
    // The server stops writing once its buffers and Weir's are full.
    let blocked = format!(
        "SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND wait_event = 'ClientWrite'"
    );
    let mut superuser = testkit::Postgres::shared().superuser("postgres");
    eventually("the server waits for its client", Duration::from_secs(15), || {
        superuser.rows(&blocked).pop()
    });
    assert_no_growth(&pooler, before);
    assert_eq!(pooler.client(&database).value("SELECT 'others'"), "others");

    let (mut rows, mut bytes, mut peak) = (0, 0, 0);
    slow.read_until(|message| {
        rows += usize::from(message.tag == b'D');
        bytes += message.body.len();
        if rows % 1000 == 0 {
            peak = peak.max(pooler.resident_kib());
        }
        message.tag == b'Z'
    });
    assert_eq!(rows, 20000);
    assert!(bytes > 200_000_000);
    assert!(peak < before + GROWTH_MAX_KIB, "grown by {} KiB", peak - before);
}

#[test]
fn a_parameter_of_64_mib_passes_without_being_kept() {
    let (pooler, database) = warm_pooler();
    let mut client = pooler.client(&database);
    let before = pooler.resident_kib();
    let value = "x".repeat(64 * MIB);
    let request = [
        frontend::parse("", "SELECT length($1::text)"),
        frontend::bind("", "", &[Some(&value)]),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat();
    let peak = send_watched(&pooler, &mut client, &request);
    let messages = client.read_to_ready();
    let row = messages.iter().find(|m| m.tag == b'D').expect("a row");
    assert_eq!(row.row(), [Some((64 * MIB).to_string())]);
    assert!(peak < before + GROWTH_MAX_KIB, "grown by {} KiB", peak - before);
}

#[test]
fn a_simple_query_of_64_mib_passes_without_being_kept_core() {
    let (pooler, database) = warm_pooler();
    let mut client = pooler.client(&database);
    let before = pooler.resident_kib();
    let sql = format!("SELECT length('{}')", "x".repeat(64 * MIB));
    let peak = send_watched(&pooler, &mut client, &frontend::query(&sql));
    let messages = client.read_to_ready();
    assert_eq!(messages[1].row(), [Some((64 * MIB).to_string())]);
    assert!(peak < before + GROWTH_MAX_KIB, "grown by {} KiB", peak - before);
}

#[test]
fn a_value_of_64_mib_comes_back_without_being_kept() {
    let (pooler, database) = warm_pooler();
    let mut client = pooler.client(&database);
    let before = pooler.resident_kib();
    assert_eq!(client.value("SELECT repeat('x', 64 * 1024 * 1024)").len(), 64 * MIB);
    assert_no_growth(&pooler, before);
}

#[test]
fn a_large_copy_in_and_out_passes_without_being_kept() {
    let (pooler, database) = warm_pooler();
    let mut client = pooler.client(&database);
    client.rows("CREATE UNLOGGED TABLE t (line text)");
    let before = pooler.resident_kib();
    client.send(frontend::query("COPY t FROM STDIN"));
    client.read_until(|message| message.tag == b'G');
    let line = [vec![b'x'; 999], vec![b'\n']].concat();
    let piece = frontend::copy_data(&line.repeat(64)).repeat(16);
    for _ in 0..64 {
        client.send(&piece);
        assert_no_growth(&pooler, before);
    }
    client.send(frontend::copy_done());
    assert_eq!(client.read_to_ready()[0].text(), "COPY 65536");

    client.send(frontend::query("COPY t TO STDOUT"));
    let mut lines = 0;
    client.read_until(|message| {
        lines += usize::from(message.tag == b'd');
        message.tag == b'Z'
    });
    assert_eq!(lines, 65536);
    assert_no_growth(&pooler, before);
}

#[test]
fn a_pipeline_whose_replies_nobody_reads_does_not_grow() {
    let (pooler, database) = warm_pooler();
    let mut client = pooler.client(&database);
    let before = pooler.resident_kib();
    let one = [
        frontend::parse("", "SELECT repeat('x', 10000)"),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ]
    .concat();
    // The bytes are sent by another thread, since sending blocks when all buffers are full.
    let mut writer = client.writer();
    let sender = std::thread::spawn(move || writer.write_all(&one.repeat(10000)));
    let mut ready = 0;
    client.read_until(|message| {
        ready += usize::from(message.tag == b'Z');
        if ready % 500 == 0 && message.tag == b'Z' {
            assert_no_growth(&pooler, before);
        }
        ready == 10000
    });
    sender.join().expect("no panic").expect("all was sent");
}

/// Sends a large request in pieces. Returns the highest resident memory seen, in KiB.
fn send_watched(pooler: &Pooler, client: &mut RawClient, request: &[u8]) -> u64 {
    let mut peak = 0;
    for piece in request.chunks(MIB) {
        client.send(piece);
        peak = peak.max(pooler.resident_kib());
    }
    peak
}

/// A read that fills the buffer exactly cannot show that no more data follows. The second read must
/// not keep a server for a client that has sent everything.
#[test]
fn a_request_that_fills_the_buffer_exactly_leaves_no_server_behind() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.start();
    let mut client = pooler.client(&database);
    for buffer in [16 * 1024, 64 * 1024] {
        let padding = buffer - 1 - 4 - "SELECT 1 --\0".len();
        let sql = format!("SELECT 1 --{}", "x".repeat(padding));
        assert_eq!(frontend::query(&sql).len(), buffer);
        assert_eq!(client.value(&sql), "1");
        eventually("the server is given back", Duration::from_secs(5), || {
            let [active] = pooler.pool_sums(&database, ["sv_active"]);
            (active == 0).then_some(())
        });
    }
}

/// A worker pauses reading of its streams for moments (`sockets/rest.rs`). Meanwhile other streams
/// of the same worker end, are cancelled, or release their server.
#[test]
fn streams_that_rest_lose_nothing_and_hold_up_nobody_strict() {
    let (pooler, database) = warm_pooler();
    let sql = "COPY (SELECT n, repeat(md5(n::text), 3) FROM generate_series(1, 60000) n) TO STDOUT";
    let copy = |client: &mut RawClient| -> Vec<u8> {
        client.send(frontend::query(sql));
        let mut bytes = Vec::new();
        client.read_until(|message| {
            if message.tag == b'd' {
                bytes.extend_from_slice(&message.body);
            }
            message.tag == b'Z'
        });
        bytes
    };
    let expected = copy(&mut pooler.client(&database));
    assert_eq!(expected.iter().filter(|byte| **byte == b'\n').count(), 60_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = pooler.client(&database);
                for round in 0..3 {
                    assert!(copy(&mut client) == expected, "bytes were lost, doubled or moved");
                    assert_eq!(client.value(&format!("SELECT {round}")), round.to_string());
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..5 {
                    // If a client leaves in the middle of a result, Weir reads the rest of it from
                    // the server.
                    let mut client = pooler.client(&database);
                    client.send(frontend::query(sql));
                    let mut pieces = 0;
                    client.read_until(|message| {
                        pieces += usize::from(message.tag == b'd');
                        pieces == 20_000
                    });
                }
            });
        }
        scope.spawn(|| {
            let mut client = pooler.client(&database);
            for n in 0..200 {
                assert_eq!(client.value(&format!("SELECT {n}")), n.to_string());
            }
        });
    });
}
