//! Reads of a cluster's clients go to its standbys, and nobody notices but the primary.

mod begun;
mod cancels;
mod faults;
mod freshness;
mod lists;
mod monotonic;
mod orphans;
mod quiet;
mod schema;
mod settings;

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Pooler, Postgres, RawClient, Setup, eventually, frontend};

use crate::crosstalk::{Dice, visit};
use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// A primary and its standbys, with a function that tells the node and that no judge suspects.
pub(crate) fn cluster(standbys: usize) -> Vec<Postgres> {
    furnished(Postgres::start_cluster(standbys))
}

fn furnished(nodes: Vec<Postgres>) -> Vec<Postgres> {
    // Otherwise a standby gets a commit when the primary happens to flush its log.
    for line in ["ALTER SYSTEM SET synchronous_commit = on", "SELECT pg_reload_conf()"] {
        nodes[0].sql("postgres", line);
    }
    nodes[0].sql(
        "postgres",
        "CREATE TABLE acts (id bigint, act text); GRANT ALL ON acts TO app;
         GRANT CREATE ON SCHEMA public TO app;
         CREATE FUNCTION here() RETURNS int LANGUAGE internal STABLE AS 'inet_server_port'",
    );
    for standby in &nodes[1..] {
        standby.wait_until_like(&nodes[0]);
    }
    nodes
}

/// A pooler before these nodes, which are called a, b, c. Reads of its database `app` may go to
/// standbys.
pub(crate) fn setup(nodes: &[Postgres], cluster: &str, keys: &str) -> Setup {
    let names = ["a", "b", "c"].into_iter().zip(nodes);
    let list = names.map(|(name, node)| format!("{name}=127.0.0.1:{}", node.port()));
    let list = list.collect::<Vec<_>>().join(", ");
    Pooler::before(&nodes[0])
        .set("pool_mode", "auto")
        .cluster("main", &format!("nodes='{list}' password=weir-secret {cluster}"))
        .database_at("app", &format!("cluster=main dbname=postgres reads=standby {keys}"))
}

fn here(client: &mut RawClient) -> u16 {
    client.value("SELECT here()").parse().expect("a port")
}

/// Does a read of this client run on a standby now?
pub(crate) fn runs_on_a_standby(client: &mut RawClient, primary: &Postgres) -> bool {
    here(client) != primary.port()
}

/// Waits until a standby has all that this client has written and read.
#[track_caller]
fn until_fresh(client: &mut RawClient, primary: &Postgres) {
    eventually("a standby is fresh", PATIENCE, || runs_on_a_standby(client, primary).then_some(()));
}

/// Waits until reads of new clients run on standbys.
#[track_caller]
pub(crate) fn until_routed(pooler: &Pooler, primary: &Postgres) -> RawClient {
    eventually("reads go to a standby", PATIENCE, || {
        let mut client = pooler.client("app");
        (here(&mut client) != primary.port()).then_some(client)
    })
}

#[test]
fn reads_run_on_standbys_and_all_else_on_the_primary_core() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let primary = nodes[0].port().to_string();
    let standbys = [nodes[1].port().to_string(), nodes[2].port().to_string()];
    for text in ["SELECT here()", "WITH x AS (SELECT here() AS p) TABLE x", "VALUES (here())"] {
        assert!(standbys.contains(&client.value(text)), "{text}");
    }
    for text in [
        "SELECT here() FROM (SELECT 1 FOR UPDATE) x",
        "SELECT here() WHERE pg_advisory_xact_lock(1) IS NOT NULL",
        "SELECT inet_server_port()",
        "/* weir: primary */ SELECT here()",
        "/*NO LOAD BALANCE*/ SELECT here()",
    ] {
        assert_eq!(client.value(text), primary, "{text}");
    }
    // All but a read counts as a write, which the standbys must have first.
    for (text, ports) in [
        ("/* weir: standby */ SELECT inet_server_port()", &standbys[..]),
        ("/* weir: node=b */ SELECT here()", &standbys[..1]),
        ("/* weir: node=c */ SELECT here()", &standbys[1..]),
    ] {
        eventually(text, PATIENCE, || ports.contains(&client.value(text)).then_some(()));
    }
    // A write that no judge sees is refused by the standby, and runs on the primary.
    let refused = "/* weir: standby */ INSERT INTO acts VALUES (1) RETURNING here()";
    assert_eq!(client.value(refused), primary);
    // Also for clients whose server at the standby has served others.
    for _ in 0..6 {
        assert_eq!(pooler.client("app").value(refused), primary);
    }
    consoles_tell_the_places(&pooler);
}

fn consoles_tell_the_places(pooler: &Pooler) {
    let routes = pooler.admin("SHOW ROUTES");
    for (reason, place) in [
        ("read", "standby"),
        ("locks", "primary"),
        ("node", "primary"),
        ("hint", "primary"),
        ("own write", "primary"),
        ("refused", "primary"),
    ] {
        let row = routes.with("reason", reason);
        assert_eq!((row.only("place"), row.only("user")), (place, "app"), "{routes:?}");
        assert!(row.sum("requests") > 0 && !row.only("description").is_empty());
    }
    for (text, judges, place) in [
        ("SELECT 1", &["text", "catalogs", "a", "b", "c"][..], "standby"),
        ("SELECT pg_advisory_lock(1)", &["text"], "primary"),
        ("SELECT lo_get(1)", &["text", "catalogs"], "primary"),
        ("/* weir: primary */ SELECT 1;", &["hint"], "primary"),
    ] {
        let told = pooler.admin(&format!("EXPLAIN ROUTE {text}"));
        assert_eq!(told.column("judge"), judges, "{text}");
        assert_eq!(told.column("place").last(), Some(&place), "{text}: {told:?}");
    }
    let pools = pooler.admin("SHOW NODE_POOLS");
    assert_eq!(pools.column("node"), ["a", "b", "c"]);
    assert_eq!(pools.column("place"), ["primary", "standby", "standby"]);
    let all = pooler.admin("SHOW POOLS").with("database", "app");
    assert_eq!(all.column("user"), ["app"], "the pools of standbys have no rows of their own");
}

#[test]
fn what_functions_and_views_hide_runs_on_the_primary_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    nodes[0].sql(
        "postgres",
        "CREATE SEQUENCE numbers; GRANT ALL ON SEQUENCE numbers TO app;
         CREATE FUNCTION draw() RETURNS bigint LANGUAGE sql AS $$SELECT nextval('numbers')$$;
         CREATE VIEW drawn AS SELECT draw() AS number, here();
         GRANT SELECT ON drawn TO app;
         CREATE FUNCTION locks() RETURNS int LANGUAGE plpgsql STABLE AS
         $$BEGIN PERFORM pg_advisory_xact_lock(7); RETURN here(); END$$;
         CREATE FUNCTION port(at int DEFAULT inet_server_port()) RETURNS int LANGUAGE sql STABLE
         AS 'SELECT $1'",
    );
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let primary = nodes[0].port().to_string();
    assert_eq!(client.value("SELECT draw()"), "1");
    assert_eq!(client.value("SELECT here FROM drawn"), primary);
    assert_eq!(client.value("SELECT locks()"), primary);
    assert_eq!(client.value("SELECT port()"), primary);
    // A function that was made just now. The standby would run it.
    let mut others: Vec<_> = (0..5).map(|_| until_routed(&pooler, &nodes[0])).collect();
    client.rows("CREATE VIEW locking AS SELECT locks() AS here");
    for other in &mut others {
        assert_eq!(other.value("SELECT here FROM locking"), primary);
    }
}

#[test]
fn a_session_is_the_same_on_both_servers_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let ports = [nodes[0].port(), nodes[1].port()].map(|port| port.to_string());
    client.rows("SET app.tenant = 'seven'");
    client.rows("SET search_path = other, public");
    client.send(
        [
            frontend::parse("one", "SELECT current_setting('app.tenant'), here(), $1::int"),
            frontend::sync(),
        ]
        .concat(),
    );
    client.read_to_ready();
    let run = |client: &mut RawClient, statement: &str| {
        let batch = [
            frontend::bind("", statement, &[Some("5")]),
            frontend::execute("", 0),
            frontend::sync(),
        ];
        client.send(batch.concat());
        let rows: Vec<_> = client.read_to_ready();
        let row = rows.iter().find(|message| message.tag == b'D').expect("a row").row();
        row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()
    };
    let mut seen = [0; 2];
    for _ in 0..30 {
        client.rows("INSERT INTO acts VALUES (1)");
        for _ in 0..2 {
            let row = run(&mut client, "one");
            assert_eq!((&*row[0], &*row[2]), ("seven", "5"));
            seen[ports.iter().position(|port| *port == row[1]).expect("a node")] += 1;
            thread::sleep(Duration::from_millis(70));
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    // Requests that do not wait for each other: a read, a write, a read of it.
    for id in 100..150 {
        let write = format!("INSERT INTO acts VALUES ({id})");
        let read = "SELECT max(id) FROM acts";
        client
            .send([frontend::query(read), frontend::query(&write), frontend::query(read)].concat());
        client.read_to_ready();
        client.read_to_ready();
        let answers = client.read_to_ready();
        let row = answers.iter().find(|message| message.tag == b'D').expect("a row").row();
        assert_eq!(row[0].as_ref(), Some(&id.to_string()));
    }
    assert_eq!(client.value("SHOW search_path"), "other, public");
}

#[test]
fn a_client_hears_the_parameters_of_the_primary() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    // PostgreSQL tells its role by `in_hot_standby`, and drivers look at it.
    assert_eq!(nodes[1].superuser("postgres").parameters["in_hot_standby"], "on");
    let pooler = setup(&nodes, "", "").start();
    until_routed(&pooler, &nodes[0]);
    for _ in 0..10 {
        let mut client = pooler.client("app");
        assert_eq!(client.parameters["in_hot_standby"], "off");
        client.send(frontend::query("SELECT here()"));
        let told = client.read_to_ready();
        assert!(told.iter().all(|message| message.tag != b'S'), "{told:?}");
        let row = told.iter().find(|message| message.tag == b'D').expect("a row").row();
        assert_eq!(row[0], Some(nodes[1].port().to_string()));
        assert_eq!(client.value("SHOW in_hot_standby"), "off");
        assert_eq!(client.value("SHOW transaction_read_only"), "off");
    }
}

#[test]
fn a_read_leaves_a_standby_whose_pool_is_full() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "pool_size=1").start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    let [a, b, c] = [0, 1, 2].map(|at| nodes[at].port());
    let occupy = |node: &str| {
        let mut client = pooler.client("app");
        client.send(frontend::query(&format!("/* weir: node={node} */ SELECT pg_sleep(60)")));
        client
    };
    let sleeps = |node: &Postgres| {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        eventually("it sleeps", PATIENCE, || {
            (node.sql("postgres", count)[0][0].as_deref() == Some("1")).then_some(())
        });
    };
    let _first = occupy("b");
    sleeps(&nodes[1]);
    eventually("only the other standby is read", PATIENCE, || {
        (0..5).all(|_| here(&mut reader) == c).then_some(())
    });
    let _second = occupy("c");
    sleeps(&nodes[2]);
    let began = Instant::now();
    assert_eq!(here(&mut reader), a);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_ne!(b, c);
    let routes = pooler.admin("SHOW ROUTES");
    assert!(routes.with("reason", "full").sum("requests") > 0, "{routes:?}");
    let mut bound = occupy("b");
    bound.set_timeout(Duration::from_millis(500));
    assert!(bound.try_read().is_err(), "it waits");
}

#[test]
fn a_read_only_transaction_runs_on_one_standby() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "balance=statement").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    for _ in 0..10 {
        client.rows("BEGIN READ ONLY");
        let node = here(&mut client);
        assert_ne!(node, nodes[0].port());
        for _ in 0..5 {
            assert_eq!(client.value("SELECT inet_server_port()"), node.to_string());
        }
        client.rows("COMMIT");
    }
    client.rows("START TRANSACTION READ ONLY");
    let outcome = client.query("INSERT INTO acts VALUES (1)");
    assert_eq!(outcome.error.expect("an error").code(), "25006");
    client.rows("ROLLBACK");
    client.rows("BEGIN");
    assert_eq!(here(&mut client), nodes[0].port(), "another transaction may write");
    client.rows("COMMIT");
}

#[test]
fn a_session_may_choose_its_place() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    client.rows("SET weir.route = 'primary'");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(here(&mut client), nodes[0].port());
    client.rows("SET weir.route = 'node=b'");
    let standby = nodes[1].port();
    eventually("it reads there", PATIENCE, || (here(&mut client) == standby).then_some(()));
    client.rows("RESET weir.route");
    assert_eq!(here(&mut pooler.client("app")), standby);
}

/// Reads in threads while `during` runs. Returns how many reads were done, and the longest one. None
/// may fail.
fn read_while(pooler: &Pooler, clients: u32, during: impl FnOnce()) -> (u64, Duration) {
    let over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..clients)
            .map(|number| {
                let over = &over;
                scope.spawn(move || {
                    let mut client = pooler.client("app");
                    let (mut count, mut longest) = (0, Duration::ZERO);
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let expected = format!("{number} {count}");
                        let began = Instant::now();
                        assert_eq!(client.value(&format!("SELECT '{expected}'")), expected);
                        longest = longest.max(began.elapsed());
                        count += 1;
                    }
                    (count, longest)
                })
            })
            .collect();
        during();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let sum = |(all, most): (u64, Duration), (count, longest)| (all + count, most.max(longest));
        let readers = readers.into_iter().map(|reader| reader.join().expect("no read fails"));
        readers.fold((0, Duration::ZERO), sum)
    })
}

#[test]
fn a_standby_that_dies_costs_no_reader_an_error() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "").workers(2).start();
    until_routed(&pooler, &nodes[0]);
    let (count, _) = read_while(&pooler, 8, || {
        thread::sleep(Duration::from_millis(500));
        nodes[1].kill9();
        thread::sleep(Duration::from_secs(2));
        nodes[1].launch();
        thread::sleep(Duration::from_secs(3));
        nodes[2].kill9();
        thread::sleep(Duration::from_secs(2));
    });
    assert!(count > 1_000, "{count} reads");
}

#[test]
fn reads_go_on_after_a_failover() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let [a, b, c] = &nodes[..] else { unreachable!("three nodes") };
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, a);
    client.rows("INSERT INTO acts VALUES (1, 'before')");
    eventually("it is replayed", PATIENCE, || {
        let count = |node: &Postgres| node.sql("postgres", "SELECT count(*) FROM acts");
        [b, c].iter().all(|node| count(node)[0][0].as_deref() == Some("1")).then_some(())
    });
    a.stop();
    b.promote();
    let began = Instant::now();
    client.rows("INSERT INTO acts VALUES (2, 'after')");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // The other standby still waits for the old primary, and has not the second row.
    for _ in 0..50 {
        let row = client.rows("SELECT max(id), here() FROM acts").remove(0);
        assert_eq!(row, [Some("2".to_owned()), Some(b.port().to_string())]);
    }
    c.follow(b);
    client.rows("DELETE FROM acts");
    let (stale, _) =
        freshness::read_own_writes(&mut client, b.port(), 20, Duration::from_millis(20));
    assert_eq!(stale, 0);
    eventually("reads go to the remaining standby", PATIENCE, || {
        (here(&mut client) == c.port()).then_some(())
    });
    assert_eq!(client.value("SELECT count(*) FROM acts"), "20");
}

#[test]
fn clients_of_a_routed_pool_get_their_own_answers_core_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let setup = setup(&nodes, "", "balance=statement pool_size=3");
    let pooler = setup.workers(2).start();
    until_routed(&pooler, &nodes[0]);
    let end = Instant::now() + Duration::from_secs(4);
    thread::scope(|scope| {
        for number in 1..=20 {
            let pooler = &pooler;
            scope.spawn(move || {
                let mut dice = Dice(number * 7919);
                while Instant::now() < end {
                    visit(pooler, "app", number, &mut dice);
                }
            });
        }
    });
}
