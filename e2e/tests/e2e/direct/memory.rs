//! The memory that clients of a direct pool cost while they do nothing: that of Weir, and that of the
//! files that it shares with the backends.

use std::fs;

use testkit::{RawClient, Role, eventually, frontend, memory_file_bytes};

use super::{Direct, PATIENCE, ask};
use crate::pool::recycled::{LIMIT, make_tables, touch_tables};
use crate::support;

/// Enough for the parts that grow by steps.
const CLIENTS: usize = 800;

/// Most bytes of a client that has never set anything, and of one with three settings and a
/// statement.
const PLAIN_MAX: usize = 600;
const WITH_STATE_MAX: usize = 5_000;

/// Returns a process's own memory in bytes, without what it shares.
fn own_memory(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kib.expect("a number") * 1024
}

#[test]
fn idle_clients_cost_little() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(2, |setup| setup.set("max_client_conn", 2 * CLIENTS));
    let _first = direct.clients(100);
    let weir = direct.pooler.pid();
    let memory = || own_memory(weir) + memory_file_bytes(weir) as usize;
    let before = memory();
    let each = || memory().saturating_sub(before) / CLIENTS;
    let mut clients = direct.clients(CLIENTS);
    let at_first = each();
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    let plain = each();
    for client in &mut clients {
        client.rows("SET work_mem = '7MB'; SET search_path = 'a'; SET app.tenant = 'b'");
        ask(client, &[frontend::parse("s", "SELECT 1"), frontend::sync()]);
    }
    let with_state = each();
    println!("bytes of a client: {at_first}; served {plain}; with state {with_state}");
    assert!(at_first <= PLAIN_MAX && plain <= PLAIN_MAX, "{at_first}, {plain}");
    assert!(with_state <= WITH_STATE_MAX, "{with_state}");
}

#[test]
fn a_backend_with_much_memory_leaves_the_lobby() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(1, |setup| setup.set("server_max_memory", LIMIT));
    let postgres = &direct.postgres;
    let own = RawClient::login(postgres.port(), Role::APP, &direct.database, Role::APP_PASSWORD);
    make_tables(&mut own.expect("the server lets its own role in"));
    let mut client = direct.client();
    client.rows("BEGIN");
    touch_tables(&mut client);
    let large = client.value("SELECT pg_backend_pid()");
    eventually("it is asked to leave", PATIENCE, || {
        let shown = direct.pooler.admin("SHOW SERVERS").with("close_needed", "1");
        (!shown.column("close_needed").is_empty()).then_some(())
    });
    // It leaves after the transaction.
    assert_eq!(client.value("SELECT pg_backend_pid()"), large);
    client.rows("COMMIT");
    eventually("another backend serves", PATIENCE, || {
        (client.value("SELECT pg_backend_pid()") != large).then_some(())
    });
    assert_eq!(direct.column("data_path"), "direct");
    direct.pooler.log_contains("closing because: server_max_memory exceeded");
}
