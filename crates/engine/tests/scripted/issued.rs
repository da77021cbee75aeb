//! Passwords that a program prints (`password_command`): each order of a login's question, its
//! answer, and what ends the login meanwhile.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, Database, Program};
use engine::pool::Gate;
use engine::server::CloseReason;

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// The database's users all use the servers of `app`, whose password the program `path` prints.
fn with_command(config: &mut Config, path: &str) {
    let command = Config::parse_ini(
        &format!("[databases]\nx = user=u password_command='{path}'\n[pgbouncer]\n"),
        "x.ini",
        &|_| unreachable!(),
    );
    let command: Option<Program> =
        command.expect("a sound text").databases["x"].password_command.clone();
    let entry = config.databases.get_mut("app").expect("it is in the text");
    let entry: &mut Database = Arc::make_mut(entry);
    entry.user = Some("app".to_owned());
    entry.password_command = command;
}

fn rig() -> Rig {
    Rig::new(|config| {
        with_command(config, "/bin/token");
        config.global.server_login_retry = Duration::from_secs(15);
    })
    .manual()
}

/// A client whose login waits for a server.
fn waiting(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello_as("alice", "app");
    client
}

/// PostgreSQL asks for the password in clear, gets this one and accepts it.
#[track_caller]
fn accepts(server: &Server, text: &str) {
    server.connect();
    server.take();
    server.send([cleartext()]);
    server.expect([password(text)]);
    server.send([authentication_ok(), key_data(1, b"1234"), ready('I')]);
}

/// PostgreSQL asks for the password in clear, gets this one and refuses it.
#[track_caller]
fn refuses(server: &Server, text: &str) {
    server.connect();
    server.take();
    server.send([cleartext()]);
    server.expect([password(text)]);
    server.send([fatal("28P01", "password authentication failed for user \"app\"")]);
}

/// Has the client been told that it is logged in?
fn is_welcome(client: &Client) -> bool {
    client.take().ends_with(&ready('I'))
}

fn cleartext() -> Message {
    b"R\0\0\0\x08\0\0\0\x03".to_vec()
}

#[test]
fn a_login_waits_for_the_first_password_and_connects_then() {
    let rig = rig();
    let client = waiting(&rig);
    assert_eq!((rig.servers(), rig.questions()), (0, 1), "nothing is connected before");
    let question = rig.question();
    assert_eq!(question.wanted.command.program.path(), "/bin/token");
    assert_eq!(question.wanted.refused, None);
    rig.answer_question(&question, Ok((1, "first")));
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
    assert!(!rig.logged("first"), "the password is in the log");
}

#[test]
fn each_login_has_the_password_of_its_own_time() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "first")));
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
    client.send([query("begin")]);
    let other = waiting(&rig);
    other.send([query("select 1")]);
    rig.answer_question(&rig.question(), Ok((2, "second")));
    accepts(&rig.server(1), "second");
    rig.server(1).answers("select 1");
}

/// A client in a transaction on a new server, which has logged in with this password. `number` is the
/// number of both.
fn busy(rig: &Rig, number: u64, text: &str) -> (Client, Server) {
    let client = waiting(rig);
    client.send([query("begin")]);
    rig.answer_question(&rig.question(), Ok((number, text)));
    let server = rig.server(rig.servers() - 1);
    accepts(&server, text);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    (client, server)
}

/// The client ends its transaction.
fn commits(client: &Client, server: &Server) {
    client.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    client.expect([done("COMMIT")]);
}

/// The shell says that this password has ended, and some time passes.
fn ends(rig: &Rig, number: u64) {
    rig.pool(|pool| pool.passwords.end(number));
    rig.wait(1);
}

#[test]
fn only_servers_of_ended_passwords_are_replaced() {
    let rig = rig();
    let (old, first) = busy(&rig, 1, "first");
    let (idle, second) = busy(&rig, 1, "first");
    let (new, third) = busy(&rig, 2, "second");
    commits(&idle, &second);
    ends(&rig, 1);
    assert!(!second.is_open(), "it is idle");
    assert!(first.is_open(), "its transaction is open");
    commits(&new, &third);
    assert!(third.is_parked(), "it has another password");
    assert!(rig.pool(|pool| pool.welcome.is_some()), "what it has told is still right");
    commits(&old, &first);
    assert!(!first.is_open());
    old.send([query("select 1")]);
    third.answers("select 1");
    assert_eq!(rig.questions(), 0);
}

#[test]
pub(crate) fn servers_stay_until_a_later_password_is_right() {
    let rig = rig();
    let (idle, first) = busy(&rig, 1, "first");
    commits(&idle, &first);
    ends(&rig, 1);
    assert!(first.is_parked(), "no other password is known to be right");
    idle.send([query("begin")]);
    first.expect([query("begin")]);
    first.send([complete("BEGIN"), ready('T')]);
    idle.take();
    let other = waiting(&rig);
    other.send([query("select 1")]);
    rig.answer_question(&rig.question(), Ok((2, "bad")));
    refuses(&rig.server(1), "bad");
    rig.answer_question(&rig.question(), Ok((3, "worse")));
    refuses(&rig.server(2), "worse");
    ends(&rig, 2);
    commits(&idle, &first);
    first.answers("select 1");
    assert!(other.take().ends_with(&done("OK")), "it has waited for the server that works");
    assert!(first.is_parked());
}

#[test]
fn servers_keep_the_numbers_of_their_passwords_over_an_online_restart() {
    let rig = rig();
    let (idle, first) = busy(&rig, 1, "first");
    let (kept, second) = busy(&rig, 1, "first");
    rig.hand_over();
    let (_new, third) = busy(&rig, 2, "second");
    commits(&idle, &first);
    assert!(first.is_parked());
    ends(&rig, 1);
    assert!(!first.is_open());
    commits(&kept, &second);
    assert!(!second.is_open());
    assert!(third.is_open());
}

#[test]
fn a_refused_password_is_asked_for_again_once() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "old")));
    refuses(&rig.server(0), "old");
    client.expect([]);
    let question = rig.question();
    assert_eq!(question.wanted.refused, Some(1));
    rig.answer_question(&question, Ok((2, "new")));
    accepts(&rig.server(1), "new");
    assert!(is_welcome(&client));
}

#[test]
fn a_password_that_is_refused_again_is_the_failure_of_the_login() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "bad")));
    refuses(&rig.server(0), "bad");
    rig.answer_question(&rig.question(), Ok((1, "bad")));
    refuses(&rig.server(1), "bad");
    client.expect([fatal("28P01", "password authentication failed for user \"app\"")]);
    assert_eq!(rig.questions(), 0);
    // The next attempt comes after `server_login_retry`, and may ask again.
    rig.wait(16);
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((2, "new")));
    accepts(&rig.server(2), "new");
    assert!(is_welcome(&client));
}

#[test]
pub(crate) fn refused_passwords_fail_the_login() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "one")));
    refuses(&rig.server(0), "one");
    rig.answer_question(&rig.question(), Ok((2, "two")));
    refuses(&rig.server(1), "two");
    client.expect([fatal("28P01", "password authentication failed for user \"app\"")]);
    assert_eq!(rig.questions(), 0, "it is not repeated a second time");
    // Until `server_login_retry` has passed, PostgreSQL sees no other attempt.
    rig.wait(14);
    let late = waiting(&rig);
    late.expect_fatal(
        "server login has been failing, cached error: password authentication failed for user \
         \"app\" (server_login_retry)",
    );
    assert_eq!((rig.servers(), rig.questions()), (2, 0));
    rig.wait(2);
    let next = waiting(&rig);
    let question = rig.question();
    assert_eq!(question.wanted.refused, Some(2), "the program runs again");
    rig.answer_question(&question, Ok((3, "three")));
    refuses(&rig.server(2), "three");
    next.expect([fatal("28P01", "password authentication failed for user \"app\"")]);
    assert_eq!((rig.servers(), rig.questions()), (3, 0));
}

#[test]
fn after_a_login_has_succeeded_a_refused_one_may_be_repeated_again() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "one")));
    refuses(&rig.server(0), "one");
    rig.answer_question(&rig.question(), Ok((2, "two")));
    accepts(&rig.server(1), "two");
    assert!(is_welcome(&client));
    client.send([query("begin")]);
    let other = waiting(&rig);
    other.send([query("select 1")]);
    let question = rig.question();
    assert_eq!(question.wanted.refused, None);
    rig.answer_question(&question, Ok((2, "two")));
    refuses(&rig.server(2), "two");
    let question = rig.question();
    assert_eq!(question.wanted.refused, Some(2));
    rig.answer_question(&question, Ok((3, "three")));
    accepts(&rig.server(3), "three");
    rig.server(3).answers("select 1");
}

#[test]
fn without_any_password_clients_wait_for_the_next_attempt() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Err("password_command failed"));
    assert_eq!(rig.servers(), 0);
    client.expect([]);
    // A client that comes meanwhile is told.
    let late = waiting(&rig);
    late.expect_fatal(
        "server login has been failing, cached error: password_command failed \
         (server_login_retry)",
    );
    rig.wait(1);
    rig.answer_question(&rig.question(), Ok((1, "first")));
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
}

#[test]
fn a_program_that_takes_too_long_ends_the_login() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    // It may begin 1 s later, and run for 30 s.
    rig.wait(30);
    assert!(!rig.logged("password_command takes too long"));
    rig.wait(2);
    assert!(rig.logged("password_command takes too long"));
    client.expect([]);
    // The answer comes too late for that login, and in time for the next one.
    rig.answer_question(&question, Ok((1, "first")));
    assert_eq!(rig.servers(), 0);
    rig.wait(1);
    rig.answer_question(&rig.question(), Ok((1, "first")));
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
}

#[test]
fn waiting_for_the_program_leaves_the_connection_all_its_time() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    // `server_connect_timeout` is 15 s.
    rig.wait(20);
    rig.answer_question(&question, Ok((1, "first")));
    rig.wait(14);
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
    client.send([query("begin")]);
    let other = waiting(&rig);
    other.send([query("select 1")]);
    rig.answer_question(&rig.question(), Ok((1, "first")));
    rig.wait(16);
    assert!(rig.logged("connect failed"), "it begins with the password");
    assert!(!rig.server(1).is_open());
}

#[test]
fn a_reload_that_takes_the_program_away_opens_another_server() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    rig.reload(|config| {
        let entry = Arc::make_mut(config.databases.get_mut("app").expect("it is configured"));
        entry.password_command = None;
        entry.password = Some("fixed".to_owned());
    });
    accepts(&rig.server(0), "fixed");
    assert!(is_welcome(&client));
    rig.answer_question(&question, Ok((1, "first")));
    assert_eq!(rig.servers(), 1, "the answer is for nobody");
}

#[test]
fn another_program_replaces_the_servers() {
    let rig = rig();
    let client = waiting(&rig);
    rig.answer_question(&rig.question(), Ok((1, "first")));
    accepts(&rig.server(0), "first");
    assert!(is_welcome(&client));
    rig.reload(|config| with_command(config, "/bin/other"));
    assert!(!rig.server(0).is_open());
    client.take();
    client.send([query("select 1")]);
    let question = rig.question();
    assert_eq!(question.wanted.command.program.path(), "/bin/other");
    rig.answer_question(&question, Ok((1, "second")));
    accepts(&rig.server(1), "second");
}

#[test]
fn pause_ends_a_login_that_waits_for_its_password() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    rig.order(|pool| pool.set_gate(Gate::Paused));
    assert!(rig.logged("pause mode"));
    rig.answer_question(&question, Ok((1, "first")));
    assert_eq!(rig.servers(), 0);
    rig.order(|pool| pool.set_gate(Gate::Open));
    rig.answer_question(&rig.question(), Ok((2, "second")));
    accepts(&rig.server(0), "second");
    assert!(is_welcome(&client));
}

#[test]
fn a_removed_database_ends_a_login_that_waits_for_its_password() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    rig.order(|pool| pool.set_gate(Gate::Closed(CloseReason::DatabaseRemoved)));
    assert!(!client.is_open());
    rig.answer_question(&question, Ok((1, "first")));
    assert_eq!(rig.servers(), 0);
}

#[test]
fn a_client_that_leaves_does_not_disturb_the_login() {
    let rig = rig();
    let client = waiting(&rig);
    let question = rig.question();
    client.leave();
    rig.answer_question(&question, Ok((1, "first")));
    accepts(&rig.server(0), "first");
    let other = waiting(&rig);
    assert!(is_welcome(&other));
    assert_eq!(rig.questions(), 0);
}

/// A pool at rest, with one server of the first password, which has ended.
fn at_rest(size: u32) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        with_command(config, "/bin/token");
        config.global.server_login_retry = Duration::from_secs(15);
        config.global.default_pool_size = size;
    })
    .manual();
    let (client, server) = busy(&rig, 1, "first");
    commits(&client, &server);
    rig.pool(|pool| pool.passwords.end(1));
    (rig, client, server)
}

#[test]
pub(crate) fn a_pool_at_rest_tries_the_next_password_and_replaces_its_servers() {
    let (rig, client, first) = at_rest(2);
    rig.wait(1);
    assert!(first.is_parked(), "the next password may be wrong");
    rig.answer_question(&rig.question(), Ok((2, "second")));
    accepts(&rig.server(1), "second");
    rig.wait(1);
    assert!(!first.is_open());
    rig.wait(20);
    assert_eq!((rig.servers(), rig.questions()), (2, 0));
    client.send([query("select 1")]);
    rig.server(1).answers("select 1");
}

#[test]
fn a_full_pool_gives_up_one_server_to_try_the_next_password() {
    let rig = Rig::new(|config| {
        with_command(config, "/bin/token");
        config.global.default_pool_size = 2;
    })
    .manual();
    let (long, first) = busy(&rig, 1, "first");
    let (client, second) = busy(&rig, 1, "first");
    rig.pool(|pool| pool.passwords.end(1));
    rig.wait(2);
    assert_eq!(rig.questions(), 0, "both are in use");
    commits(&client, &second);
    assert!(!second.is_open() && first.is_open());
    rig.wait(1);
    rig.answer_question(&rig.question(), Ok((2, "second")));
    accepts(&rig.server(2), "second");
    rig.wait(1);
    commits(&long, &first);
    assert!(!first.is_open());
    assert!(rig.server(2).is_open());
}

#[test]
fn the_last_server_does_not_give_way() {
    let (rig, client, first) = at_rest(1);
    rig.wait(20);
    assert_eq!((first.is_parked(), rig.questions()), (true, 0));
    client.send([query("select 1")]);
    first.answers("select 1");
}

#[test]
pub(crate) fn a_wrong_password_is_tried_once_and_the_servers_stay() {
    let (rig, client, first) = at_rest(2);
    rig.wait(1);
    rig.answer_question(&rig.question(), Ok((2, "bad")));
    refuses(&rig.server(1), "bad");
    rig.answer_question(&rig.question(), Ok((3, "worse")));
    refuses(&rig.server(2), "worse");
    rig.wait(25);
    assert_eq!((rig.servers(), rig.questions()), (3, 0), "nothing has changed");
    assert!(first.is_open());
    client.take();
    client.send([query("select 1")]);
    first.answers("select 1");
    // The next one's end is a reason to try again.
    rig.pool(|pool| pool.passwords.end(3));
    rig.wait(16);
    rig.answer_question(&rig.question(), Ok((4, "good")));
    accepts(&rig.server(3), "good");
    rig.wait(1);
    assert!(!first.is_open());
}
