//! The listener is lost, replaced, or cannot be had.

use std::time::Duration;

use testkit::{Pooler, Postgres, RawClient, eventually};

use super::{PATIENCE, hear, listeners, pooler, until_free};
use crate::support;

fn listening(pooler: &Pooler, database: &str, count: usize) -> Vec<RawClient> {
    let mut clients: Vec<_> = (0..count).map(|_| pooler.client(database)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("LISTEN news")));
    until_free(pooler);
    clients
}

fn listener_pid(pooler: &Pooler) -> u32 {
    let servers = pooler.admin("SHOW SERVERS");
    let states = servers.column("state");
    let at = states.iter().position(|state| *state == "listening").expect("there is one");
    servers.column("remote_pid")[at].parse().expect("a number")
}

/// Waits until these are told that they may have missed something, and that they hear again.
fn until_heard_again(clients: &mut [RawClient], database: &str) {
    clients.iter_mut().for_each(until_warned_of_loss);
    support::direct(database).rows("NOTIFY news, 'again'");
    clients.iter_mut().for_each(|client| assert_eq!(hear(client, 1), ["again"]));
}

/// Waits until the client hears again. Before that it may be told that it hears nothing.
fn until_warned_of_loss(client: &mut RawClient) {
    let told = client.read_until(|message| {
        let warning = message.error().filter(|_| message.tag == b'N');
        warning.is_some_and(|warning| warning.message().contains("may have been lost"))
    });
    for notice in told {
        let warning = notice.error().expect("it is one");
        assert_eq!((warning.severity(), warning.code()), ("WARNING", "01000"));
    }
}

#[test]
fn a_lost_listener_is_replaced_and_listening_clients_get_a_warning() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 1);
    let mut clients = listening(&pooler, &database, 4);
    support::terminate_and_wait(listener_pid(&pooler));
    until_heard_again(&mut clients, &database);
    // What is given up is given up.
    clients[0].rows("UNLISTEN news");
    until_free(&pooler);
    support::terminate_and_wait(listener_pid(&pooler));
    until_heard_again(&mut clients[1..], &database);
    assert_eq!(super::told_by(&mut clients[0], "SELECT 1"), [""; 0]);
}

#[test]
fn orders_replace_the_listener_and_do_not_wait_for_it() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 1);
    let mut clients = listening(&pooler, &database, 2);
    for orders in [&["RECONNECT", "WAIT_CLOSE"][..], &["PAUSE", "RESUME"], &["SUSPEND", "RESUME"]] {
        let before = listener_pid(&pooler);
        let mut console = pooler.console();
        for order in orders {
            assert_eq!(console.query(order).error, None, "{order}");
        }
        if orders[0] == "SUSPEND" {
            assert_eq!(listener_pid(&pooler), before);
            continue;
        }
        until_heard_again(&mut clients, &database);
        assert_ne!(listener_pid(&pooler), before, "{orders:?}");
    }
    assert_eq!(pooler.try_admin(&format!("KILL {database}")).error, None);
    assert_eq!(listeners(&pooler.admin("SHOW SERVERS")), 0);
}

#[test]
fn without_a_listener_the_server_is_kept() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let pooler = setup.set("max_db_connections", 1).start();
    let mut client = pooler.client(&database);
    let until_kept = || {
        eventually("it keeps its server", PATIENCE, || {
            (pooler.admin("SHOW PINS").column("reason") == ["listen"]).then_some(())
        });
    };
    client.rows("LISTEN news");
    until_kept();
    support::direct(&database).rows("NOTIFY news, '1'");
    assert_eq!(hear(&mut client, 1), ["1"]);
    assert_eq!(listeners(&pooler.admin("SHOW SERVERS")), 0);
    client.rows("UNLISTEN *");
    until_free(&pooler);
    // Letters that one connection would have to translate for another.
    client.rows("LISTEN \"N\u{e4}chstes\"");
    until_kept();
    support::direct(&database).rows("NOTIFY \"N\u{e4}chstes\", '2'");
    assert_eq!(hear(&mut client, 1), ["2"]);
}

#[test]
fn a_server_that_comes_back_is_listened_to_again() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = Pooler::before(&postgres).set("pool_mode", "auto").database(&database, "");
    let pooler = setup.set("server_login_retry", 1).start();
    let mut client = listening(&pooler, &database, 1).remove(0);
    postgres.stop();
    postgres.launch();
    eventually("the server is back", Duration::from_secs(60), || postgres.is_ready());
    until_warned_of_loss(&mut client);
    postgres.superuser(&database).rows("NOTIFY news, 'again'");
    assert_eq!(hear(&mut client, 1), ["again"]);
}

#[test]
fn listening_clients_get_notifications_from_the_next_process() {
    if !support::only_weir() {
        return;
    }
    let (mut pooler, database) = pooler(2, 3);
    let mut clients = listening(&pooler, &database, 3);
    assert!(pooler.take_over().success());
    // Backends of a direct pool go on, and lose nothing.
    if !testkit::pools_are_direct() {
        until_heard_again(&mut clients, &database);
    }
    clients[0].rows("UNLISTEN *");
    until_free(&pooler);
    support::direct(&database).rows("NOTIFY news, '2'");
    clients[1..].iter_mut().for_each(|client| assert_eq!(hear(client, 1), ["2"]));
    assert_eq!(super::told_by(&mut clients[0], "SELECT 1"), [""; 0]);
}
