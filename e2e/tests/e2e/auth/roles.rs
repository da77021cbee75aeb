//! Roles and databases that change in PostgreSQL while the pooler has servers of them.

use std::time::{Duration, Instant};

use super::query;
use crate::support;
use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, eventually};

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
fn a_role_that_gets_the_name_of_another_one_gets_none_of_its_servers() {
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
