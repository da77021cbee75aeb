//! Lists of names that an operator keeps on the primary, or lets a standby run.

use testkit::eventually;

use super::{PATIENCE, cluster, here, setup, until_routed};
use crate::support;

#[test]
fn lists_of_names_count_more_than_the_catalogs() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    // Functions are VOLATILE if nothing else is said.
    nodes[0].sql(
        "postgres",
        "CREATE FUNCTION only_reads() RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN here(); END$$;
         CREATE FUNCTION does_write() RETURNS int LANGUAGE plpgsql AS
         $$BEGIN INSERT INTO acts VALUES (1, 'hidden'); RETURN here(); END$$;
         CREATE TABLE orders AS SELECT 1 AS id;
         CREATE VIEW open_orders AS SELECT id, here() FROM orders;
         GRANT ALL ON orders, open_orders TO app",
    );
    let keys = "standby_functions='only_reads, does_write' primary_names=orders";
    let mut pooler = setup(&nodes, "", keys).start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let [primary, standby] = [0, 1].map(|at| nodes[at].port().to_string());
    assert_eq!(client.value("SELECT only_reads()"), standby);
    assert_eq!(client.value("SELECT here() FROM orders"), primary);
    assert_eq!(client.value("SELECT here FROM open_orders"), primary);
    // A list that is wrong costs time alone: the standby refuses the write.
    assert_eq!(client.value("SELECT does_write()"), primary);
    assert_eq!(client.value("SELECT count(*) FROM acts"), "1");
    let told = pooler.admin("EXPLAIN ROUTE TABLE orders");
    assert_eq!(told.with("judge", "catalogs").only("reason"), "name", "{told:?}");

    pooler.reconfigure(|ini| {
        let nodes = "cluster=main dbname=postgres reads=standby";
        ini.database("app", &format!("{nodes} primary_names=only_reads"));
    });
    pooler.reload();
    eventually("the new lists count", PATIENCE, || {
        let mut client = pooler.client("app");
        let is_new = client.value("SELECT here FROM open_orders") == standby;
        is_new.then(|| assert_eq!(client.value("SELECT only_reads()"), primary))
    });
    eventually("reads go on", PATIENCE, || {
        (here(&mut client).to_string() == standby).then_some(())
    });
}

#[test]
fn lists_have_patterns_for_names_texts_and_applications() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    nodes[0].sql(
        "postgres",
        "CREATE FUNCTION only_reads() RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN here(); END$$;
         CREATE TABLE audit_log AS SELECT 1 AS id;
         CREATE TABLE jobs AS SELECT 1 AS id;
         GRANT ALL ON audit_log, jobs TO app",
    );
    let keys = r"standby_functions='only_*' primary_names='audit_*' primary_texts='from\s+jobs' primary_applications='^report'";
    let pooler = setup(&nodes, "", keys).start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let [primary, standby] = [0, 1].map(|at| nodes[at].port().to_string());
    for (text, place) in [
        ("SELECT only_reads()", &standby),
        ("SELECT here() FROM audit_log", &primary),
        ("SELECT here() FROM  Jobs", &primary),
        ("SELECT here(), 1 AS jobs", &standby),
        ("/* weir: standby */ SELECT here() FROM jobs", &standby),
    ] {
        if *place == standby {
            // A text that was not judged a read counts as a write. The standby must have it first.
            eventually(text, PATIENCE, || (client.value(text) == standby).then_some(()));
        }
        assert_eq!(client.value(text), *place, "{text}");
    }
    client.rows("SET application_name = 'report 7'");
    assert_eq!(client.value("SELECT here()"), primary);
    assert_eq!(client.value("/* weir: standby */ SELECT here()"), primary);
    client.rows("SET application_name = 'other'");
    eventually("it reads there", PATIENCE, || {
        (client.value("SELECT here()") == standby).then_some(())
    });
    let routes = pooler.admin("SHOW ROUTES").with("reason", "list");
    assert!(routes.only("place") == "primary" && routes.sum("requests") >= 3, "{routes:?}");
    let told = pooler.admin("EXPLAIN ROUTE SELECT * FROM jobs");
    assert_eq!(told.with("judge", "list").only("place"), "primary", "{told:?}");
}

#[test]
fn a_user_may_have_its_reads_elsewhere() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let [primary, standby] = [0, 1].map(|at| nodes[at].port());
    let mut pooler = setup(&nodes, "", "").user("app", "reads=primary").start();
    let mut client = pooler.client("app");
    let place_becomes = |pooler: &testkit::Pooler, place| {
        eventually("the reads have moved", PATIENCE, || {
            (here(&mut pooler.client("app")) == place).then_some(())
        });
    };
    assert_eq!(here(&mut client), primary);
    pooler.reconfigure(|ini| {
        ini.user("app", "reads=standby");
        ini.database("app", "cluster=main dbname=postgres");
    });
    pooler.reload();
    place_becomes(&pooler, standby);
    pooler.reconfigure(|ini| ini.user("app", "reads=primary"));
    pooler.reload();
    place_becomes(&pooler, primary);
    eventually("also those of old clients", PATIENCE, || {
        (here(&mut client) == primary).then_some(())
    });
}
