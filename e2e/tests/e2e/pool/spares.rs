//! The number of idle servers follows the load (`min_spare_servers`, `max_spare_servers`).

use std::time::Duration;

use super::pid;
use crate::support;
use testkit::{Pooler, RawClient, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns how many servers of the database clients have, and how many are idle.
fn counts(pooler: &Pooler, database: &str) -> [u64; 2] {
    let sums = pooler.pool_sums(database, ["sv_active", "sv_idle", "sv_used"]);
    [sums[0], sums[1] + sums[2]]
}

/// Waits for these counts.
#[track_caller]
fn wait_for(pooler: &Pooler, database: &str, expected: [u64; 2]) {
    eventually("the servers in use and the idle ones", PATIENCE, || {
        (counts(pooler, database) == expected).then_some(())
    });
}

#[test]
fn idle_servers_follow_the_load_core() {
    if !support::only_weir() {
        return;
    }
    for mode in ["session", "transaction", "auto"] {
        let (setup, database) = support::setup(mode);
        let setup = setup.set("min_spare_servers", 2).set("max_spare_servers", 3);
        let pooler = setup.set("default_pool_size", 12).workers(2).start();
        let (mut clients, mut used): (Vec<RawClient>, Vec<_>) = Default::default();
        for busy in 1..=10 {
            let mut client = pooler.client(&database);
            client.rows("BEGIN");
            used.push(pid(&mut client));
            clients.push(client);
            eventually("two idle servers are ready", PATIENCE, || {
                let [active, idle] = counts(&pooler, &database);
                (active == busy && idle >= 2).then_some(())
            });
        }
        wait_for(&pooler, &database, [10, 2]);
        for client in &mut clients {
            client.rows("COMMIT");
        }
        if mode == "session" {
            clients.clear();
        }
        wait_for(&pooler, &database, [0, 3]);
        pooler.log_contains("closing because: max_spare_servers exceeded");
        let mut next = pooler.client(&database);
        let server = pid(&mut next);
        assert!(used.contains(&server), "{mode}: those that were used last are left");
    }
}

#[test]
fn spare_servers_need_sound_bounds_and_change_by_reload() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("max_spare_servers", 4).start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    assert!(pooler.try_admin("SET min_spare_servers = '5'").error.is_some());
    assert!(pooler.try_admin("SET min_spare_servers = 'two'").error.is_some());
    pooler.log_contains("min_spare_servers = 5 is above max_spare_servers = 4");
    pooler.reconfigure(|ini| ini.set("min_spare_servers", 9));
    assert!(pooler.try_admin("RELOAD").error.is_some());
    pooler.log_contains("min_spare_servers = 9 is above max_spare_servers = 4");
    assert_eq!(counts(&pooler, &database), [0, 1]);
    pooler.reconfigure(|ini| ini.set("min_spare_servers", 4));
    pooler.reload();
    wait_for(&pooler, &database, [0, 4]);
    pooler.admin("SET min_spare_servers = '0'");
    pooler.admin("SET max_spare_servers = '2'");
    wait_for(&pooler, &database, [0, 2]);
}
