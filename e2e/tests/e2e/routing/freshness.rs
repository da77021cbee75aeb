//! The writes that a read on a standby must see.

use std::thread;
use std::time::{Duration, Instant};

use testkit::{Postgres, RawClient, Version, eventually, frontend};

use super::{PATIENCE, cluster, furnished, here, setup, until_routed};
use crate::support;

/// Each commit is replayed so much later.
fn delay(standby: &Postgres, time: &str) {
    standby.sql("postgres", &format!("ALTER SYSTEM SET recovery_min_apply_delay = '{time}'"));
    standby.sql("postgres", "SELECT pg_reload_conf()");
}

/// Writes and reads its writes. Returns how many reads were stale, and how many ran on a standby.
pub(super) fn read_own_writes(
    client: &mut RawClient,
    primary: u16,
    count: u32,
    pause: Duration,
) -> (u32, u32) {
    let (mut stale, mut on_standby) = (0, 0);
    for id in 1..=count {
        client.rows(&format!("INSERT INTO acts VALUES ({id}, 'own')"));
        thread::sleep(pause);
        let row = client.rows("SELECT max(id), here() FROM acts").remove(0);
        stale += u32::from(row[0].as_ref() != Some(&id.to_string()));
        on_standby += u32::from(row[1].as_ref() != Some(&primary.to_string()));
    }
    (stale, on_standby)
}

#[test]
fn a_session_sees_its_own_writes_core_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let primary = nodes[0].port();
    let pause = Duration::from_millis(100);
    for id in 1..=10 {
        client.rows(&format!("INSERT INTO acts VALUES ({id}, 'own')"));
        eventually("a standby has the write", PATIENCE, || {
            let row = client.rows("SELECT max(id), here() FROM acts").remove(0);
            assert_eq!(row[0].as_ref(), Some(&id.to_string()), "the read is stale");
            (row[1].as_ref() != Some(&primary.to_string())).then_some(())
        });
    }
    client.rows("TRUNCATE acts");
    nodes[1..].iter().for_each(|standby| delay(standby, "500ms"));
    let (stale, on_standby) = read_own_writes(&mut client, primary, 300, Duration::ZERO);
    println!("a delay of 500 ms: {stale} of 300 stale, {on_standby} on standbys");
    assert_eq!(stale, 0, "{on_standby} reads on standbys");
    client.rows("TRUNCATE acts");
    let (stale, _) = read_own_writes(&mut client, primary, 5, pause);
    assert_eq!(stale, 0);
}

#[test]
fn all_sessions_of_a_user_see_each_others_writes() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let keys = "read_after_write=user";
    let pooler = setup(&nodes, "", keys).workers(2).start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    delay(&nodes[1], "300ms");
    let mut writer = pooler.client("app");
    for id in 1..=100 {
        writer.rows(&format!("INSERT INTO acts VALUES ({id}, 'of another')"));
        assert_eq!(reader.value("SELECT max(id) FROM acts"), id.to_string());
    }
    let standby = nodes[1].port();
    eventually("its reads return", PATIENCE, || (here(&mut reader) == standby).then_some(()));
}

#[test]
fn a_standby_that_is_too_old_gets_no_reads() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let pooler = setup(&nodes, "", "max_staleness=0.6").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let (primary, standby) = (nodes[0].port(), nodes[1].port());
    nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
    // The write of somebody else, of which Weir knows nothing.
    nodes[0].sql("postgres", "INSERT INTO acts VALUES (1, 'direct')");
    eventually("reads go to the primary", PATIENCE, || {
        (here(&mut client) == primary).then_some(())
    });
    assert_eq!(client.value("SELECT count(*) FROM acts"), "1");
    nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
    eventually("reads return", PATIENCE, || (here(&mut client) == standby).then_some(()));
    assert_eq!(client.value("SELECT count(*) FROM acts"), "1");
}

#[test]
fn a_strict_read_sees_the_writes_of_everybody_strict() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let keys = "read_after_write=strict stale_wait=10";
    let pooler = setup(&nodes, "", keys).workers(2).start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    let mut direct = nodes[0].superuser("postgres");
    let mut on_standby = 0;
    for id in 1..=30 {
        // Weir knows nothing of this write.
        direct.rows(&format!("INSERT INTO acts VALUES ({id}, 'direct')"));
        let row = reader.rows("SELECT max(id), here() FROM acts").remove(0);
        assert_eq!(row[0].as_ref(), Some(&id.to_string()));
        on_standby += u32::from(row[1].as_ref() != Some(&nodes[0].port().to_string()));
    }
    println!("strict: {on_standby} of 30 reads on standbys");
    assert!(on_standby >= 27, "{on_standby} of 30 reads on standbys");
}

#[test]
fn a_strict_read_runs_on_the_primary_when_it_has_waited() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let keys = "read_after_write=strict stale_wait=0.5 max_staleness=0";
    let pooler = setup(&nodes, "", keys).start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
    nodes[0].sql("postgres", "INSERT INTO acts VALUES (1, 'direct')");
    let began = Instant::now();
    let row = reader.rows("SELECT max(id), here() FROM acts").remove(0);
    assert_eq!(row, [Some("1".to_owned()), Some(nodes[0].port().to_string())]);
    let waited = began.elapsed();
    assert!((400..5_000).contains(&waited.as_millis()), "{waited:?}");
    let routes = pooler.admin("SHOW ROUTES");
    assert!(routes.with("reason", "own write").sum("requests") > 0, "{routes:?}");
    nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
    let standby = nodes[1].port();
    eventually("its reads return", PATIENCE, || (here(&mut reader) == standby).then_some(()));
}

#[test]
fn a_client_whose_read_waits_is_not_idle() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let keys = "read_after_write=strict stale_wait=3 max_staleness=0";
    let pooler = setup(&nodes, "", keys).set("client_idle_timeout", 1).start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
    nodes[0].sql("postgres", "INSERT INTO acts VALUES (1, 'direct')");
    reader.send(frontend::query("SELECT max(id) FROM acts"));
    eventually("the client waits", PATIENCE, || {
        let clients = pooler.admin("SHOW CLIENTS").with("database", "app");
        clients.column("state").contains(&"waiting").then_some(())
    });
    let answer = reader.read_to_ready();
    let row = answer.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row[0].as_deref(), Some("1"));
    nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
}

#[test]
fn a_read_may_wait_for_its_own_writes() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(2);
    let pooler = setup(&nodes, "", "when_stale=wait stale_wait=10").start();
    let mut client = until_routed(&pooler, &nodes[0]);
    let (stale, on_standby) = read_own_writes(&mut client, nodes[0].port(), 40, Duration::ZERO);
    println!("when_stale = wait: {stale} of 40 stale, {on_standby} on standbys");
    assert_eq!(stale, 0);
    assert!(on_standby >= 24, "{on_standby} of 40 reads on standbys");
    // A write that is sent ahead waits behind the read.
    client.send(
        [
            "INSERT INTO acts VALUES (50)",
            "SELECT max(id) FROM acts",
            "INSERT INTO acts VALUES (51)",
        ]
        .map(frontend::query)
        .concat(),
    );
    client.read_to_ready();
    let answers = client.read_to_ready();
    let row = answers.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row[0].as_deref(), Some("50"));
    client.read_to_ready();
    assert_eq!(client.value("SELECT max(id) FROM acts"), "51");
}

/// Reads after a write that went through another Weir, in a session that has its position.
fn positions_are_handed_over(nodes: &[Postgres]) {
    let writing = setup(nodes, "", "").start();
    let reading = setup(nodes, "", "read_after_write=off").start();
    let mut writer = writing.client("app");
    let mut reader = until_routed(&reading, &nodes[0]);
    let standby = nodes[1].port().to_string();
    delay(&nodes[1], "300ms");
    let count = "SELECT count(*), here() FROM acts";
    let mut is_late = false;
    for id in 1..=5 {
        writer.rows(&format!("INSERT INTO acts VALUES ({id}, 'elsewhere')"));
        let token = writer.value("SELECT pg_current_wal_insert_lsn()");
        let row = reader.rows(count).remove(0);
        is_late |= row[0].as_ref() != Some(&id.to_string());
        reader.rows(&format!("SET weir.token = '{token}'"));
        let row = reader.rows(count).remove(0);
        assert_eq!(row[0].as_ref(), Some(&id.to_string()));
        eventually("the standby has it", PATIENCE, || {
            let row = reader.rows(count).remove(0);
            assert_eq!(row[0].as_ref(), Some(&id.to_string()));
            (row[1].as_ref() == Some(&standby)).then_some(())
        });
        reader.rows("RESET weir.token");
    }
    assert!(is_late, "without the position, no read was stale");
    reader.rows("SET weir.token = 'nonsense'");
    for _ in 0..20 {
        assert_eq!(here(&mut reader), nodes[0].port());
    }
    let routes = reading.admin("SHOW ROUTES");
    assert!(routes.with("reason", "setting").sum("requests") >= 20, "{routes:?}");
}

#[test]
fn a_session_reads_what_another_session_has_written_elsewhere() {
    if support::only_weir() {
        positions_are_handed_over(&cluster(1));
    }
}

#[test]
fn a_session_does_so_with_the_library_too() {
    if support::only_weir() {
        let primary = Postgres::start_with_library(Version::Installed);
        positions_are_handed_over(&furnished(primary.with_standbys(1)));
    }
}

/// Positions that no standby has, set in all ways.
fn positions_follow_their_setting(nodes: &[Postgres]) {
    let pooler = setup(nodes, "", "read_after_write=off max_staleness=0").start();
    until_routed(&pooler, &nodes[0]);
    let [primary, standby] = [0, 1].map(|at| nodes[at].port());
    let set = "SET weir.token = 'ffffffff/ffffffff'";
    let local = "SET LOCAL weir.token = 'ffffffff/ffffffff'";
    let call = "SELECT set_config('weir.token', 'ffffffff/ffffffff', false)";
    let hidden = format!("DO $$BEGIN PERFORM {}; END$$", &call["SELECT ".len()..]);
    let long = format!("SET weir.token = '{}'", "f".repeat(100_000));
    for (texts, expected) in [
        (&[set][..], primary),
        (&[call], primary),
        (&[&*hidden], primary),
        (&["SET \"Weir.Token\" TO 'ffffffff/ffffffff'"], primary),
        (&["SET work_mem = '5MB'; SET WEIR.TOKEN = 'ffffffff/ffffffff'"], primary),
        (&[&*long], primary),
        (&["SET weir.token = '-1/0'"], primary),
        (&["SET weir.token = ' 0/1'"], primary),
        (&["SET weir.token = '0/0'"], standby),
        (&["SET weir.token = ''"], standby),
        (&["BEGIN", set, "COMMIT"], primary),
        (&["BEGIN", set, "ROLLBACK"], standby),
        (&["BEGIN", local, "COMMIT"], standby),
        (&["BEGIN", "SAVEPOINT s", set, "ROLLBACK TO s", "COMMIT"], standby),
        (&["BEGIN", set, "SELECT 1/0", "COMMIT"], standby),
        (&[set, "BEGIN", "RESET weir.token", "ROLLBACK"], primary),
        (&["BEGIN READ ONLY", set, "COMMIT"], primary),
        (&["BEGIN READ ONLY", set, "ROLLBACK"], standby),
        (&[set, "RESET ALL"], standby),
        (&[set, "DISCARD ALL"], standby),
    ] {
        let mut client = pooler.client("app");
        for text in texts {
            client.query(text);
        }
        let found = [(); 3].map(|()| here(&mut client));
        assert_eq!(found, [expected; 3], "{:.60}", texts.join("; "));
    }
}

#[test]
fn a_position_counts_while_it_is_set() {
    if support::only_weir() {
        positions_follow_their_setting(&cluster(1));
    }
}

#[test]
fn a_position_counts_while_it_is_set_with_the_library_too() {
    if support::only_weir() {
        let primary = Postgres::start_with_library(Version::Installed);
        positions_follow_their_setting(&furnished(primary.with_standbys(1)));
    }
}

#[test]
fn a_read_that_waits_survives_an_online_restart() {
    if !support::only_weir() {
        return;
    }
    let nodes = cluster(1);
    let keys = "read_after_write=strict stale_wait=8 max_staleness=0";
    let mut pooler = setup(&nodes, "", keys).start();
    let mut reader = until_routed(&pooler, &nodes[0]);
    let mut gone = pooler.client("app");
    nodes[1].sql("postgres", "SELECT pg_wal_replay_pause()");
    nodes[0].sql("postgres", "INSERT INTO acts VALUES (1, 'direct')");
    let texts = ["SELECT max(id) FROM acts", "INSERT INTO acts VALUES (2, 'behind')"];
    reader.send(texts.map(frontend::query).concat());
    gone.send(frontend::query("SELECT max(id) FROM acts"));
    drop(gone);
    pooler.take_over();
    let answers = reader.read_to_ready();
    let row = answers.iter().find(|message| message.tag == b'D').expect("a row").row();
    assert_eq!(row[0].as_deref(), Some("1"));
    reader.read_to_ready();
    nodes[1].sql("postgres", "SELECT pg_wal_replay_resume()");
    assert_eq!(reader.value("SELECT max(id) FROM acts"), "2");
}
