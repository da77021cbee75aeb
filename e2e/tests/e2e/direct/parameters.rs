//! The reported parameters that clients of a direct pool are told.

use testkit::{RawClient, Role, frontend};

use super::Direct;
use crate::support;

/// Returns the parameters that the answer to this query tells, in order.
#[track_caller]
fn told(client: &mut RawClient, sql: &str) -> Vec<(String, String)> {
    client.send(frontend::query(sql));
    let answer = client.read_to_ready();
    answer.iter().filter(|message| message.tag == b'S').map(|message| message.parameter()).collect()
}

/// A client, and its value of `TimeZone`.
fn client(direct: &Direct, zone: &str, more: &[(&str, &str)]) -> RawClient {
    let own = [("user", Role::APP), ("database", &direct.database), ("timezone", zone)];
    let mut client = RawClient::connect(direct.pooler.port());
    client.authenticate(&[&own, more].concat(), Role::APP_PASSWORD).expect("a login");
    client
}

/// Some drivers do not expect parameters in an answer (the listener of bun's pgdriver).
#[test]
fn a_client_is_not_told_again_what_its_login_has_told() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut plain = direct.client();
    let mut near = client(&direct, "Europe/Berlin", &[("application_name", "near")]);
    let mut far = client(&direct, "Asia/Tokyo", &[("datestyle", "German, DMY")]);
    for _ in 0..3 {
        for client in [&mut plain, &mut near, &mut far] {
            assert_eq!(told(client, "SELECT 1"), []);
        }
    }
    let changed = told(&mut far, "SET timezone = 'Europe/Paris'");
    assert!(changed.contains(&("TimeZone".to_owned(), "Europe/Paris".to_owned())), "{changed:?}");
    for client in [&mut plain, &mut near, &mut far] {
        assert_eq!(told(client, "SELECT 1"), []);
    }
    assert_eq!(near.value("SHOW timezone"), "Europe/Berlin");
    assert_eq!(far.value("SHOW timezone"), "Europe/Paris");
}

/// PostgreSQL may write a value in another way than the client has.
#[test]
fn a_client_is_told_a_value_that_differs_from_that_of_its_login() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut client = client(&direct, "UTC", &[("datestyle", "german")]);
    let all = told(&mut client, "SELECT 1");
    assert!(all.contains(&("DateStyle".to_owned(), "German, DMY".to_owned())), "{all:?}");
    assert_eq!(told(&mut client, "SELECT 1"), []);
}
