//! Peers: a cancel key names its pooler process, and cancel requests for others are passed on.

use engine::auth::Peer as Origin;
use engine::cancel::CancelEnd;
use wire::cancel_key;

use crate::messages::*;
use crate::rig::Rig;

fn peers(id: u32) -> Rig {
    Rig::new(move |config| {
        config.global.peer_id = id;
        for other in [1, 0x0203] {
            let hosts = vec![config::Host::Unix(format!("/peer{other}").into())];
            config.peers.insert(other, config::Peer { hosts, port: 6433, ..Default::default() });
        }
    })
}

fn number(pid: u32, secret: &[u8]) -> u64 {
    let short: [u8; 4] = secret[..4].try_into().expect("four bytes at least");
    u64::from(pid) << 32 | u64::from(u32::from_be_bytes(short))
}

/// The client's cancel packet, with `key` as the first eight bytes of its key.
fn request(key: u64, secret: &[u8]) -> Message {
    let mut own = (key as u32).to_be_bytes().to_vec();
    own.extend_from_slice(&secret[4..]);
    cancel_request((key >> 32) as u32, &own)
}

#[test]
fn a_key_of_ones_own_is_honoured_however_often_it_was_passed_on() {
    for long in [false, true] {
        let rig = peers(0x0203);
        let client = rig.connect_from(0, Origin::default());
        let (pid, secret) = if long {
            client.say_hello_3_2();
            client.take_long_key()
        } else {
            client.say_hello(&[]);
            client.expect_welcome(&[])
        };
        assert_eq!(secret.len(), if long { cancel_key::LONG_SECRET_LEN } else { 4 });
        let key = number(pid, &secret);
        assert_eq!((cancel_key::peer(key), key & 3), (0x0203, 3));
        client.send([query("slow")]);
        rig.server(0).expect([query("slow")]);
        let last = (0..3).fold(key, |key, _| cancel_key::passed_on(key).expect("three hops"));
        rig.connect_from(0, Origin::default()).send([request(last, &secret)]);
        assert_eq!(rig.cancels().len(), 1, "long: {long}");
        assert_eq!(rig.forwards(), []);
    }
}

#[test]
fn a_key_of_a_peers_is_passed_on_and_the_requester_waits_for_that() {
    let rig = peers(1);
    let secret = [7; 32];
    let key = cancel_key::of_peer(0x1234_5678_9abc_def0, 0x0203);
    let requester = rig.connect_from(0, Origin::default());
    requester.send([request(key, &secret)]);
    let passed = request(key - 1, &secret);
    assert_eq!(rig.forwards(), [("515: Unix(\"/peer515/.s.PGSQL.6433\")".to_owned(), passed)]);
    assert!(requester.is_open());
    rig.end_forward(CancelEnd::Taken);
    assert!(!requester.is_open());
    requester.expect([]);
    assert!(rig.logged("reason: \"successfully sent cancel request\""));
}

#[test]
fn a_request_for_a_peer_that_cannot_be_reached_is_tried_again() {
    let rig = peers(1);
    let key = cancel_key::of_peer(0x1234_5678_9abc_def0, 0x0203);
    let requester = rig.connect_from(0, Origin::default());
    requester.send([request(key, &[7; 4])]);
    let passed = rig.forwards();
    for _ in 0..3 {
        rig.end_forward(CancelEnd::Unsent);
        rig.later(500_000);
        rig.wait(0);
        assert_eq!(rig.forwards(), [], "not at once");
        assert_eq!(rig.report(0).cancels.len(), 1, "it waits");
        rig.wait(1);
        assert_eq!(rig.forwards(), passed, "the same request");
    }
    assert!(requester.is_open());
    rig.end_forward(CancelEnd::Taken);
    assert!(!requester.is_open());
    assert!(rig.report(0).cancels.is_empty());
}

#[test]
fn a_request_that_waits_for_a_peer_ends_with_its_time_or_its_requester() {
    let rig = peers(1);
    let key = cancel_key::of_peer(0x1234_5678_9abc_def0, 0x0203);
    for leaves in [false, true] {
        let requester = rig.connect_from(0, Origin::default());
        requester.send([request(key, &[7; 4])]);
        rig.end_forward(CancelEnd::Unsent);
        if leaves {
            requester.leave();
        } else {
            // The default of `cancel_wait_timeout`.
            rig.wait(10);
            assert!(!requester.is_open());
            assert!(rig.logged("reason: \"cancel_wait_timeout\""));
        }
        rig.wait(1);
        assert_eq!(rig.forwards(), []);
        assert!(rig.report(0).cancels.is_empty());
    }
}

#[test]
fn a_cancel_request_with_too_many_hops_or_an_unknown_peer_ends_without_an_answer() {
    let rig = peers(1);
    let spent = cancel_key::of_peer(7 << 32, 0x0203) & !3;
    let nobodys = cancel_key::of_peer(7 << 32, 9);
    for (key, why) in [
        (spent, "failed to forward cancel request because its TTL was exhausted"),
        (nobodys, "could not find peer to forward request to"),
    ] {
        let requester = rig.connect_from(0, Origin::default());
        requester.send([request(key, &[0; 4])]);
        assert!(!requester.is_open());
        requester.expect([]);
        assert!(rig.logged(why), "{why}");
    }
    assert_eq!(rig.forwards(), []);
}
