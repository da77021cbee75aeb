//! A reload of PostgreSQL's configuration changes the default of a parameter that clients were told.

use std::time::Duration;

use crate::support;
use testkit::{Pooler, Postgres, eventually};

const PATIENCE: Duration = Duration::from_secs(20);
const READ_ONLY: &str = "default_transaction_read_only";

/// An operator makes the server read-only, and writable again. Clients that were told the other value
/// at login do not undo that. A client that has set its own value keeps it.
#[test]
fn clients_follow_a_reloaded_default_in_every_mode_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let show = format!("SHOW {READ_ONLY}");
    for mode in ["transaction", "statement", "auto"] {
        let setup = Pooler::before(&postgres).database(&database, "").set("pool_mode", mode);
        let pooler = setup.set("default_pool_size", 1).start();
        let [mut one, mut other, mut own] = [(); 3].map(|()| pooler.client(&database));
        own.rows(&format!("SET {READ_ONLY} = on"));
        for value in ["on", "off", "on", "off"] {
            postgres.sql("postgres", &format!("ALTER SYSTEM SET {READ_ONLY} = {value}"));
            postgres.sql("postgres", "SELECT pg_reload_conf()");
            eventually("the reload", PATIENCE, || (one.value(&show) == value).then_some(()));
            assert_eq!(other.value(&show), value, "{mode}");
            assert_eq!(one.value(&show), value, "{mode}");
            assert_eq!(own.value(&show), "on", "{mode}");
            let mut new = pooler.client(&database);
            assert_eq!(new.parameters.get(READ_ONLY).map(String::as_str), Some(value), "{mode}");
            assert_eq!(new.value(&show), value, "{mode}");
        }
    }
}
