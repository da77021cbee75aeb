//! PostgreSQL refuses a query of Weir's own. The log says which one and why, once.

use std::time::Duration;

use config::PoolMode;

use crate::messages::*;
use crate::rig::Rig;

fn session(reset: &str) -> Rig {
    Rig::new(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.server_reset_query = reset.into();
    })
}

/// A client comes and leaves, and its server answers the reset query `sql`.
fn visit(rig: &Rig, number: usize, sql: &str, answer: [Message; 2]) {
    let client = rig.client();
    let server = rig.server(number);
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    client.leave();
    server.expect([query(sql)]);
    server.send(answer);
    assert!(!server.is_open());
}

#[test]
fn a_reset_query_that_fails_is_logged_once_until_a_reload() {
    let rig = session("SELEKT");
    let fails = || [error("42601", "syntax error"), ready('I')];
    for number in 0..3 {
        visit(&rig, number, "SELEKT", fails());
    }
    let line = "query: Reset, message: \"syntax error\", repeats:";
    assert_eq!(rig.times_logged(&format!("{line} false")), 1);
    assert_eq!(rig.times_logged(&format!("{line} true")), 2);
    visit(&rig, 3, "SELEKT", [error("57014", "too late"), ready('I')]);
    assert!(rig.logged("message: \"too late\", repeats: false"), "another reason");
    rig.reload(|config| config.global.server_reset_query = "RESETT".into());
    visit(&rig, 4, "RESETT", fails());
    assert_eq!(rig.times_logged(&format!("{line} false")), 2);
}

#[test]
fn a_reset_query_that_leaves_a_transaction_open_is_named() {
    let rig = session("BEGIN");
    visit(&rig, 0, "BEGIN", [complete("BEGIN"), ready('T')]);
    assert!(rig.logged("query: Reset, message: \"it leaves a transaction open\", repeats: false"));
}

#[test]
fn a_check_query_that_fails_is_named() {
    for (answer, why) in [
        ([error("42601", "syntax error"), ready('I')], "syntax error"),
        ([complete("BEGIN"), ready('T')], "it leaves a transaction open"),
    ] {
        let rig = Rig::new(|config| {
            config.global.server_check_query = "check".into();
            config.global.server_check_delay = Duration::from_secs(30);
        });
        let client = rig.client();
        client.send([query("first")]);
        let server = rig.server(0);
        server.answers("first");
        client.expect([done("OK")]);
        rig.wait(30);
        client.send([query("mine")]);
        server.expect([query("check")]);
        server.send(answer);
        assert!(!server.is_open());
        assert!(rig.logged(&format!("query: Check, message: \"{why}\", repeats: false")));
    }
}
