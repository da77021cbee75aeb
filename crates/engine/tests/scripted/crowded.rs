//! The clients that are disconnected if too many log in at a time (`max_client_logins`).

use std::time::Duration;

use config::{AuthType, Config};
use engine::LOGIN_GRACE;
use engine::auth::Peer;

use crate::asking::found;
use crate::messages::*;
use crate::rig::{Client, Rig};

const CLEARTEXT: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";

fn rig(change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        config.global.auth_type = AuthType::Plain;
        change(config);
    })
}

/// A client that is asked for its password.
fn challenged(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello(&[]);
    client.expect([CLEARTEXT.to_vec()]);
    client
}

#[test]
fn a_stalled_tcp_client_is_disconnected_and_a_unix_one_is_not() {
    let rig = rig(|_| {});
    let (silent, asked) = (rig.connect(), challenged(&rig));
    let local = rig.connect_from(0, Peer { local: true, ..Peer::default() });
    rig.later(LOGIN_GRACE - 1);
    let late = challenged(&rig);
    rig.crowd_out();
    assert!(silent.is_open() && asked.is_open());
    rig.later(1);
    rig.crowd_out();
    silent.expect_fatal(CROWDED_OUT);
    asked.expect_fatal(CROWDED_OUT);
    assert!(local.is_open() && late.is_open());
}

#[test]
fn a_client_delayed_by_others_wrong_passwords_goes_only_after_stalled_ones() {
    let rig = rig(|config| config.global.auth_failure_delay = Duration::from_secs(3_600));
    for _ in 0..engine::guesses::FREE {
        let client = challenged(&rig);
        client.send([password("wrong")]);
        client.expect_fatal("password authentication failed");
    }
    let held = challenged(&rig);
    held.send([password("secret")]);
    held.expect([]);
    let slow = challenged(&rig);
    rig.later(LOGIN_GRACE);
    rig.crowd_out();
    slow.expect_fatal(CROWDED_OUT);
    assert!(held.is_open());
    rig.crowd_out();
    held.expect_fatal(CROWDED_OUT);
}

/// The limits count a client as soon as it has sent its name.
#[test]
fn a_stalled_login_makes_room_for_a_client_at_a_limit() {
    type Limit = fn(&mut Config);
    let limits: [(&str, Limit); 3] = [
        ("no more connections allowed (max_client_conn)", |config| {
            config.global.max_client_conn = 2;
        }),
        ("client connections exceeded (max_db_client_connections)", |config| {
            config.global.max_db_client_connections = 2;
        }),
        ("client connections exceeded (max_user_client_connections)", |config| {
            config.global.max_user_client_connections = 2;
        }),
    ];
    for (refusal, limit) in limits {
        let rig = Rig::with_workers(2, |config| {
            config.global.auth_type = AuthType::Plain;
            config.global.client_login_timeout = Duration::from_secs(600);
            limit(config);
        });
        let proven = challenged(&rig);
        proven.send([password("secret")]);
        proven.take();
        let stalled = challenged(&rig);
        rig.wait(1);
        assert!(stalled.is_open(), "nobody else wants to come in");
        let refused = || {
            let client = rig.connect_from(1, Peer::default());
            client.say_hello(&[]);
            client.expect_fatal(refusal);
        };
        refused();
        rig.wait(1);
        stalled.expect_fatal("login is too slow, and other clients wait for a place");
        assert!(proven.is_open());
        let next = challenged(&rig);
        rig.later(LOGIN_GRACE / 2);
        refused();
        rig.later(LOGIN_GRACE / 4);
        rig.wait(0);
        assert!(next.is_open(), "it has time to answer");
        next.send([password("secret")]);
        assert!(next.is_open());
    }
}

#[test]
fn time_before_the_query_was_sent_does_not_count_as_late() {
    let rig = rig(|config| {
        config.global.auth_user = Some("asker".into());
        config.global.auth_query = "SELECT name, secret FROM lookup($1)".into();
    });
    let client = rig.connect();
    client.say_hello_as("bob", "app");
    rig.later(10 * LOGIN_GRACE);
    rig.crowd_out();
    assert!(client.is_open(), "it is us for whom it waits");
    rig.server(0).send(found(&[Some("bob"), Some("hers")]));
    client.expect([CLEARTEXT.to_vec()]);
    rig.crowd_out();
    assert!(client.is_open(), "it has only just been asked");
    rig.later(LOGIN_GRACE);
    rig.crowd_out();
    client.expect_fatal(CROWDED_OUT);
}
