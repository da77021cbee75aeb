//! The console's commands for clients that backends serve, and what SHOW tells of them.

use std::time::Duration;

use testkit::{Table, eventually, frontend};

use super::{Direct, PATIENCE, pid};
use crate::support;

impl Direct {
    fn shown(&self, what: &str) -> Table {
        self.pooler.admin(&format!("SHOW {what}")).with("database", &self.database)
    }

    fn stat(&self, name: &str) -> u64 {
        self.shown("STATS").sum(name)
    }
}

#[test]
fn kill_client_ends_a_client_at_rest_in_a_transaction_and_one_that_keeps_its_backend() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut other = direct.client();
    other.rows("SET work_mem = '5MB'");
    for begin in ["SELECT 1", "BEGIN", "SELECT pg_advisory_lock(1)"] {
        let others = direct.shown("CLIENTS").column("id").len();
        let mut client = direct.client();
        client.rows(begin);
        let all = eventually("it is shown", PATIENCE, || {
            let all: Vec<u64> =
                direct.shown("CLIENTS").column("id").iter().flat_map(|id| id.parse()).collect();
            (all.len() == others + 1).then_some(all)
        });
        // Numbers grow.
        let id = all.iter().max().expect("a client");
        direct.pooler.admin(&format!("KILL_CLIENT {id}"));
        let told = client.read_to_end();
        let errors: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
        assert_eq!(errors[0].message(), "admin forced disconnect", "{begin}");
        assert_eq!(other.value("SHOW work_mem"), "5MB", "{begin}");
    }
}

#[test]
fn clients_and_servers_show_their_states_and_their_links() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut clients = direct.clients(2);
    clients[0].rows("BEGIN");
    let backend = pid(&mut clients[0]).to_string();
    let active = |what: &str| direct.shown(what).with("state", "active");
    eventually("one is active", PATIENCE, || {
        (active("CLIENTS").column("ptr").len() == 1).then_some(())
    });
    assert_eq!(active("SERVERS").only("remote_pid"), backend);
    assert_eq!(active("SERVERS").only("link"), active("CLIENTS").only("ptr"));
    assert_eq!(active("CLIENTS").only("link"), active("SERVERS").only("ptr"));
    clients[1].send(frontend::query("SELECT 1"));
    eventually("one waits", PATIENCE, || (direct.column("cl_waiting") == "1").then_some(()));
    assert_eq!(direct.column("sv_active"), "1");
    clients[0].rows("COMMIT");
    clients[1].read_to_ready();
    eventually("all are idle", PATIENCE, || {
        let idle = |what: &str| direct.shown(what).with("state", "idle").column("ptr").len();
        ((idle("CLIENTS"), idle("SERVERS")) == (2, 1)).then_some(())
    });
    assert_eq!((direct.column("sv_active"), direct.column("sv_idle")), ("0".into(), "1".into()));
    assert_eq!(direct.column("cl_waiting"), "0");
}

#[test]
fn queries_bytes_and_times_are_counted() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let names = ["total_xact_count", "total_query_count", "total_received", "total_sent"];
    let times = ["total_xact_time", "total_query_time"];
    let read =
        |names: &[&str]| -> Vec<u64> { names.iter().map(|name| direct.stat(name)).collect() };
    let (before, earlier) = (read(&names), read(&times));
    let mut client = direct.client();
    client.rows("BEGIN");
    client.rows("SELECT pg_sleep(0.2)");
    std::thread::sleep(Duration::from_millis(400));
    client.rows("COMMIT");
    client.rows(&format!("SELECT '{}', repeat('x', 50000)", "y".repeat(20_000)));
    eventually("both are counted", PATIENCE, || {
        (direct.stat(names[0]) == before[0] + 2).then_some(())
    });
    let after = read(&names);
    assert_eq!(after[1] - before[1], 4);
    assert!((20_000..30_000).contains(&(after[2] - before[2])), "{before:?} {after:?}");
    assert!((70_000..80_000).contains(&(after[3] - before[3])), "{before:?} {after:?}");
    let later = read(&times);
    let (xact, query) = (later[0] - earlier[0], later[1] - earlier[1]);
    assert!(xact > 600_000 && query > 200_000 && query < xact - 350_000, "{xact} {query}");
    // They stay when clients and backends leave.
    drop(client);
    direct.pooler.admin("RECONNECT");
    eventually("the server is replaced", PATIENCE, || direct.backends().is_empty().then_some(()));
    assert!(read(&names).iter().zip(&after).all(|(now, then)| now >= then));
    assert!(read(&times).iter().zip(&later).all(|(now, then)| now >= then));
}

#[test]
fn suspended_clients_wait_and_go_on() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut clients = direct.clients(2);
    clients[0].rows("SET work_mem = '6MB'");
    clients[1].rows("BEGIN");
    let mut console = direct.pooler.console();
    console.send(frontend::query("SUSPEND"));
    // A transaction goes on, and SUSPEND waits for it.
    assert_eq!(clients[1].value("SELECT 1"), "1");
    clients[1].rows("COMMIT");
    assert!(console.read_to_ready().iter().all(|message| message.error().is_none()));
    clients[0].send(frontend::query("SHOW work_mem"));
    clients[1].send(frontend::query("SELECT 2"));
    for client in &mut clients {
        client.set_timeout(Duration::from_millis(300));
        assert!(client.try_read().is_err(), "a suspended client is served");
        client.set_timeout(PATIENCE);
    }
    console.rows("RESUME");
    for client in &mut clients {
        assert!(client.read_to_ready().iter().any(|message| message.tag == b'D'));
    }
    assert_eq!(clients[0].value("SHOW work_mem"), "6MB");
}

#[test]
fn suspend_ends_clients_whose_transactions_last_too_long() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(2, |setup| setup.set("suspend_timeout", 1));
    let mut clients = direct.clients(2);
    clients[1].rows("BEGIN");
    let mut console = direct.pooler.console();
    console.rows("SUSPEND");
    let told = clients[1].read_to_end();
    let errors: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert_eq!(errors[0].message(), "suspend_timeout");
    console.rows("RESUME");
    assert_eq!(clients[0].value("SELECT 3"), "3");
}

#[test]
fn a_killed_client_in_a_transaction_is_told() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut client = direct.client();
    client.rows("BEGIN");
    direct.pooler.admin(&format!("KILL {}", direct.database));
    let told = client.read_to_end();
    let errors: Vec<_> = told.iter().filter_map(|message| message.error()).collect();
    assert_eq!(errors[0].message(), "database removed");
}

/// A lobby has room for as many servers as there may be.
#[test]
fn a_pool_can_grow_while_it_is_direct() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(1);
    direct.pooler.reconfigure(|ini| ini.set("default_pool_size", 25));
    direct.pooler.reload();
    let mut clients = direct.clients(25);
    for client in &mut clients {
        client.rows("BEGIN");
    }
    assert_eq!(direct.backends().len(), 25);
    for client in &mut clients {
        client.rows("COMMIT");
    }
}
