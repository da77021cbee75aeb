//! Metrics and health checks over HTTP.

mod abuse;
mod doors;
mod page;
mod prometheus;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::{Pooler, Setup, eventually, free_port};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a pooler with metrics, a new database behind it, and the port of the metrics.
fn pooler(change: impl FnOnce(Setup) -> Setup) -> (Pooler, String, u16) {
    let (setup, database) = support::setup("transaction");
    let port = free_port();
    let pooler = change(setup.workers(2)).set("metrics_port", port).start();
    eventually("it serves metrics", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
    (pooler, database, port)
}

/// The answer to an HTTP request: its status, its head and its body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

fn ask(port: u16, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

pub(crate) fn get(port: u16, path: &str) -> Option<Answer> {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

#[track_caller]
pub(crate) fn page(port: u16) -> String {
    let answer = get(port, "/metrics").expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Returns the value of a sample with these labels, or without labels.
fn value(page: &str, name: &str, labels: &str) -> Option<f64> {
    let sample = match labels {
        "" => format!("{name} "),
        labels => format!("{name}{{{labels}}} "),
    };
    page.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok())
}

/// Returns the labels of the pool of role `app`.
fn pool_labels(database: &str) -> String {
    format!("database=\"{database}\",user=\"{}\"", testkit::Role::APP)
}

/// Waits until a new page has this value for a sample.
#[track_caller]
fn until(port: u16, name: &str, labels: &str, expected: f64) {
    eventually(&format!("{name}{{{labels}}} is {expected}"), PATIENCE, || {
        let page = get(port, "/metrics")?.body;
        (value(&page, name, labels) == Some(expected)).then_some(())
    });
}
