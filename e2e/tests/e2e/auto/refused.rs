//! Settings that a server refuses when they are carried to it: in one order only, on this server
//! only, or on all.

use testkit::{Message, Pooler, Postgres, RawClient, Role, ServerAuth, frontend};

use crate::support;

const ROLE: &str = "a client with SET ROLE keeps its backend";

/// A pooler before a database, for a user of this rank, and a role that the user may become.
fn stage(rank: &str, role_rank: &str, size: u32) -> (Pooler, String, Role, String) {
    let postgres = Postgres::shared();
    let (setup, database) = support::setup("auto");
    let (user, role) = (postgres.role(ServerAuth::Trust), postgres.role(ServerAuth::Trust).name);
    postgres.sql("postgres", &format!("ALTER ROLE {} {rank}", user.name));
    postgres.sql("postgres", &format!("ALTER ROLE {role} {role_rank}"));
    postgres.sql("postgres", &format!("GRANT {role} TO {}", user.name));
    let setup = setup.workers(1).set("default_pool_size", size);
    let pooler = setup.secret(&user.name, &user.password).start();
    (pooler, database, user, role)
}

fn login(pooler: &Pooler, database: &str, user: &Role) -> RawClient {
    pooler.login(&user.name, database, &user.password).expect("it may come in")
}

fn backend(client: &mut RawClient) -> String {
    client.value("SELECT pg_backend_pid()")
}

/// What a client has set is there on each further server, whichever it is.
fn follows(rank: &str, role_rank: &str, orders: &[&str], looks: &[(&str, &str)]) {
    let (pooler, database, user, role) = stage(rank, role_rank, 8);
    let mut client = login(&pooler, &database, &user);
    for order in orders {
        client.rows(&order.replace("$R", &role));
    }
    let mut last = backend(&mut client);
    // One of the pool's: strangers are not the same user.
    let mut held = vec![];
    for _ in 0..3 {
        let mut strangers = [0; 2].map(|_| login(&pooler, &database, &user));
        super::settle(&pooler);
        strangers.iter_mut().for_each(|stranger| drop(stranger.rows("BEGIN")));
        strangers[1].rows("COMMIT");
        held.push(strangers);
        for (look, expected) in looks {
            assert_eq!(client.value(look), expected.replace("$R", &role), "{orders:?}");
        }
        let now = backend(&mut client);
        assert_ne!(now, last, "{orders:?}: it was given another server");
        last = now;
    }
    assert!(!pooler.log().contains("server refused the client's settings"), "{orders:?}");
}

#[test]
fn a_setting_that_only_the_login_user_may_make_is_carried() {
    if !support::only_proxied(ROLE) {
        return;
    }
    let looks = [("SHOW log_min_messages", "error"), ("SELECT current_user", "$R")];
    for orders in [
        &["SET log_min_messages = 'error'", "SET ROLE $R"][..],
        &["SET log_min_messages = 'error'; SET ROLE $R", "SET work_mem = '5MB'"],
        &["SET log_min_messages = 'error'", "SET SESSION AUTHORIZATION $R"],
    ] {
        follows("SUPERUSER", "NOSUPERUSER", orders, &looks);
    }
}

#[test]
fn a_setting_that_only_the_role_may_make_is_carried() {
    if !support::only_proxied(ROLE) {
        return;
    }
    let orders = ["SET ROLE $R", "SET log_min_messages = 'error'", "SET app.a = '7'"];
    let looks =
        [("SHOW log_min_messages", "error"), ("SHOW app.a", "7"), ("SELECT current_user", "$R")];
    follows("NOSUPERUSER", "SUPERUSER", &orders, &looks);
}

#[test]
fn a_setting_that_a_used_server_refuses_needs_a_new_one() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, user, _) = stage("NOSUPERUSER", "NOSUPERUSER", 2);
    let [mut client, mut other] = [0; 2].map(|_| login(&pooler, &database, &user));
    client.rows("SET temp_buffers = 200");
    let first = backend(&mut client);
    // The other server, on which temporary tables have been used.
    client.rows("BEGIN");
    let used = backend(&mut other);
    assert_ne!(first, used);
    other.rows("CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1); DROP TABLE t");
    client.rows("COMMIT");
    super::settle(&pooler);
    // Its own is taken.
    let mut strangers = [login(&pooler, &database, &user), login(&pooler, &database, &user)];
    let backends = strangers.each_mut().map(|stranger| {
        stranger.rows("BEGIN");
        backend(stranger)
    });
    for (stranger, backend) in strangers.iter_mut().zip(&backends) {
        if *backend == used {
            stranger.rows("COMMIT");
        }
    }
    assert_eq!(client.value("SHOW temp_buffers"), "1600kB");
    if !testkit::pools_are_direct() {
        pooler.log_contains("server refused the client's settings");
    }
    strangers.iter_mut().for_each(|stranger| drop(stranger.rows("COMMIT")));
    client.rows("CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1)");
    assert_eq!(other.value("SHOW temp_buffers"), "8MB");
    assert_eq!(pooler.admin("SHOW SERVERS").rows.len(), 2);
}

#[test]
fn a_session_that_no_server_accepts_is_lost_alone() {
    if !support::only_proxied(ROLE) {
        return;
    }
    let (pooler, database, user, role) = stage("NOSUPERUSER", "NOSUPERUSER", 2);
    let mut client = login(&pooler, &database, &user);
    client.rows(&format!("SET ROLE {role}"));
    let postgres = Postgres::shared();
    postgres.sql(&database, "CREATE TABLE public.done (); GRANT ALL ON public.done TO PUBLIC");
    postgres.sql("postgres", &format!("REVOKE {role} FROM {}", user.name));
    let mut other = login(&pooler, &database, &user);
    assert_eq!(other.value("SELECT current_user"), user.name);
    client.send(frontend::query("INSERT INTO public.done DEFAULT VALUES"));
    let answer = client.read_to_end();
    let error = answer.first().and_then(Message::error).expect("the role is gone");
    let told = format!("server refused session settings: permission denied to set role \"{role}\"");
    assert_eq!((error.code(), error.message()), ("08P01", &*told));
    assert_eq!((error.field('S'), answer.len()), ("FATAL", 1));
    assert_eq!(other.value("SELECT current_user"), user.name);
    assert_eq!(other.value("SELECT count(*) FROM public.done"), "0");
    assert_eq!(login(&pooler, &database, &user).value("SELECT current_user"), user.name);
}

/// PL/pgSQL accepts no setting of this name. Each session loads it at its first block.
#[test]
fn a_setting_under_a_reserved_prefix_costs_no_servers() {
    if !support::only_proxied("a warning may name another client's setting") {
        return;
    }
    let (pooler, database, user, _) = stage("NOSUPERUSER", "NOSUPERUSER", 1);
    let [mut client, mut other] = [0; 2].map(|_| login(&pooler, &database, &user));
    client.rows("SET plpgsql.bound = 5; SET app.tenant = 7");
    let told = other.query("DO $$BEGIN END$$");
    assert!(told.error.is_none() && told.notices.is_empty(), "another client's: {told:?}");
    assert_eq!(
        client.query("SELECT 1").notices,
        ["invalid configuration parameter name \"plpgsql.bound\", removing it"]
    );
    // With the library, the server that had got the request behind the settings was closed.
    let first = backend(&mut other);
    for _ in 0..5 {
        assert_eq!(client.value("SHOW app.tenant"), "7");
        assert_eq!(client.value("SELECT current_setting('plpgsql.bound', true) IS NULL"), "t");
        assert_eq!(backend(&mut other), first, "the pool keeps its server");
        other.rows("DO $$BEGIN END$$");
    }
}
