//! tokio-postgres, which prepares a named statement for nearly every query.

use std::time::Duration;

use ::tokio_postgres::error::SqlState;
use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Client, NoTls};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, TryStreamExt, pin_mut};
use testkit::Pooler;

use crate::support;

const LIMIT: Duration = Duration::from_secs(50);

/// Runs `test` with two clients of one pooler on a runtime of its own.
#[track_caller]
fn with_clients<F: Future<Output = ()>>(mode: &str, test: impl FnOnce(Client, Client) -> F) {
    let (setup, database) = support::setup(mode);
    let pooler = setup.set("default_pool_size", 2).workers(2).start();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clients = (connect(&pooler, &database).await, connect(&pooler, &database).await);
        tokio::time::timeout(LIMIT, test(clients.0, clients.1)).await.expect("it hangs");
    });
    drop(runtime);
    pooler.wait_until_quiet(&database, 2);
}

async fn connect(pooler: &Pooler, database: &str) -> Client {
    let (client, connection) =
        ::tokio_postgres::connect(&pooler.url(database), NoTls).await.expect("a login");
    tokio::spawn(connection);
    client
}

/// Returns the modes that support named statements.
fn named_modes() -> &'static [&'static str] {
    if support::only_weir() { &["session", "transaction"] } else { &["session"] }
}

#[test]
fn prepared_statements_are_kept_over_transactions_core() {
    for mode in named_modes() {
        with_clients(mode, async |client, other| {
            let double = client.prepare("SELECT $1::int * 2").await.expect("a statement");
            let loud = other.prepare("SELECT $1::text || '!'").await.expect("a statement");
            for number in 0..20i32 {
                let row = client.query_one(&double, &[&number]).await.expect("a row");
                assert_eq!(row.get::<_, i32>(0), number * 2);
                let word = number.to_string();
                let row = other.query_one(&loud, &[&word]).await.expect("a row");
                assert_eq!(row.get::<_, String>(0), format!("{word}!"));
            }
        });
    }
}

#[test]
fn statements_of_its_own_making_work_and_are_closed() {
    for mode in named_modes() {
        with_clients(mode, async |client, other| {
            for number in 0..100i32 {
                let row = client.query_one("SELECT $1::int + 1", &[&number]).await.expect("a row");
                assert_eq!(row.get::<_, i32>(0), number + 1);
                let row = other.query_one("SELECT $1::int - 1", &[&number]).await.expect("a row");
                assert_eq!(row.get::<_, i32>(0), number - 1);
            }
        });
    }
}

#[test]
fn unnamed_statements_work_in_every_mode() {
    for mode in support::MODES {
        with_clients(mode, async |client, other| {
            for number in 0..20i32 {
                for c in [&client, &other] {
                    let sql = "SELECT $1::int, $2::text";
                    let word = format!("number {number}");
                    let parameters: &[(&(dyn ToSql + Sync), Type)] =
                        &[(&number, Type::INT4), (&word, Type::TEXT)];
                    let rows = c.query_typed(sql, parameters).await.expect("rows");
                    assert_eq!(rows[0].get::<_, i32>(0), number);
                    assert_eq!(rows[0].get::<_, String>(1), word);
                }
            }
        });
    }
}

#[test]
fn requests_can_be_pipelined() {
    for mode in named_modes() {
        with_clients(mode, async |client, other| {
            let statement = client.prepare("SELECT $1::int").await.expect("a statement");
            for base in 0..30i32 {
                let numbers = [base, base + 1, base + 2];
                let parameters: [&[&(dyn ToSql + Sync)]; 3] =
                    [&[&numbers[0]], &[&numbers[1]], &[&numbers[2]]];
                let (first, second, failing, third, stranger) = tokio::join!(
                    client.query_one(&statement, parameters[0]),
                    client.query_one(&statement, parameters[1]),
                    client.query_one("SELECT 1 / ($1::int - $1)", parameters[2]),
                    client.query_one(&statement, parameters[2]),
                    other.query_one("SELECT 'other'", &[]),
                );
                assert_eq!(first.expect("a row").get::<_, i32>(0), base);
                assert_eq!(second.expect("a row").get::<_, i32>(0), base + 1);
                let error = failing.expect_err("division by zero");
                assert_eq!(error.code(), Some(&SqlState::DIVISION_BY_ZERO));
                assert_eq!(third.expect("a row").get::<_, i32>(0), base + 2);
                assert_eq!(stranger.expect("a row").get::<_, String>(0), "other");
            }
        });
    }
}

#[test]
fn transactions_commit_and_roll_back() {
    for mode in named_modes() {
        with_clients(mode, async |mut client, other| {
            client.batch_execute("CREATE TABLE t (n int)").await.expect("a table");
            let transaction = client.transaction().await.expect("a transaction");
            transaction.execute("INSERT INTO t VALUES ($1)", &[&1i32]).await.expect("an insert");
            transaction.commit().await.expect("a commit");
            let mut transaction = client.transaction().await.expect("a transaction");
            let savepoint = transaction.savepoint("s").await.expect("a savepoint");
            savepoint.execute("INSERT INTO t VALUES ($1)", &[&2i32]).await.expect("an insert");
            savepoint.rollback().await.expect("back to the savepoint");
            // A dropped transaction is rolled back when the connection is used again.
            drop(transaction);
            let row = other.query_one("SELECT count(*) FROM t", &[]).await.expect("a row");
            assert_eq!(row.get::<_, i64>(0), 1);
        });
    }
}

#[test]
fn portals_are_read_in_portions() {
    for mode in named_modes() {
        with_clients(mode, async |mut client, _| {
            let transaction = client.transaction().await.expect("a transaction");
            let sql = "SELECT * FROM generate_series(1, 25)";
            let portal = transaction.bind(sql, &[]).await.expect("a portal");
            let mut sizes = Vec::new();
            loop {
                let rows = transaction.query_portal(&portal, 10).await.expect("rows");
                sizes.push(rows.len());
                if rows.len() < 10 {
                    break;
                }
            }
            assert_eq!(sizes, [10, 10, 5]);
        });
    }
}

#[test]
fn copy_goes_both_ways() {
    for mode in named_modes() {
        with_clients(mode, async |client, other| {
            client.batch_execute("CREATE TABLE t (n int, word text)").await.expect("a table");
            let sink = client.copy_in("COPY t FROM STDIN").await.expect("copy-in");
            pin_mut!(sink);
            for number in 0..2000 {
                let line = format!("{number}\tword {number}\n");
                sink.send(Bytes::from(line)).await.expect("room");
            }
            assert_eq!(sink.finish().await.expect("an end"), 2000);

            // A copy that is given up must leave nothing behind.
            let sink = client.copy_in("COPY t FROM STDIN").await.expect("copy-in");
            {
                pin_mut!(sink);
                sink.send(Bytes::from_static(b"1\tgiven up\n")).await.expect("room");
            }
            let row = other.query_one("SELECT count(*) FROM t", &[]).await.expect("a row");
            assert_eq!(row.get::<_, i64>(0), 2000);

            let stream = client.copy_out("COPY t TO STDOUT").await.expect("copy-out");
            let pieces: Vec<Bytes> = stream.try_collect().await.expect("data");
            assert_eq!(pieces.len(), 2000);
        });
    }
}

#[test]
fn rows_can_be_streamed_while_another_client_works() {
    for mode in named_modes() {
        with_clients(mode, async |client, other| {
            let sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, 20000) n";
            let stream = client.query_raw(sql, &[] as &[i32]).await.expect("a stream");
            pin_mut!(stream);
            let mut count = 0;
            while let Some(row) = stream.next().await {
                count += 1;
                assert_eq!(row.expect("a row").get::<_, i32>(0), count);
                if count % 5000 == 0 {
                    other.batch_execute("SELECT 1").await.expect("the other works on");
                }
            }
            assert_eq!(count, 20000);
        });
    }
}

#[test]
fn a_query_can_be_cancelled() {
    // The driver closes the connection as soon as the request is sent, and PgBouncer then discards
    // it.
    if !support::only_weir() {
        return;
    }
    for mode in support::MODES {
        with_clients(mode, async |client, other| {
            let token = client.cancel_token();
            let (sleeping, ()) = tokio::join!(client.batch_execute("SELECT pg_sleep(40)"), async {
                let running = "SELECT count(*)::text FROM pg_stat_activity \
                     WHERE datname = current_database() AND query = 'SELECT pg_sleep(40)'";
                while !is_one(&other, running).await {
                    tokio::task::yield_now().await;
                }
                token.cancel_query(NoTls).await.expect("a cancel request");
            });
            let error = sleeping.expect_err(mode);
            assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
            client.batch_execute("SELECT 'usable'").await.expect("usable");
        });
    }
}

async fn is_one(client: &Client, sql: &str) -> bool {
    client.simple_query(sql).await.expect("an answer").iter().any(|message| {
        matches!(message, ::tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("1"))
    })
}
