//! `reuse_after_error`: a server is used again only after success.

use config::{PoolMode, ReuseAfterError};

use crate::messages::*;
use crate::rig::{Rig, add_others, app};

const FAILURE: (&str, &str) = ("22012", "division by zero");

fn rig(mode: PoolMode) -> Rig {
    Rig::new(|config| {
        config.global.pool_mode = mode;
        config.global.server_reset_query = String::new();
        config.global.reuse_after_error = ReuseAfterError::Never;
    })
}

/// The client's queries, with the status after each. `!` before a status: the query has failed.
fn run(rig: &Rig, statuses: &[&str]) {
    let (client, server) = (rig.client(), rig.server(rig.servers() - 1));
    for status in statuses {
        client.send([query("one")]);
        server.expect([query("one")]);
        let letter = status.chars().last().expect("a letter");
        let answer = match status.starts_with('!') {
            true => error(FAILURE.0, FAILURE.1),
            false => complete("OK"),
        };
        server.send([answer.clone(), ready(letter)]);
        client.expect([answer, ready(letter)]);
    }
    client.say_goodbye();
}

#[test]
fn a_server_is_closed_when_a_transaction_has_ended_in_an_error() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let cases: [(&[&str], bool); 7] = [
            (&["I"], true),
            (&["!I"], false),
            (&["T", "!E", "E", "I"], false),
            (&["T", "!E", "T", "I"], true),
            (&["T", "T", "!I"], false),
            (&["T", "I"], true),
            (&["T", "!E", "T", "!E", "I"], false),
        ];
        for (statuses, is_kept) in cases {
            let rig = rig(mode);
            rig.client().leave();
            run(&rig, statuses);
            assert_eq!(rig.server(0).is_parked(), is_kept, "{mode:?} {statuses:?}");
            assert_eq!(rig.server(0).is_open(), is_kept, "{mode:?} {statuses:?}");
            assert_eq!(rig.logged("reuse_after_error"), !is_kept, "{mode:?} {statuses:?}");
        }
    }
}

#[test]
fn in_session_mode_the_last_command_counts() {
    let rig = rig(PoolMode::Session);
    run(&rig, &["!I", "I"]);
    assert!(rig.server(0).is_parked());
}

#[test]
fn a_lone_sync_is_no_success() {
    let rig = rig(PoolMode::Session);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("one"), sync()]);
    server.send([error(FAILURE.0, FAILURE.1), ready('I'), ready('I')]);
    client.expect([error(FAILURE.0, FAILURE.1), ready('I'), ready('I')]);
    client.say_goodbye();
    assert!(!server.is_open());
}

#[test]
fn a_server_in_whose_query_the_client_is_lost_is_cancelled_and_closed() {
    let rig = rig(PoolMode::Transaction);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("long")]);
    server.expect([query("long")]);
    client.leave();
    assert_eq!(rig.cancels().len(), 1);
    rig.finish_cancel();
    server.send([error("57014", "canceling statement"), ready('I')]);
    assert!(!server.is_open());
}

#[test]
fn a_failure_is_known_after_an_online_restart() {
    let rig = rig(PoolMode::Session);
    let (client, server) = (rig.client(), rig.server(0));
    client.send([query("one")]);
    server.send([error(FAILURE.0, FAILURE.1), ready('I')]);
    client.expect([error(FAILURE.0, FAILURE.1), ready('I')]);
    rig.hand_over();
    client.say_goodbye();
    assert!(!server.is_open());
}

#[test]
fn databases_and_users_have_their_own_values() {
    let rig = Rig::new(|config| {
        add_others(config);
        app(config).reuse_after_error = Some(ReuseAfterError::Never);
        config.users.entry("bob".into()).or_default().reuse_after_error =
            Some(ReuseAfterError::Reset);
    });
    for (user, is_kept) in [("alice", false), ("bob", true)] {
        let at = rig.servers();
        let client = rig.client_of(0, user, "app");
        client.send([query("one")]);
        rig.server(at).send([error(FAILURE.0, FAILURE.1), ready('I')]);
        assert_eq!(rig.server(at).is_open(), is_kept, "{user}");
    }
}
