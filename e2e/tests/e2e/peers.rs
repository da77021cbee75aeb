//! Several processes on one port. They forward cancel requests to each other, and can be replaced
//! one after the other while clients come and go.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support;
use testkit::{Pooler, RawClient, Role, Setup, eventually, frontend, open_folder};

const LONG: &str = "SELECT pg_sleep(60)";

/// Two poolers on one port. Each has a unix socket of its own, which the other connects to.
struct Peers {
    port: u16,
    folders: [PathBuf; 2],
    setup: Setup,
    database: String,
}

impl Peers {
    fn new() -> Self {
        let (setup, database) = support::setup("transaction");
        let port = testkit::free_port();
        let folders = [open_folder("first"), open_folder("second")];
        let mut setup = setup.port(port).set("so_reuseport", 1);
        for (id, folder) in [1, 2].into_iter().zip(&folders) {
            setup = setup.peer(id, &format!("host={} port={port}", folder.display()));
        }
        Self { port, folders, setup, database }
    }

    fn start(&self, at: usize) -> Pooler {
        let folder = &self.folders[at];
        let setup = self.setup.clone().set("peer_id", at + 1);
        let pooler = setup.set("unix_socket_dir", folder.display()).start();
        // The other pooler may have answered in its place.
        pooler.log_contains("process up");
        pooler
    }

    fn unix(&self, at: usize) -> RawClient {
        RawClient::connect_unix(&self.folders[at], self.port).expect("its unix socket")
    }

    fn login(&self, at: usize, user: &str, database: &str) -> RawClient {
        let mut client = self.unix(at);
        let startup = [("user", user), ("database", database)];
        client.authenticate(&startup, "").unwrap_or_else(|error| panic!("{error:?}"));
        client
    }

    /// Returns a client of this pooler with a long query.
    fn busy(&self, at: usize) -> RawClient {
        let mut client = self.login(at, Role::APP, &self.database);
        client.send(frontend::query(LONG));
        support::until_running(&self.database, LONG);
        client
    }
}

#[track_caller]
fn assert_canceled(client: &mut RawClient) {
    let error = client.read_to_ready().iter().find_map(testkit::Message::error);
    assert_eq!(error.expect("an error").code(), "57014");
}

#[test]
fn a_cancel_request_reaches_its_query_whichever_process_gets_it_core_strict() {
    if !support::only_weir() {
        return;
    }
    let peers = Peers::new();
    let (_first, _second) = (peers.start(0), peers.start(1));
    for at in [0, 1] {
        for by in [0, 1] {
            let mut client = peers.busy(at);
            client.cancel_over(peers.unix(by));
            assert_canceled(&mut client);
        }
        // On the common port, either process may get the request.
        let mut client = peers.busy(at);
        client.cancel(peers.port);
        assert_canceled(&mut client);
    }
    let pools = peers.login(0, "admin", "pgbouncer").query("SHOW PEER_POOLS");
    let columns = [
        "peer_id",
        "cl_active_cancel_req",
        "cl_waiting_cancel_req",
        "sv_active_cancel",
        "sv_login",
    ];
    assert_eq!(pools.columns, columns);
    let ids: Vec<_> = pools.rows.iter().map(|row| row[0].as_deref()).collect();
    assert_eq!(ids, [Some("1"), Some("2")]);
}

#[test]
fn one_process_after_the_other_is_replaced_without_an_error() {
    if !support::only_weir() {
        return;
    }
    let peers = Peers::new();
    let (mut first, _second) = (peers.start(0), peers.start(1));
    let mut old = peers.busy(0);
    first.signal("TERM");
    first.log_contains("got SIGTERM, shutting down, waiting for all clients disconnect");
    // New clients now connect to the other process.
    for _ in 0..10 {
        let mut client = login(peers.port, &peers.database);
        assert_eq!(client.value("SELECT 'served'"), "served");
    }
    // Clients of the process that shuts down can still be cancelled, whichever process gets the
    // request.
    old.cancel(peers.port);
    assert_canceled(&mut old);
    drop(old);
    assert_eq!(first.wait_for_exit().code(), Some(0));
    assert!(!socket(&peers.folders[0], peers.port).exists());

    // The new process replaces the old one with the same peer id.
    first.restart();
    // The socket is there a little before it can be connected to.
    eventually("the new process serves its socket", Duration::from_secs(20), || {
        UnixStream::connect(socket(&peers.folders[0], peers.port)).ok()
    });
    let mut new = peers.busy(0);
    new.cancel_over(peers.unix(1));
    assert_canceled(&mut new);
}

/// Returns a cancel request with a key of peer 2, as a client would send it.
fn request_for_the_other(serial: u8) -> Vec<u8> {
    const CANCEL: u32 = 80_877_102;
    let key = [serial, 2, 0, 0, 0, 0, 0, 3];
    [&16_u32.to_be_bytes()[..], &CANCEL.to_be_bytes(), &key].concat()
}

#[test]
fn no_more_requests_than_allowed_are_under_way_to_a_peer() {
    if !support::only_weir() {
        return;
    }
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = other.local_addr().expect("it is bound").port();
    let (setup, _) = support::setup("transaction");
    let pooler = setup
        .workers(2)
        .set("peer_id", 1)
        .peer(1, "host=127.0.0.1")
        .peer(2, &format!("host=127.0.0.1 port={port} pool_size=1"))
        .start();
    let requesters: Vec<_> = (0..3)
        .map(|serial| {
            let mut client = RawClient::try_connect(pooler.port()).expect("the pooler listens");
            client.send(request_for_the_other(serial));
            client
        })
        .collect();
    let under_way = || {
        let shown = pooler.admin("SHOW PEER_POOLS").with("peer_id", "2");
        let number = |column| shown.only(column).parse::<u32>().expect("a number");
        (number("cl_active_cancel_req"), number("cl_waiting_cancel_req"))
    };
    let mut served = std::collections::BTreeSet::new();
    for waiting in [2, 1, 0] {
        eventually("one is under way, the others wait", Duration::from_secs(20), || {
            (under_way() == (1, waiting)).then_some(())
        });
        let (mut connection, _) = other.accept().expect("the request comes");
        let mut packet = [0; 16];
        connection.read_exact(&mut packet).expect("a whole request");
        assert_eq!((packet[9], packet[15] & 3), (2, 2), "to peer 2, one hop fewer");
        served.insert(packet[8]);
    }
    assert_eq!(served.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    for mut requester in requesters {
        requester.read_to_end();
    }
}

#[test]
fn a_request_for_a_peer_that_is_not_there_waits_for_it() {
    if !support::only_weir() {
        return;
    }
    let port = testkit::free_port();
    let (setup, _) = support::setup("transaction");
    let pooler = setup
        .set("peer_id", 1)
        .peer(1, "host=127.0.0.1")
        .peer(2, &format!("host=127.0.0.1 port={port}"))
        .start();
    let mut requester = RawClient::connect(pooler.port());
    requester.send(request_for_the_other(0));
    let shown = eventually("it has waited for a second", Duration::from_secs(20), || {
        let shown = pooler.admin("SHOW CLIENTS").with("state", "waiting_cancel_req");
        (shown.sum("wait") >= 1).then_some(shown)
    });
    assert_eq!((shown.only("database"), shown.only("user")), ("2", "(nouser)"));
    let peer = pooler.admin("SHOW PEER_POOLS").with("peer_id", "2");
    assert_eq!((peer.only("cl_waiting_cancel_req"), peer.only("cl_active_cancel_req")), ("1", "0"));
    let other = TcpListener::bind(("127.0.0.1", port)).expect("still a free port");
    drop(other.accept().expect("the request comes"));
    requester.read_to_end();
}

fn login(port: u16, database: &str) -> RawClient {
    RawClient::login(port, Role::APP, database, Role::APP_PASSWORD).expect("the other one serves")
}

fn socket(folder: &Path, port: u16) -> PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}
