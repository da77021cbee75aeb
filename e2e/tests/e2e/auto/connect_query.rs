//! What `connect_query` sets on each server is nobody's: every client has it, whatever others do.

use testkit::{Pooler, Postgres, RawClient, ServerAuth};

use super::{settle, switch};
use crate::support;

/// Servers that begin as another role, with a path and a setting of the application's.
fn stage(size: u32) -> (Pooler, String, String) {
    let (setup, database) = support::setup("auto");
    let postgres = Postgres::shared();
    let role = postgres.role(ServerAuth::Scram).name;
    postgres.superuser("postgres").rows(&format!("GRANT {role} TO app"));
    let sql = format!("SET ROLE {role}; SET search_path = pg_catalog; SET app.tenant = '7'");
    let entry = format!("dbname={database} connect_query='{}'", sql.replace('\'', "''"));
    let setup = setup.workers(1).set("default_pool_size", size).database(&database, &entry);
    (setup.start(), database, role)
}

#[track_caller]
fn has_it(client: &mut RawClient, role: &str) {
    let sql = "SELECT current_user || ' ' || current_setting('search_path') || ' ' || \
               coalesce(current_setting('app.tenant', true), '')";
    assert_eq!(client.value(sql), format!("{role} pg_catalog 7"));
}

#[test]
fn its_settings_apply_to_every_client_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, role) = stage(1);
    let mut clients = [(); 3].map(|()| pooler.client(&database));
    clients.iter_mut().for_each(|client| has_it(client, &role));
    // One whose session is looked into has it no more than the others.
    for order in [
        "SET work_mem = '5MB'",
        "RESET ALL",
        "RESET ROLE",
        "RESET search_path",
        "DISCARD ALL",
        "SELECT pg_advisory_lock(7); SELECT pg_advisory_unlock(7)",
    ] {
        clients[0].rows(order);
        settle(&pooler);
        clients.iter_mut().rev().for_each(|client| has_it(client, &role));
        clients[0].rows("SET app.other = '1'");
        clients.iter_mut().for_each(|client| has_it(client, &role));
    }
    // Who leaves takes nothing along, even where its session is discarded.
    let mut leaving = pooler.client(&database);
    leaving.rows("SELECT pg_advisory_lock(7); SET search_path = public");
    drop(leaving);
    clients.iter_mut().for_each(|client| has_it(client, &role));
}

#[test]
fn a_clients_own_setting_replaces_connect_querys_for_it_only() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, role) = stage(8);
    let (mut client, mut other) = (pooler.client(&database), pooler.client(&database));
    client.rows("SET search_path = public; SET app.tenant = '8'");
    for _ in 0..3 {
        has_it(&mut other, &role);
        let _held = switch(&pooler, &database);
        assert_eq!(client.value("SHOW search_path"), "public");
        assert_eq!(client.value("SHOW app.tenant"), "8");
        assert_eq!(client.value("SELECT current_user"), role);
    }
    client.rows("RESET search_path; RESET app.tenant");
    has_it(&mut client, &role);
}
