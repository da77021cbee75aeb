//! The port of the pages: a port in use, a reload, an online restart.

use std::net::{TcpListener, TcpStream};

use testkit::{Ini, Pooler, eventually, free_port, frontend};

use super::{PATIENCE, get, pool_labels, pooler, until};
use crate::support;

#[track_caller]
fn reconfigure(pooler: &mut Pooler, change: impl FnOnce(&mut Ini)) {
    pooler.reconfigure(change);
    pooler.reload();
}

fn serves(port: u16) -> bool {
    get(port, "/healthz").is_some_and(|answer| answer.status == 200)
}

#[track_caller]
fn until_served(port: u16) {
    eventually("metrics are served", PATIENCE, || serves(port).then_some(()));
}

#[track_caller]
fn until_closed(port: u16) {
    eventually("the port is closed", PATIENCE, || {
        TcpStream::connect(("127.0.0.1", port)).is_err().then_some(())
    });
}

#[test]
fn a_port_in_use_is_logged_and_tried_again_at_a_reload() {
    if !support::only_weir() {
        return;
    }
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = other.local_addr().expect("a bound socket").port();
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("metrics_port", port).start();
    let warning = format!(
        "WARNING cannot serve metrics on 127.0.0.1:{port}: bind(): Address already in use; \
         Weir goes on without metrics, and tries again at the next RELOAD"
    );
    eventually("it is logged", PATIENCE, || pooler.log().contains(&warning).then_some(()));
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1", "service goes on");
    // It was so at the start, so a reload does not fail for it.
    pooler.admin("RELOAD");
    drop(other);
    pooler.admin("RELOAD");
    until_served(port);
}

#[test]
fn a_reload_fails_as_long_as_the_new_port_is_not_served() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, _, first) = pooler(|setup| setup);
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let taken = other.local_addr().expect("a bound socket").port();
    pooler.reconfigure(|ini| ini.set("metrics_port", taken));
    let what = format!("cannot serve metrics on 127.0.0.1:{taken}: bind(): Address already in use");
    for _ in 0..2 {
        let outcome = pooler.try_admin("RELOAD");
        assert!(outcome.error.is_some(), "{outcome:?}");
        assert!(outcome.notices.iter().any(|notice| notice.contains(&what)), "{outcome:?}");
        until_closed(first);
    }
    drop(other);
    pooler.admin("RELOAD");
    until_served(taken);
    until(taken, "weir_config_reload_success", "", 1.0);
}

#[test]
fn a_set_fails_for_its_own_key_only_and_is_no_reload() {
    if !support::only_weir() {
        return;
    }
    let (pooler, _, first) = pooler(|setup| setup);
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let taken = other.local_addr().expect("a bound socket").port();
    let outcome = pooler.try_admin(&format!("SET metrics_port = {taken}"));
    assert!(outcome.error.is_none(), "{outcome:?}");
    let what = format!("cannot serve metrics on 127.0.0.1:{taken}: bind(): Address already in use");
    assert!(outcome.notices.iter().any(|notice| notice.contains(&what)), "{outcome:?}");
    assert!(pooler.try_admin("SET nonsense = 1").error.is_some());
    let outcome = pooler.try_admin("SET stats_period = 61");
    assert!(outcome.error.is_none() && outcome.notices.is_empty(), "{outcome:?}");
    let outcome = pooler.try_admin(&format!("SET metrics_port = {first}"));
    assert!(outcome.error.is_none() && outcome.notices.is_empty(), "{outcome:?}");
    until_served(first);
    until(first, "weir_config_reload_success", "", 1.0);
    assert!(!pooler.admin("SHOW EVENTS").column("event").contains(&"reload failed"));
}

#[test]
fn a_reload_fails_for_a_name_without_an_address() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, _, port) = pooler(|setup| setup);
    // Longer than a label may be: no name server is asked.
    let name = "a".repeat(64);
    pooler.reconfigure(|ini| ini.set("metrics_addr", format!("127.0.0.1, {name}")));
    let what = format!("cannot serve metrics on {name}: getaddrinfo(): ");
    let logged = |pooler: &Pooler| pooler.log().matches(&what).count();
    for tries in 1..=2 {
        let outcome = pooler.try_admin("RELOAD");
        assert!(outcome.error.is_some(), "{outcome:?}");
        assert!(outcome.notices.iter().any(|notice| notice.contains(&what)), "{outcome:?}");
        assert_eq!(logged(&pooler), tries, "each RELOAD tries again");
    }
    until(port, "weir_config_reload_success", "", 0.0);
    reconfigure(&mut pooler, |ini| ini.set("metrics_addr", "127.0.0.1"));
    until(port, "weir_config_reload_success", "", 1.0);

    // A SIGHUP has the same result.
    pooler.reconfigure(|ini| ini.set("metrics_addr", format!("127.0.0.1, {name}")));
    pooler.signal("HUP");
    until(port, "weir_config_reload_success", "", 0.0);
    assert_eq!(logged(&pooler), 3);
    let failed = pooler.admin("SHOW EVENTS").with("event", "reload failed");
    assert_eq!(failed.column("event").len(), 3);
}

#[test]
fn a_reload_changes_the_metrics_port_and_switches_it_off() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, _, first) = pooler(|setup| setup);
    let second = free_port();
    reconfigure(&mut pooler, |ini| ini.set("metrics_port", second));
    until_served(second);
    until_closed(first);
    pooler.admin(&format!("SET metrics_port = {first}"));
    until_served(first);
    until_closed(second);
    reconfigure(&mut pooler, |ini| ini.set("metrics_port", 0));
    until_closed(first);
    assert!(!serves(second));
    reconfigure(&mut pooler, |ini| {
        ini.set("metrics_port", second);
        ini.set("metrics_addr", "127.0.0.1, 127.0.0.2");
    });
    until_served(second);
    eventually("at the other address, too", PATIENCE, || {
        TcpStream::connect(("127.0.0.2", second)).ok()
    });
}

#[test]
fn health_checks_have_an_address_of_their_own() {
    if !support::only_weir() {
        return;
    }
    let health = free_port();
    let (mut pooler, _, metrics) =
        pooler(|setup| setup.set("health_addr", "127.0.0.1").set("health_port", health));
    let said = |port, path: &str| get(port, path).map(|answer| (answer.status, answer.body));
    let ok = Some((200, "ok\n".to_owned()));
    until_served(health);
    for path in ["/health/live", "/health/ready", "/healthz", "/readyz"] {
        assert_eq!((said(health, path), said(metrics, path)), (ok.clone(), ok.clone()), "{path}");
    }
    for path in ["/metrics", "/health", "/health/", "/health/primaries"] {
        let (status, body) = said(health, path).expect("an answer");
        assert!(status == 404 && !body.contains("/metrics"), "{path}: {status} {body}");
    }
    assert!(said(health, "/").expect("an answer").1.contains("/health/primary/NAME"));
    let none = "no cluster is configured, so no primary is watched\n";
    assert_eq!(said(health, "/health/primary"), Some((503, none.to_owned())));
    let unknown = "no cluster \"main\" is configured\n";
    assert_eq!(said(health, "/health/primary/main"), Some((404, unknown.to_owned())));

    let mut console = pooler.console();
    console.query("PAUSE");
    assert_eq!(said(health, "/health/ready").expect("an answer").0, 503);
    assert_eq!(said(health, "/health/live"), ok);
    console.query("RESUME");

    // Its port is not that of the metrics.
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let taken = other.local_addr().expect("a bound socket").port();
    let outcome = pooler.try_admin(&format!("SET health_port = {taken}"));
    let what = format!("cannot serve health checks on 127.0.0.1:{taken}: bind(): ");
    assert!(outcome.notices.iter().any(|notice| notice.contains(&what)), "{outcome:?}");
    assert!(serves(metrics));
    pooler.admin("SET health_port = 0");
    until_closed(health);
    reconfigure(&mut pooler, |ini| ini.set("health_port", health));
    until_served(health);

    // One RELOAD exchanges the ports.
    reconfigure(&mut pooler, |ini| {
        ini.set("health_port", metrics);
        ini.set("metrics_port", health);
    });
    assert_eq!(said(health, "/metrics").expect("an answer").0, 200);
    assert_eq!(said(metrics, "/metrics").expect("an answer").0, 404);
    assert_eq!(pooler.take_over().code(), Some(0));
    until_served(health);
}

#[test]
fn metrics_show_a_failed_reload() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, _, port) = pooler(|setup| setup);
    until(port, "weir_config_reload_success", "", 1.0);
    pooler.reconfigure(|ini| ini.set("stats_period", "no number"));
    pooler.try_admin("RELOAD");
    until(port, "weir_config_reload_success", "", 0.0);
    reconfigure(&mut pooler, |ini| ini.set("stats_period", 60));
    until(port, "weir_config_reload_success", "", 1.0);
}

#[test]
fn an_online_restart_hands_the_port_over_each_time() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database, port) = pooler(|setup| setup);
    // The query keeps the old process alive after the hand-over.
    let mut busy = pooler.client(&database);
    busy.send(frontend::query("SELECT pg_sleep(100)"));
    support::until_running(&database, "SELECT pg_sleep(100)");
    let mut client = pooler.client(&database);
    let mut first = pooler.begin_take_over();
    eventually("it is taken over", PATIENCE, || {
        pooler.log().contains("has taken over").then_some(())
    });
    until_served(port);
    assert!(first.try_wait().expect("our own child").is_none(), "the first process lives");
    assert_eq!(client.value("SELECT 1"), "1");
    until(port, "weir_pool_queries_total", &pool_labels(&database), 1.0);
    drop(busy);
    assert!(first.wait().expect("our own child").success());
    for _ in 0..2 {
        assert_eq!(pooler.take_over().code(), Some(0));
        until_served(port);
    }
    assert_eq!(client.value("SELECT 1"), "1");
    assert!(!pooler.log().contains("cannot serve metrics"), "{}", pooler.log());
}
