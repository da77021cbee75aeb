//! The stored secret does not work for PostgreSQL's method, or no longer. The client gets an error
//! at once. If it had to wait, it would get `client_login_timeout` after a minute.

use std::time::{Duration, Instant};

use crate::support;
use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, frontend, open_folder};

/// Far less than `client_login_timeout`, although other tests load the machine.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Returns the message with which a login is refused, at once.
#[track_caller]
fn refusal(pooler: &Pooler, role: &Role, database: &str) -> String {
    let Role { name, password, .. } = role;
    let asked = Instant::now();
    let refused = RawClient::login(pooler.port(), name, database, password);
    let error = refused.expect_err("it is refused");
    assert!(asked.elapsed() < AT_ONCE, "the client waited {:?}", asked.elapsed());
    let is_ours = error.message().starts_with("server login failed");
    assert!(!is_ours || error.code() == "08P01", "{error:?}");
    error.message().to_owned()
}

/// A role has moved from MD5 to SCRAM, and `auth_file` still contains the old hash.
#[test]
fn an_md5_hash_does_not_serve_scram() {
    let postgres = Postgres::shared();
    let role = postgres.role(ServerAuth::Md5);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("auth_type", "md5").secret(&role.name, &role.verifier).start();
    let mut superuser = postgres.superuser("postgres");
    superuser.rows("SET password_encryption = 'scram-sha-256'");
    superuser.rows(&format!("ALTER ROLE {} PASSWORD '{}'", role.name, role.password));
    assert_eq!(refusal(&pooler, &role, &database), "server login failed: wrong password type");
    pooler.log_contains("cannot do SCRAM authentication: wrong password type");
}

/// A trusted client has not shown a key, so its verifier opens no server. PostgreSQL must not get a
/// wrong proof.
#[test]
fn a_verifier_does_not_serve_a_client_that_is_trusted() {
    let postgres = Postgres::start();
    let role = postgres.role(ServerAuth::Scram);
    let database = postgres.database();
    let pooler = Pooler::before(&postgres)
        .database(&database, "")
        .secret(&role.name, &role.verifier)
        .start();
    assert_eq!(refusal(&pooler, &role, &database), "server login failed: wrong password type");
    let failures = postgres.log().matches("password authentication failed").count();
    assert_eq!(failures, 0, "{}", postgres.log());
}

/// A password in clear text does not show a key either. The client gets in only if PostgreSQL
/// requires no password.
#[test]
fn a_verifier_judges_a_plain_password_and_serves_no_server() {
    let postgres = Postgres::start();
    let [asked, trusted] = [ServerAuth::Scram, ServerAuth::Trust].map(|by| postgres.role(by));
    let database = postgres.database();
    let pooler = Pooler::before(&postgres)
        .database(&database, "")
        .secret(&asked.name, &asked.verifier)
        .secret(&trusted.name, &trusted.verifier)
        .set("auth_type", "plain")
        .start();
    assert_eq!(refusal(&pooler, &asked, &database), "server login failed: wrong password type");
    let log_in = |password: &str| pooler.login(&trusted.name, &database, password);
    let mut client = log_in(&trusted.password).expect("the right password");
    assert_eq!(client.value("SELECT current_user"), trusted.name);
    let error = log_in("wrong").expect_err("the wrong password");
    assert_eq!(error.message(), "password authentication failed");
    let failures = postgres.log().matches("password authentication failed").count();
    assert_eq!(failures, 0, "{}", postgres.log());
}

/// PgBouncer stores the keys with the user, not with the database.
#[test]
fn keys_shown_in_one_database_open_the_others() {
    let postgres = Postgres::start();
    let role = postgres.role(ServerAuth::Scram);
    let [proven, trusted] = [postgres.database(), postgres.database()];
    let rules = open_folder("keys").join("hba.conf");
    let text = format!("host {trusted} all all trust\nhost all all all scram-sha-256\n");
    std::fs::write(&rules, text).expect("our own folder");
    let pooler = Pooler::before(&postgres)
        .database(&proven, "")
        .database(&trusted, "")
        .secret(&role.name, &role.verifier)
        .set("auth_type", "hba")
        .set("auth_hba_file", rules.display())
        .set("server_login_retry", 0)
        .start();
    let log_in = |database| RawClient::login(pooler.port(), &role.name, database, &role.password);
    let refused = log_in(&trusted).expect_err("nobody has shown the keys");
    assert_eq!(refused.message(), "server login failed: wrong password type");
    log_in(&proven).expect("a login by SCRAM");
    let mut client = log_in(&trusted).expect("the keys are known");
    assert_eq!(client.value("SELECT current_database()"), trusted);
}

#[test]
fn a_changed_password_fails_at_once_after_a_reconnect() {
    let postgres = Postgres::shared();
    let role = postgres.role(ServerAuth::Scram);
    let (setup, database) = support::setup("transaction");
    let pooler = setup.secret(&role.name, &role.password).start();
    let log_in = || RawClient::login(pooler.port(), &role.name, &database, &role.password);
    let [mut busy, mut other] = [log_in(), log_in()].map(|client| client.expect("a login"));
    assert_eq!(busy.query("BEGIN").tags, ["BEGIN"]);
    let mut superuser = postgres.superuser("postgres");
    superuser.rows(&format!("ALTER ROLE {} PASSWORD 'another one'", role.name));
    pooler.admin("RECONNECT");
    other.send(frontend::query("SELECT 1"));
    let told = other.read_to_end().iter().find_map(Message::error).expect("it is refused");
    let why = format!("password authentication failed for user \"{}\"", role.name);
    assert_eq!(told.message(), why);
    assert_eq!(busy.query("COMMIT").tags, ["COMMIT"]);
}

/// The password is tried as soon as `auth_file` is corrected, without waiting for
/// `server_login_retry`. A RELOAD without a change tries nothing, because repeated failures may
/// lock the user.
#[test]
fn a_corrected_password_is_tried_at_once_after_a_reload() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let role = postgres.role(ServerAuth::Scram);
    let database = postgres.database();
    let setup = Pooler::before(&postgres).database(&database, "").set("auth_type", "trust");
    let mut pooler = setup.secret(&role.name, "wrong").set("server_login_retry", 600).start();
    let why = format!("password authentication failed for user \"{}\"", role.name);
    let failures = || postgres.log().matches(&format!("FATAL:  {why}")).count();
    let cached = format!("server login has been failing, cached error: {why} (server_login_retry)");
    assert_eq!(refusal(&pooler, &role, &database), why);
    assert_eq!(refusal(&pooler, &role, &database), cached);
    pooler.reload();
    assert_eq!(refusal(&pooler, &role, &database), cached);
    assert_eq!(failures(), 1);
    pooler.reconfigure(|ini| ini.secret(&role.name, &role.password));
    pooler.reload();
    let client = RawClient::login(pooler.port(), &role.name, &database, &role.password);
    assert_eq!(client.expect("the right password").value("SELECT current_user"), role.name);
    assert_eq!(failures(), 1);
}
