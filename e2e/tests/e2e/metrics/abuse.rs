//! Slow and hostile HTTP clients delay neither clients nor other scrapers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{PATIENCE, ask, get, page, pool_labels, pooler, value};
use crate::support;

/// More connections than may be open at a time.
const MANY: usize = 100;

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// Returns whether the connection ends. Closing it with unread bytes resets it, which counts as
/// well.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn silent_http_connections_do_not_keep_others_out() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) = pooler(|setup| setup);
    let mut silent = Vec::new();
    for at in 0..MANY {
        let mut stream = connect(port);
        // Half of the connections begin a request and do not finish it.
        if at % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").expect("it listens");
        }
        silent.push(stream);
        assert_eq!(get(port, "/healthz").map(|answer| answer.status), Some(200), "{at}");
    }
    assert!(page(port).contains("weir_build_info"));
    assert_eq!(pooler.client(&database).value("SELECT 1"), "1");
    // The oldest connections were closed to make room. The newest are closed by the timeout.
    let began = Instant::now();
    assert!(silent.into_iter().all(is_closed));
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn long_heads_and_bodies_are_not_read() {
    if !support::only_weir() {
        return;
    }
    let (_pooler, _, port) = pooler(|setup| setup);
    let long = format!("GET /metrics HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(64 * 1024));
    let mut stream = connect(port);
    // Weir may close the connection before everything is written.
    let _ = stream.write_all(long.as_bytes());
    assert!(is_closed(stream));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert_eq!(ask(port, &many).map(|answer| answer.status), Some(431));
    let body = "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n";
    assert_eq!(ask(port, body).map(|answer| answer.status), Some(200));
    assert_eq!(get(port, "/healthz").map(|answer| answer.status), Some(200));
}

/// Complete requests whose answers are not read must not delay clients.
#[test]
fn unread_metrics_delay_no_client() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) = pooler(|setup| setup);
    let _deaf: Vec<_> = (0..MANY)
        .map(|_| {
            let mut stream = connect(port);
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            stream
        })
        .collect();
    let mut client = pooler.client(&database);
    for _ in 0..100 {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    assert_eq!(get(port, "/healthz").map(|answer| answer.status), Some(200));
}

/// All requests within a second get the page that was made for the first of them.
#[test]
fn a_page_is_made_once_a_second_however_many_ask() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database, port) = pooler(|setup| setup);
    let mut client = pooler.client(&database);
    let labels = pool_labels(&database);
    let mut seen = Vec::new();
    let began = Instant::now();
    let mut asked = 0_u32;
    while began.elapsed() < Duration::from_secs(3) {
        client.rows("SELECT 1");
        asked += 1;
        seen.push(value(&page(port), "weir_pool_queries_total", &labels));
    }
    seen.dedup();
    assert!(asked > 20, "{asked} in 3 s");
    assert!((2..=5).contains(&seen.len()), "{asked} questions, {} pages", seen.len());
}
