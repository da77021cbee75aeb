//! Logins that have to wait: for room in a listen backlog, or for a server that does not answer.

use std::{io, net::TcpListener, os::unix::net::UnixListener, path::Path, thread};

use super::{bench, directly, figure, scripts::script, stderr};
use crate::support::{only_weir, run_any};
use testkit::open_folder;

/// AuthenticationOk and ReadyForQuery.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// Lets a client log in, and waits until it disconnects.
fn serve_login(stream: &mut (impl io::Read + io::Write)) -> io::Result<()> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let rest = u64::from(u32::from_be_bytes(len)).saturating_sub(4);
    io::copy(&mut io::Read::take(&mut *stream, rest), &mut io::sink())?;
    stream.write_all(WELCOME)?;
    io::copy(stream, &mut io::sink()).map(drop)
}

/// Opens a socket with a backlog of one connection.
fn listener_with_room_for_one(path: &Path) -> UnixListener {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let socket = tokio::net::UnixSocket::new_stream().expect("a socket");
    socket.bind(path).expect("a new folder");
    let listener = socket.listen(0).and_then(tokio::net::UnixListener::into_std);
    let listener = listener.expect("a bound socket");
    listener.set_nonblocking(false).expect("an open socket");
    listener
}

#[test]
fn the_wait_for_room_in_a_backlog_is_part_of_a_login() {
    if !only_weir() {
        return;
    }
    let folder = open_folder("bench");
    let listener = listener_with_room_for_one(&folder.join(".s.PGSQL.5432"));
    // The server serves one client at a time. The others wait until the scripts before theirs have
    // ended.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| serve_login(&mut stream));
        }
    });
    let (host, file) = (folder.to_str().expect("ours"), script("\\sleep 100 ms\n"));
    let file = file.to_str().expect("a path of ours");
    let arguments =
        ["-n", "-C", "-c", "6", "-t", "1", "-f", file, "-h", host, "-p", "5432", "-U", "app"];
    let output = directly("app", &arguments);
    assert!(output.status.success(), "{output:?}");
    // The clients log in after 0, 100, … 500 ms. Measured from the room in the backlog on, the
    // average would be 83 ms.
    let average: f64 = figure(&output, "average connection time = ");
    assert!(average > 200.0, "{output:?}");
}

#[test]
fn a_server_that_does_not_answer_is_waited_for_as_long_as_connect_timeout_says() {
    if !only_weir() {
        return;
    }
    let file = script("\\set x 1\n");
    let file = file.to_str().expect("a path of ours");
    let without_answer = |answered: usize, more: &[&str]| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let others = listener.try_clone().expect("an open socket");
        thread::spawn(move || {
            for stream in others.incoming().take(answered) {
                let _ = stream.and_then(|mut stream| serve_login(&mut stream));
            }
        });
        let place = "host=127.0.0.1 sslmode=disable dbname=app connect_timeout=1";
        let arguments = [&["-n", "-c", "2", "-t", "1", "-f", file, "-d", place], more].concat();
        let output = run_any(&mut bench(port, "app", &arguments));
        let wanted = format!("\"127.0.0.1\", port {port} failed: timeout expired\n");
        assert!(stderr(&output).contains(&wanted), "{output:?}");
        output
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let output = without_answer(0, &[]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(stderr(&output).contains("create connection for setup"), "{output:?}");
        });
        scope.spawn(|| {
            let output = without_answer(1, &[]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(stderr(&output).contains("create connection for client 0"), "{output:?}");
        });
        scope.spawn(|| {
            let output = without_answer(1, &["-C"]);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(stderr(&output).contains("client 1 aborted while establishing connection"));
        });
    });
}
