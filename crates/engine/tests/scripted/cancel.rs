//! Cancel requests: they hit the right server only, and never a later query.

use config::PoolMode;
use engine::auth::Peer;
use engine::cancel::CancelEnd;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// A client of that worker, its cancel key, and a server that runs its query.
fn busy(rig: &Rig, worker: usize) -> (Client, Message, Server) {
    let client = rig.connect_from(worker, Peer::default());
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    client.send([query("slow")]);
    let server = rig.server(rig.servers() - 1);
    server.expect([query("slow")]);
    (client, cancel_request(pid, &secret), server)
}

fn asks(rig: &Rig, worker: usize, packet: &Message) -> Client {
    let requester = rig.connect_from(worker, Peer::default());
    requester.send([packet.clone()]);
    requester
}

/// The packet that PostgreSQL must get for a server of the rig.
fn own_packet(server: &Server) -> Message {
    cancel_request(server.pid(), &server.pid().to_be_bytes())
}

#[test]
fn the_right_server_is_told_and_the_requester_waits_for_that() {
    let rig = Rig::transaction();
    let (_first, first_key, first_server) = busy(&rig, 0);
    let (_second, _, second_server) = busy(&rig, 0);
    assert_ne!(first_server.pid(), second_server.pid());
    let requester = asks(&rig, 0, &first_key);
    assert_eq!(rig.cancels(), [(0, own_packet(&first_server))]);
    assert!(requester.is_open());
    rig.finish_cancel();
    assert!(!requester.is_open());
    requester.expect([]);
}

#[test]
fn there_is_nothing_to_cancel_for_an_idle_client() {
    let rig = Rig::transaction();
    let (client, key, server) = busy(&rig, 0);
    server.send([done("OK")]);
    assert!(!asks(&rig, 0, &key).is_open());
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    assert!(!asks(&rig, 0, &key).is_open());
    assert_eq!(rig.cancels(), []);
}

#[test]
fn a_question_before_the_request_is_cancelled_with_it() {
    let rig = Rig::of_size(2);
    let client = rig.connect();
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    client.send([parse("mine", "select"), describe("mine"), sync()]);
    rig.server(0).send([parsed(), parameters(), columns("a"), ready('I')]);
    rig.client().send([query("alter")]);
    rig.server(0).send([complete("ALTER TABLE"), ready('T')]);
    client.send([bind("mine"), execute(), sync()]);
    let server = rig.server(1);
    server.expect([close("weir_1"), parse("weir_1", "select"), describe("weir_1"), sync()]);
    asks(&rig, 0, &cancel_request(pid, &secret));
    assert_eq!(rig.cancels(), [(1, own_packet(&server))]);
}

#[test]
fn an_unknown_key_and_a_broken_one() {
    let rig = Rig::new(|config| config.global.cancel_lost_queries = false);
    let (client, key, _) = busy(&rig, 0);
    let mut wrong = key.clone();
    wrong[15] ^= 1;
    for packet in [wrong, cancel_request(1, &[0; 4]), cancel_request(1, &[0; 32])] {
        let requester = asks(&rig, 0, &packet);
        assert!(!requester.is_open());
        requester.expect([]);
    }
    assert_eq!(rig.cancels(), []);
    client.leave();
    assert!(!asks(&rig, 0, &key).is_open());
    assert_eq!(rig.cancels(), []);
}

#[test]
fn the_server_is_not_given_out_before_the_cancel_request_is_over() {
    let rig = Rig::of_size(1);
    let (client, key, server) = busy(&rig, 0);
    let other = rig.client();
    other.send([query("other")]);
    asks(&rig, 0, &key);
    server.send([done("OK")]);
    client.expect([done("OK")]);
    server.expect([]);
    rig.finish_cancel();
    server.answers("other");
    other.expect([done("OK")]);
}

/// The first request was for a server that has died. Another server now has its slot.
#[test]
pub(crate) fn the_end_of_a_request_for_a_lost_server_does_not_count_for_another() {
    let rig = Rig::of_size(1);
    let (_client, key, server) = busy(&rig, 0);
    asks(&rig, 0, &key);
    server.die();
    let (client, key, server) = busy(&rig, 0);
    let other = rig.client();
    other.send([query("other")]);
    asks(&rig, 0, &key);
    server.send([done("OK")]);
    client.expect([done("OK")]);
    rig.finish_cancel();
    server.expect([]);
    rig.finish_cancel();
    server.answers("other");
}

#[test]
fn a_reset_waits_as_well() {
    let rig = Rig::session();
    let (client, key, server) = busy(&rig, 0);
    asks(&rig, 0, &key);
    server.send([error("57014", "canceling statement"), ready('I')]);
    client.send([terminate()]);
    server.expect([]);
    rig.finish_cancel();
    server.expect([query("DISCARD ALL")]);
}

#[test]
fn a_second_request_for_the_same_query_changes_nothing() {
    let rig = Rig::transaction();
    let (_client, key, _) = busy(&rig, 0);
    let first = asks(&rig, 0, &key);
    let second = asks(&rig, 0, &key);
    assert_eq!(rig.cancels().len(), 1);
    assert!(first.is_open() && !second.is_open());
    rig.finish_cancel();
    assert!(!first.is_open());
}

#[test]
fn a_request_may_come_in_at_another_worker() {
    let rig = Rig::with_workers(3, |_| {});
    let (_client, key, server) = busy(&rig, 0);
    let requester = asks(&rig, 2, &key);
    assert_eq!(rig.cancels(), [(0, own_packet(&server))]);
    assert!(requester.is_open());
    rig.finish_cancel();
    assert!(!requester.is_open());
}

#[test]
fn a_requester_that_leaves_has_asked_all_the_same() {
    let rig = Rig::with_workers(2, |_| {});
    let (client, key, server) = busy(&rig, 0);
    let requester = asks(&rig, 1, &key);
    requester.leave();
    server.send([done("OK")]);
    client.expect([done("OK")]);
    assert!(!server.is_parked());
    rig.finish_cancel();
    assert!(server.is_parked());
}

#[test]
pub(crate) fn the_answers_to_a_requester_that_has_left_do_not_count_for_another() {
    let rig = Rig::with_workers(3, |_| {});
    let (_one, key, _) = busy(&rig, 0);
    let (_two, other_key, _) = busy(&rig, 0);
    rig.hold_mail(true);
    asks(&rig, 2, &key).leave();
    // It has the first client's slot. The worker without such a client answers both.
    let next = asks(&rig, 2, &other_key);
    rig.hold_mail(false);
    assert_eq!(rig.cancels().len(), 2);
    assert!(next.is_open());
}

#[test]
fn a_server_that_dies_meanwhile_takes_the_matter_along() {
    let rig = Rig::of_size(1);
    let (client, key, server) = busy(&rig, 0);
    let requester = asks(&rig, 0, &key);
    server.die();
    client.expect_lost();
    let other = rig.client();
    other.send([query("other")]);
    let next = rig.server(1);
    rig.finish_cancel();
    assert!(!requester.is_open());
    next.answers("other");
    other.expect([done("OK")]);
}

#[test]
fn our_own_questions_are_not_cancelled() {
    let rig = Rig::of_size(1);
    let (_, server) = (rig.client(), rig.server(0));
    let client = rig.connect();
    client.say_hello(&[("TimeZone", "Asia/Tokyo")]);
    let (pid, secret) = client.expect_welcome(&[("TimeZone", "Asia/Tokyo")]);
    client.send([query("mine")]);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    assert!(!asks(&rig, 0, &cancel_request(pid, &secret)).is_open());
    assert_eq!(rig.cancels(), []);
}

#[test]
fn a_session_client_cancels_by_its_servers_number_and_a_secret_of_ours() {
    let rig = Rig::session();
    let (_client, key, server) = busy(&rig, 0);
    assert_eq!(key[8..12], server.pid().to_be_bytes());
    assert_ne!(key[12..], server.pid().to_be_bytes());
    // The server's own secret cancels nothing.
    asks(&rig, 0, &own_packet(&server));
    assert_eq!(rig.cancels(), []);
    asks(&rig, 0, &key);
    assert_eq!(rig.cancels(), [(0, own_packet(&server))]);
}

/// Protocol 3.2: all bytes of the long key count. A short key that is a prefix is not enough.
#[test]
fn a_client_of_protocol_3_2_has_a_long_key() {
    let rig = Rig::transaction();
    // Fills the pool.
    rig.client();
    let client = rig.connect_from(0, Peer::default());
    let mut hello = startup(&[("user", "alice"), ("database", "app")]);
    hello[7] = 2;
    client.send([hello]);
    let got = client.take();
    let key = got.len() - ready('I').len() - wire::cancel_key::LONG_SECRET_LEN - 4;
    let (pid, secret) = (&got[key..key + 4], &got[key + 4..got.len() - ready('I').len()]);
    let pid = u32::from_be_bytes(pid.try_into().expect("four bytes"));
    assert!(got.ends_with(&[key_data(pid, secret), ready('I')].concat()));

    client.send([query("slow")]);
    let mut forged = secret.to_vec();
    forged[31] ^= 1;
    for wrong in [&secret[..4], &secret[..31], &forged] {
        assert!(!asks(&rig, 0, &cancel_request(pid, wrong)).is_open());
    }
    assert_eq!(rig.cancels(), []);
    asks(&rig, 0, &cancel_request(pid, secret));
    assert_eq!(rig.cancels().len(), 1);
}

#[test]
fn the_query_of_a_lost_client_is_cancelled_and_its_server_kept() {
    let rig = Rig::of_size(1);
    let (client, _, server) = busy(&rig, 0);
    let other = rig.client();
    other.send([query("other")]);
    client.leave();
    assert_eq!(rig.cancels(), [(0, own_packet(&server))]);
    server.send([row("x"), error("57014", "canceling statement due to user request"), ready('I')]);
    server.expect([]);
    rig.finish_cancel();
    server.expect([query("other")]);
    server.send([done("OK")]);
    other.expect([done("OK")]);
    assert_eq!(rig.pool(|pool| pool.counts()), (1, 0));
}

#[test]
fn a_lost_client_leaves_no_transaction_behind() {
    let rig = Rig::of_size(1);
    let client = rig.client();
    client.send([query("begin")]);
    let server = rig.server(0);
    server.send([complete("BEGIN"), ready('T')]);
    client.send([query("slow")]);
    client.leave();
    rig.finish_cancel();
    server.send([error("57014", "canceling statement due to user request"), ready('E')]);
    assert!(!server.is_open());
}

/// The replies can never be complete, so the server is closed after its cancel request.
#[test]
fn a_lost_client_in_mid_batch_costs_its_server() {
    let rig = Rig::of_size(1);
    let client = rig.client();
    client.send([parse("", "slow"), bind(""), execute(), flush()]);
    let server = rig.server(0);
    client.leave();
    assert_eq!(rig.cancels().len(), 1);
    assert!(server.is_open());
    rig.finish_cancel();
    assert!(!server.is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

/// If the BEGIN were cancelled, PostgreSQL would commit the statements after it one by one.
#[test]
fn no_begin_is_cancelled_that_other_statements_of_a_lost_client_follow() {
    let rig = Rig::of_size(1);
    let client = rig.client();
    client.send([query("BEGIN"), query("INSERT")]);
    let server = rig.server(0);
    client.leave();
    assert_eq!(rig.cancels(), []);
    assert!(!server.is_open());
}

/// PostgreSQL ignores cancel requests while it reads copy data, so waiting has no end.
#[test]
fn a_client_lost_before_its_copy_begins_costs_its_server() {
    let rig = Rig::of_size(1);
    let client = rig.client();
    client.send([query("COPY t FROM STDIN")]);
    let server = rig.server(0);
    let other = rig.client();
    other.send([query("other")]);
    client.leave();
    assert!(server.is_open());
    server.send([copy_in()]);
    assert!(!server.is_open());
    rig.finish_cancel();
    rig.server(1).answers("other");
    other.expect([done("OK")]);
}

#[test]
fn a_query_is_finished_although_its_client_says_goodbye() {
    let rig = Rig::transaction();
    let (client, _, server) = busy(&rig, 0);
    client.send([terminate()]);
    assert_eq!(rig.cancels(), []);
    assert!(!server.is_open());
}

/// PostgreSQL may act on the request at any later time.
#[test]
pub(crate) fn a_server_whose_request_was_given_up_serves_no_other_client() {
    let rig = Rig::of_size(1);
    let (client, key, server) = busy(&rig, 0);
    asks(&rig, 0, &key);
    server.send([done("OK")]);
    client.expect([done("OK")]);
    rig.end_cancel(CancelEnd::Late { sent: true });
    assert!(!server.is_open());
    assert!(rig.logged("reason: \"cancel_wait_timeout\""));
    client.send([query("again")]);
    rig.server(1).answers("again");
}

#[test]
fn a_call_returns_false_if_no_cancel_request_was_sent() {
    for (end, why) in [
        (CancelEnd::Unsent, "cancel request could not be sent"),
        (CancelEnd::Late { sent: false }, "cancel_wait_timeout"),
        (CancelEnd::Taken, "successfully sent cancel request"),
    ] {
        let rig = Rig::of_size(1);
        let (client, key, server) = busy(&rig, 0);
        asks(&rig, 0, &key);
        server.send([done("OK")]);
        client.expect([done("OK")]);
        rig.end_cancel(end);
        assert!(rig.logged(&format!("reason: {why:?}")), "{why}");
        client.send([query("again")]);
        server.answers("again");
    }
}

/// A client may pass the process id it was given to `pg_terminate_backend`.
#[test]
fn a_process_id_from_weir_is_no_process_of_the_system() {
    const PROCESS_ID_MAX: u32 = 4_194_304;
    for peer in [0, 256] {
        let rig = Rig::new(|config| {
            config.global.pool_mode = PoolMode::Auto;
            config.global.peer_id = peer;
        });
        rig.client();
        for _ in 0..2_000 {
            let client = rig.connect();
            client.say_hello(&[]);
            let (pid, _) = client.expect_welcome(&[]);
            assert!(pid > PROCESS_ID_MAX, "{pid}");
            client.say_goodbye();
        }
    }
}
