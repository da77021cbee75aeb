use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use config::SessionSchedule;
use engine::{settings::Target, shell::Io as _};
use tokio::sync::mpsc;

use super::{
    rest::{LOT, PIECES},
    *,
};
use crate::{
    data::conn::{BROKEN, FAILED, PIECE},
    exchange::{handshakes::Handshakes, requests::ColdRequest, shared::Origin},
};
use net::{sys::Events, tls::TlsContexts};

const CLIENT: ClientId = ClientId(0);
const SERVER: ServerId = ServerId(0);
const POOL: PoolId = PoolId(7);

/// The sockets of some workers, without the workers.
struct Rig {
    shared: Arc<Shared>,
    all: Vec<Sockets>,
    cold: mpsc::UnboundedReceiver<ColdRequest>,
}

impl Rig {
    fn new(workers: u16) -> Self {
        let (requests, cold) = mpsc::unbounded_channel();
        let shared = Arc::new(
            Shared::new(
                (workers, SessionSchedule::default()),
                Origin::new(),
                Vec::new(),
                requests,
                TlsContexts::default(),
                Handshakes::new(1).0,
            )
            .unwrap(),
        );
        let sockets = |id| Sockets::new(WorkerId(id), Arc::clone(&shared), Arc::default());
        Self { all: (0..workers).map(sockets).collect(), shared, cold }
    }

    /// Returns the present events of a worker, or waits for some for at most a second.
    fn events(&self, worker: usize) -> Vec<(Token, u32)> {
        self.poll(worker, 1000)
    }

    fn poll(&self, worker: usize, timeout_ms: i32) -> Vec<(Token, u32)> {
        let mut events = Events::with_room(16);
        self.shared.epolls[worker].wait(&mut events, timeout_ms).unwrap();
        let at = |at| {
            let (token, what) = events.at(at);
            (Token::from_u64(token), what)
        };
        (0..events.len()).map(at).collect()
    }

    /// Adds a client of worker 0 whose socket accepts little. Returns its other end.
    fn add_client(&mut self) -> OwnedFd {
        let (ours, theirs) = socket::pair();
        socket::set_send_buffer(ours.as_raw_fd(), 4096).unwrap();
        self.shared.gauges[0].load.enter(false);
        assert!(self.all[0].add_client(CLIENT, ours.into_raw_fd(), Peer::Unknown, None));
        // A new socket is at most writable, which is not watched.
        assert!(self.poll(0, 0).is_empty());
        theirs
    }

    /// Adds a connected server of worker 0. Returns its other end.
    fn add_server(&mut self) -> (Token, OwnedFd) {
        let (ours, theirs) = socket::pair();
        let fd = ours.into_raw_fd();
        let sockets = &mut self.all[0];
        let token = sockets.table.register(fd, Kind::Server(SERVER.0));
        *slot(&mut sockets.servers, 0) = Conn::new(fd, 0);
        sockets.set_remote(SERVER, None);
        sockets.epoll().add(fd, epoll::READ, token.to_u64()).unwrap();
        (token, theirs)
    }
}

/// Reads from the peer's end until it closes or `enough` bytes have arrived.
fn read_all(rig: &mut Rig, theirs: &OwnedFd, enough: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut buffer = [0; 3000];
    while got.len() < enough {
        match socket::recv(theirs.as_raw_fd(), &mut buffer) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&buffer[..count]),
            Err(_) => {
                for (token, events) in rig.events(0) {
                    let sockets = &mut rig.all[0];
                    match sockets.table.kind(token) {
                        Kind::Lingering => sockets.linger_event(token.fd(), events),
                        kind => sockets.flush(token, kind),
                    }
                    sockets.close_discarded();
                }
            }
        }
    }
    got
}

fn some_bytes(count: u32) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

#[test]
fn a_slow_client_gets_everything_and_is_watched_only_meanwhile() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    let all = some_bytes(300_000);
    rig.all[0].send_client(CLIENT, &all[..200_000]);
    rig.all[0].send_client(CLIENT, &all[200_000..]);
    assert!(rig.all[0].client(CLIENT).pending_len() > 100_000);
    assert_eq!(read_all(&mut rig, &theirs, all.len()), all);
    assert!(rig.all[0].client(CLIENT).pending.is_none());
    // Writability is not watched any more.
    assert!(rig.poll(0, 0).is_empty());
}

#[test]
fn a_server_is_not_read_while_its_client_does_not_read() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    let (token, _server) = rig.add_server();
    let sockets = &mut rig.all[0];
    assert!(sockets.server_may_be_read(SERVER, Some(CLIENT)));
    sockets.send_client(CLIENT, &some_bytes(100_000));
    sockets.server(SERVER).note_events(epoll::READABLE);
    assert!(!sockets.server_may_be_read(SERVER, Some(CLIENT)));
    assert!(sockets.ready.is_empty());
    read_all(&mut rig, &theirs, 100_000);
    assert_eq!(rig.all[0].next_ready(), Some((token, Kind::Server(0))));
    assert!(rig.all[0].server_may_be_read(SERVER, Some(CLIENT)));
}

#[test]
fn a_server_that_was_held_back_is_read_when_its_client_leaves() {
    let mut rig = Rig::new(1);
    let _theirs = rig.add_client();
    let (token, _server) = rig.add_server();
    let sockets = &mut rig.all[0];
    sockets.send_client(CLIENT, &some_bytes(100_000));
    sockets.server(SERVER).note_events(epoll::READABLE);
    assert!(!sockets.server_may_be_read(SERVER, Some(CLIENT)));
    sockets.close_client(CLIENT);
    assert_eq!(sockets.next_ready(), Some((token, Kind::Server(0))));
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    let sockets = &mut rig.all[0];
    assert!(sockets.client_may_be_read(CLIENT, None));
    sockets.send_client(CLIENT, &some_bytes(200_000));
    sockets.client(CLIENT).note_events(epoll::READABLE);
    assert!(!sockets.client_may_be_read(CLIENT, None));
    read_all(&mut rig, &theirs, 200_000);
    assert!(matches!(rig.all[0].next_ready(), Some((_, Kind::Client(0)))));
}

#[test]
fn last_words_reach_a_client_whose_slot_is_free_already() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    let all = some_bytes(100_000);
    rig.all[0].send_client(CLIENT, &all);
    rig.all[0].close_client(CLIENT);
    assert_eq!(rig.shared.gauges[0].load.clients(), 0);
    assert_eq!(rig.all[0].client(CLIENT).fd, -1);
    let other = rig.add_client();
    rig.all[0].send_client(CLIENT, b"for the new one");
    assert_eq!(read_all(&mut rig, &theirs, usize::MAX), all);
    assert_eq!(read_all(&mut rig, &other, 15), b"for the new one");
    assert!(rig.all[0].lingering.is_empty());
}

#[test]
fn unsent_output_of_a_closed_client_is_given_up() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    rig.all[0].send_client(CLIENT, &some_bytes(100_000));
    rig.all[0].close_client(CLIENT);
    rig.all[0].tick();
    assert_eq!(rig.all[0].lingering.len(), 1);
    rig.all[0].now += 5_000_000;
    rig.all[0].tick();
    rig.all[0].close_discarded();
    assert!(rig.all[0].lingering.is_empty());
    let got = read_all(&mut rig, &theirs, usize::MAX);
    assert!(got.len() < 100_000, "closed, and yet everything was delivered");
}

#[test]
fn a_descriptor_is_not_used_again_within_a_batch() {
    let mut rig = Rig::new(1);
    let theirs = rig.add_client();
    drop(theirs);
    let events = rig.events(0);
    let (token, what) = events[0];
    assert_ne!(what & epoll::PEER_DONE, 0);
    rig.all[0].close_client(CLIENT);
    assert_eq!(rig.all[0].table.kind(token), Kind::Free);
    // Still open, so no new connection can get its number.
    assert!(socket::local_address(token.fd()).is_ok());
    rig.all[0].close_discarded();
    // The next connection may have the number; the old event does not refer to it.
    let again = rig.all[0].table.register(token.fd(), Kind::Client(1));
    assert_eq!(rig.all[0].table.kind(token), Kind::Free);
    assert_eq!(rig.all[0].table.kind(again), Kind::Client(1));
}

#[test]
fn a_lost_client_is_reported_afterwards() {
    let mut rig = Rig::new(1);
    drop(rig.add_client());
    rig.all[0].send_client(CLIENT, b"x");
    rig.all[0].send_client(CLIENT, b"y");
    assert!(matches!(rig.all[0].outcomes.pop_front(), Some(Outcome::ClientLost(_))));
    assert!(rig.all[0].outcomes.is_empty());
}

#[test]
fn a_server_that_takes_nothing_more_is_read_to_its_end() {
    let mut rig = Rig::new(1);
    let (token, theirs) = rig.add_server();
    socket::send(theirs.as_raw_fd(), b"why").unwrap();
    drop(theirs);
    let sockets = &mut rig.all[0];
    sockets.send_server(SERVER, b"query");
    assert!(sockets.outcomes.is_empty(), "reported before its last words were read");
    assert!(sockets.server(SERVER).has(FAILED | BROKEN));
    assert_eq!(sockets.next_ready(), Some((token, Kind::Server(0))));
}

#[test]
fn an_idle_server_is_stolen_with_its_unread_bytes() {
    let mut rig = Rig::new(2);
    let (token, theirs) = rig.add_server();
    let address = Address::Unix("/tmp/.s.PGSQL.5432".into());
    let remote = Remote { address: address.clone(), ..Remote::default() };
    rig.all[0].set_remote(SERVER, Some(Box::new(remote)));
    let parked = rig.all[0].detach_server(SERVER, POOL);
    assert_eq!(rig.all[0].table.kind(token), Kind::Parked(POOL));
    // Its home gets the event and ignores it, since the server is just being stolen.
    socket::send(theirs.as_raw_fd(), b"news").unwrap();
    assert_eq!(rig.events(0)[0].0, token);
    rig.all[0].forget_parked(token, POOL);
    assert_eq!(rig.all[0].table.kind(token), Kind::Free);

    rig.all[1].attach_server(ServerId(3), parked);
    let (stolen, what) = rig.events(1)[0];
    assert_eq!(rig.all[1].table.kind(stolen), Kind::Server(3));
    assert_eq!(rig.all[1].server_address(ServerId(3)), Some(&address));
    assert_ne!(what & epoll::READABLE, 0);
    socket::send(theirs.as_raw_fd(), b"more").unwrap();
    assert!(rig.poll(0, 0).is_empty(), "the old home still watches it");
}

#[test]
fn a_server_that_comes_back_has_lost_no_event() {
    let mut rig = Rig::new(2);
    let (token, theirs) = rig.add_server();
    let parked = rig.all[0].detach_server(SERVER, POOL);
    socket::send(theirs.as_raw_fd(), b"news").unwrap();
    assert_eq!(rig.events(0)[0].0, token);
    rig.all[0].forget_parked(token, POOL);
    // The target worker never touched it and sent it back.
    rig.all[0].attach_server(ServerId(1), parked);
    assert_eq!(rig.events(0)[0].0, token);
    assert_eq!(rig.all[0].table.kind(token), Kind::Server(1));
}

#[test]
fn a_latch_outlives_parking() {
    let mut rig = Rig::new(1);
    let (token, theirs) = rig.add_server();
    socket::send(theirs.as_raw_fd(), b"news").unwrap();
    let (_, what) = rig.events(0)[0];
    rig.all[0].server(SERVER).note_events(what);
    assert!(rig.poll(0, 0).is_empty(), "edges come once");
    let _parked = rig.all[0].detach_server(SERVER, POOL);
    assert_eq!(rig.events(0)[0].0, token);
}

#[test]
fn a_parked_server_taken_by_its_home_costs_no_system_call() {
    let mut rig = Rig::new(1);
    let (token, _theirs) = rig.add_server();
    let parked = rig.all[0].detach_server(SERVER, POOL);
    rig.all[0].attach_server(ServerId(5), parked);
    assert_eq!(rig.all[0].table.kind(token), Kind::Server(5));
    // Another epoll_ctl would have reported a readable socket again.
    assert_eq!(Token::of(&rig.all[0].detach_server(ServerId(5), POOL)), token);
}

#[test]
fn connecting_ends_in_one_outcome() {
    let mut rig = Rig::new(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    rig.all[0].connect(SERVER, &Target::Tcp("127.0.0.1".into(), port), &Arc::default(), None);
    while rig.all[0].outcomes.is_empty() {
        for (token, _) in rig.events(0) {
            rig.all[0].connect_event(SERVER, token);
        }
    }
    let Some(Outcome::ServerConnected { server, ticket }) = rig.all[0].outcomes.pop_front() else {
        panic!("not connected");
    };
    assert!(rig.all[0].end_connecting(server, ticket) && rig.all[0].outcomes.is_empty());
    assert!(!rig.all[0].end_connecting(server, ticket), "the same outcome twice");

    drop(listener);
    rig.all[0].connect(ServerId(1), &Target::Tcp("127.0.0.1".into(), port), &Arc::default(), None);
    while rig.all[0].outcomes.is_empty() {
        for (token, _) in rig.events(0) {
            rig.all[0].connect_event(ServerId(1), token);
        }
    }
    assert!(matches!(rig.all[0].outcomes[0], Outcome::ConnectFailed { .. }));
}

#[test]
fn a_name_is_looked_up_elsewhere_and_its_addresses_tried_in_turn() {
    let mut rig = Rig::new(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let live = listener.local_addr().unwrap();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    rig.all[0].connect(
        SERVER,
        &Target::Tcp("db.example".into(), live.port()),
        &Arc::default(),
        None,
    );
    let Ok(ColdRequest::Resolve(question)) = rig.cold.try_recv() else { panic!("no question") };
    assert_eq!((question.host.as_str(), question.port), ("db.example", live.port()));
    rig.all[0].resolved(question.ticket + 1, vec![dead]);
    assert_eq!(rig.all[0].server_fd(SERVER), -1, "an answer to another question was taken");

    rig.all[0].resolved(question.ticket, vec![dead, live]);
    while rig.all[0].outcomes.is_empty() {
        for (token, _) in rig.events(0) {
            if rig.all[0].is_server(token, SERVER) {
                rig.all[0].connect_event(SERVER, token);
            }
        }
        rig.all[0].close_discarded();
    }
    assert!(matches!(rig.all[0].outcomes[0], Outcome::ServerConnected { .. }));
    assert_eq!(rig.all[0].server_address(SERVER), Some(&Address::Inet(live)));
}

#[test]
fn a_server_given_up_while_connecting_is_not_reported() {
    let mut rig = Rig::new(1);
    rig.all[0].connect(
        SERVER,
        &Target::Unix("/nonexistent/.s.PGSQL.1".into()),
        &Arc::default(),
        None,
    );
    let Some(Outcome::ConnectFailed { server, ticket, .. }) = rig.all[0].outcomes.pop_front()
    else {
        panic!("connected to nothing");
    };
    rig.all[0].close_server(SERVER);
    assert!(!rig.all[0].end_connecting(server, ticket));
}

/// A stream that is not read until the next turn.
fn resting() -> (Rig, Token, OwnedFd) {
    let mut rig = Rig::new(1);
    let (token, theirs) = rig.add_server();
    let mut buffer = some_bytes(PIECE as u32);
    for _ in 0..=PIECES {
        assert!(!rig.all[0].has_resting());
        socket::send(theirs.as_raw_fd(), &buffer).unwrap();
        assert_eq!(rig.poll(0, 0), [(token, epoll::READABLE)]);
        let count = socket::recv(token.fd(), &mut buffer).unwrap();
        rig.all[0].note_piece(SERVER, token, count);
    }
    assert!(rig.all[0].has_resting());
    socket::send(theirs.as_raw_fd(), &buffer).unwrap();
    assert!(rig.poll(0, 0).is_empty(), "nobody is waked for it");
    (rig, token, theirs)
}

#[test]
fn a_stream_rests_and_what_came_meanwhile_is_reported() {
    let (mut rig, token, theirs) = resting();
    rig.all[0].end_rest();
    assert_eq!(rig.poll(0, 0), [(token, epoll::READABLE)]);
    let mut buffer = some_bytes(PIECE as u32 * 2);
    let count = socket::recv(token.fd(), &mut buffer).unwrap();
    assert_eq!(count, PIECE);
    // Another piece makes it rest again; a smaller read ends the stream.
    rig.all[0].note_piece(SERVER, token, LOT);
    assert!(!rig.all[0].has_resting(), "more came than one by one");
    rig.all[0].note_piece(SERVER, token, count);
    assert!(rig.all[0].has_resting());
    rig.all[0].end_rest();
    rig.all[0].server(SERVER).note_read(100, 16_384);
    rig.all[0].note_piece(SERVER, token, PIECE);
    assert!(!rig.all[0].has_resting());
    drop(theirs);
    assert!(rig.poll(0, 0)[0].1 & epoll::PEER_DONE != 0);
}

#[test]
fn a_server_that_is_parked_while_it_rests_is_watched() {
    let (mut rig, token, theirs) = resting();
    let _parked = rig.all[0].detach_server(SERVER, POOL);
    assert_eq!(rig.poll(0, 0), [(token, epoll::READABLE)]);
    rig.all[0].end_rest();
    drop(theirs);
    assert!(rig.poll(0, 0)[0].1 & epoll::PEER_DONE != 0);
}

#[test]
fn a_server_does_not_rest_while_it_does_not_take_what_it_is_sent() {
    let (mut rig, token, theirs) = resting();
    rig.all[0].end_rest();
    socket::set_send_buffer(token.fd(), 4096).unwrap();
    rig.all[0].send_server(SERVER, &some_bytes(1_000_000));
    assert!(rig.all[0].server_has_pending(SERVER));
    rig.all[0].note_piece(SERVER, token, PIECE);
    assert!(!rig.all[0].has_resting());
    // The end of a rest does not reset that either.
    rig.all[0].resting.push(token);
    rig.all[0].end_rest();
    while socket::recv(theirs.as_raw_fd(), &mut [0; 65_536]).is_ok() {}
    assert!(rig.poll(0, 0)[0].1 & epoll::WRITABLE != 0);
}

#[test]
fn the_end_of_a_rest_ignores_a_reused_descriptor() {
    // Another test may get the number first, since all share one process.
    for _ in 0..1_000 {
        let (mut rig, token, _theirs) = resting();
        rig.all[0].close_server(SERVER);
        rig.all[0].close_discarded();
        let theirs = rig.add_client();
        if rig.all[0].client_fd(CLIENT) != token.fd() {
            continue;
        }
        rig.all[0].end_rest();
        socket::send(theirs.as_raw_fd(), b"x").unwrap();
        let events = rig.poll(0, 0);
        assert_eq!(events.len(), 1);
        assert_ne!(events[0].0, token);
        return;
    }
    panic!("the number was never given again");
}
