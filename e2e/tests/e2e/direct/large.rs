//! A client whose state does not fit into its place in the lobby keeps its backend, and SHOW PINS and
//! the clients that wait say so.

use testkit::{eventually, frontend};

use super::{Direct, PATIENCE, ask};
use crate::support;

/// Statements of together more than 255 KiB.
const STATEMENTS: usize = 8;
const TEXT_LEN: usize = 40_000;

#[test]
fn a_state_that_is_too_large_is_named_where_the_client_keeps_its_backend() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start_with(1, |setup| {
        setup.set("query_wait_timeout", 2).set("error_codes", "weir")
    });
    let reasons = || {
        let pins = direct.pooler.admin("SHOW PINS");
        pins.column("reason").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut client = direct.client();
    for number in 0..STATEMENTS {
        let text = format!("SELECT '{number}{}'", "x".repeat(TEXT_LEN));
        ask(&mut client, &[frontend::parse(&format!("s{number}"), &text), frontend::sync()]);
    }
    eventually("it is listed", PATIENCE, || (reasons() == ["state too large"]).then_some(()));
    let mut other = direct.client();
    other.send(frontend::query("SELECT 1"));
    let error = other.read_to_end().iter().find_map(|message| message.error()).expect("an error");
    assert_eq!(error.message(), "query_wait_timeout");
    let name = format!("{}/app", direct.database);
    let detail = format!(
        "1 server of {name} busy: 1 kept by clients between transactions, 1 of them since their \
         state is too large"
    );
    assert_eq!(error.field('D'), detail);
    // Another reason.
    client.rows("SELECT pg_advisory_lock(1)");
    for number in 0..STATEMENTS {
        ask(&mut client, &[frontend::close_statement(&format!("s{number}")), frontend::sync()]);
    }
    eventually("the lock is left", PATIENCE, || (reasons() == ["direct pool"]).then_some(()));
    client.rows("SELECT pg_advisory_unlock(1)");
    assert_eq!(direct.client().value("SELECT 1"), "1");
    assert_eq!(reasons(), [""; 0]);
}

#[test]
fn settings_that_are_too_large_are_named_likewise() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut client = direct.client();
    for number in 0..12 {
        client.rows(&format!("SET app.large{number} = '{}'", "x".repeat(6_000)));
    }
    eventually("it is listed", PATIENCE, || {
        let pins = direct.pooler.admin("SHOW PINS");
        (pins.column("reason") == ["state too large"]).then_some(())
    });
    client.rows("RESET ALL");
    assert_eq!(direct.client().value("SELECT 1"), "1");
}
