//! Sessions of `pool_mode = auto` in an online restart: each client keeps its session, and no other
//! client gets it.

use testkit::{Pooler, RawClient, eventually};

use super::{PATIENCE, prepare, run};
use crate::support;

/// Waits until these are the reasons for which servers are pinned.
#[track_caller]
fn until_kept(pooler: &Pooler, reasons: &[&str]) {
    eventually("servers are kept for these reasons", PATIENCE, || {
        let pins = pooler.admin("SHOW PINS");
        let mut found = pins.column("reason");
        found.sort_unstable();
        (found == reasons).then_some(())
    });
}

/// Checks that clients without settings see only defaults, on any server.
#[track_caller]
fn check_strangers(strangers: &mut [RawClient]) {
    strangers.iter_mut().for_each(|stranger| drop(stranger.rows("BEGIN")));
    for stranger in strangers.iter_mut() {
        assert_eq!(stranger.value("SHOW work_mem"), "4MB");
        assert_eq!(stranger.value("SELECT coalesce(current_setting('app.own', true), '')"), "");
        assert_eq!(stranger.value("SELECT to_regclass('mine') IS NULL"), "t");
        let prepared = "SELECT count(*) FROM pg_prepared_statements WHERE from_sql";
        assert_eq!(stranger.value(prepared), "0");
        assert_eq!(stranger.value("SELECT count(*) FROM pg_listening_channels()"), "0");
        let error = stranger.query("SELECT lastval()").error.expect("it has drawn none");
        assert_eq!(error.code(), "55000");
    }
    // Ends the pins that the checks may have caused.
    for order in ["ROLLBACK", "DISCARD SEQUENCES"] {
        strangers.iter_mut().for_each(|stranger| drop(stranger.rows(order)));
    }
}

#[test]
fn every_session_of_auto_mode_goes_along_strict() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    support::direct(&database).rows("CREATE SEQUENCE drawn; GRANT ALL ON drawn TO PUBLIC");
    // Two servers are pinned, and two are left for the other clients.
    let mut pooler = setup.set("default_pool_size", 4).workers(2).start();
    let mut setting: Vec<_> = (5..11).map(|_| pooler.client(&database)).collect();
    for (client, value) in setting.iter_mut().zip(5..) {
        client.rows(&format!("SET work_mem = '{value}MB'; SET app.own = '{value}'"));
        client.rows(&format!("PREPARE mine AS SELECT {value}"));
        prepare(client, "named", &format!("SELECT $1::int + {value}"));
        client.rows("SELECT nextval('drawn')");
        (0..5).for_each(|_| drop(client.rows("SELECT 'no question'")));
    }
    let mut listening = pooler.client(&database);
    listening.rows("LISTEN news");
    let mut keeping = pooler.client(&database);
    keeping.rows("CREATE TEMP TABLE mine AS SELECT 7 AS n");
    let mut asking = pooler.client(&database);
    asking.rows("CREATE SEQUENCE numbers");
    asking.rows("SELECT setval('numbers', 41); SELECT nextval('numbers'); SELECT lastval()");
    let mut strangers: Vec<_> = (0..2).map(|_| pooler.client(&database)).collect();
    for _ in 0..3 {
        until_kept(&pooler, &["sequence", "temporary object"]);
        assert_eq!(pooler.take_over().code(), Some(0));
        check_strangers(&mut strangers);
        for (client, value) in setting.iter_mut().zip(5..) {
            assert_eq!(client.value("SHOW work_mem"), format!("{value}MB"));
            assert_eq!(client.value("SHOW app.own"), value.to_string());
            assert_eq!(client.value("EXECUTE mine"), value.to_string());
            assert_eq!(run(client, "named", "100"), (100 + value).to_string());
        }
        assert_eq!(keeping.value("SELECT n FROM mine"), "7");
        assert_eq!(asking.value("SELECT lastval()"), "42");
        // The client gets a notice that it may have missed notifications, and then receives new
        // ones.
        listening.read_until(|message| message.tag == b'N');
        support::direct(&database).rows("NOTIFY news");
        listening.read_until(|message| message.tag == b'A');
    }
    // RESET restores the original value, and dropped objects do not exist any more.
    setting[0].rows("RESET work_mem; DEALLOCATE mine");
    assert_eq!(setting[0].value("SHOW work_mem"), "4MB");
    assert_eq!(setting[0].query("EXECUTE mine").error.expect("it is gone").code(), "26000");
    keeping.rows("DROP TABLE mine");
    asking.rows("DISCARD SEQUENCES");
    until_kept(&pooler, &[]);
}

#[test]
fn state_of_an_open_transaction_is_found_by_the_new_process() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let mut pooler = setup.set("default_pool_size", 3).workers(2).start();
    let clients = &mut [(); 3].map(|()| pooler.client(&database));
    let [setting, executing, lending] = clients;
    executing.rows("PREPARE p AS SELECT set_config('app.other', $1, false)");
    prepare(lending, "mine", "SELECT $1::int + 1");
    setting.rows("BEGIN");
    setting.rows("SET app.own = '5'");
    lending.rows("BEGIN");
    assert_eq!(lending.value("EXECUTE mine(1)"), "2");
    assert_eq!(pooler.take_over().code(), Some(0));
    assert_eq!(executing.value("EXECUTE p('6')"), "6");
    setting.rows("COMMIT");
    lending.rows("COMMIT");
    // Other clients see none of this, on any server.
    let mut strangers = [(); 3].map(|()| pooler.client(&database));
    strangers.iter_mut().for_each(|stranger| drop(stranger.rows("BEGIN")));
    for stranger in &mut strangers {
        for name in ["app.own", "app.other"] {
            let ask = format!("SELECT coalesce(current_setting('{name}', true), '')");
            assert_eq!(stranger.value(&ask), "", "{name}");
        }
        assert_eq!(stranger.query("EXECUTE mine(1)").error.expect("not its own").code(), "26000");
        stranger.rows("ROLLBACK");
    }
    assert_eq!(setting.value("SHOW app.own"), "5");
    assert_eq!(executing.value("SHOW app.other"), "6");
    assert_eq!(run(lending, "mine", "1"), "2");
}
