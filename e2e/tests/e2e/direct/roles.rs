//! Roles that change in PostgreSQL while backends serve clients as them.

use std::time::Duration;

use testkit::eventually;

use super::{Direct, PATIENCE};
use crate::support;

#[test]
fn backends_follow_their_role_and_its_settings_strict() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(4);
    let app = |settings: &str| {
        direct.postgres.sql("postgres", &format!("ALTER ROLE app {settings}"));
    };
    let mut former = direct.client();
    assert_eq!(former.value("SHOW work_mem"), "4MB");
    // Later settings are compared with those of this moment.
    eventually("a server was asked", PATIENCE, || {
        let asked = "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_db_role_setting%' \
                     AND pid <> pg_backend_pid()";
        (!direct.postgres.sql("postgres", asked).is_empty()).then_some(())
    });
    app("SET work_mem = '9MB'");
    eventually("new clients get the setting", PATIENCE, || {
        (direct.client().value("SHOW work_mem") == "9MB").then_some(())
    });
    assert_eq!(former.value("SELECT 1"), "1", "its role is the same");
    app("RENAME TO away");
    direct.postgres.sql(
        "postgres",
        "CREATE ROLE app LOGIN PASSWORD 'app-secret'; GRANT pg_read_all_data TO app",
    );
    eventually("new clients have the new role", PATIENCE, || {
        let mut client = direct.pooler.login("app", &direct.database, "app-secret").ok()?;
        let found = client.query("SELECT pg_has_role('pg_read_all_data', 'member')");
        (found.rows.first()?[0].as_deref() == Some("t")).then_some(())
    });
    former.set_timeout(Duration::from_millis(100));
    eventually("the client of the former role is told", PATIENCE, || {
        // A login has a server asked.
        drop(direct.pooler.login("app", &direct.database, "app-secret"));
        former.try_read().ok().flatten().filter(|message| message.tag == b'E')
    });
}
