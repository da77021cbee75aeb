//! Debian's tools `pcp_*` of Pgpool-II 4.3 at Weir, compared with what they print at Pgpool-II; and
//! DETACH and ATTACH.

mod converted;
mod tools;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{Etcd, Pooler, Postgres, RawClient, Setup, eventually, free_port, open_folder};

use self::tools::{MD5, Pgpool, Tools, tools_of, words};
use super::change::ALL;
use super::hooks::Hooks;
use super::{PATIENCE, cluster, until_nodes_are};
use crate::{routing, support};

/// Has Weir serve the tools at this port.
fn served(setup: Setup, port: u16) -> Setup {
    let file = open_folder("pcp").join("pcp.conf");
    fs::write(&file, format!("pcpadmin:{MD5}\nviewer:{MD5}:read-only\n")).expect("our own folder");
    setup.set("pcp_port", port).set("pcp_file", file.display()).set("pcp_compat", "4.3")
}

/// Weir before a primary and a standby, which may run reads.
fn started(nodes: &[Postgres], keys: &str) -> (Pooler, Tools) {
    let port = free_port();
    let pidfile = open_folder("pid").join("weir.pid");
    let setup = routing::setup(nodes, keys, "").set("pidfile", pidfile.display());
    let pooler = served(setup, port).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    let tools = tools_of(&pooler, port);
    (pooler, tools)
}

/// Returns the lines of pcp_node_info without the time of the last change, which is two words.
fn without_time(text: &str) -> Vec<Vec<&str>> {
    let lines = words(text).into_iter();
    lines.map(|mut line| line.drain(..line.len().saturating_sub(2)).collect()).collect()
}

#[test]
fn the_tools_print_at_weir_what_they_print_at_pgpool_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let (pooler, tools) = started(&nodes, "");
    let pgpool = Pgpool::before(&nodes);
    let theirs = &pgpool.tools;
    // Pgpool-II has no password for SCRAM, and calls a node `up` when a client was there.
    nodes[0].sql("postgres", "CREATE ROLE trusted LOGIN; GRANT auth_trust TO trusted");
    nodes[1].wait_until_like(&nodes[0]);
    let mut through =
        RawClient::login(pgpool.port, "trusted", "postgres", "").expect("it is trusted");
    assert_eq!(through.value("SELECT 1"), "1");
    assert_eq!(tools.ask("node_count", &[]), theirs.ask("node_count", &[]));
    eventually("both tell the same of the nodes", PATIENCE, || {
        let [own, other] = [&tools, theirs].map(|one| one.ask("node_info", &[]));
        (without_time(&own) == without_time(&other)).then_some(())
    });
    let own = tools.ask("node_info", &["-n", "1", "-v"]);
    let labels = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
    };
    assert_eq!(labels(&own), labels(&theirs.ask("node_info", &["-n", "1", "-v"])));

    let [own, other] = [&tools, theirs].map(|one| one.ask("health_check_stats", &["-n", "1"]));
    let (own, other) = (words(&own).concat(), words(&other).concat());
    assert_eq!(own[..5], other[..5], "{own:?} {other:?}");
    let total: u64 = own[7].parse().expect("a number");
    assert!(total > 0, "{own:?}");

    let shape = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
        names.take(6).collect()
    };
    let [own, other] = [&tools, theirs].map(|one| one.ask("pool_status", &[]));
    assert_eq!(shape(&own), shape(&other));
    assert!(own.contains("backend_hostname1"), "{own}");

    for one in [&tools, theirs] {
        let why = one.refusal("pcpadmin", "watchdog_info", &[]);
        assert!(why.contains("watchdog is not enabled"), "{why}");
    }
    let shows = pooler.admin("SHOW POOL_NODES");
    assert_eq!(shows.column("role"), ["primary", "standby"]);
    assert_eq!(shows.column("replication_state"), ["", "streaming"]);
    assert_eq!(pooler.admin("SHOW POOL_VERSION").rows.len(), 1);
}

#[test]
fn members_are_nodes_of_the_watchdog() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let (etcd, hooks) = (Etcd::start(1), Hooks::new());
    let fence = hooks.keys(&["fence"]);
    let keys = format!("failover=own etcd='{}' member='w1:6432' {fence}", etcd.addresses());
    let (pooler, tools) = started(&nodes, &keys);
    eventually("it leads", PATIENCE, || {
        (pooler.admin("SHOW MEMBERS").only("state") == "leader").then_some(())
    });
    let told = tools.ask("watchdog_info", &[]);
    let told = words(&told).concat();
    assert!(told.ends_with(&["w1", "6432", "0", "4", "LEADER", "0", "MEMBER"]), "{told:?}");
    let verbose = tools.ask("watchdog_info", &["-v"]);
    assert!(verbose.contains("QUORUM EXIST"), "{verbose}");
}

#[test]
fn clients_are_processes() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let (pooler, tools) = started(&nodes, "");
    let mut client = pooler.client("app");
    client.rows("BEGIN");
    let pid = tools.ask("proc_count", &[]).trim().to_owned();
    let clients = pooler.admin("SHOW CLIENTS EXTENDED");
    assert_eq!(clients.with("database", "app").only("id"), pid);
    let info = tools.ask("proc_info", &["-P", &pid]);
    assert!(info.starts_with("app app ") && info.contains("Idle in transaction"), "{info}");
    let backend = client.value("SELECT pg_backend_pid()");
    let verbose = tools.ask("proc_info", &["-v", "-a"]);
    let has = |label: &str, value: &str| {
        verbose.lines().any(|line| {
            line.split_once(':')
                .is_some_and(|(name, own)| name.trim() == label && own.trim() == value)
        })
    };
    assert!(has("Backend PID", &backend) && has("Backend ID", "0"), "{backend} {verbose}");
    client.rows("COMMIT");
    assert_eq!(tools.refusal("pcpadmin", "proc_info", &["-P", "1"]), refused("invalid process ID"));
    let console = pooler.admin("SHOW POOL_PROCESSES");
    assert_eq!((console.only("pool_pid"), console.only("database")), (&*pid, "app"));
}

/// The tools' form of an error.
fn refused(why: &str) -> String {
    format!("ERROR:  {why}\n\n")
}

#[test]
fn a_detached_standby_gets_no_reads_until_it_is_attached_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = routing::cluster(1);
    let (mut pooler, tools) = started(&nodes, "");
    let mut client = routing::until_routed(&pooler, &nodes[0]);
    tools.order("detach_node", &["-n", "1"]);
    let unfit = until_nodes_are(&pooler, &["writable", "unfit"]);
    assert_eq!(unfit.column("reason")[1], "detached by an operator");
    assert!(!routing::runs_on_a_standby(&mut client, &nodes[0]));
    let info = tools.ask("node_info", &["-n", "1"]);
    assert!(info.contains(" 3 ") && info.contains(" down up standby standby "), "{info}");
    let events = pooler.admin("SHOW EVENTS");
    let order = "DETACH 'main' NODE 'b' command issued by PCP user 'pcpadmin'";
    assert!(events.column("text").contains(&order), "{events:?}");
    pooler.log_contains(order);

    // It is an intent, which a restart and an online restart keep.
    pooler.restart();
    until_nodes_are(&pooler, &["writable", "unfit"]);
    pooler.take_over();
    until_nodes_are(&pooler, &["writable", "unfit"]);
    let why = pooler.try_admin("SWITCHOVER app TO b").error.expect("it is refused");
    assert!(why.message().contains("start_command"), "{why:?}");

    pooler.admin("ATTACH main NODE b");
    until_nodes_are(&pooler, &["writable", "readable"]);
    routing::until_routed(&pooler, &nodes[0]);
    pooler.admin("DETACH main NODE b");
    until_nodes_are(&pooler, &["writable", "unfit"]);
    tools.order("attach_node", &["-n", "1"]);
    until_nodes_are(&pooler, &["writable", "readable"]);

    let primary = "node a is the primary of cluster main, and a primary is not detached: make another \
                   node the primary with SWITCHOVER first";
    assert_eq!(tools.refusal("pcpadmin", "detach_node", &["-n", "0"]), refused(primary));
    let message = |command: &str| {
        let error = pooler.try_admin(command).error.expect("it is refused");
        error.message().to_owned()
    };
    assert_eq!(message("DETACH main NODE a"), primary);
    assert_eq!(message("DETACH main NODE x"), "cluster main has no node x: it has a, b");
    assert_eq!(message("ATTACH other NODE b"), "no such cluster: other");
}

#[test]
fn without_a_pidfile_a_standby_stays_detached_over_an_online_restart() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let mut pooler = routing::setup(&nodes, "", "").start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    pooler.admin("DETACH main NODE b");
    until_nodes_are(&pooler, &["writable", "unfit"]);
    pooler.take_over();
    let unfit = until_nodes_are(&pooler, &["writable", "unfit"]);
    assert_eq!(unfit.column("reason")[1], "detached by an operator");
    pooler.admin("ATTACH main NODE b");
    until_nodes_are(&pooler, &["writable", "readable"]);
}

#[test]
fn a_promotion_by_the_tool_is_a_switchover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let hooks = Hooks::new();
    let (pooler, tools) = started(&nodes, &hooks.keys(&ALL));
    let mut client = pooler.client("app");
    assert_eq!(client.value("SELECT 1"), "1");
    let why = "node 1 is not the primary: use --switchover, which makes it the primary";
    assert_eq!(tools.refusal("pcpadmin", "promote_node", &["-n", "1"]), refused(why));
    tools.order("promote_node", &["-n", "0"]);
    thread::scope(|scope| {
        let order = scope.spawn(|| tools.order("promote_node", &["-n", "1", "-s"]));
        hooks.serve("stop", "a", 0, || a.shut_down());
        hooks.serve("rejoin", "a", 0, || a.rejoin(b));
        order.join().expect("it succeeds");
    });
    until_nodes_are(&pooler, &["readable", "writable"]);
    assert_eq!(client.value("SELECT 1"), "1", "the client has noticed nothing");
    let info = tools.ask("node_info", &[]);
    let roles: Vec<_> = words(&info).into_iter().map(|line| line[6].to_owned()).collect();
    assert_eq!(roles, ["standby", "primary"]);
    let why = "recovery is not supported: Weir does not rebuild nodes; rejoin_command makes the old \
               primary of a switchover a standby";
    assert_eq!(tools.refusal("pcpadmin", "recovery_node", &["-n", "0"]), refused(why));
}

#[test]
fn the_tools_reload_and_stop_weir_and_read_only_users_do_not() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let (mut pooler, tools) = started(&nodes, "");
    assert_eq!(tools.run_as("viewer", "node_count", &[]).out, "2\n");
    for (tool, arguments) in
        [("reload_config", &[][..]), ("stop_pgpool", &[]), ("detach_node", &["-n", "1"])]
    {
        assert_eq!(tools.refusal("viewer", tool, arguments), refused("this user is read-only"));
    }
    // A wrong password costs a second, and the connections wait for each other.
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let output = tools.run_as("guesser", "node_count", &[]);
                let is_refused = output.errors.contains("authentication failed");
                assert!(!output.succeeded && is_refused, "{output:?}");
            });
        }
    });
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());

    let port = free_port();
    pooler.reconfigure(|ini| ini.set("pcp_port", port));
    tools.order("reload_config", &[]);
    let tools = tools_of(&pooler, port);
    pooler.take_over();
    eventually("the new process serves PCP", PATIENCE, || {
        (tools.run("node_count", &[]).out == "2\n").then_some(())
    });
    let client = pooler.client("app");
    tools.order("stop_pgpool", &["-m", "smart"]);
    eventually("it waits for its clients", PATIENCE, || {
        pooler.log().contains("SHUTDOWN WaitForClients").then_some(())
    });
    assert!(pooler.is_running());
    drop(client);
    assert!(pooler.wait_for_exit().success());
}

#[test]
fn pgpool_show_has_the_keys_of_weir() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let (pooler, _) = started(&nodes, "");
    assert_eq!(pooler.admin("PGPOOL SHOW pcp_compat").only("pcp_compat"), "4.3");
    let all = pooler.admin("PGPOOL SHOW ALL");
    assert!(all.column("item").contains(&"backend_port1"), "{all:?}");
    let error = pooler.try_admin("PGPOOL SET client_idle_limit = 5").error.expect("it is refused");
    assert!(error.message().contains("SET key = arg"), "{error:?}");
}
