//! The texts in the log and to the client about a server that is unreachable, silent or refuses.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::support;
use testkit::{Pooler, Postgres, RawClient, Role, ServerAuth, eventually, frontend};

/// Returns the text after `closing because: ` in the line about the server of this pool.
fn closed_because(pooler: &Pooler, pool: &str) -> String {
    let about = format!(" {pool}@");
    eventually("a server is closed", Duration::from_secs(20), || {
        let log = pooler.log();
        let mut lines = log.lines().filter(|line| line.contains(" S-0x") && line.contains(&about));
        let (_, reason) = lines.find_map(|line| line.split_once("closing because: "))?;
        reason.rsplit_once(" (age=").map(|(reason, _)| reason.to_owned())
    })
}

/// Returns a listener whose backlog is full, with the connections in it. The kernel drops further
/// ones.
fn overfull() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let short = Duration::from_millis(200);
    let queue = (0..5_000).map_while(|_| TcpStream::connect_timeout(&address, short).ok());
    let queue = queue.collect();
    (listener, queue)
}

/// Returns the address of a listener that answers an SSLRequest with `S`, and then sends nothing.
fn half_secure() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        let answered = listener.incoming().flatten().map(|mut socket| {
            let _ = socket.read_exact(&mut [0; 8]).and_then(|()| socket.write_all(b"S"));
            socket
        });
        // The connections stay open as long as the test runs.
        drop(answered.collect::<Vec<_>>());
    });
    address
}

#[test]
fn an_unreachable_network_and_a_silent_server_have_different_errors_core() {
    if !support::only_weir() {
        return;
    }
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("a bound socket")
    };
    let (full, _queue) = overfull();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let [full, silent_at] = [&full, &silent].map(|one| one.local_addr().expect("a bound socket"));
    for (name, address, sslmode, reason) in [
        ("closed", closed, "disable", "connect failed"),
        ("dropped", full, "disable", "connect failed"),
        ("dropped_tls", full, "require", "connect failed"),
        ("silent", silent_at, "disable", "connect timeout"),
        ("silent_tls", silent_at, "require", "connect timeout"),
        ("handshake", half_secure(), "require", "connect timeout"),
    ] {
        let pooler = Pooler::before(Postgres::shared())
            .database_at(name, &format!("host=127.0.0.1 port={}", address.port()))
            .set("server_tls_sslmode", sslmode)
            .set("server_connect_timeout", 1)
            .set("query_wait_timeout", 1)
            .start();
        // The client waits for the next attempt. Clients after it get the error of the first.
        let mut first = RawClient::connect(pooler.port());
        first.send(frontend::startup(&[("user", Role::APP), ("database", name)]));
        assert_eq!(closed_because(&pooler, &format!("{name}/app")), reason, "{name}");
        // A client that comes during an attempt waits for it. The pauses between attempts grow.
        let told =
            format!("server login has been failing, cached error: {reason} (server_login_retry)");
        eventually("a client comes in a pause", Duration::from_secs(30), || {
            let login = pooler.login(Role::APP, name, Role::APP_PASSWORD);
            let error = login.expect_err("no server");
            (error.message() != "query_wait_timeout").then(|| assert_eq!(error.message(), told))
        });
    }
}

/// The line about the server contains PostgreSQL's own text, and no other.
#[test]
fn the_closing_line_of_a_refused_server_has_postgresqls_text() {
    let postgres = Postgres::shared();
    let role = postgres.role(ServerAuth::Scram);
    postgres.sql("postgres", &format!("ALTER ROLE {} NOLOGIN", role.name));
    let (setup, database) = support::setup("transaction");
    let nowhere = format!("host=127.0.0.1 port={} dbname=no_such_database", postgres.port());
    let pooler = setup.database_at("nowhere", &nowhere).secret(&role.name, &role.password).start();
    for (user, password, database, reason) in [
        (
            role.name.as_str(),
            role.password.as_str(),
            database.as_str(),
            format!("role \"{}\" is not permitted to log in", role.name),
        ),
        (
            Role::APP,
            Role::APP_PASSWORD,
            "nowhere",
            "database \"no_such_database\" does not exist".to_owned(),
        ),
    ] {
        let error = pooler.login(user, database, password).expect_err("PostgreSQL refuses");
        if support::only_weir() {
            assert_eq!(error.message(), reason);
            assert_eq!(closed_because(&pooler, &format!("{database}/{user}")), reason);
        }
    }
}

/// PgBouncer does the same since 1.26.
#[test]
fn each_host_may_have_its_own_port() {
    if !support::only_weir() {
        return;
    }
    let (one, other) = (Postgres::shared(), Postgres::start());
    let ports = [one.port(), other.port()].map(|port| port.to_string());
    let connection = format!("host=127.0.0.1,127.0.0.1 port={} dbname=postgres", ports.join(","));
    let pooler = Pooler::before(one).database_at("both", &connection).start();
    let mut clients = [(); 2].map(|()| pooler.client("both"));
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    let mut reached = clients.map(|mut client| client.value("SHOW port"));
    reached.sort();
    let mut ports = ports;
    ports.sort();
    assert_eq!(reached, ports);
}
