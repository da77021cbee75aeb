//! Servers whose role, database or stored settings have changed in PostgreSQL.

use std::time::Duration;

use config::{Config, PoolMode};
use wire::backend;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

const GONE: &str = "the role has been renamed or dropped";

fn asking(workers: usize, change: impl FnOnce(&mut Config)) -> Rig {
    Rig::with_workers(workers, |config| {
        config.global.role_check_interval = Duration::from_secs(1);
        change(config);
    })
}

/// Takes Weir's question.
#[track_caller]
fn is_asked(server: &Server) {
    let got = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(got.contains("own.usesysid") && got.contains("'alice'::pg_catalog.name"), "{got}");
    assert!(got.contains("'app'::pg_catalog.name"), "{got}");
}

pub(crate) fn told(server: &str, new: &str) -> Vec<Message> {
    let mut columns = Vec::new();
    let column = |name| backend::Column { name, type_oid: 25, type_len: -1 };
    backend::row_description(&mut columns, &[column("concat_ws"), column("concat_ws")]);
    let mut row = Vec::new();
    backend::data_row(&mut row, &[Some(server.as_bytes()), Some(new.as_bytes())]);
    vec![columns, row, complete("SELECT 1"), ready('I')]
}

#[track_caller]
pub(crate) fn tells(server: &Server, is: &str, new: &str) {
    is_asked(server);
    server.send(told(is, new));
}

/// The pool's first client. Its server is of role 17.
#[track_caller]
fn first(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello(&[]);
    tells(&rig.server(0), "17 5", "17 5");
    client.expect_welcome(&[]);
    client
}

#[test]
pub(crate) fn one_client_in_a_second_has_a_server_asked() {
    let rig = asking(1, |_| {});
    let old = first(&rig);
    // No login within the second costs a question.
    let _second = rig.client();
    rig.server(0).expect([]);
    // The last of them is owed one.
    rig.wait(2);
    tells(&rig.server(0), "17 5", "17 5");
    rig.wait(20);
    rig.server(0).expect([]);
    let late = rig.connect();
    late.say_hello(&[]);
    late.expect([]);
    tells(&rig.server(0), "17 5", "17 5");
    late.expect_welcome(&[]);
    old.send([query("one")]);
    rig.server(0).answers("one");
    old.expect([done("OK")]);
    assert_eq!(rig.servers(), 1);
}

#[test]
pub(crate) fn clients_of_a_former_role_leave() {
    for workers in [1, 2] {
        let rig = asking(workers, |_| {});
        let (idle, busy) = (first(&rig), rig.client_at(workers - 1));
        busy.send([query("begin")]);
        rig.server(0).expect([query("begin")]);
        rig.server(0).send([complete("BEGIN"), ready('T')]);
        busy.expect([complete("BEGIN"), ready('T')]);
        idle.send([query("other")]);
        let other = rig.server(1);
        other.answers("other");
        idle.expect([done("OK")]);
        rig.wait(2);
        // The check that the second login was owed.
        tells(&other, "17 5", "17 5");
        rig.wait(2);
        let new = rig.connect();
        new.say_hello(&[]);
        tells(&other, "17 5", "18 5");
        assert!(!other.is_open(), "it is of the former role");
        idle.expect_fatal(GONE);
        new.expect_welcome(&[]);
        new.send([query("mine")]);
        rig.server(2).answers("mine");
        new.expect([done("OK")]);
        busy.send([query("commit")]);
        rig.server(0).expect([query("commit")]);
        rig.server(0).send([done("COMMIT")]);
        busy.expect([done("COMMIT")]);
        assert!(!rig.server(0).is_open());
        busy.send([query("as whom?")]);
        busy.expect_fatal(GONE);
        rig.server(2).expect([]);
        assert!(rig.logged("PrincipalChanged"));
    }
}

#[test]
pub(crate) fn a_server_that_answers_in_a_transaction_is_nobodys() {
    for status in ['T', 'E'] {
        let rig = asking(1, |_| {});
        let old = first(&rig);
        rig.wait(2);
        let new = rig.connect();
        new.say_hello(&[]);
        is_asked(&rig.server(0));
        let mut answer = told("17 5", "17 5");
        *answer.last_mut().unwrap() = ready(status);
        rig.server(0).send(answer);
        assert!(!rig.server(0).is_open());
        new.expect_welcome(&[]);
        old.send([query("one")]);
        rig.server(1).answers("one");
        old.expect([done("OK")]);
    }
}

#[test]
pub(crate) fn a_dropped_role_has_no_servers() {
    let rig = asking(1, |_| {});
    let old = first(&rig);
    rig.wait(2);
    let new = rig.connect();
    rig.set_automatic(false);
    new.say_hello(&[]);
    tells(&rig.server(0), "17 5", "5");
    assert!(!rig.server(0).is_open());
    old.expect_fatal(GONE);
    rig.server(1).connect();
    rig.server(1).send([error("28000", "role \"alice\" does not exist")]);
    assert!(String::from_utf8_lossy(&new.take()).contains("does not exist"));
}

#[test]
pub(crate) fn changed_settings_replace_servers() {
    let rig = asking(1, |_| {});
    let old = first(&rig);
    rig.wait(2);
    let new = rig.connect();
    new.say_hello(&[]);
    tells(&rig.server(0), "17 5", "17 5 0.17.725.(0,1)");
    new.expect_welcome(&[]);
    assert!(!rig.server(0).is_open());
    old.send([query("one")]);
    rig.server(1).answers("one");
    old.expect([done("OK")]);
}

#[test]
fn a_pool_whose_servers_are_never_idle_has_the_next_free_one_asked() {
    let rig = asking(1, |config| config.global.default_pool_size = 1);
    let busy = first(&rig);
    rig.wait(2);
    busy.send([query("begin")]);
    rig.server(0).expect([query("begin")]);
    rig.server(0).send([complete("BEGIN"), ready('T')]);
    let waits = rig.client();
    waits.send([query("mine")]);
    busy.send([query("commit")]);
    rig.server(0).expect([query("commit")]);
    rig.server(0).send([done("COMMIT")]);
    tells(&rig.server(0), "17 5", "17 5");
    rig.server(0).answers("mine");
    waits.expect([done("OK")]);
}

#[test]
pub(crate) fn a_node_that_cannot_answer_is_not_asked_again() {
    let rig = asking(1, |_| {});
    let client = rig.connect();
    client.say_hello(&[]);
    is_asked(&rig.server(0));
    rig.server(0).send([error("42P01", "no such relation"), ready('I')]);
    client.expect_welcome(&[]);
    rig.wait(5);
    let _other = rig.client();
    rig.wait(5);
    rig.server(0).expect([]);
    assert_eq!(rig.servers(), 1);
}

#[test]
pub(crate) fn a_server_lost_while_asked_costs_no_login() {
    let rig = asking(1, |_| {});
    let _old = first(&rig);
    rig.wait(2);
    let new = rig.connect();
    new.say_hello(&[]);
    is_asked(&rig.server(0));
    rig.server(0).die();
    tells(&rig.server(1), "17 5", "17 5");
    new.expect_welcome(&[]);
    new.send([query("one")]);
    rig.server(1).answers("one");
    new.expect([done("OK")]);
}

/// A firewall has forgotten the connections, or the address leads to another machine now.
#[test]
pub(crate) fn idle_servers_that_were_lost_together_count_once() {
    let rig = asking(1, |_| {});
    let mut clients = vec![first(&rig)];
    clients.extend([(); 3].map(|()| rig.client()));
    for (at, client) in clients.iter().enumerate() {
        client.send([query("begin")]);
        rig.server(at).expect([query("begin")]);
        rig.server(at).send([complete("BEGIN"), ready('T')]);
        client.expect([complete("BEGIN"), ready('T')]);
    }
    for (at, client) in clients.iter().enumerate() {
        client.send([query("commit")]);
        rig.server(at).answers("commit");
        client.expect([done("OK")]);
    }
    let asked = || (0..4).map(|at| rig.server(at)).find(|server| !server.take().is_empty());
    rig.wait(2);
    // The check that the last login was owed.
    asked().expect("one is asked").send(told("17 5", "17 5"));
    rig.wait(2);
    let new = rig.connect();
    new.say_hello(&[]);
    for _ in 0..4 {
        asked().expect("one is asked").die();
    }
    tells(&rig.server(4), "17 5", "17 5");
    new.expect_welcome(&[]);
    new.send([query("one")]);
    rig.server(4).answers("one");
    new.expect([done("OK")]);
}

/// A pooler behind Weir may do so.
#[test]
pub(crate) fn a_node_that_ends_asking_sessions_is_left_alone() {
    for has_answered in [true, false] {
        let rig = asking(1, |_| {});
        let _old = has_answered.then(|| first(&rig));
        rig.wait(2);
        let new = rig.connect();
        new.say_hello(&[]);
        for asked in 0..3 {
            is_asked(&rig.server(asked));
            rig.server(asked).die();
        }
        new.expect_welcome(&[]);
        for _ in 0..20 {
            new.send([query("one")]);
            rig.server(3).answers("one");
            new.expect([done("OK")]);
            rig.wait(2);
            drop(rig.client());
        }
        rig.server(3).expect([]);
        assert_eq!(rig.servers(), 4);
    }
}

/// A node that is a pooler may give a name another meaning than its PostgreSQL does.
#[test]
pub(crate) fn a_node_that_maps_names_is_left_alone() {
    let rig = asking(1, |_| {});
    let mut client = rig.connect();
    client.say_hello(&[]);
    tells(&rig.server(0), "17 5", "18 5");
    client.expect_welcome(&[]);
    for at in 1..=3 {
        client.send([query("one")]);
        rig.server(at).answers("one");
        client.expect([done("OK")]);
        rig.wait(2);
        tells(&rig.server(at), "17 5", "18 5");
        if at < 3 {
            client = rig.client();
        }
    }
    client.send([query("two")]);
    rig.server(3).answers("two");
    client.expect([done("OK")]);
    rig.wait(5);
    let _other = rig.client();
    rig.wait(5);
    rig.server(3).expect([]);
    assert_eq!(rig.servers(), 4);
}

#[test]
fn a_client_that_leaves_during_the_check_leaves_the_server_to_others() {
    let rig = asking(1, |_| {});
    let old = first(&rig);
    rig.wait(2);
    let new = rig.connect();
    new.say_hello(&[]);
    new.leave();
    tells(&rig.server(0), "17 5", "17 5");
    old.send([query("one")]);
    rig.server(0).answers("one");
    old.expect([done("OK")]);
}

#[test]
fn a_client_of_session_mode_keeps_its_server_and_its_role() {
    let rig = asking(1, |config| config.global.pool_mode = PoolMode::Session);
    let keeps = first(&rig);
    rig.wait(2);
    let new = rig.connect();
    new.say_hello(&[]);
    // The new server shows that logins lead to another role now.
    tells(&rig.server(1), "18 5", "18 5");
    new.expect_welcome(&[]);
    keeps.send([query("one")]);
    rig.server(0).answers("one");
    keeps.expect([done("OK")]);
    keeps.send([terminate()]);
    rig.server(0).answers("DISCARD ALL");
    assert!(!rig.server(0).is_open());
}

#[test]
fn the_library_tells_of_another_role_without_a_question() {
    let told = |config: &mut Config, oid: Option<u32>| {
        config.hba.roles.clear();
        config.hba.roles.extend(oid.map(|oid| ("alice".to_owned(), oid)));
    };
    for gone in [false, true] {
        let rig = Rig::new(|config| told(config, Some(17)));
        let old = rig.client();
        rig.reload(|config| told(config, Some(17)));
        if gone {
            rig.reload(|config| told(config, None));
        }
        assert!(rig.server(0).is_open());
        rig.reload(|config| told(config, Some(18)));
        assert!(!rig.server(0).is_open());
        old.expect_fatal(GONE);
        let new = rig.client();
        new.send([query("mine")]);
        rig.server(1).answers("mine");
        new.expect([done("OK")]);
    }
}
