//! Drivers that prepare their queries, on the console. PgBouncer's console refuses them.

use std::path::Path;
use std::process::Command;

use ::tokio_postgres::types::Type;
use ::tokio_postgres::{NoTls, SimpleQueryMessage};
use testkit::Pooler;

use crate::support::{self, run};

fn url(pooler: &Pooler) -> String {
    format!("postgresql://admin:admin-secret@127.0.0.1:{}/pgbouncer", pooler.port())
}

/// Runs a script of `e2e/python` on the console.
#[track_caller]
fn python(script: &str) {
    if !support::only_weir() {
        return;
    }
    let (pooler, _) = support::pooler("transaction");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script);
    // Uses Debian's Python, since Debian's packages of the drivers belong to it.
    let output = run(Command::new("/usr/bin/python3").arg("-B").arg(&path).arg(url(&pooler)));
    assert_eq!(output, "ok\n", "are python3-psycopg and python3-asyncpg installed?");
}

#[test]
fn psycopg_prepares_what_it_asks() {
    python("psycopg_console.py");
}

#[test]
fn asyncpg_reads_binary_results() {
    python("asyncpg_console.py");
}

#[test]
fn tokio_postgres_prepares_what_it_asks() {
    if !support::only_weir() {
        return;
    }
    let (pooler, _) = support::pooler("transaction");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            ::tokio_postgres::connect(&url(&pooler), NoTls).await.expect("a login");
        tokio::spawn(connection);
        let version = client.query_one("SHOW VERSION", &[]).await.expect("a row");
        assert!(version.get::<_, String>(0).starts_with("PgBouncer"));
        let pools = client.prepare("SHOW POOLS").await.expect("a statement");
        assert_eq!(pools.columns()[2].type_(), &Type::INT4);
        for _ in 0..3 {
            let rows = client.query(&pools, &[]).await.expect("rows");
            let console = rows
                .iter()
                .find(|row| row.get::<_, String>("database") == "pgbouncer")
                .expect("it");
            assert_eq!(console.get::<_, i32>("cl_active"), 1);
        }
        client.execute("RELOAD", &[]).await.expect("a reload");
        let error = client.query("SHOW NONSENSE", &[]).await.expect_err("a refusal");
        assert_eq!(error.code().expect("a code").code(), "08P01");
        let simple = client.simple_query("SHOW VERSION").await.expect("a row");
        assert!(simple.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))));
    });
}
