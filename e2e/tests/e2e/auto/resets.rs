//! RESET goes back to the startup packet, or to what sessions begin with, and nothing else does.

use testkit::{Pooler, RawClient, Role};

use super::{pooler, settle, switch};
use crate::support;

fn client(pooler: &Pooler, database: &str, own: &[(&str, &str)]) -> RawClient {
    let mut client = RawClient::connect(pooler.port());
    let startup = [&[("user", Role::APP), ("database", database)], own].concat();
    client.authenticate(&startup, Role::APP_PASSWORD).expect("it may come in");
    client
}

#[test]
fn a_value_equal_to_the_servers_is_reset_only_by_name() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let zone = pooler.client(&database).value("SHOW TimeZone");
    let own = [("TimeZone", "Asia/Tokyo"), ("application_name", "mine")];
    let mut client = client(&pooler, &database, &own);
    for back in ["RESET TimeZone", "RESET TIME ZONE", "DISCARD ALL"] {
        assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
        client.rows(&format!("SET TimeZone = '{zone}'"));
        // A server on which that is what it was at its login.
        let held = switch(&pooler, &database);
        for other in ["RESET statement_timeout", "SET work_mem = '5MB'", "DISCARD PLANS"] {
            client.rows(other);
            settle(&pooler);
            assert_eq!(client.value("SHOW TimeZone"), zone, "{other}");
            assert_eq!(client.value("SHOW application_name"), "mine", "{other}");
        }
        drop(held);
        // Where it was set.
        client.rows(&format!("SET TimeZone = 'Europe/Rome'; SET TimeZone = '{zone}'"));
        client.rows(back);
        settle(&pooler);
    }
    assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
}

#[test]
fn settings_of_the_startup_packet_can_be_emptied() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(8);
    let postgres = testkit::Postgres::shared();
    let role = postgres.role(testkit::ServerAuth::Scram).name;
    postgres.superuser("postgres").rows(&format!("GRANT {role} TO app"));
    let options = format!("-c app.tenant=5 -c role={role}");
    let mut client = client(&pooler, &database, &[("options", &options)]);
    let is = "SELECT current_setting('app.tenant', true) || current_user";
    for _ in 0..2 {
        assert_eq!(client.value(is), format!("5{role}"));
        client.rows("SET app.tenant = ''");
        client.rows("BEGIN; SET ROLE NONE; COMMIT");
        client.rows("SET work_mem = '5MB'; RESET work_mem");
        for _ in 0..2 {
            let _held = switch(&pooler, &database);
            assert_eq!(client.value(is), "app");
            client.rows("SET statement_timeout = 0");
        }
        // Rolled back, it is not.
        client.rows("RESET ROLE; RESET app.tenant");
        client.rows("BEGIN; SET ROLE NONE; SET app.tenant = ''; ROLLBACK");
        settle(&pooler);
    }
    assert_eq!(pooler.client(&database).value("SELECT current_user"), "app");
}

/// What a database or a role is given for each new session is everybody's, and whoever has emptied it
/// has done so for itself alone.
#[test]
fn a_client_empties_initial_settings_for_itself_only() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("auto");
    let postgres = testkit::Postgres::shared();
    let role = postgres.role(testkit::ServerAuth::Scram).name;
    postgres.superuser("postgres").rows(&format!(
        "GRANT {role} TO app; ALTER DATABASE {database} SET app.tenant = '5'; \
         ALTER ROLE app IN DATABASE {database} SET role = {role}"
    ));
    let pooler = setup.workers(1).set("default_pool_size", 8).start();
    let [mut client, mut other] = [(); 2].map(|()| pooler.client(&database));
    let is = "SELECT current_setting('app.tenant', true) || current_user";
    let given = format!("5{role}");
    assert_eq!(client.value(is), given);
    client.rows("SET app.tenant = ''");
    client.rows("SET ROLE NONE");
    for _ in 0..2 {
        settle(&pooler);
        assert_eq!(other.value(is), given);
        let _held = switch(&pooler, &database);
        assert_eq!(client.value(is), "app");
        client.rows("SET statement_timeout = 0");
    }
    client.rows("RESET ROLE; RESET app.tenant");
    assert_eq!(client.value(is), given);
    // Nor does it go with a session that is discarded.
    client.rows("SELECT pg_advisory_lock(1)");
    settle(&pooler);
    drop(client);
    for _ in 0..2 {
        settle(&pooler);
        let _held = switch(&pooler, &database);
        assert_eq!(other.value(is), given);
    }
}
