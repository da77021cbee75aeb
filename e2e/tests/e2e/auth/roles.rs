//! Roles and databases that change in PostgreSQL while the pooler has servers of them.

use std::time::{Duration, Instant};

use super::query;
use crate::support;
use testkit::{Outcome, Pooler, Postgres, RawClient, Role, ServerAuth, eventually, frontend};

const PATIENCE: Duration = Duration::from_secs(20);

/// Exchanges the names of two roles.
fn swap(postgres: &Postgres, one: &Role, other: &Role) {
    let [one, other] = [&one.name, &other.name];
    let sql = format!(
        "ALTER ROLE {one} RENAME TO {one}_away; ALTER ROLE {other} RENAME TO {one}; \
         ALTER ROLE {one}_away RENAME TO {other}"
    );
    postgres.sql("postgres", &sql);
}

/// Creates two roles. Only the first one may read the table `secrets`.
fn boss_and_intern(postgres: &Postgres, database: &str) -> (Role, Role) {
    let (boss, intern) = (postgres.role(ServerAuth::Scram), postgres.role(ServerAuth::Scram));
    let sql =
        format!("CREATE TABLE secrets AS SELECT 7 AS n; GRANT SELECT ON secrets TO {}", boss.name);
    postgres.sql(database, &sql);
    (boss, intern)
}

fn reads(client: &mut RawClient) -> bool {
    client.query("SELECT n FROM secrets").error.is_none()
}

fn pooler(mode: &str) -> (Pooler, String) {
    let (setup, database) = query::setup("scram-sha-256");
    (setup.set("pool_mode", mode).start(), database)
}

#[test]
fn a_role_that_gets_the_name_of_another_one_gets_none_of_its_servers_core_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    for mode in ["auto", "transaction", "session"] {
        let (pooler, database) = pooler(mode);
        let (boss, intern) = boss_and_intern(postgres, &database);
        let login = |role: &Role, of: &Role| pooler.login(&role.name, &database, &of.password);
        let mut former = login(&boss, &boss).expect("the boss's password");
        assert!(reads(&mut former), "{mode}");
        assert!(!reads(&mut login(&intern, &intern).expect("the intern's password")), "{mode}");
        swap(postgres, &boss, &intern);
        eventually("the intern with the boss's name reads nothing", PATIENCE, || {
            let mut renamed = login(&boss, &intern).ok()?;
            (!reads(&mut renamed)).then_some(())
        });
        eventually("the boss with the intern's name reads", PATIENCE, || {
            let mut renamed = login(&intern, &boss).ok()?;
            reads(&mut renamed).then_some(())
        });
        for _ in 0..10 {
            assert!(!reads(&mut login(&boss, &intern).expect("the intern's password")), "{mode}");
        }
        // A direct connection would keep its role.
        match mode {
            "session" => assert!(reads(&mut former), "it keeps its server"),
            _ => assert!(former.read_to_end().iter().any(|message| message.tag == b'E'), "{mode}"),
        }
    }
}

#[test]
fn a_role_that_is_dropped_and_created_again_is_served() {
    let postgres = Postgres::shared();
    if !support::only_weir() {
        return;
    }
    for mode in ["auto", "transaction", "session"] {
        let (pooler, database) = pooler(mode);
        let role = postgres.role(ServerAuth::Scram);
        let login = || pooler.login(&role.name, &database, &role.password);
        assert_eq!(login().expect("a login").value("SELECT current_user"), role.name);
        let sql = format!(
            "DROP ROLE {0}; CREATE ROLE {0} LOGIN PASSWORD '{1}' IN ROLE auth_scram",
            role.name, role.password
        );
        postgres.sql("postgres", &sql);
        eventually("the new role is served", PATIENCE, || {
            let found = login().ok()?.query("SELECT current_user");
            (found.error.is_none()).then_some(())
        });
        assert_eq!(login().expect("a login").value("SELECT current_user"), role.name, "{mode}");
    }
}

/// Renames a database. PostgreSQL refuses this while a session is there, so no server outlives it.
fn rename_database(postgres: &Postgres, from: &str, to: &str) {
    let terminate =
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{from}'");
    let rename = format!("ALTER DATABASE {from} RENAME TO {to}");
    let mut superuser = postgres.superuser("postgres");
    eventually(&rename, PATIENCE, || {
        superuser.rows(&terminate);
        superuser.query(&rename).error.is_none().then_some(())
    });
}

#[test]
fn clients_read_the_database_that_has_the_name_now() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    for mode in ["auto", "transaction"] {
        let (setup, first) = support::setup(mode);
        let second = postgres.database();
        let pooler = setup.database(&second, "").start();
        for (database, own, value) in [(&first, 1, "5MB"), (&second, 2, "6MB")] {
            let sql = format!("CREATE TABLE own AS SELECT {own} AS n; GRANT SELECT ON own TO app");
            postgres.sql(database, &sql);
            postgres
                .sql("postgres", &format!("ALTER DATABASE {database} SET work_mem = '{value}'"));
        }
        let text = "SELECT n FROM own";
        let execute = [frontend::bind("", "s", &[]), frontend::execute("", 0), frontend::sync()];
        let read = |client: &mut RawClient| {
            client.send(execute.concat());
            Outcome::collect(&client.read_to_ready()).rows.concat()
        };
        let login = || [&first, &second].map(|database| pooler.client(database));
        let mut former = login();
        for (client, own) in former.iter_mut().zip(["1", "2"]) {
            client.send([frontend::parse("s", text), frontend::sync()].concat());
            client.read_to_ready();
            assert_eq!(read(client), [Some(own.to_owned())], "{mode}");
            assert_eq!(client.value(text), own, "{mode}");
        }
        let away = postgres.name("away");
        for (from, to) in [(&first, &away), (&second, &first), (&away, &second)] {
            rename_database(postgres, from, to);
        }
        eventually("the pooler has noticed the ends of its servers", PATIENCE, || {
            let left = |database| pooler.pool_sums(database, ["sv_idle", "sv_used"]);
            ([left(&first), left(&second)] == [[0; 2]; 2]).then_some(())
        });
        let mut new = login();
        for (at, (own, value)) in [("2", "6MB"), ("1", "5MB")].into_iter().enumerate() {
            assert_eq!(new[at].value(text), own, "{mode}");
            assert_eq!(new[at].value("SHOW work_mem"), value, "{mode}");
            // Its session goes on by the name of its database, as after any loss of a server.
            assert_eq!(former[at].value(text), own, "{mode}");
            assert_eq!(read(&mut former[at]), [Some(own.to_owned())], "{mode}");
        }
    }
}

#[test]
fn stored_settings_count_for_clients_that_log_in_later() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    for mode in ["auto", "transaction", "session"] {
        let (pooler, database) = pooler(mode);
        let role = postgres.role(ServerAuth::Scram);
        let login = || pooler.login(&role.name, &database, &role.password).expect("a login");
        assert_eq!(login().value("SHOW work_mem"), "4MB");
        let mut stays = login();
        let of_role = format!("ROLE {}", role.name);
        for (whose, value) in [
            (format!("DATABASE {database}"), "5MB"),
            (of_role.clone(), "6MB"),
            (format!("{of_role} IN DATABASE {database}"), "7MB"),
        ] {
            postgres.sql("postgres", &format!("ALTER {whose} SET work_mem = '{value}'"));
            eventually(&format!("{whose} has {value}, {mode}"), PATIENCE, || {
                (login().value("SHOW work_mem") == value).then_some(())
            });
        }
        assert_eq!(stays.value("SELECT 1"), "1", "its role is the same");
    }
}

/// The number of server connections that the pooler has opened.
fn opened(pooler: &Pooler) -> usize {
    pooler.log().matches("new connection to server").count()
}

#[test]
fn a_storm_of_alter_role_opens_few_servers() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (pooler, database) = pooler("transaction");
    let role = postgres.role(ServerAuth::Scram);
    let mut superuser = postgres.superuser("postgres");
    let began = Instant::now();
    for number in 0..1000 {
        superuser.rows(&format!("ALTER ROLE {} SET work_mem = '{}kB'", role.name, 100 + number));
        if number % 5 == 0 {
            let mut client = pooler.login(&role.name, &database, &role.password).expect("a login");
            client.rows("SELECT 1");
        }
    }
    // The server of auth_query, and one of the role for each check.
    let most = began.elapsed().as_secs() as usize + 4;
    assert!(opened(&pooler) <= most, "{} server connections, {most}", opened(&pooler));
}

#[test]
fn the_name_of_a_role_may_have_any_letters() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let (pooler, database) = pooler("transaction");
    for name in ["it's", "back\\slash", "größe"] {
        let name = format!("{name} of {database}");
        let quoted = format!("\"{name}\"");
        let create = format!("CREATE ROLE {quoted} LOGIN PASSWORD 'secret' IN ROLE auth_scram");
        postgres.sql("postgres", &create);
        let login = || pooler.login(&name, &database, "secret").expect("a login");
        let mut client = login();
        assert_eq!(client.value("SELECT current_user"), name);
        let before = opened(&pooler);
        let end = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < end {
            login();
        }
        assert_eq!(opened(&pooler), before, "nothing has changed");
        postgres.sql("postgres", &format!("ALTER ROLE {quoted} SET work_mem = '9MB'"));
        eventually("the new value", PATIENCE, || {
            (login().value("SHOW work_mem") == "9MB").then_some(())
        });
    }
}
