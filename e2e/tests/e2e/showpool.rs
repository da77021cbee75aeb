//! `weir showpool`, and the mark of idle servers (`mark_pooled_servers`).

use std::{collections::BTreeSet, process::Command, time::Duration};

use testkit::{Pooler, Postgres, Role, eventually, pooler_binary};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

fn showpool(pooler: &Pooler) -> String {
    let mut command = Command::new(pooler_binary());
    command.arg("showpool").arg("-c").arg(pooler.configuration());
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSSLMODE"] {
        command.env_remove(variable);
    }
    let out = support::run_any(command.env("HOME", "/nonexistent"));
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// Returns the process and the status of each line.
fn statuses(list: &str) -> BTreeSet<(String, String)> {
    let lines = list.lines().skip(1).take_while(|line| !line.is_empty());
    let status = |line: &str| {
        let known = ["pooled", "idle in transaction", "active", "idle"];
        let found = known.into_iter().find(|status| line.contains(&format!("  {status}  ")));
        let pid = line.split_whitespace().next().expect("a process");
        (pid.to_owned(), found.expect("a status").to_owned())
    };
    lines.map(status).collect()
}

/// Returns the same by PostgreSQL, to which a pooled server is idle.
fn activity(postgres: &Postgres, database: &str) -> BTreeSet<(String, String)> {
    let sql = format!(
        "SELECT pid, state FROM pg_stat_activity WHERE datname = '{database}' AND usename = '{}'",
        Role::APP
    );
    let rows = postgres.superuser("postgres").rows(&sql);
    let text = |row: &[Option<String>], at: usize| row[at].clone().expect("a value");
    rows.iter().map(|row| (text(row, 0), text(row, 1))).collect()
}

fn names(postgres: &Postgres, database: &str) -> Vec<String> {
    let sql = format!(
        "SELECT application_name FROM pg_stat_activity WHERE datname = '{database}' AND usename = '{}' \
         ORDER BY 1",
        Role::APP
    );
    let rows = postgres.superuser("postgres").rows(&sql);
    rows.into_iter().map(|row| row[0].clone().expect("a name")).collect()
}

#[test]
fn the_list_agrees_with_pg_stat_activity_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = Pooler::before(&postgres).set("pool_mode", "transaction");
    let pooler = setup.database(&database, "").start();
    let mut clients: Vec<_> = (0..3).map(|_| pooler.client(&database)).collect();
    for client in &mut clients {
        client.rows("BEGIN");
    }
    clients[0].rows("COMMIT");
    clients[1].send(testkit::frontend::query("SELECT pg_sleep(60)"));
    let list = eventually("the list has all three states", PATIENCE, || {
        let list = showpool(&pooler);
        let found: BTreeSet<_> = statuses(&list).into_iter().map(|(_, status)| status).collect();
        (found.len() == 3).then_some(list)
    });
    let of_postgres = |(pid, status): (String, String)| match status.as_str() {
        "pooled" => (pid, "idle".to_owned()),
        _ => (pid, status),
    };
    let told: BTreeSet<_> = statuses(&list).into_iter().map(of_postgres).collect();
    assert_eq!(told, activity(&postgres, &database), "{list}");
    assert!(
        list.contains(&format!("servers of {}:", Role::APP)) && list.ends_with(" 3\n"),
        "{list}"
    );
}

#[test]
fn an_idle_server_shows_that_it_is_pooled_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    for mode in ["transaction", "auto", "session"] {
        let setup = Pooler::before(&postgres).set("pool_mode", mode).workers(1);
        let setup = setup.set("mark_pooled_servers", 1).set("default_pool_size", 1);
        let pooler = setup.database(&database, "").start();
        for name in ["", "web"] {
            let mut client = pooler.client(&database);
            if !name.is_empty() {
                client.rows(&format!("SET application_name = '{name}'"));
            }
            assert_eq!(client.value("SHOW application_name"), name, "{mode}");
            if mode == "session" {
                drop(client);
            }
            eventually("the server is marked", PATIENCE, || {
                (names(&postgres, &database) == ["pooled"]).then_some(())
            });
            let mut next = pooler.client(&database);
            assert_eq!(next.value("SHOW application_name"), "", "{mode}");
        }
        pooler.admin("RECONNECT");
        pooler.wait_for_servers(&database, 0);
    }
}

#[test]
fn the_mark_survives_pause_restart_and_reload() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::start();
    let database = postgres.database();
    let setup = Pooler::before(&postgres).set("pool_mode", "transaction").workers(2);
    let setup = setup.set("mark_pooled_servers", 1).set("default_pool_size", 1);
    let mut pooler = setup.database(&database, "").start();
    let mut client = pooler.client(&database);
    client.rows("SET application_name = 'web'");
    let marked = || {
        eventually("the server is marked", PATIENCE, || {
            (names(&postgres, &database) == ["pooled"]).then_some(())
        });
    };
    marked();
    pooler.admin("PAUSE");
    assert!(names(&postgres, &database).is_empty(), "PAUSE closes idle servers");
    pooler.admin("RESUME");
    assert_eq!(client.value("SHOW application_name"), "web");
    marked();
    assert_eq!(pooler.take_over().code(), Some(0));
    assert_eq!(names(&postgres, &database), ["pooled"]);
    assert_eq!(client.value("SHOW application_name"), "web");
    marked();
    pooler.admin("SET mark_pooled_servers = 0");
    assert_eq!(client.value("SHOW application_name"), "web");
    let rests = format!(
        "SELECT now() - state_change > '1.5 s' FROM pg_stat_activity WHERE datname = '{database}'"
    );
    eventually("the server has rested for longer than before a mark", PATIENCE, || {
        (postgres.sql("postgres", &rests) == [[Some("t".to_owned())]]).then_some(())
    });
    assert_eq!(names(&postgres, &database), ["web"]);
}
