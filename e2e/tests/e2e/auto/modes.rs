//! `pool_mode` is changed while clients are connected: whoever has a session keeps it, and nobody
//! else finds anything of it.

use testkit::{Pooler, RawClient, eventually, frontend};

use super::listen::{PATIENCE, hear};
use crate::support;

/// A client with what is carried in auto mode.
fn client_with_settings(pooler: &Pooler, database: &str) -> RawClient {
    let mut client = pooler.client(database);
    client.rows("SET work_mem = '5MB'; SET app.own = '5'");
    client.rows("PREPARE mine AS SELECT 8");
    client.rows("LISTEN news");
    client.send([frontend::parse("named", "SELECT $1::int + 1"), frontend::sync()].concat());
    client.read_to_ready();
    client
}

/// And with what is not.
fn client_with_session(pooler: &Pooler, database: &str) -> RawClient {
    let mut client = client_with_settings(pooler, database);
    client.rows("CREATE TEMP TABLE mine AS SELECT 7 AS n");
    client.rows("SELECT pg_advisory_lock_shared(7)");
    client
}

#[track_caller]
fn check_settings(client: &mut RawClient) {
    assert_eq!(client.value("SHOW work_mem"), "5MB");
    assert_eq!(client.value("SHOW app.own"), "5");
    assert_eq!(client.value("EXECUTE mine"), "8");
    let bind = frontend::bind("", "named", &[Some("8")]);
    client.send([bind, frontend::execute("", 0), frontend::sync()].concat());
    let tags: Vec<_> = client.read_to_ready().iter().map(|message| message.tag).collect();
    assert_eq!(tags, *b"2DCZ");
}

const LOCKS: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";

#[track_caller]
fn check_session(client: &mut RawClient) {
    check_settings(client);
    assert_eq!(client.value("SELECT n FROM mine"), "7");
    assert_eq!(client.value(LOCKS), "1");
}

/// Each has a server of its own meanwhile.
#[track_caller]
fn check_strangers(strangers: &mut [RawClient]) {
    strangers.iter_mut().for_each(|stranger| drop(stranger.rows("BEGIN")));
    for stranger in strangers.iter_mut() {
        assert_eq!(stranger.value("SELECT to_regclass('mine') IS NULL"), "t");
        assert_eq!(stranger.value("SHOW work_mem"), "4MB");
        assert_eq!(stranger.value("SELECT coalesce(current_setting('app.own', true), '')"), "");
        let prepared = "SELECT count(*) FROM pg_prepared_statements WHERE from_sql";
        assert_eq!(stranger.value(prepared), "0");
        assert_eq!(stranger.value("SELECT count(*) FROM pg_listening_channels()"), "0");
        assert_eq!(stranger.value(LOCKS), "0");
    }
    strangers.iter_mut().for_each(|stranger| drop(stranger.rows("COMMIT")));
}

fn backend(client: &mut RawClient) -> String {
    client.value("SELECT pg_backend_pid()")
}

/// By SET on the console, or for the database alone by RELOAD.
fn change_mode(pooler: &mut Pooler, database: &str, mode: &str, by_reload: bool) {
    if by_reload {
        let port = testkit::Postgres::shared().port();
        pooler.reconfigure(|ini| {
            ini.database(database, &format!("host=127.0.0.1 port={port} pool_mode={mode}"));
        });
        pooler.reload();
    } else {
        pooler.admin(&format!("SET pool_mode = '{mode}'"));
    }
}

/// In a direct pool, SQL's PREPARE and LISTEN keep a backend, too, until they are gone.
fn leave_nothing_that_keeps(pooler: &Pooler, clients: [RawClient; 2]) {
    assert_eq!(pooler.admin("SHOW PINS").column("reason"), ["direct pool"; 2]);
    for mut client in clients {
        client.rows("DISCARD TEMP; DEALLOCATE mine; UNLISTEN *");
        client.rows("SELECT pg_advisory_unlock_all()");
        assert_eq!(client.value("SHOW work_mem"), "5MB");
    }
    eventually("nobody is pinned", PATIENCE, || {
        pooler.admin("SHOW PINS").rows.is_empty().then_some(())
    });
}

#[test]
fn a_session_of_session_mode_is_kept_in_auto_mode() {
    if !support::only_weir() {
        return;
    }
    for by_reload in [false, true] {
        let (setup, database) = support::setup("session");
        let mut pooler = setup.set("default_pool_size", 3).workers(2).start();
        let mut client = client_with_session(&pooler, &database);
        let leaver = client_with_session(&pooler, &database);
        change_mode(&mut pooler, &database, "auto", by_reload);
        drop(leaver);
        let own = backend(&mut client);
        let mut strangers = [(); 2].map(|()| pooler.client(&database));
        for _ in 0..3 {
            check_session(&mut client);
            check_strangers(&mut strangers);
        }
        assert_eq!(backend(&mut client), own);
        assert_eq!(pooler.admin("SHOW PINS").column("reason"), ["session mode"]);
        strangers[0].rows("NOTIFY news, '1'");
        assert_eq!(hear(&mut client, 1), ["1"]);
        client.rows("DISCARD ALL");
        client.rows("SET work_mem = '6MB'");
        check_strangers(&mut strangers);
        assert_ne!(backend(&mut client), own);
        assert_eq!(client.value("SHOW work_mem"), "6MB");
        assert_eq!(client.value("SELECT to_regclass('mine') IS NULL"), "t");
        assert!(pooler.admin("SHOW PINS").rows.is_empty());
    }
}

#[test]
fn a_session_of_auto_mode_is_kept_in_other_modes() {
    if !support::only_weir() {
        return;
    }
    for (mode, by_reload) in [("session", false), ("transaction", true)] {
        // In session mode, a pool is proxied. The clients of direct pools are disconnected then.
        if testkit::pools_are_direct() && mode == "session" {
            continue;
        }
        let (setup, database) = support::setup("auto");
        let mut pooler = setup.set("default_pool_size", 5).workers(2).start();
        let mut keeping = client_with_session(&pooler, &database);
        let mut carrying = client_with_settings(&pooler, &database);
        change_mode(&mut pooler, &database, mode, by_reload);
        let own = backend(&mut keeping);
        let mut strangers = [(); 2].map(|()| pooler.client(&database));
        for _ in 0..3 {
            check_session(&mut keeping);
            check_settings(&mut carrying);
            check_strangers(&mut strangers);
        }
        assert_eq!(backend(&mut keeping), own);
        strangers[0].rows("NOTIFY news, '1'");
        assert_eq!(hear(&mut keeping, 1), ["1"]);
        assert_eq!(hear(&mut carrying, 1), ["1"]);
        if testkit::pools_are_direct() {
            leave_nothing_that_keeps(&pooler, [keeping, carrying]);
            continue;
        }
        // It is pinned until the reason is gone.
        keeping.rows("DROP TABLE mine; SELECT pg_advisory_unlock_shared(7); UNLISTEN *");
        eventually("nobody is pinned", PATIENCE, || {
            pooler.admin("SHOW PINS").rows.is_empty().then_some(())
        });
        check_settings(&mut keeping);
        assert_ne!(backend(&mut keeping), own);
    }
}
