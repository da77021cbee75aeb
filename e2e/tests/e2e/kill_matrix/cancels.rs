//! Deaths during a cancel request.

use super::fuse::Toward;
use super::rig::Rig;
use crate::support;
use testkit::{Message, Postgres, RawClient, frontend};

const QUERY_CANCELED: &str = "57014";
/// Long enough to be seen running, and for a wrongly forwarded cancel request to arrive.
const SHORT: &str = "SELECT pg_sleep(0.5)";
/// Longer than any test waits.
const LONG: &str = "SELECT pg_sleep(60)";
const REQUEST_LEN: usize = 16;

/// The places to cut a request: between its fields and inside each.
const CUTS: [usize; 9] = [0, 2, 4, 6, 8, 10, 12, 14, REQUEST_LEN];

fn error_of(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(Message::error).map(|error| error.code().to_owned())
}

/// Sends a part of a cancel request for `client`, and closes the connection.
fn cancel_in_part(rig: &Rig<'_>, client: &RawClient, length: usize) {
    let mut canceller = RawClient::connect(rig.pooler.port());
    canceller.send(&frontend::cancel_request(client.pid, &client.secret)[..length]);
}

fn begin(rig: &Rig<'_>, client: &mut RawClient, sql: &str) {
    client.send(frontend::query(sql));
    support::until_running(&rig.database, sql);
}

#[test]
fn a_cut_cancel_request_harms_nobody_strict() {
    for mode in super::MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for length in CUTS {
            let complete = length == REQUEST_LEN;
            let mut client = rig.pooler.client(&rig.database);
            begin(&rig, &mut client, if complete { LONG } else { SHORT });
            cancel_in_part(&rig, &client, length);
            let error = error_of(&client.read_to_ready());
            let expected = complete.then_some(QUERY_CANCELED);
            assert_eq!(error.as_deref(), expected, "{mode}, byte {length}");
            drop(client);
            rig.assert_unharmed(&format!("{mode}, canceller, byte {length}"), &[0]);
        }
    }
}

#[test]
fn a_client_that_leaves_while_it_is_cancelled_harms_nobody_strict() {
    for mode in super::MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for length in CUTS {
            let cell = format!("{mode}, cancelled, byte {length}");
            rig.keep_bystander_busy();
            let mut client = rig.pooler.client(&rig.database);
            begin(&rig, &mut client, SHORT);
            let mut canceller = RawClient::connect(rig.pooler.port());
            let request = frontend::cancel_request(client.pid, &client.secret);
            canceller.send(&request[..length]);
            drop(client);
            // The request is now for a client that has left. It must not cancel another client's
            // query.
            let _ = canceller.try_send(&request[length..]);
            rig.assert_bystander_undisturbed(&cell);
            rig.assert_unharmed(&cell, &[0]);
        }
    }
}

#[test]
fn the_way_of_a_cancel_to_the_server_is_cut_strict() {
    for mode in super::MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for length in CUTS {
            let complete = length == REQUEST_LEN;
            let mut client = rig.pooler.client(&rig.database);
            begin(&rig, &mut client, if complete { LONG } else { SHORT });
            rig.fuse.arm(Toward::Server, length);
            client.cancel(rig.pooler.port());
            let error = error_of(&client.read_to_ready());
            assert!(rig.fuse.disarm(), "{mode}, byte {length}: so much was never said");
            let expected = complete.then_some(QUERY_CANCELED);
            assert_eq!(error.as_deref(), expected, "{mode}, byte {length}");
            drop(client);
            rig.assert_unharmed(&format!("{mode}, cancel cut off, byte {length}"), &[0]);
        }
    }
}

#[test]
fn a_server_that_is_to_be_cancelled_dies_strict() {
    for mode in super::MODES {
        let mut rig = Rig::new(Postgres::shared(), mode);
        for length in CUTS {
            let mut client = rig.pooler.client(&rig.database);
            begin(&rig, &mut client, LONG);
            let mut canceller = RawClient::connect(rig.pooler.port());
            let request = frontend::cancel_request(client.pid, &client.secret);
            canceller.send(&request[..length]);
            // After a whole request, the server may be back in its pool, where it dies.
            rig.end_other_servers();
            let _ = canceller.try_send(&request[length..]);
            let heard = client.read_until(|m| m.tag == b'E');
            assert_eq!(heard.len(), 1 + usize::from(heard.len() > 1), "{heard:?}");
            drop(client);
            rig.assert_unharmed(&format!("{mode}, cancelled server, byte {length}"), &[0]);
        }
    }
}

#[test]
fn the_pooler_dies_with_a_cancel_strict() {
    let mut rig = Rig::new(Postgres::shared(), "transaction");
    for length in CUTS {
        let mut client = rig.pooler.client(&rig.database);
        begin(&rig, &mut client, SHORT);
        cancel_in_part(&rig, &client, length);
        rig.pooler.kill9();
        rig.take_bystander();
        client.read_to_end();
        rig.until_servers_are_gone();
        rig.pooler.restart();
        rig.bring_bystander();
        rig.assert_unharmed(&format!("pooler with a cancel, byte {length}"), &[0]);
    }
}
