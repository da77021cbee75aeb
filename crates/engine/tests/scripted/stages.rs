//! The transactions that a worker remembers, with their stages, and the pulse of a pool.

use engine::pulse::Pulse;
use engine::transactions::Transaction;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const MS: u32 = 1_000;

fn begin(client: &Client, server: &Server) {
    client.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
}

fn doing(rig: &Rig) -> [u32; 3] {
    let Pulse { active, in_transaction, kept, .. } = rig.pulses(0)[0];
    [active, in_transaction, kept]
}

#[test]
fn a_wait_for_a_server_is_a_stage_of_the_client_that_waits() {
    let rig = Rig::of_size(1);
    let named = [("user", "alice"), ("database", "app"), ("application_name", "web-1")];
    let (holder, waiter) = (rig.client(), rig.client_with(0, &named));
    let server = rig.server(0);
    begin(&holder, &server);
    rig.wait_ms(20);
    waiter.send([query("SELECT 1")]);
    assert_eq!(doing(&rig), [0, 1, 0]);
    rig.wait_ms(30);
    holder.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([complete("COMMIT"), ready('I')]);
    // The name of the waiter.
    let set = show(&server.take());
    assert!(set[0].contains("application_name"), "{set:?}");
    rig.wait_ms(5);
    server.send([complete("SET"), status("application_name", "web-1"), ready('I')]);
    server.expect([query("SELECT 1")]);
    assert_eq!(doing(&rig), [1, 0, 0]);
    rig.wait_ms(10);
    server.send([complete("SELECT 0")]);
    rig.wait_ms(2);
    server.send([ready('I')]);
    assert_eq!(doing(&rig), [0, 0, 0]);

    let all = rig.transactions(0);
    let [first, second] = all[..] else { panic!("{all:?}") };
    assert!(first.is_complete && first.sent == 0, "{first:?}");
    assert!((50 * MS..51 * MS).contains(&first.done) && first.busy == 0, "{first:?}");
    let Transaction { linked, applied, sent, first_byte, done, busy, .. } = second;
    assert_eq!(
        [linked, applied, sent, first_byte, done, busy].map(|micros| micros / MS),
        [30, 35, 35, 45, 47, 12],
        "{second:?}"
    );
    assert_eq!(second.name.as_bytes(), b"web-1");
    assert_ne!(second.fingerprint, first.fingerprint);
}

#[test]
fn a_transaction_that_is_cut_is_remembered() {
    for loses_server in [false, true] {
        let rig = Rig::of_size(1);
        let (client, server) = (rig.client(), rig.server(0));
        begin(&client, &server);
        rig.wait_ms(20);
        if loses_server {
            server.die()
        } else {
            client.leave()
        }
        let all = rig.transactions(0);
        assert!(matches!(all[..], [one] if !one.is_complete && one.done / MS == 20), "{all:?}");
    }
}

#[test]
fn a_session_has_not_waited_for_its_server_since_its_login() {
    let rig = Rig::session();
    let (client, server) = (rig.client(), rig.server(0));
    for _ in 0..2 {
        rig.wait_ms(500);
        client.send([query("SELECT 1")]);
        server.expect([query("SELECT 1")]);
        rig.wait_ms(3);
        server.send([done("SELECT 0")]);
        assert_eq!(doing(&rig), [0, 0, 1]);
    }
    let all = rig.transactions(0);
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|one| one.linked == 0 && one.done / MS == 3), "{all:?}");
}
