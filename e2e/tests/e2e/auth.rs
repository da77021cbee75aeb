//! Logins of clients, and the pooler's logins to the server.

mod certificate;
mod channel_binding;
mod hba;
pub(crate) mod ldap;
mod matrix;
mod own_keys;
mod pam;
pub(crate) mod query;
mod refused;
mod roles;
mod secrets;
mod words;

use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, Verifier};

/// Values of `auth_type`, each with the codes of the Authentication messages that a client gets.
const CLIENT_AUTH: [(&str, &[u8]); 4] =
    [("trust", &[0]), ("plain", &[3, 0]), ("md5", &[5, 0]), ("scram-sha-256", &[10, 11, 12, 0])];

/// Returns the codes of the Authentication messages in `messages`.
fn requests(messages: &[Message]) -> Vec<u8> {
    messages.iter().filter(|m| m.tag == b'R').map(|m| m.body[3]).collect()
}

fn log_in(pooler: &Pooler, role: &Role, database: &str) -> (RawClient, Vec<u8>) {
    let mut client = RawClient::connect(pooler.port());
    let messages = client
        .authenticate(&[("user", &role.name), ("database", database)], &role.password)
        .unwrap_or_else(|e| panic!("{} is refused: {e:?}\n{}", role.name, pooler.log()));
    (client, requests(&messages))
}

#[test]
fn every_client_login_works_with_every_server_login_core() {
    let postgres = Postgres::shared();
    let roles = ServerAuth::ALL.map(|method| postgres.role(method));
    for (auth_type, expected) in CLIENT_AUTH {
        let (mut setup, database) = support::setup("transaction");
        setup = setup.set("auth_type", auth_type);
        for role in &roles {
            setup = setup.secret(&role.name, &role.password);
        }
        let pooler = setup.start();
        for role in &roles {
            let (mut client, requests) = log_in(&pooler, role, &database);
            assert_eq!(requests, expected, "{auth_type}");
            assert_eq!(client.value("SELECT current_user"), role.name, "{auth_type}");
        }
    }
}

#[test]
fn an_md5_verifier_suffices_for_client_and_server_login() {
    let role = Postgres::shared().role(ServerAuth::Md5);
    assert!(role.verifier.starts_with("md5"), "{}", role.verifier);
    for (auth_type, expected) in
        CLIENT_AUTH.into_iter().filter(|(name, _)| *name != "scram-sha-256")
    {
        let (setup, database) = support::setup("transaction");
        let setup = setup.set("auth_type", auth_type).secret(&role.name, &role.verifier);
        let pooler = setup.start();
        let (mut client, requests) = log_in(&pooler, &role, &database);
        assert_eq!(requests, expected, "{auth_type}");
        assert_eq!(client.value("SELECT current_user"), role.name, "{auth_type}");
    }
}

#[test]
fn a_scram_verifier_suffices_since_the_clients_proof_yields_the_keys_core() {
    let role = Postgres::shared().role(ServerAuth::Scram);
    assert!(role.verifier.starts_with("SCRAM-SHA-256$"), "{}", role.verifier);
    // With `md5`, a user whose secret is a SCRAM verifier is nevertheless asked for SCRAM.
    for auth_type in ["scram-sha-256", "md5"] {
        let (setup, database) = support::setup("transaction");
        let setup = setup.set("auth_type", auth_type).secret(&role.name, &role.verifier);
        let pooler = setup.start();
        for _ in 0..2 {
            let (mut client, requests) = log_in(&pooler, &role, &database);
            assert_eq!(requests, [10, 11, 12, 0], "{auth_type}");
            assert_eq!(client.value("SELECT current_user"), role.name, "{auth_type}");
        }
    }
}

#[test]
fn keys_learnt_from_a_proof_open_further_servers() {
    let role = Postgres::shared().role(ServerAuth::Scram);
    let (setup, database) = support::setup("session");
    let setup = setup.set("auth_type", "scram-sha-256").secret(&role.name, &role.verifier);
    let pooler = setup.start();
    let mut clients: Vec<_> = (0..3).map(|_| log_in(&pooler, &role, &database).0).collect();
    let mut pids: Vec<_> = clients.iter_mut().map(|c| c.value("SELECT pg_backend_pid()")).collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 3);
}

#[test]
fn a_scram_verifier_serves_a_server_that_asks_for_nothing() {
    let role = Postgres::shared().role_with(ServerAuth::Trust, Verifier::Scram);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", "scram-sha-256").secret(&role.name, &role.verifier).start();
    let (mut client, _) = log_in(&pooler, &role, &database);
    assert_eq!(client.value("SELECT current_user"), role.name);
}

#[test]
fn servers_log_in_as_the_forced_user_core() {
    let postgres = Postgres::shared();
    let client_role = postgres.role(ServerAuth::Scram);
    let server_role = postgres.role(ServerAuth::Scram);
    let forced = format!("user={} password='{}'", server_role.name, server_role.password);
    for auth_type in ["md5", "scram-sha-256"] {
        // PgBouncer confuses the client's SCRAM keys with those of the forced user.
        if auth_type == "scram-sha-256" && !support::only_weir() {
            continue;
        }
        let database = postgres.database();
        let pooler = Pooler::before(postgres)
            .set("auth_type", auth_type)
            .set("pool_mode", "transaction")
            .secret(&client_role.name, &client_role.password)
            .database(&database, &forced)
            .start();
        let (mut client, _) = log_in(&pooler, &client_role, &database);
        assert_eq!(client.value("SELECT current_user"), server_role.name);
    }
}

#[test]
fn connected_clients_get_a_changed_forced_user_in_their_next_transaction() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let [client_role, first, second] = [0; 3].map(|_| postgres.role(ServerAuth::Scram));
    let database = postgres.database();
    let entry = |role: &Role| {
        format!(
            "host=127.0.0.1 port={} user={} password='{}'",
            postgres.port(),
            role.name,
            role.password
        )
    };
    let mut pooler = Pooler::before(postgres)
        .set("auth_type", "scram-sha-256")
        .set("pool_mode", "transaction")
        .secret(&client_role.name, &client_role.password)
        .database_at(&database, &entry(&first))
        .workers(2)
        .start();
    let (mut idle, _) = log_in(&pooler, &client_role, &database);
    let (mut busy, _) = log_in(&pooler, &client_role, &database);
    assert_eq!(idle.value("SELECT current_user"), first.name);
    busy.rows("BEGIN");
    assert_eq!(busy.value("SELECT current_user"), first.name);
    pooler.reconfigure(|ini| ini.database(&database, &entry(&second)));
    pooler.reload();
    assert_eq!(idle.value("SELECT current_user"), second.name);
    assert_eq!(busy.value("SELECT current_user"), first.name, "in the midst of a transaction");
    busy.rows("COMMIT");
    assert_eq!(busy.value("SELECT current_user"), second.name);
    let clients = pooler.admin("SHOW POOLS").with("database", &database);
    assert_eq!(clients.with("user", &second.name).only("cl_active"), "2");

    // If the forced user is removed, the old one stays.
    let plain = format!("host=127.0.0.1 port={}", postgres.port());
    pooler.reconfigure(|ini| ini.database(&database, &plain));
    pooler.reload();
    pooler.log_contains("losing forced user not supported, keeping old setting");
    assert_eq!(idle.value("SELECT current_user"), second.name);
    let (mut new, _) = log_in(&pooler, &client_role, &database);
    assert_eq!(new.value("SELECT current_user"), second.name);
}

#[test]
fn a_new_password_is_valid_after_the_next_reload() {
    let role = Postgres::shared().role(ServerAuth::Trust);
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.set("auth_type", "md5").secret(&role.name, "the old").start();
    assert!(pooler.login(&role.name, &database, "the old").is_ok());
    pooler.reconfigure(|ini| ini.secret(&role.name, "the new password"));
    pooler.reload();
    assert!(pooler.login(&role.name, &database, "the new password").is_ok());
    assert!(pooler.login(&role.name, &database, "the old").is_err());
}

#[test]
fn a_login_over_the_unix_socket_is_proven_too_core_strict() {
    let role = Postgres::shared().role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").secret(&role.name, &role.password).start();
    let startup = [("user", role.name.as_str()), ("database", database.as_str())];
    let connect =
        || RawClient::connect_unix(pooler.socket_folder(), pooler.port()).expect("a unix socket");
    let mut client = connect();
    client.authenticate(&startup, &role.password).expect("the right password");
    assert_eq!(client.value("SELECT current_user"), role.name);
    assert!(connect().authenticate(&startup, "wrong").is_err());
}
