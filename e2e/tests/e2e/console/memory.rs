//! SHOW SOCKETS, SHOW ACTIVE_SOCKETS and SHOW MEM: the memory for connections and statements.

use std::time::Duration;

use testkit::{Pooler, eventually, frontend};

use crate::support;

/// Returns `used` and `memtotal` of a row of SHOW MEM.
fn memory(pooler: &Pooler, name: &str) -> (u64, u64) {
    let row = pooler.admin("SHOW MEM").with("name", name);
    (row.sum("used"), row.sum("memtotal"))
}

#[test]
fn prepared_statements_are_counted_in_memory_and_let_go() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let text = format!("SELECT 1 /* {} */", "x".repeat(5000));
    let mut clients = [pooler.client(&database), pooler.client(&database)];
    for client in &mut clients {
        for name in ["one", "two"] {
            client.send([frontend::parse(name, &text), frontend::sync()].concat());
            client.read_to_ready();
        }
    }
    let (texts, bytes) = memory(&pooler, "prepared_statement_cache");
    assert_eq!(texts, 1, "one text, by whatever names");
    assert!((5000..10_000).contains(&bytes), "{bytes}");
    assert_eq!(memory(&pooler, "client_prepared_statement_cache").0, 4);
    let (on_servers, bytes) = memory(&pooler, "server_prepared_statement_cache");
    assert!((1..=2).contains(&on_servers) && bytes > 0, "{on_servers}: {bytes}");
    assert_eq!(memory(&pooler, "client_cache").0, 2);
    drop(clients);
    eventually("the clients' names are gone", Duration::from_secs(20), || {
        (memory(&pooler, "client_prepared_statement_cache") == (0, 0)).then_some(())
    });
}

#[test]
fn show_active_sockets_has_buffered_bytes() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let mut client = pooler.client(&database);
    client.rows("SELECT 1");
    let sockets = pooler.admin("SHOW SOCKETS").with("database", &database);
    assert_eq!(sockets.with("type", "C").only("state"), "cl_active");
    assert_eq!(sockets.with("type", "S").only("state"), "sv_idle");
    assert_eq!(pooler.admin("SHOW ACTIVE_SOCKETS").with("database", &database).rows.len(), 0);
    // Weir buffers a Parse with a name until it is complete.
    let parse = frontend::parse("name", "SELECT 1");
    client.send(&parse[..10]);
    let active = eventually("ten bytes are kept", Duration::from_secs(20), || {
        let active = pooler.admin("SHOW ACTIVE_SOCKETS").with("database", &database);
        (active.rows.len() == 1).then_some(active)
    });
    assert_eq!((active.only("recv_pos"), active.only("pkt_avail")), ("10", "10"));
    client.send([&parse[10..], &frontend::sync()].concat());
    client.read_to_ready();
    assert_eq!(pooler.admin("SHOW ACTIVE_SOCKETS").with("database", &database).rows.len(), 0);
}
