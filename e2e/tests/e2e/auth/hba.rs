//! `auth_type = hba`: rules from a file, and `peer`.

use super::requests;
use crate::support;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use testkit::{Authority, Pooler, Postgres, RawClient, Role, ServerAuth, Setup, open_folder};

/// Returns a pooler with these rules and maps, and their folder.
fn setup(rules: &str, maps: &str) -> (Setup, String, PathBuf) {
    let folder = open_folder("hba");
    let (setup, database) = support::setup("transaction");
    let (rules_file, maps_file) = (folder.join("hba.conf"), folder.join("ident.conf"));
    fs::write(&rules_file, rules).expect("our own folder");
    fs::write(&maps_file, maps).expect("our own folder");
    let setup = setup.set("auth_type", "hba").set("auth_hba_file", rules_file.display());
    // The PgBouncer of Debian 12 does not support maps.
    let has_maps = !maps.is_empty();
    let setup = if has_maps { setup.set("auth_ident_file", maps_file.display()) } else { setup };
    (setup, database, folder)
}

fn over_unix(pooler: &Pooler, user: &str, database: &str) -> Result<Vec<u8>, String> {
    let mut client =
        RawClient::connect_unix(pooler.socket_folder(), pooler.port()).expect("a unix socket");
    let startup = [("user", user), ("database", database)];
    match client.authenticate(&startup, Role::APP_PASSWORD) {
        Ok(messages) => Ok(requests(&messages)),
        Err(error) => Err(error.message().to_owned()),
    }
}

fn over_tcp(pooler: &Pooler, role: &Role, database: &str) -> Result<Vec<u8>, String> {
    let mut client = RawClient::connect(pooler.port());
    let startup = [("user", role.name.as_str()), ("database", database)];
    match client.authenticate(&startup, &role.password) {
        Ok(messages) => Ok(requests(&messages)),
        Err(error) => Err(error.message().to_owned()),
    }
}

#[test]
fn the_first_matching_rule_gives_the_method() {
    let postgres = Postgres::shared();
    let roles = [(); 5].map(|()| postgres.role(ServerAuth::Scram));
    let [md5, scram, password, rejected, other] = &roles;
    // The PgBouncer of Debian 12 does not support the address `all`.
    let rules = format!(
        "# rules\n\
         local all all trust\n\
         host all all 192.0.2.0/24 trust\n\
         host all {} 127.0.0.1/32 md5\n\
         host \"all\",sameuser all 127.0.0.1/32 trust\n\
         host all \"{}\" 127.0.0.0 255.0.0.0 scram-sha-256\n\
         hostnossl all @users 0.0.0.0/0 password\n\
         hostssl all {} 0.0.0.0/0 trust\n\
         host all {} 0.0.0.0/0 reject\n",
        md5.name, scram.name, other.name, rejected.name
    );
    let (mut setup, database, folder) = setup(&rules, "");
    fs::write(folder.join("users"), format!("{}\n", password.name)).expect("our own folder");
    for role in &roles {
        setup = setup.secret(&role.name, &role.password);
    }
    let pooler = setup.start();
    assert_eq!(over_unix(&pooler, Role::APP, &database), Ok(vec![0]));
    assert_eq!(over_tcp(&pooler, md5, &database), Ok(vec![5, 0]));
    assert_eq!(over_tcp(&pooler, scram, &database), Ok(vec![10, 11, 12, 0]));
    assert_eq!(over_tcp(&pooler, password, &database), Ok(vec![3, 0]));
    assert_eq!(over_tcp(&pooler, rejected, &database), Err("login rejected".into()));
    assert!(over_tcp(&pooler, other, &database).is_err());
}

#[test]
fn no_user_logs_in_without_a_rule_and_invalid_lines_are_skipped_core_strict() {
    // PgBouncer 1.18 has the text "login rejected" here.
    if !support::only_weir() {
        return;
    }
    let rules = "host all all example.org md5\nhost all all 127.0.0.1/32 nonsense\n";
    let (setup, database, _) = setup(rules, "");
    let pooler = setup.start();
    let error = pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect_err("no rule");
    assert_eq!(error.summary(), ("FATAL", "08P01", "no authentication method is found"));
    let log = pooler.log();
    assert_eq!(log.matches("could not parse hba config line").count(), 2, "{log}");
}

#[test]
fn rules_apply_after_the_next_reload() {
    let (setup, database, folder) =
        setup("host all app 0.0.0.0/0 reject\nhost all all 0.0.0.0/0 md5\n", "");
    let pooler = setup.start();
    assert!(pooler.login(Role::APP, &database, Role::APP_PASSWORD).is_err());
    fs::write(folder.join("hba.conf"), "host all all 127.0.0.1/32 md5\n").expect("our own folder");
    pooler.reload();
    assert!(pooler.login(Role::APP, &database, Role::APP_PASSWORD).is_ok());
}

#[test]
fn a_rule_may_apply_only_with_tls_or_only_without() {
    let authority = Authority::new("weir test");
    let own = authority.server();
    let rules = "hostssl all all 127.0.0.1/32 trust\nhostnossl all all 127.0.0.1/32 reject\n";
    let (setup, database, _) = setup(rules, "");
    let pooler = setup
        .set("client_tls_sslmode", "allow")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key())
        .start();
    let psql = |sslmode: &str| {
        let mut psql = pooler.client_program("psql", &database);
        psql.env_remove("PGPASSWORD").env("PGSSLMODE", sslmode).args(["-X", "-wAtc", "SELECT 7"]);
        psql
    };
    assert_eq!(support::run(&mut psql("require")).trim(), "7");
    let refused = psql("disable").output().expect("psql runs");
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("login rejected"), "{refused}");
}

#[test]
fn a_peer_needs_no_password_if_it_is_or_may_be_that_user_core() {
    // PgBouncer has supported maps since 1.22.
    if !support::only_weir() {
        return;
    }
    let own = support::run(Command::new("id").arg("-un"));
    let maps = format!("os {} app\nos nobody-at-all all\n", own.trim());
    let rules = "local all app peer map=os\nlocal all all peer\n";
    let (setup, database, _) = setup(rules, &maps);
    let pooler = setup.secret("other", "x").start();
    assert_eq!(over_unix(&pooler, Role::APP, &database), Ok(vec![0]));
    let refused = Err("unix socket login rejected".into());
    assert_eq!(over_unix(&pooler, "other", &database), refused);
    assert_eq!(over_unix(&pooler, "unknown", &database), refused);
}
