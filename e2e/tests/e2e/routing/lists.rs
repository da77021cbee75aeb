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
