//! HBA rules choose the authentication method. `peer` checks the user of the client's process.

use std::sync::Arc;

use config::hba::{Hba, IdentMaps};
use config::{AuthType, Config};
use engine::auth::Peer;
use engine::shell::{Check, Checked};

use crate::messages::startup;
use crate::rig::{Client, Rig};

const RULES: &str = "\
local all bob peer map=os
local all all peer
host all all 10.0.0.0/8 reject
host all carol all trust
host all all all password
";

fn ruled(rules: &str) -> Rig {
    ruled_for(|_| {}, rules)
}

fn ruled_for(change: impl FnOnce(&mut Config), rules: &str) -> Rig {
    Rig::new(|config: &mut Config| {
        change(config);
        let file: Arc<str> = "hba".into();
        let (maps, _) = IdentMaps::parse("os root bob", &file);
        let (hba, warnings) = Hba::parse(rules, &file, &maps, &|_| None);
        assert!(warnings.is_empty(), "{warnings:?}");
        config.hba = hba;
        config.global.auth_type = AuthType::Hba;
        config.auth_file.users.insert("bob".into(), "secret".into());
    })
}

fn hello(rig: &Rig, peer: Peer, user: &str) -> Client {
    let client = rig.connect_from(0, peer);
    client.say_hello_as(user, "app");
    client
}

fn local() -> Peer {
    Peer { local: true, uid: Some(17), ..Peer::default() }
}

fn far(address: &str) -> Peer {
    Peer { address: address.parse().ok(), ..Peer::default() }
}

#[test]
fn the_address_and_the_user_decide() {
    let rig = ruled(RULES);
    hello(&rig, far("10.9.8.7"), "alice").expect_fatal("login rejected");
    hello(&rig, far("192.168.1.1"), "carol").expect_fatal("\"trust\" authentication failed");
    hello(&rig, far("192.168.1.1"), "alice").expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
    let rig = ruled("local all all trust\n");
    hello(&rig, local(), "alice").expect_welcome(&[]);
    hello(&rig, far("::1"), "alice").expect_fatal("no authentication method is found");
    hello(&rig, Peer::default(), "alice").expect_fatal("no authentication method is found");
}

#[test]
fn a_rule_for_the_console_holds_by_either_of_its_names() {
    for name in ["pgbouncer", "weir"] {
        let rig = ruled(&format!("host {name} all all reject\nhost all all all trust\n"));
        for asked in ["pgbouncer", "weir"] {
            let client = rig.connect_from(0, far("::1"));
            client.say_hello_as("alice", asked);
            client.expect_fatal("login rejected");
        }
        hello(&rig, far("::1"), "alice").expect_welcome(&[]);
    }
}

#[test]
fn a_database_of_that_name_is_not_the_console() {
    let rig = ruled_for(
        |config| {
            let app = config.databases["app"].clone();
            config.databases.insert("weir".into(), app);
        },
        "host pgbouncer all all reject\nhost all all all trust\n",
    );
    let client = rig.connect_from(0, far("::1"));
    client.say_hello_as("alice", "weir");
    client.expect_welcome(&[]);
}

#[test]
fn tls_and_replication_decide() {
    let rig = ruled(
        "hostssl all all all trust\nhostnossl replication all all trust\nhost all all all reject\n",
    );
    let secured = Peer { secured: Some(Arc::default()), ..far("::1") };
    hello(&rig, secured, "alice").expect_welcome(&[]);
    hello(&rig, far("::1"), "alice").expect_fatal("login rejected");
    let client = rig.connect_from(0, far("::1"));
    client.send([replicating("database")]);
    client.expect_fatal("login rejected");
    let client = rig.connect_from(0, far("::1"));
    client.send([replicating("true")]);
    assert_eq!(rig.servers(), 2, "a server is opened for it");
}

fn replicating(how: &str) -> Vec<u8> {
    startup(&[("user", "alice"), ("database", "app"), ("replication", how)])
}

#[test]
fn a_peer_is_the_user_of_its_name() {
    for (name, user, welcome) in [
        (Some("alice"), "alice", true),
        (Some("root"), "alice", false),
        (Some("root"), "bob", true),
        (Some("bob"), "bob", false),
        (None, "alice", false),
    ] {
        let rig = ruled(RULES);
        let client = hello(&rig, local(), user);
        client.expect([]);
        let (id, serial, check) = rig.check();
        assert_eq!(check, Check::PeerName(17));
        rig.answer_check(id, serial, &Checked::PeerName(name.map(str::to_owned)));
        match welcome {
            true => drop(client.expect_welcome(&[])),
            false => client.expect_fatal("unix socket login rejected"),
        }
    }
}

#[test]
fn an_unknown_or_remote_user_is_no_peer() {
    let rig = ruled("local all all peer\nhost all all all peer\n");
    let client = hello(&rig, local(), "mallory");
    let (id, serial, _) = rig.check();
    rig.answer_check(id, serial, &Checked::PeerName(Some("mallory".into())));
    client.expect_fatal("unix socket login rejected");
    hello(&rig, far("::1"), "alice").expect_fatal("unix socket login rejected");
}

#[test]
fn an_answer_about_a_client_that_has_left_does_not_count_for_the_next() {
    let rig = ruled(RULES);
    let client = hello(&rig, local(), "alice");
    let (id, serial, _) = rig.check();
    client.leave();
    let next = hello(&rig, local(), "alice");
    let (same_slot, next_serial, _) = rig.check();
    assert_eq!(same_slot, id);
    let alice = Checked::PeerName(Some("alice".into()));
    rig.answer_check(id, serial, &alice);
    next.expect([]);
    rig.answer_check(id, next_serial, &alice);
    next.expect_welcome(&[]);
}

#[test]
fn a_database_may_be_for_some_users_only_which_is_told_after_the_proof() {
    let rig = ruled("only app bob\nhost all all all trust\n");
    hello(&rig, far("::1"), "bob").expect_welcome(&[]);
    hello(&rig, far("::1"), "alice").expect_fatal("permission denied for database \"app\"");
    let rig = ruled("only app bob\nhost all all all password\n");
    hello(&rig, far("::1"), "alice").expect([b"R\0\0\0\x08\0\0\0\x03".to_vec()]);
}

#[test]
fn a_long_name_is_cut_before_it_is_looked_up() {
    let rig = ruled("name_len_max 5\nhost all alice all trust\n");
    hello(&rig, far("::1"), "alice-and-more").expect_welcome(&[]);
}
