//! Logins of users that are not in `auth_file`: Weir asks PostgreSQL (`auth_query`).

use std::sync::Arc;

use config::{AuthType, Config, Database};
use wire::{backend, md5};

use crate::messages::*;
use crate::rig::{Client, Rig, Server, add_others, app};

const QUERY: &str = "SELECT name, secret FROM lookup($1)";

fn asking(change: impl FnOnce(&mut Config)) -> Rig {
    Rig::new(|config| {
        config.global.auth_type = AuthType::Plain;
        config.global.auth_user = Some("asker".into());
        config.global.auth_query = QUERY.into();
        change(config);
    })
}

fn question(user: &str) -> Vec<Message> {
    let mut values = Vec::new();
    wire::frontend::bind_text(&mut values, b"", &[Some(user.as_bytes())]);
    vec![parse("", QUERY), values, describe_portal(), execute(), sync()]
}

/// The answer to the query for a user's password.
pub(crate) fn found(values: &[Option<&str>]) -> Vec<Message> {
    let mut columns = Vec::new();
    let column = |name| backend::Column { name, type_oid: 25, type_len: -1 };
    backend::row_description(&mut columns, &[column("name"), column("secret")]);
    let mut row = Vec::new();
    let values: Vec<_> = values.iter().map(|value| value.map(str::as_bytes)).collect();
    backend::data_row(&mut row, &values);
    vec![parsed(), bound(), columns, row, complete("SELECT 1"), ready('I')]
}

fn nobody_found() -> Vec<Message> {
    let mut columns = Vec::new();
    let column = |name| backend::Column { name, type_oid: 25, type_len: -1 };
    backend::row_description(&mut columns, &[column("name"), column("secret")]);
    vec![parsed(), bound(), columns, complete("SELECT 0"), ready('I')]
}

fn hello(rig: &Rig, user: &str) -> Client {
    let client = rig.connect();
    client.say_hello_as(user, "app");
    client
}

const CLEARTEXT: &[u8] = b"R\0\0\0\x08\0\0\0\x03";

/// The client is challenged, proves itself, and is welcomed by its own pool.
#[track_caller]
fn gets_in(client: &Client, secret: &str) {
    client.expect([CLEARTEXT.to_vec()]);
    client.send([password(secret)]);
    client.expect_welcome(&[]);
}

fn user_of(server: &Server) -> String {
    let startup = server.startup();
    let mut words = startup[8..].split(|byte| *byte == 0);
    words.find(|word| *word == b"user").expect("a user");
    String::from_utf8(words.next().expect("its name").to_vec()).expect("text")
}

#[test]
fn a_user_of_auth_query_logs_in_with_the_returned_password() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    let asker = rig.server(0);
    assert_eq!(user_of(&asker), "asker");
    asker.expect(question("bob"));
    client.expect([]);
    asker.send(found(&[Some("bob"), Some("hers")]));
    assert!(asker.is_parked());
    gets_in(&client, "hers");
    assert_eq!(user_of(&rig.server(1)), "bob");
}

#[test]
fn a_client_has_the_user_name_that_the_query_returns() {
    let rig = asking(|config| config.global.max_user_client_connections = 1);
    for _ in 0..3 {
        let client = hello(&rig, "alias");
        rig.server(0).send(found(&[Some("bob"), Some("hers")]));
        gets_in(&client, "hers");
        let other = hello(&rig, "nickname");
        rig.server(0).send(found(&[Some("bob"), Some("hers")]));
        other.expect_fatal("client connections exceeded (max_user_client_connections)");
        client.leave();
    }
    assert_eq!(rig.clients_counted(), 0);
}

#[test]
fn the_server_login_uses_the_user_that_the_query_returns() {
    let rig = asking(|_| {});
    let client = hello(&rig, "alias");
    rig.server(0).send(found(&[Some("bob"), Some("hers")]));
    gets_in(&client, "hers");
    assert_eq!(user_of(&rig.server(1)), "bob");
}

#[test]
fn it_is_asked_anew_at_each_login() {
    let rig = asking(|_| {});
    for secret in ["first", "second", "second"] {
        let client = hello(&rig, "bob");
        rig.server(0).expect(question("bob"));
        rig.server(0).send(found(&[Some("bob"), Some(secret)]));
        gets_in(&client, secret);
    }
}

#[test]
fn a_user_in_auth_file_is_not_looked_up() {
    let rig = asking(|_| {});
    gets_in(&hello(&rig, "alice"), "secret");
    assert_eq!(user_of(&rig.server(0)), "alice");
    assert_eq!(rig.servers(), 1);
}

#[test]
fn no_row_means_no_such_user() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    rig.server(0).send(nobody_found());
    client.expect_fatal("no such user");
    assert!(rig.server(0).is_parked());
}

#[test]
fn a_null_password_refuses_the_client() {
    for answer in ["", "md5", &md5::hash(b"bob", b"")] {
        let rig = asking(|config| config.global.auth_type = AuthType::Md5);
        let client = hello(&rig, "bob");
        rig.server(0).send(found(&[Some("bob"), None]));
        let got = client.take();
        let salt = got[9..].try_into().expect("four bytes");
        client.send([password(&md5::response(answer, salt))]);
        client.expect_fatal("password authentication failed");
    }
}

#[test]
fn a_failing_or_wrong_query_is_a_mistake_in_the_configuration() {
    let failed = vec![error("42501", "permission denied"), ready('I')];
    let one_column = vec![parsed(), bound(), columns("x"), complete("SELECT 0"), ready('I')];
    let answers = [
        (failed, "error response from auth_query: permission denied"),
        (one_column, "expected 2 columns from auth_query, not 1"),
        (found(&[None, Some("x")]), "auth_query response contained null user name"),
    ];
    for (answer, words) in answers {
        let rig = asking(|_| {});
        let client = hello(&rig, "bob");
        rig.server(0).send(answer);
        client.expect_fatal("bouncer config error");
        assert!(rig.logged(words), "{words}");
        assert!(!rig.server(0).is_open());
    }
}

#[test]
fn several_logins_queue_for_few_servers_in_turn() {
    let rig = asking(|config| config.global.default_pool_size = 1);
    let clients = ["bob", "carol", "dave"].map(|user| (user, hello(&rig, user)));
    let asker = rig.server(0);
    for (user, client) in &clients {
        asker.expect(question(user));
        asker.send(found(&[Some(user), Some("s")]));
        gets_in(client, "s");
    }
    assert!(asker.is_parked());
}

#[test]
fn a_clients_settings_are_gone_before_the_question() {
    let rig = asking(|config| {
        config.auth_file.users.insert("asker".into(), "secret".into());
        config.global.default_pool_size = 1;
    });
    let own = rig.connect();
    own.send([startup(&[("user", "asker"), ("database", "app"), ("timezone", "Mars")])]);
    own.expect([CLEARTEXT.to_vec()]);
    own.send([password("secret"), query("q")]);
    let server = rig.server(0);
    server.expect([query("SET TimeZone = 'Mars';")]);
    server.send([status("TimeZone", "Mars"), done("SET")]);
    server.answers("q");
    let client = rig.connect();
    client.send([startup(&[("user", "bob"), ("database", "app"), ("timezone", "Venus")])]);
    server.expect([query("SET TimeZone = 'UTC';")]);
    server.send([status("TimeZone", "UTC"), done("SET")]);
    server.expect(question("bob"));
    server.send(found(&[Some("bob"), Some("s")]));
    client.expect([CLEARTEXT.to_vec()]);
}

#[test]
fn an_idle_server_lost_before_the_question_is_replaced_and_a_new_one_is_not() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    gets_in(&client, "s");
    rig.later(1_000);
    let client = hello(&rig, "carol");
    rig.server(0).die();
    let fresh = rig.server(2);
    fresh.expect(question("carol"));
    fresh.die();
    client.expect_fatal("bouncer config error");
}

#[test]
fn a_client_that_leaves_while_it_is_asked_about_costs_no_server() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    client.leave();
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    assert!(rig.server(0).is_parked());
    let next = hello(&rig, "bob");
    rig.server(0).take();
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    gets_in(&next, "s");
}

#[test]
fn a_client_that_leaves_the_queue_is_forgotten() {
    let rig = asking(|_| {}).manual();
    let client = hello(&rig, "bob");
    client.leave();
    rig.set_automatic(true);
    rig.wait(1);
    assert!(rig.server(0).is_parked());
    assert_eq!(rig.clients_counted(), 0);
}

/// The client does not see PostgreSQL's error, which names `auth_user`.
#[test]
fn unknown_clients_do_not_learn_the_auth_user() {
    let rig = asking(|_| {}).manual();
    let client = hello(&rig, "bob");
    rig.server(0).connect();
    rig.server(0).send([fatal("28000", "role \"asker\" does not exist")]);
    client.expect_fatal("bouncer config error");
    hello(&rig, "bob").expect_fatal("server login has been failing (server_login_retry)");
}

#[test]
fn the_login_timeout_holds_while_it_is_asked() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    rig.wait(61);
    client.expect_fatal("client_login_timeout");
}

#[test]
fn another_database_may_be_asked_and_each_may_have_its_own_way() {
    let rig = asking(|config| {
        add_others(config);
        config.global.auth_dbname = Some("other".into());
        app(config).auth_user = Some("own".into());
        app(config).auth_query = Some("SELECT own".into());
        app(config).auth_dbname = Some("other".into());
        app(config).user = Some("forced".into());
    });
    let client = hello(&rig, "carol");
    let server = rig.server(0);
    assert_eq!(user_of(&server), "own");
    assert!(String::from_utf8_lossy(&server.startup()).contains("other"));
    assert!(String::from_utf8_lossy(&server.take()).contains("SELECT own"));
    server.send(found(&[Some("carol"), Some("s")]));
    gets_in(&client, "s");
    assert_eq!(user_of(&rig.server(1)), "forced");
}

#[test]
fn without_auth_dbname_the_console_refuses_unknown_users() {
    let rig = asking(|_| {});
    let client = rig.connect();
    client.say_hello_as("bob", "pgbouncer");
    client.expect_fatal("bouncer config error");
}

#[test]
fn an_operator_may_be_known_to_postgresql_alone() {
    let rig = asking(|config| {
        config.global.auth_dbname = Some("app".into());
        config.global.admin_users = vec!["bob".into()];
    });
    let client = rig.connect();
    client.say_hello_as("bob", "pgbouncer");
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    client.expect([CLEARTEXT.to_vec()]);
    client.send([password("s")]);
    assert_eq!(rig.consoles().len(), 1);
}

#[test]
fn an_unknown_user_cannot_find_out_which_databases_exist() {
    let rig = asking(|_| {});
    for database in ["app", "nowhere"] {
        let client = rig.connect();
        client.say_hello_as("bob", database);
        rig.server(0).expect(question("bob"));
        client.expect([]);
        rig.server(0).send(nobody_found());
        client.expect_fatal("no such user");

        let client = rig.connect();
        client.say_hello_as("bob", database);
        rig.server(0).send(found(&[Some("bob"), Some("s")]));
        client.expect([CLEARTEXT.to_vec()]);
        client.send([password("wrong")]);
        client.expect_fatal("password authentication failed");
        rig.server(0).take();
    }
    let client = rig.connect();
    client.say_hello_as("bob", "nowhere");
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    client.expect([CLEARTEXT.to_vec()]);
    client.send([password("s")]);
    client.expect_fatal("no such database: nowhere");
    assert_eq!(rig.servers(), 1);

    rig.order(|pool| pool.disabled = true);
    for database in ["app", "nowhere"] {
        let client = rig.connect();
        client.say_hello_as("bob", database);
        client.expect_fatal(&format!("authentication database \"{database}\" is disabled"));
    }
}

#[test]
fn a_database_that_is_not_there_is_asked_about_in_the_first_that_can_be() {
    let rig = asking(|config| {
        add_others(config);
        config.global.auth_user = None;
        let other = config.databases.get_mut("other").expect("it was added");
        Arc::make_mut(other).auth_user = Some("own".into());
    });
    let client = rig.connect();
    client.say_hello_as("carol", "nowhere");
    assert_eq!(user_of(&rig.server(0)), "own");
    rig.server(0).expect(question("carol"));
}

#[test]
fn without_auth_query_unknown_users_get_the_same_error_for_every_database() {
    let rig = asking(|config| config.global.auth_user = None);
    for database in ["app", "nowhere"] {
        let client = rig.connect();
        client.say_hello_as("bob", database);
        client.expect([CLEARTEXT.to_vec()]);
        client.send([password("s")]);
        client.expect_fatal("password authentication failed");
    }
    assert_eq!(rig.servers(), 0);
}

#[test]
fn unknown_user_names_of_one_database_share_the_server_of_auth_query() {
    let rig = asking(|config| {
        let star = Database { name: "*".into(), ..(*config.databases["app"]).clone() };
        config.fallback = Some(Arc::new(Database { dbname: Some("app".into()), ..star }));
    });
    for name in 0..10 {
        let client = rig.connect();
        client.say_hello_as("bob", &format!("invented{name}"));
        rig.server(0).expect(question("bob"));
        rig.server(0).send(nobody_found());
        client.expect_fatal("no such user");
    }
    assert_eq!((rig.servers(), rig.report(0).stats.len()), (1, 1));
    let client = rig.connect();
    client.say_hello_as("bob", "invented");
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    gets_in(&client, "s");
    assert!(rig.logged("registered new auto-database: invented"));
}

#[test]
fn a_disabled_database_is_not_asked() {
    let rig = asking(|_| {});
    let client = hello(&rig, "bob");
    rig.server(0).send(found(&[Some("bob"), Some("s")]));
    gets_in(&client, "s");
    rig.order(|pool| pool.disabled = true);
    hello(&rig, "bob").expect_fatal("authentication database \"app\" is disabled");
}

#[test]
fn an_auth_query_answer_may_arrive_in_pieces() {
    let rig = asking(|_| {});
    rig.set_chunk(1);
    let client = hello(&rig, "bob");
    rig.server(0).send(found(&[Some("bob"), Some("hers")]));
    gets_in(&client, "hers");
}
