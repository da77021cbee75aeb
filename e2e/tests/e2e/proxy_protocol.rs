//! The PROXY protocol header, by which a proxy reports a client's address: made by hand, and by a
//! real haproxy. The proxy's address is 127.0.0.2; other connections come from 127.0.0.1.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::haproxy::Haproxy;
use crate::support;
use testkit::{Pooler, RawClient, Role, eventually, frontend};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// 192.0.2.7, port 54321, to 127.0.0.1, port 6432, as in the header.
const ADDRESSES: [u8; 12] = [192, 0, 2, 7, 127, 0, 0, 1, 0xd4, 0x31, 0x19, 0x20];
const PATIENCE: Duration = Duration::from_secs(20);

fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("a short header").to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, rest].concat()
}

fn pooler(trusted: &str, more: &[(&str, &str)]) -> (Pooler, String) {
    let (mut setup, database) = support::setup("transaction");
    for (key, value) in [("proxy_protocol_trusted", trusted)].iter().chain(more) {
        setup = setup.set(key, value);
    }
    (setup.workers(2).start(), database)
}

/// Connects from the proxy's address.
fn from_proxy(pooler: &Pooler) -> RawClient {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let connected = runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((PROXY, 0)))?;
        let stream = socket.connect(([127, 0, 0, 1], pooler.port()).into()).await?.into_std()?;
        stream.set_nonblocking(false)?;
        RawClient::over(stream)
    });
    connected.expect("a connection from another address of loopback")
}

#[track_caller]
fn log_in(client: &mut RawClient, database: &str) {
    let startup = [("user", Role::APP), ("database", database)];
    client.authenticate(&startup, Role::APP_PASSWORD).expect("it is let in");
    assert_eq!(client.value("SELECT 'served'"), "served");
}

/// Returns the address and the port of the database's only client, as the console shows them.
fn place(pooler: &Pooler, database: &str) -> (String, String) {
    let clients = pooler.admin("SHOW CLIENTS").with("database", database);
    (clients.only("addr").to_owned(), clients.only("port").to_owned())
}

/// Sends `bytes` and checks that the client is refused with this text, which is logged as well.
#[track_caller]
fn refused(pooler: &Pooler, client: &mut RawClient, bytes: &[u8], why: &str) {
    client.send(bytes);
    let messages = client.read_to_end();
    let error = messages.last().and_then(testkit::Message::error).expect("an error");
    assert_eq!(error.summary(), ("FATAL", "08P01", why));
    pooler.log_contains(&format!("closing because: {why} (age="));
    pooler.log_contains(&format!("pooler error: {why}"));
}

#[test]
fn the_header_gives_the_clients_address_wherever_it_is_cut() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler("10.0.0.0/8, 127.0.0.2", &[]);
    let header = header(0x21, 0x11, &ADDRESSES);
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let opening = [&header[..], &startup].concat();
    for cut in 0..=header.len() + 1 {
        let mut client = from_proxy(&pooler);
        client.send(&opening[..cut]);
        client.send(&opening[cut..]);
        client.read_to_ready();
        let expected = ("192.0.2.7".to_owned(), "54321".to_owned());
        assert_eq!(place(&pooler, &database), expected, "cut at {cut}");
        client.send(frontend::terminate());
        assert!(client.read_to_end().is_empty());
        eventually("it is gone", PATIENCE, || {
            let clients = pooler.admin("SHOW CLIENTS").with("database", &database);
            clients.column("addr").is_empty().then_some(())
        });
    }
    let mut client = from_proxy(&pooler);
    header.iter().for_each(|byte| client.send([*byte]));
    log_in(&mut client, &database);
    pooler.log_contains(&format!("{database}/{}@192.0.2.7:54321 login attempt", Role::APP));
}

#[test]
fn each_kind_of_header_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler("127.0.0.2/32", &[]);
    let mut v6 = [0; 36];
    (v6[0], v6[1], v6[15]) = (0x20, 0x01, 9);
    (v6[33], v6[35]) = (80, 90);
    let with_more = [&ADDRESSES[..], &[4, 0, 3, 1, 2, 3]].concat();
    let own = PROXY.to_string();
    for (command, family, rest, expected) in [
        (0x21, 0x11, &ADDRESSES[..], "192.0.2.7"),
        (0x21, 0x11, &with_more, "192.0.2.7"),
        (0x21, 0x21, &v6, "2001::9"),
        // The proxy connects for itself, or does not know the client's address.
        (0x20, 0x00, &[], &own),
        (0x20, 0x11, &ADDRESSES, &own),
        (0x21, 0x00, &[], &own),
        (0x21, 0x31, &[0; 216], &own),
    ] {
        let mut client = from_proxy(&pooler);
        client.send(header(command, family, rest));
        // The SSLRequest follows the header, like the rest of the connection.
        client.send(frontend::ssl_request());
        assert_eq!(client.read_byte(), b'N');
        log_in(&mut client, &database);
        assert_eq!(place(&pooler, &database).0, expected, "{command:#x} {family:#x}");
        client.send(frontend::terminate());
        assert!(client.read_to_end().is_empty());
        eventually("it is gone", PATIENCE, || {
            let clients = pooler.admin("SHOW CLIENTS").with("database", &database);
            clients.column("addr").is_empty().then_some(())
        });
    }
}

#[test]
fn a_trusted_address_without_a_header_is_refused_core_strict() {
    if !support::only_weir() {
        return;
    }
    // Otherwise the kernel would not report connections that send nothing.
    let at_once = ("tcp_defer_accept", "0");
    let (pooler, database) = pooler("127.0.0.2", &[("client_login_timeout", "0.5"), at_once]);
    let startup = frontend::startup(&[("user", Role::APP), ("database", &database)]);
    let whole = |command, family, rest| header(command, family, rest);
    let bad = [
        (startup, "no PROXY protocol header"),
        (
            b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n".to_vec(),
            "PROXY protocol header of version 1, only version 2 is accepted",
        ),
        (
            whole(0x31, 0x11, &ADDRESSES),
            "PROXY protocol header of unknown version or command: 0x31",
        ),
        (
            whole(0x21, 0x12, &ADDRESSES),
            "PROXY protocol header with an address family other than TCP or Unix: 0x12",
        ),
        (whole(0x21, 0x11, &ADDRESSES[..8]), "PROXY protocol header of invalid length: 8"),
        // The rest of the header never comes.
        (SIGNATURE[..5].to_vec(), "client_login_timeout: no PROXY protocol header"),
        (Vec::new(), "client_login_timeout: no PROXY protocol header"),
    ];
    for (bytes, why) in bad {
        refused(&pooler, &mut from_proxy(&pooler), &bytes, why);
    }
    pooler.log_contains("(nodb)/(nouser)@127.0.0.2:");
    let mut half = from_proxy(&pooler);
    half.send(&SIGNATURE[..5]);
    half.shutdown_write();
    half.read_to_end();
    pooler.log_contains("closing because: connection ended within its PROXY protocol header");
    // A connection that only checks whether the port is open leaves no line in the log.
    drop(from_proxy(&pooler));
    let mut later = from_proxy(&pooler);
    later.send(&SIGNATURE[..6]);
    later.shutdown_write();
    later.read_to_end();
    let half = "closing because: connection ended within its PROXY protocol header";
    eventually("the line of the later connection", Duration::from_secs(10), || {
        (pooler.log().matches(half).count() == 2).then_some(())
    });
    assert!(!pooler.log().contains("client unexpected eof"), "{}", pooler.log());
}

#[test]
fn a_header_from_an_untrusted_address_is_refused_core_strict() {
    if !support::only_weir() {
        return;
    }
    let why = "received a PROXY protocol header from an address that is not in \
               proxy_protocol_trusted";
    let (mut pooler, database) = pooler("127.0.0.2", &[]);
    let mut client = RawClient::connect(pooler.port());
    refused(&pooler, &mut client, &header(0x21, 0x11, &ADDRESSES), why);
    // A connection without a header has its own address.
    let _plain = pooler.client(&database);
    assert_eq!(place(&pooler, &database).0, "127.0.0.1");

    // A reload can withdraw the trust.
    pooler.reconfigure(|ini| ini.set("proxy_protocol_trusted", ""));
    pooler.reload();
    refused(&pooler, &mut from_proxy(&pooler), &header(0x21, 0x11, &ADDRESSES), why);
}

#[test]
fn haproxy_tells_where_its_clients_are() {
    if !support::only_weir() {
        return;
    }
    let (pooler, database) = pooler("127.0.0.2", &[("auth_type", "scram-sha-256")]);
    let server = format!(
        "server weir 127.0.0.1:{} source {PROXY} send-proxy-v2 check inter 200ms check-send-proxy",
        pooler.port()
    );
    let haproxy = Haproxy::before(&[&server]);
    let stream = TcpStream::connect(("127.0.0.1", haproxy.port)).expect("haproxy listens");
    let port = stream.local_addr().expect("a connected socket").port();
    let mut client = RawClient::over(stream).expect("a connected socket");
    log_in(&mut client, &database);
    assert_eq!(place(&pooler, &database), ("127.0.0.1".to_owned(), port.to_string()));
    // haproxy's health checks are not errors and are not logged.
    let log = pooler.log();
    assert!(!log.contains("pooler error") && !log.contains("@127.0.0.2:"), "{log}");

    // A cancel request comes through haproxy as well.
    client.send(frontend::query("SELECT pg_sleep(60)"));
    support::until_running(&database, "SELECT pg_sleep(60)");
    client.cancel(haproxy.port);
    let outcome = client.read_to_ready();
    let error = outcome.iter().find_map(testkit::Message::error).expect("it was cancelled");
    assert_eq!(error.code(), "57014");
}
