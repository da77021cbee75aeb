//! Refused logins: their texts, and that the texts reveal nothing.

use super::requests;
use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, frontend};

const FATAL: &str = "FATAL";
/// The SQLSTATE of nearly every refusal by PgBouncer, and so by Weir.
const PROTOCOL_VIOLATION: &str = "08P01";

fn refusing_pooler(auth_type: &str) -> (Pooler, Role, String) {
    let role = Postgres::shared().role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", auth_type).secret(&role.name, &role.password).start();
    (pooler, role, database)
}

#[track_caller]
fn assert_refused(pooler: &Pooler, login: [&str; 3], message: &str) {
    let [user, database, password] = login;
    let error = pooler.login(user, database, password).expect_err("a refusal");
    assert_eq!(error.summary(), (FATAL, PROTOCOL_VIOLATION, message), "{login:?}");
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_words_core_strict() {
    let texts = [
        ("plain", "password authentication failed"),
        ("md5", "password authentication failed"),
        ("scram-sha-256", "SASL authentication failed"),
    ];
    for (auth_type, text) in texts {
        let (pooler, role, database) = refusing_pooler(auth_type);
        assert_refused(&pooler, [&role.name, &database, "wrong"], text);
        assert_refused(&pooler, ["nobody", &database, "wrong"], text);
    }
}

#[test]
fn an_unknown_user_goes_through_the_whole_exchange() {
    for auth_type in ["plain", "md5", "scram-sha-256"] {
        let (pooler, role, database) = refusing_pooler(auth_type);
        let known = failed_exchange(&pooler, &role.name, &database);
        let unknown = failed_exchange(&pooler, "nobody", &database);
        assert_eq!(requests(&known), requests(&unknown), "{auth_type}");
        let lengths =
            |messages: &[Message]| messages.iter().map(|m| m.body.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&known), lengths(&unknown), "{auth_type}");
    }
}

#[test]
fn an_unknown_users_salt_does_not_change_from_try_to_try() {
    let (pooler, role, database) = refusing_pooler("scram-sha-256");
    let salt = |user: &str| {
        let messages = failed_exchange(&pooler, user, &database);
        let challenge = messages.iter().find(|m| m.body.starts_with(&[0, 0, 0, 11]));
        let text = String::from_utf8_lossy(&challenge.expect("a challenge").body[4..]).into_owned();
        text.split(',').find(|part| part.starts_with("s=")).expect("a salt").to_owned()
    };
    assert_eq!(salt("nobody"), salt("nobody"));
    assert_ne!(salt("nobody"), salt("somebody"));
    // PgBouncer makes a new salt for each login of a user whose password it knows as text. That
    // distinguishes such a user from an unknown one.
    if support::only_weir() {
        assert_eq!(salt(&role.name), salt(&role.name));
    }
}

/// Returns all messages of a login with a wrong password.
fn failed_exchange(pooler: &Pooler, user: &str, database: &str) -> Vec<Message> {
    let mut client = RawClient::connect(pooler.port());
    client.try_authenticate(&[("user", user), ("database", database)], "wrong")
}

#[test]
fn a_trusted_user_must_be_known() {
    let (pooler, _, database) = refusing_pooler("trust");
    assert_refused(&pooler, ["nobody", &database, ""], "\"trust\" authentication failed");
}

#[test]
fn the_existence_of_a_database_is_revealed_only_after_the_proof_core_strict() {
    let (pooler, role, _) = refusing_pooler("md5");
    let password_error = "password authentication failed";
    assert_refused(&pooler, [&role.name, "no_such_db", "wrong"], password_error);
    assert_refused(&pooler, ["nobody", "no_such_db", "wrong"], password_error);
    assert_refused(
        &pooler,
        [&role.name, "no_such_db", &role.password],
        "no such database: no_such_db",
    );
}

#[test]
fn an_empty_password_is_never_right_core_strict() {
    let (pooler, role, database) = refusing_pooler("plain");
    for user in [&role.name, "nobody"] {
        assert_refused(&pooler, [user, &database, ""], "empty password returned by client");
    }
    let (pooler, role, database) = refusing_pooler("md5");
    for user in [&role.name, "nobody"] {
        assert_refused(&pooler, [user, &database, ""], "password authentication failed");
    }
}

#[test]
fn a_user_without_a_secret_is_not_let_in_by_an_empty_password_strict() {
    for auth_type in ["plain", "md5"] {
        let (setup, database) = support::setup("transaction");
        let pooler = setup.set("auth_type", auth_type).secret("bare", "").start();
        assert!(pooler.login("bare", &database, "").is_err(), "{auth_type}");
    }
}

#[test]
fn the_servers_error_about_a_missing_database_reaches_the_client() {
    let postgres = Postgres::shared();
    let pooler = Pooler::before(postgres).database("alias", "dbname=no_such_db").start();
    let error = pooler.login(Role::APP, "alias", "").expect_err("no such database");
    assert!(error.message().contains("database \"no_such_db\" does not exist"), "{error:?}");
    if support::only_weir() {
        assert_eq!(error.code(), "3D000");
    }
}

#[test]
fn a_password_the_server_refuses_is_the_clients_error() {
    let role = Postgres::shared().role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.secret(&role.name, "not this one").start();
    let error = pooler.login(&role.name, &database, "").expect_err("a refusal");
    assert!(error.message().contains("password authentication failed"), "{error:?}");
    if support::only_weir() {
        assert_eq!(error.code(), "28P01");
    }
}

#[test]
fn a_password_message_before_the_startup_packet_is_refused_strict() {
    let (pooler, role, database) = refusing_pooler("md5");
    let mut client = RawClient::connect(pooler.port());
    let _ = client.try_send(frontend::password("early"));
    assert!(client.read_to_end().iter().all(|m| m.tag == b'E'), "it is let go on");
    assert!(pooler.login(&role.name, &database, &role.password).is_ok());
}

#[test]
fn queries_before_the_proof_are_refused_core_strict() {
    let (pooler, role, database) = refusing_pooler("scram-sha-256");
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", &role.name), ("database", &database)]));
    assert_eq!(client.read().tag, b'R');
    let _ = client.try_send(frontend::query("SELECT 1"));
    let rest = client.read_to_end();
    assert!(rest.iter().all(|m| m.tag == b'E'), "{rest:?}");
}

#[test]
fn no_more_clients_than_max_client_conn_are_let_in() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("max_client_conn", 2).start();
    let _first = pooler.client(&database);
    let second = pooler.client(&database);
    let error = pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect_err("a refusal");
    assert_eq!(
        error.summary(),
        (FATAL, PROTOCOL_VIOLATION, "no more connections allowed (max_client_conn)")
    );
    drop(second);
    support::until_let_in(&pooler, &database);
}
