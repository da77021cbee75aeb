//! Drivers that listen: psycopg, asyncpg, tokio-postgres.

use std::future::poll_fn;
use std::path::Path;
use std::process::Command;

use tokio_postgres::{AsyncMessage, NoTls};

use super::pooler;
use crate::support;

/// Debian's own, as in `drivers.rs`.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn pythons_drivers_hear_what_they_listen_to() {
    if !support::only_weir() {
        return;
    }
    // A client of a direct pool that listens keeps its backend.
    let (pooler, database) = pooler(2, if testkit::pools_are_direct() { 20 } else { 2 });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/listening.py");
    let url = pooler.url(&database);
    let output = support::run(Command::new(PYTHON).arg("-B").arg(&script).arg(&url));
    assert_eq!(output, "ok\n", "are python3-psycopg and python3-asyncpg installed?");
    super::until_free(&pooler);
}

#[test]
fn tokio_postgres_hears_what_it_listens_to() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler(2, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let url = pooler.url(&database);
        let (client, mut connection) = tokio_postgres::connect(&url, NoTls).await.expect("a login");
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(note) = message {
                    let _ = told.send((note.channel().to_owned(), note.payload().to_owned()));
                }
            }
        });
        client.batch_execute("LISTEN news").await.expect("it listens");
        let sql = "SELECT pg_notify('news', $1)";
        for number in 0..50 {
            client.query(sql, &[&number.to_string()]).await.expect("it notifies");
            let note = heard.recv().await.expect("it hears");
            assert_eq!(note, ("news".to_owned(), number.to_string()));
        }
        drop(client);
        let _ = reading.await;
    });
}
