//! Guessed passwords: guesses are delayed, and logins of other users are not.

use std::time::{Duration, Instant};

use super::known_role;
use crate::support;
use testkit::{Pooler, RawClient, Role, Setup, eventually, frontend};

/// Consecutive wrong passwords that are not delayed.
const FREE: usize = 5;

fn setup(delay: &str) -> (Setup, String, Role) {
    let (setup, database) = support::setup("transaction");
    let (setup, role) = known_role(setup);
    (setup.set("auth_failure_delay", delay), database, role)
}

fn fail(pooler: &Pooler, user: &str, database: &str) {
    pooler.login(user, database, "wrong").expect_err("a wrong password");
}

/// Sends the right password to a pooler that asks for it as clear text, without waiting for the
/// answer.
fn say_password(pooler: &Pooler, role: &Role, database: &str) -> RawClient {
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", &role.name), ("database", database)]));
    assert_eq!(client.read().body[3], 3, "it asks for clear text");
    client.send(frontend::password(&role.password));
    client
}

#[test]
fn a_few_wrong_passwords_are_not_delayed_and_more_are_core() {
    if !support::only_weir() {
        return;
    }
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let (setup, database, role) = setup("1");
        let pooler = setup.set("auth_type", auth_type).start();
        // The delay must not reveal whether the user exists.
        for user in [role.name.as_str(), "nobody"] {
            (0..FREE).for_each(|_| fail(&pooler, user, &database));
            let began = Instant::now();
            (0..2).for_each(|_| fail(&pooler, user, &database));
            // The delay runs from the first failure on, so the five logins may have used a part of
            // it.
            assert!(began.elapsed() > Duration::from_millis(900), "{auth_type}: {user}");
        }
    }
}

#[test]
fn parallel_guesses_are_delayed_even_longer() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup("600");
    let pooler = setup.set("auth_type", "plain").set("client_login_timeout", 5).start();
    let guess = |n: usize| {
        let mut client = RawClient::connect(pooler.port());
        client.send(frontend::startup(&[("user", &role.name), ("database", &database)]));
        assert_eq!(client.read().tag, b'R');
        client.send(frontend::password(&format!("guess {n}")));
        client
    };
    let guesses: Vec<_> = (0..40).map(guess).collect();
    let told = |mut client: RawClient| {
        let messages = client.read_to_end();
        messages.iter().find_map(testkit::Message::error).expect("a reason").message().to_owned()
    };
    let told: Vec<_> = guesses.into_iter().map(told).collect();
    let judged = told.iter().filter(|why| *why == "password authentication failed").count();
    assert_eq!(judged, FREE, "{told:?}");
    assert!(told.iter().filter(|why| *why == "client_login_timeout").count() == 40 - FREE);
}

#[test]
fn only_the_guessed_user_is_delayed_and_only_from_the_same_address_core() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup("600");
    let pooler = setup.set("auth_type", "plain").set("client_login_timeout", 600).start();
    (0..FREE).for_each(|_| fail(&pooler, &role.name, &database));
    let mut held = say_password(&pooler, &role, &database);
    // Not delayed: another user from the same address, the same user over another way, a client at
    // work.
    let mut other = pooler.client(&database);
    let startup = [("user", role.name.as_str()), ("database", database.as_str())];
    let mut elsewhere =
        RawClient::connect_unix(pooler.socket_folder(), pooler.port()).expect("a unix socket");
    elsewhere.authenticate(&startup, &role.password).expect("it is not slowed there");
    assert_eq!(other.value("SELECT current_user"), Role::APP);
    assert_eq!(elsewhere.value("SELECT current_user"), role.name);
    held.set_timeout(Duration::from_millis(300));
    assert!(held.try_read().is_err(), "it did not have to wait");
    // With a new configuration, a wrong password may be right. So a reload ends all delays.
    held.set_timeout(Duration::from_secs(20));
    pooler.reload();
    held.read_to_ready();
    assert_eq!(held.value("SELECT current_user"), role.name);
}

#[test]
fn logins_that_give_up_leave_nothing_behind() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup("600");
    let pooler = setup.set("auth_type", "plain").start();
    (0..FREE).for_each(|_| fail(&pooler, &role.name, &database));
    let held: Vec<_> = (0..50).map(|_| say_password(&pooler, &role, &database)).collect();
    drop(held);
    eventually("they are gone", Duration::from_secs(20), || {
        let lists = pooler.admin("SHOW LISTS").with("list", "login_clients");
        (lists.sum("items") == 0).then_some(())
    });
}

#[test]
fn no_login_is_delayed_if_the_delay_is_switched_off() {
    if !support::only_weir() {
        return;
    }
    let (setup, database, role) = setup("0");
    let pooler = setup.set("auth_type", "md5").set("client_login_timeout", 5).start();
    (0..100).for_each(|_| fail(&pooler, &role.name, &database));
    assert!(pooler.login(&role.name, &database, &role.password).is_ok());
}
