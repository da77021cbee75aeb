//! Limits on the servers of several pools: idle backends of a lobby leave it for another pool.

use std::time::Instant;

use testkit::{Pooler, Postgres, RawClient, Version};

use super::{PATIENCE, pid};
use crate::support;

/// Two databases of a server with the library, and a pooler with direct pools.
struct Two {
    pooler: Pooler,
    postgres: Postgres,
    databases: [String; 2],
}

impl Two {
    fn start(servers_max: u32) -> Self {
        let postgres = Postgres::start_with_library(Version::Installed);
        let socket = postgres.socket_folder().join("direct");
        postgres.set("weir.control_socket", &socket.to_string_lossy());
        let databases = [postgres.database(), postgres.database()];
        let setup = Pooler::before(&postgres)
            .set("pool_mode", "auto")
            .set("default_pool_size", 10)
            .set("max_server_connections", servers_max)
            .set("data_path", "direct")
            .set("direct_socket", socket.display())
            .database(&databases[0], "")
            .database(&databases[1], "");
        Self { pooler: setup.start(), postgres, databases }
    }

    fn client(&self, database: usize) -> RawClient {
        self.pooler.client(&self.databases[database])
    }

    fn backends(&self, database: usize) -> Vec<u32> {
        self.postgres.backends(&self.databases[database])
    }

    fn column(&self, database: usize, name: &str) -> String {
        let pools = self.pooler.console().query("SHOW POOLS EXTENDED");
        let at = pools.columns.iter().position(|column| column == name).expect("a column");
        let row = pools.rows.iter().find(|row| row[0].as_ref() == Some(&self.databases[database]));
        row.expect("the pool's row")[at].clone().unwrap_or_default()
    }

    /// Clients of the first database, each of which has had a backend of its own, in their order.
    fn fill(&self, count: usize) -> (Vec<RawClient>, Vec<u32>) {
        let mut clients: Vec<_> = (0..count).map(|_| self.client(0)).collect();
        let backends = clients.iter_mut().map(|client| {
            client.rows("BEGIN");
            pid(client)
        });
        let backends = backends.collect();
        clients.iter_mut().for_each(|client| drop(client.rows("COMMIT")));
        (clients, backends)
    }
}

/// A login would wait until `client_login_timeout` otherwise.
#[test]
fn idle_backends_leave_for_another_pool_and_that_pool_is_direct_core() {
    if !support::only_weir() {
        return;
    }
    let two = Two::start(3);
    let (mut clients, backends) = two.fill(3);
    assert_eq!(two.backends(0).len(), 3);
    // One client keeps its backend, and one is in a transaction.
    clients[0].rows("CREATE TEMP TABLE own (a int)");
    clients[1].rows("BEGIN");
    let kept = [pid(&mut clients[0]), pid(&mut clients[1])];
    let began = Instant::now();
    let mut other = two.client(1);
    assert_eq!(other.value("SELECT 1"), "1");
    assert!(began.elapsed() < PATIENCE / 4, "it took {:?}", began.elapsed());
    assert_eq!(two.column(1, "data_path"), "direct");
    let mut left = two.backends(0);
    left.sort_unstable();
    let mut expected = kept;
    expected.sort_unstable();
    assert_eq!(left, expected, "of {backends:?}");
    // The first pool gets a seat back, although its clients have all of its own.
    assert_eq!(clients[2].value("SELECT 2"), "2");
    clients[1].rows("COMMIT");
    assert_eq!(pid(&mut clients[0]), kept[0]);
    assert_eq!(clients[0].value("SELECT count(*) FROM own"), "0");
}
