//! `user=` with a SCRAM verifier as `password=`. Weir logs in to PostgreSQL with the keys of the
//! user's own proof, and lets no other user use these servers.

use super::{log_in, query};
use crate::support;
use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, Setup};

/// Entries: the name of the database, further keys, and whether PostgreSQL is asked about users.
const ENTRIES: [(&str, &str, bool); 4] = [
    ("database", "", false),
    ("database", "connect_query='SET work_mem = 4321'", false),
    ("database", "", true),
    ("star", "", false),
];

fn entry(role: &Role) -> String {
    format!("user={} password='{}'", role.name, role.verifier)
}

/// Returns a pooler with such an entry for `owner`, and the database.
fn setup(owner: &Role, other: &Role, [name, more]: [&str; 2], asks: bool) -> (Setup, String) {
    let postgres = Postgres::shared();
    let (setup, database) = match asks {
        true => query::setup("scram-sha-256"),
        false => {
            let setup = Pooler::before(postgres).set("auth_type", "scram-sha-256");
            let setup = setup.secret(&owner.name, &owner.verifier);
            (setup.secret(&other.name, &other.verifier), postgres.database())
        }
    };
    let name = if name == "star" { "*" } else { &database };
    (setup.database(name, &format!("{} {more}", entry(owner))), database)
}

fn refusal(pooler: &Pooler, role: &Role, database: &str) -> String {
    let refused = RawClient::login(pooler.port(), &role.name, database, &role.password);
    refused.expect_err("it is refused").message().to_owned()
}

#[test]
fn the_proof_of_the_forced_user_opens_servers_in_every_mode_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let [owner, other] = [(); 2].map(|()| postgres.role(ServerAuth::Scram));
    for mode in ["session", "transaction", "statement", "auto"] {
        for (name, more, asks) in ENTRIES {
            let (setup, database) = setup(&owner, &other, [name, more], asks);
            let pooler = setup.set("pool_mode", mode).set("server_login_retry", 0).start();
            let why = format!("{mode} {name} {more} {asks}");
            // Nobody has shown the keys.
            let wrong_type = "server login failed: wrong password type";
            assert_eq!(refusal(&pooler, &other, &database), wrong_type, "{why}");
            let (mut client, _) = log_in(&pooler, &owner, &database);
            assert_eq!(client.value("SELECT current_user"), owner.name, "{why}");
            if !more.is_empty() {
                assert_eq!(client.value("SHOW work_mem"), "4321kB", "{why}");
            }
            assert_eq!(refusal(&pooler, &other, &database), wrong_type, "{why}");
            pooler.admin("RECONNECT");
            let (mut second, _) = log_in(&pooler, &owner, &database);
            assert_eq!(second.value("SELECT current_user"), owner.name, "{why}");
            assert_eq!(refusal(&pooler, &other, &database), wrong_type, "{why}");
        }
    }
}

/// The new process has the keys and the servers, and knows whose they are.
#[test]
fn an_online_restart_keeps_the_keys_and_their_owner_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let [owner, other] = [(); 2].map(|()| postgres.role(ServerAuth::Scram));
    let (setup, database) = setup(&owner, &other, ["database", ""], false);
    let mut pooler = setup.set("pool_mode", "transaction").start();
    let (mut client, _) = log_in(&pooler, &owner, &database);
    assert!(pooler.take_over().success());
    assert!(refusal(&pooler, &other, &database).ends_with("wrong password type"));
    pooler.admin("RECONNECT");
    assert_eq!(client.value("SELECT current_user"), owner.name);
}
