//! Changes of the schema that no command tag shows.

use std::time::{Duration, Instant};

use testkit::eventually;

use super::{PATIENCE, cluster, setup, until_routed};
use crate::support;

/// Texts that create a view with this name.
const CHANGES: [(&str, &[&str]); 5] = [
    ("by_do", &["DO $$BEGIN PERFORM make('by_do'); END$$"]),
    ("by_call", &["CALL build('by_call')"]),
    ("by_function", &["SELECT make('by_function')"]),
    ("by_sql", &["PREPARE one AS SELECT make('by_sql')", "EXECUTE one"]),
    ("in_transaction", &["BEGIN", "SELECT make('in_transaction')", "COMMIT"]),
];

#[test]
fn a_schema_change_within_a_function_is_noticed_at_once() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    nodes[0].sql(
        "postgres",
        "CREATE FUNCTION locks() RETURNS int LANGUAGE plpgsql STABLE AS
         $$BEGIN PERFORM pg_advisory_xact_lock(7); RETURN here(); END$$;
         CREATE FUNCTION make(name text) RETURNS void LANGUAGE plpgsql AS
         $$BEGIN EXECUTE format('CREATE VIEW %I AS SELECT locks() AS here', name); END$$;
         CREATE PROCEDURE build(name text) LANGUAGE plpgsql AS
         $$BEGIN PERFORM make(name); COMMIT; END$$",
    );
    let keys = "read_after_write=off max_staleness=0";
    let pooler = setup(&nodes, "catalog_refresh=3600", keys).start();
    let primary = nodes[0].port().to_string();
    for (view, texts) in CHANGES {
        let [mut client, mut other] = [0; 2].map(|_| until_routed(&pooler, &nodes[0]));
        for text in texts {
            client.rows(text);
        }
        let read = format!("SELECT here FROM {view}");
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            assert_eq!(client.value(&read), primary, "{view}");
        }
        // Another session learns of it when the catalogs were read.
        eventually("the catalogs were read", PATIENCE, || {
            (other.value(&read) == primary).then_some(())
        });
        eventually("reads go to the standby again", PATIENCE, || {
            let port = client.value("SELECT here()");
            (port == nodes[1].port().to_string()).then_some(())
        });
    }
}

#[test]
fn many_functions_leave_reads_on_the_standbys() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    nodes[0].sql("postgres", "CREATE FUNCTION work() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let pooler = setup(&nodes, "catalog_refresh=3600", "max_staleness=0").start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    let mut worker = pooler.client("app");
    for _ in 0..300 {
        worker.rows("SELECT work()");
        let port = reader.value("SELECT here()");
        assert_eq!(port, nodes[1].port().to_string(), "another session has written nothing");
    }
}
