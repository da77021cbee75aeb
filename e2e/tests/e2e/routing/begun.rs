//! BEGIN READ ONLY: if the first statement needs the primary, the transaction moves there.

use testkit::{Pooler, Postgres, RawClient, eventually, frontend};

use super::{PATIENCE, cluster, here, setup, until_fresh, until_routed};
use crate::support;

/// Statements that the primary runs in a READ ONLY transaction, and a standby refuses.
const FIRST: [&str; 16] = [
    "NOTIFY news",
    "LISTEN news",
    "LOCK acts IN SHARE MODE",
    "ANALYZE acts",
    "SELECT pg_current_xact_id()",
    "SELECT txid_current()",
    "SELECT pg_current_wal_lsn()",
    "SELECT * FROM quick",
    "SET TRANSACTION READ WRITE",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET transaction_read_only = off",
    "SET LOCAL transaction_read_only = off",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "CREATE TEMP TABLE own (a int)",
    "SELECT nextval('numbers')",
    "FETCH 1 FROM later",
];

fn opened() -> (Vec<Postgres>, Pooler) {
    let nodes = cluster(1);
    nodes[0].sql(
        "postgres",
        "CREATE UNLOGGED TABLE quick (a int); GRANT ALL ON quick TO app;
         CREATE SEQUENCE numbers; GRANT ALL ON numbers TO app;
         ALTER TABLE acts OWNER TO app",
    );
    let pooler = setup(&nodes, "", "read_after_write=off max_staleness=0").start();
    until_routed(&pooler, &nodes[0]);
    (nodes, pooler)
}

/// The outcome of a text in a READ ONLY transaction: the error, if there is one.
fn outcome(client: &mut RawClient, text: &str) -> Option<String> {
    client.query(text).error.map(|error| error.code().to_owned())
}

/// Does the same by the extended protocol.
fn prepared(client: &mut RawClient, text: &str) -> Option<String> {
    let batch = [
        frontend::parse("", text),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ];
    client.send(batch.concat());
    let replies = client.read_to_ready();
    replies.iter().find_map(|one| one.error()).map(|error| error.code().to_owned())
}

#[test]
fn the_first_statement_of_a_transaction_may_need_the_primary() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = opened();
    let [primary, standby] = [0, 1].map(|at| nodes[at].port());
    let simple = FIRST.map(|text| (text, outcome as fn(&mut RawClient, &str) -> Option<String>));
    let extended = FIRST;
    let extended =
        extended.map(|text| (text, prepared as fn(&mut RawClient, &str) -> Option<String>));
    for (text, run) in simple.into_iter().chain(extended) {
        let mut on_primary = pooler.client("app");
        on_primary.rows("SET weir.route = 'primary'");
        let told = |client: &mut RawClient| {
            assert_eq!(run(client, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), None);
            let error = run(client, text);
            let shown = error.is_none().then(|| {
                let port = here(client);
                let [level, only] = ["transaction_isolation", "transaction_read_only"]
                    .map(|name| client.value(&format!("SHOW {name}")));
                (port, level, only)
            });
            assert_eq!(run(client, "ROLLBACK"), None, "{text}");
            (error, shown)
        };
        let expected = told(&mut on_primary);
        assert!(expected.1.as_ref().is_none_or(|shown| shown.0 == primary));
        assert_eq!(told(&mut pooler.client("app")), expected, "{text}");
    }
    // Behind statements that read nothing.
    let mut client = pooler.client("app");
    for text in [
        "START TRANSACTION READ ONLY",
        "SET LOCAL work_mem = '7MB' -- a comment",
        "SAVEPOINT s",
        "LOCK acts IN SHARE MODE",
        "ROLLBACK TO s",
    ] {
        assert_eq!(outcome(&mut client, text), None, "{text}");
    }
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_eq!(here(&mut client), primary);
    client.rows("COMMIT");
    // A transaction that has read stays.
    until_fresh(&mut client, &nodes[0]);
    client.rows("BEGIN READ ONLY");
    assert_eq!(here(&mut client), standby);
    assert_eq!(outcome(&mut client, "NOTIFY news").as_deref(), Some("25006"));
    client.rows("ROLLBACK");
    let routes = pooler.admin("SHOW ROUTES");
    assert!(routes.with("reason", "refused").sum("requests") > 0, "{routes:?}");
}

#[test]
fn a_transaction_that_moves_may_be_prepared_and_notifies() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = opened();
    let mut listener = pooler.client("app");
    listener.rows("LISTEN news");
    let mut client = until_routed(&pooler, &nodes[0]);
    client.send(["BEGIN READ ONLY", "NOTIFY news, 'one'", "COMMIT"].map(frontend::query).concat());
    for _ in 0..3 {
        assert!(client.read_to_ready().iter().all(|one| one.tag != b'E'));
    }
    eventually("it is told", PATIENCE, || {
        listener.send(frontend::query("SELECT 1"));
        listener.read_to_ready().iter().any(|one| one.tag == b'A').then_some(())
    });
    // The next reads go to the standby again, whose server has rolled back.
    for _ in 0..5 {
        eventually("it reads there", PATIENCE, || {
            (here(&mut client) == nodes[1].port()).then_some(())
        });
    }
}
