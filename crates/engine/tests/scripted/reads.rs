//! Reads on standbys, by the product's own rules: freshness, own writes, and the age of the catalogs.

use std::sync::Arc;

use config::PoolMode;
use engine::ids::{Micros, NodeId};
use engine::routing::readers::Readers;
use engine::routing::rules::{Catalog, ReadRules, Routing};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// An application's write. An INSERT could draw a number, for which Weir would keep the server.
const WRITE: &str = "update t set a = 1";
const READ: &str = "select 1";

/// A rig with a primary and one standby, which has everything up to a moment.
struct Cluster {
    rig: Rig,
    readers: Arc<Readers>,
}

impl Cluster {
    fn new() -> Self {
        let readers = Arc::new(Readers::new(["a", "b"].map(|name| (name.to_owned(), 1))));
        let catalog = Arc::new(Catalog::new(Default::default(), 1, false, 0));
        let routing = Routing::new(ReadRules::default(), readers.clone(), catalog, None);
        let rig = Rig::new(|config| config.global.pool_mode = PoolMode::Auto).routed_by(routing);
        Self { rig, readers }
    }

    fn standby_has_all_before(&self, moment: Micros) {
        self.readers.get(NodeId(1)).expect("the standby").set(Some(moment), 0);
    }

    /// Returns a client that has read on the standby, and the servers of both nodes.
    fn opened(&self) -> (Client, Server, Server) {
        self.rig.later(1_000);
        let client = self.rig.client();
        let primary = self.rig.server(0);
        asks(&client, &primary, WRITE);
        self.standby_has_all_before(Micros::MAX);
        client.send([query(READ)]);
        let standby = self.rig.server(1);
        standby.answers(READ);
        client.expect([done("OK")]);
        (client, primary, standby)
    }
}

fn asks(client: &Client, server: &Server, sql: &str) {
    client.send([query(sql)]);
    server.answers(sql);
    client.expect([done("OK")]);
}

#[test]
pub(crate) fn a_session_sees_its_own_writes() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    asks(&client, &primary, WRITE);
    cluster.standby_has_all_before(1);
    asks(&client, &primary, READ);
    // Another session has not written.
    let other = cluster.rig.client();
    asks(&other, &standby, READ);
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, READ);
}

#[test]
pub(crate) fn a_write_behind_a_read_counts() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    let fresh = cluster.readers.get(NodeId(1)).expect("the standby");
    // The primary runs the read, and gets the write at once.
    fresh.set(None, 0);
    client.send([[query(READ), query(WRITE)].concat()]);
    primary.expect([query(READ), query(WRITE)]);
    primary.send([[done("OK"), done("OK")].concat()]);
    client.expect([done("OK"), done("OK")]);
    cluster.standby_has_all_before(1);
    asks(&client, &primary, READ);
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, READ);
}

#[test]
pub(crate) fn old_catalogs_keep_reads_on_the_primary() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    asks(&client, &standby, READ);
    cluster.rig.change_schema();
    asks(&client, &primary, READ);
}

#[test]
pub(crate) fn a_standby_that_may_not_be_read_gets_nothing() {
    let cluster = Cluster::new();
    let (_client, primary, _) = cluster.opened();
    cluster.readers.get(NodeId(1)).expect("the standby").set(None, 0);
    // It has not written, so any standby would do.
    asks(&cluster.rig.client(), &primary, READ);
}

/// A write that a hint sends to a standby.
const HINTED: &str = "/* weir: standby */ update t set a = 2";

#[test]
pub(crate) fn a_write_on_a_promoted_standby_counts() {
    let cluster = Cluster::new();
    let (client, primary, standby) = cluster.opened();
    let other = cluster.rig.client();
    // Until it is promoted, a text with a hint is no write: it fails, or has only read.
    asks(&client, &standby, HINTED);
    cluster.rig.later(1_000);
    cluster.standby_has_all_before(cluster.rig.now());
    asks(&client, &standby, READ);
    cluster.rig.later(1_000);
    client.send([query(HINTED)]);
    standby.expect([query(HINTED)]);
    let off = status("in_hot_standby", "off");
    standby.send([[complete("UPDATE 1"), off.clone(), ready('I')].concat()]);
    client.expect([complete("UPDATE 1"), off, ready('I')]);
    asks(&client, &primary, READ);
    asks(&other, &standby, READ);
    // PostgreSQL does not report it twice.
    cluster.standby_has_all_before(Micros::MAX);
    asks(&client, &standby, HINTED);
    cluster.standby_has_all_before(cluster.rig.now());
    asks(&client, &primary, READ);
}
