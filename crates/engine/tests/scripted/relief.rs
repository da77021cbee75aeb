//! Auto mode: a planned change of the cluster's primary loses no notification.

use config::PoolMode;
use engine::pool::{Gate, Pool};

use crate::clusters::{clustered, tell};
use crate::listen::{DEAF, GAP, begin, listening, orders};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const PLANNED: &str = "switchover to node b";
/// The change is over, and listeners are opened.
const RESUMING: &str = "resuming";

/// A client of the second worker that listens without a server, a server that is idle, and the
/// listener.
pub(crate) fn prepared() -> (Rig, Client, Server, Server, String) {
    let rig = Rig::with_workers(2, |config| {
        clustered(config);
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 1;
    });
    rig.client().leave();
    tell(&rig, Some("10.0.0.1"), None);
    let (client, server, listener, mark) = listening(&rig, 1);
    (rig, client, server, listener, mark)
}

/// As the shell does when no other connection to the old primary is open. Answers the listener's last
/// command, after this notification.
fn end_listener(rig: &Rig, listener: &Server, mark: &str) {
    rig.order(Pool::end_listener);
    assert_eq!(orders(listener), [format!("LISTEN \"{mark}\"")]);
    rig.order(|_| {});
    listener.expect([]);
    listener.send([told(5, "news", "the last"), done("LISTEN")]);
    assert!(!listener.is_open());
}

#[test]
pub(crate) fn last_commits_are_told() {
    let (rig, client, server, listener, mark) = prepared();
    let busy = rig.client_at(0);
    busy.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    busy.take();
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    rig.wait(2);
    assert!(listener.is_open());
    busy.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done("COMMIT")]);
    busy.expect([done("COMMIT")]);
    assert!(!server.is_open());
    assert_eq!(rig.pool(|pool| (pool.places(), pool.counts())), (0, (1, 0)));
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    end_listener(&rig, &listener, &mark);
    client.expect([told(5, "news", "the last")]);
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
pub(crate) fn the_listener_comes_first() {
    let (rig, client, _, listener, mark) = prepared();
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    end_listener(&rig, &listener, &mark);
    client.expect([told(5, "news", "the last")]);
    let waiting = rig.client_at(0);
    waiting.send([query("NOTIFY news")]);
    tell(&rig, Some("10.0.0.2"), Some(PLANNED));
    rig.wait(2);
    assert_eq!(rig.servers(), 2, "nothing is opened");
    assert!(rig.pool(|pool| pool.awaits_listener()));
    tell(&rig, Some("10.0.0.2"), Some(RESUMING));
    assert_eq!(rig.servers(), 3, "only the listener is opened");
    let next = rig.server(2);
    assert!(rig.pool(|pool| pool.awaits_listener()));
    begin(&next, "LISTEN \"news\";");
    assert!(!rig.pool(|pool| pool.awaits_listener()));
    tell(&rig, Some("10.0.0.2"), None);
    assert!(next.is_open());
    rig.server(3).answers("NOTIFY news");
    next.send([told(6, "news", "2")]);
    client.expect([told(6, "news", "2")]);
}

/// Clients went on before the listener listened, since it took too long.
#[test]
pub(crate) fn a_late_listener_warns() {
    let (rig, client, _, listener, mark) = prepared();
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    end_listener(&rig, &listener, &mark);
    tell(&rig, Some("10.0.0.2"), Some(RESUMING));
    let next = rig.server(2);
    tell(&rig, Some("10.0.0.2"), None);
    begin(&next, "LISTEN \"news\";");
    client.expect([told(5, "news", "the last"), warning("01000", GAP)]);
}

#[test]
fn a_listener_that_dies_in_the_drain_warns() {
    let (rig, client, _, listener, _) = prepared();
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    rig.order(Pool::end_listener);
    listener.die();
    client.expect([warning("01000", DEAF)]);
    assert!(!rig.pool(|pool| pool.awaits_listener()));
    tell(&rig, Some("10.0.0.2"), Some(RESUMING));
    begin(&rig.server(2), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

#[test]
fn a_change_that_is_given_up_keeps_the_listener() {
    let (rig, client, server, listener, mark) = prepared();
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    assert!(!server.is_open());
    tell(&rig, Some("10.0.0.1"), None);
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    // The order comes too late: clients have gone on.
    tell(&rig, Some("10.0.0.1"), Some(PLANNED));
    rig.order(Pool::end_listener);
    assert_eq!(orders(&listener), [format!("LISTEN \"{mark}\"")]);
    tell(&rig, Some("10.0.0.1"), None);
    listener.send([done("LISTEN")]);
    assert!(listener.is_open());
    listener.die();
    begin(&rig.server(2), "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
}

/// Clients may go on at another node at once.
#[test]
fn an_unplanned_change_ends_the_listener() {
    let (rig, client, _, listener, _) = prepared();
    tell(&rig, Some("10.0.0.1"), Some("it is gone"));
    assert!(!listener.is_open());
    client.expect([warning("01000", DEAF)]);
    rig.order(Pool::end_listener);
    assert_eq!(rig.pool(|pool| (pool.gate(), pool.ends_listener())), (Gate::NoPrimary, false));
    assert_eq!(rig.servers(), 2);
}

/// A failover by Weir, or a promotion that Weir has only seen.
#[test]
pub(crate) fn the_listener_comes_first_after_a_loss() {
    for has_failed in [false, true] {
        let (rig, client, _, listener, _) = prepared();
        if has_failed {
            // Weir does not know of the loss yet, and cannot connect.
            listener.die();
            rig.wait(1);
            rig.server(2).die();
        }
        tell(&rig, Some("10.0.0.1"), Some("it is gone"));
        client.take();
        assert!(rig.pool(|pool| pool.lacks_listener()));
        let waiting = rig.client_at(0);
        waiting.send([query("NOTIFY news")]);
        let before = rig.servers();
        tell(&rig, Some("10.0.0.2"), Some(RESUMING));
        assert_eq!(rig.servers(), before + 1, "only the listener is opened");
        let next = rig.server(before);
        begin(&next, "LISTEN \"news\";");
        client.expect([warning("01000", GAP)]);
        assert!(!rig.pool(|pool| pool.lacks_listener()));
        tell(&rig, Some("10.0.0.2"), None);
        rig.server(before + 1).answers("NOTIFY news");
        next.send([told(6, "news", "2")]);
        client.expect([told(6, "news", "2")]);
    }
}

/// Clients do not wait for a listener that nobody needs any more.
#[test]
fn a_client_that_has_left_needs_no_listener() {
    let (rig, client, _, _, _) = prepared();
    tell(&rig, Some("10.0.0.1"), Some("it is gone"));
    client.take();
    client.leave();
    rig.wait(1);
    assert!(!rig.pool(|pool| pool.lacks_listener()));
}
