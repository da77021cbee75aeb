//! The limit of servers that are being opened at a time, over all pools.

use engine::limits::STANDSTILL_MAX;
use engine::pool::Gate;

use crate::rig::{Client, Rig, add_others, server_welcome};

/// Three pools that each need a server. Two servers may be opened at a time.
fn stormed(workers: usize) -> (Rig, [Client; 3]) {
    let rig = Rig::with_workers(workers, add_others).manual();
    rig.set_openings_max(2);
    let clients = [("alice", "app"), ("bob", "app"), ("alice", "other")];
    let mut at = 0;
    let clients = clients.map(|(user, database)| {
        at += 1;
        let client = rig.connect_from(at % workers, Default::default());
        client.say_hello_as(user, database);
        client
    });
    (rig, clients)
}

#[track_caller]
fn log_in(rig: &Rig, at: usize) {
    rig.server(at).connect();
    rig.server(at).send([server_welcome(at)]);
}

#[test]
fn one_pool_waits_until_a_server_of_another_is_logged_in() {
    for workers in [1, 2] {
        let (rig, [alice, bob, other]) = stormed(workers);
        assert_eq!(rig.servers(), 2, "the third has to wait");
        log_in(&rig, 1);
        bob.expect_welcome(&[]);
        assert_eq!(rig.servers(), 3);
        log_in(&rig, 2);
        other.expect_welcome(&[]);
        log_in(&rig, 0);
        alice.expect_welcome(&[]);
    }
}

#[test]
fn a_login_that_fails_makes_room_for_another() {
    for workers in [1, 2] {
        let (rig, [_, _, other]) = stormed(workers);
        rig.server(0).connect();
        rig.server(0).die();
        assert_eq!(rig.servers(), 3);
        log_in(&rig, 2);
        other.expect_welcome(&[]);
    }
}

#[test]
fn a_login_that_is_not_wanted_any_more_makes_room_for_another() {
    let (rig, [_, _, other]) = stormed(1);
    rig.order(|pool| pool.set_gate(Gate::Paused));
    assert_eq!(rig.servers(), 3);
    log_in(&rig, 2);
    other.expect_welcome(&[]);
}

#[test]
fn logins_that_hang_do_not_hold_up_other_pools() {
    let (rig, [_, _, other]) = stormed(2);
    rig.later(STANDSTILL_MAX);
    rig.wait(0);
    assert_eq!(rig.servers(), 3);
    log_in(&rig, 2);
    other.expect_welcome(&[]);
}

#[test]
fn a_pool_whose_client_has_left_needs_no_turn() {
    let (rig, [alice, bob, other]) = stormed(1);
    other.leave();
    log_in(&rig, 0);
    alice.expect_welcome(&[]);
    assert_eq!(rig.servers(), 2);
    log_in(&rig, 1);
    bob.expect_welcome(&[]);
}
