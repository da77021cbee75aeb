//! The work of a worker in one turn.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use config::Config;
use engine::ids::WorkerId;
use tokio::sync::mpsc;
use wire::{backend, frontend};

use super::Stepped;
use crate::{
    data::worker::{CROWDED_READ, LOGINS_MAX},
    exchange::mail::ShellMail,
};
use net::sys::rights;

/// More than two of the largest reads, and less than the socket of a unix connection holds.
const REQUEST_LEN: usize = 160 * 1024;
const LARGEST_READ: usize = 64 * 1024;
const TURNS_MAX: usize = 1_000;

/// A worker with a client and a server, both played by the test.
struct Rig {
    weir: Stepped,
    client: UnixStream,
    server: UnixStream,
    folder: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Rig {
    fn new(sbuf_loopcnt: u32) -> Self {
        let name = format!("weir-turns-{}-{sbuf_loopcnt}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let dir = folder.display();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let text = format!(
            "[databases]\napp = host={dir} user=app\n\
             [pgbouncer]\nlisten_addr =\nunix_socket_dir = {dir}\nauth_type = any\n\
             pool_mode = transaction\nsbuf_loopcnt = {sbuf_loopcnt}\n\
             role_check_interval = 0\n"
        );
        let ini = folder.join("weir.ini");
        fs::write(&ini, text).unwrap();
        let mut weir = Stepped::start(Config::load(&ini).unwrap()).unwrap();
        let mut client = newcomer(&folder);
        let mut server = turn_until(&mut weir, || listener.accept().ok()).0;
        server.set_nonblocking(true).unwrap();
        turn_until(&mut weir, || (received(&mut server) > 0).then_some(()));
        let mut words = Vec::new();
        backend::authentication_ok(&mut words);
        backend::ready_for_query(&mut words, b'I');
        server.write_all(&words).unwrap();
        turn_until(&mut weir, || (received(&mut client) > 0).then_some(()));
        Self { weir, client, server, folder }
    }

    /// Returns how much of a long request reaches the server in each turn.
    fn request(&mut self) -> Vec<usize> {
        let mut request = Vec::new();
        frontend::query(&mut request, &vec![b' '; REQUEST_LEN]);
        self.pass(&request)
    }

    /// Returns how much of `request` reaches the server in each turn.
    fn pass(&mut self, request: &[u8]) -> Vec<usize> {
        self.client.write_all(request).unwrap();
        let (mut portions, mut left) = (Vec::new(), request.len());
        for _ in 0..TURNS_MAX {
            self.weir.turn().unwrap();
            let count = received(&mut self.server);
            left -= count;
            portions.push(count);
            if left == 0 {
                return portions;
            }
        }
        panic!("{left} bytes did not arrive: {portions:?}");
    }

    fn tell(&mut self, letter: ShellMail) {
        self.weir.shared.hub.mailbox(WorkerId(0)).post(letter);
        self.weir.turn().unwrap();
    }

    /// Hands the sockets of the worker's connections to another process.
    fn export(&mut self) -> Vec<OwnedFd> {
        let (reply, mut answers) = mpsc::unbounded_channel();
        self.tell(ShellMail::Export(reply));
        let export = answers.try_recv().unwrap();
        let (from, to) = UnixStream::pair().unwrap();
        rights::send(from.as_raw_fd(), &export.fds).unwrap();
        rights::receive(to.as_raw_fd()).unwrap()
    }

    fn clients(&self) -> u32 {
        self.weir.shared.gauge(WorkerId(0)).load.clients()
    }
}

/// Returns a client that has sent its startup packet.
fn newcomer(folder: &Path) -> UnixStream {
    let mut client = UnixStream::connect(folder.join(".s.PGSQL.6432")).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut words = Vec::new();
    frontend::startup(&mut words, 0, &[("user", "app"), ("database", "app")]);
    client.write_all(&words).unwrap();
    client
}

fn turn_until<T>(weir: &mut Stepped, mut done: impl FnMut() -> Option<T>) -> T {
    for _ in 0..TURNS_MAX {
        weir.turn().unwrap();
        if let Some(result) = done() {
            return result;
        }
    }
    panic!("not within {TURNS_MAX} turns");
}

/// Reads all available bytes, and counts them.
fn received(stream: &mut UnixStream) -> usize {
    let (mut count, mut buffer) = (0, vec![0; REQUEST_LEN]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("closed"),
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn sbuf_loopcnt_reads_of_a_connection_and_others_have_their_turn() {
    // In its first turn a connection is read for its event, and again at the end of the batch.
    let portions = Rig::new(1).request();
    assert!(portions.len() > 1, "{portions:?}");
    assert!(portions.iter().all(|count| *count < 2 * LARGEST_READ), "{portions:?}");
}

#[test]
fn without_sbuf_loopcnt_all_that_is_there_is_read_in_one_turn() {
    assert_eq!(Rig::new(0).request().len(), 1);
}

#[test]
fn a_thousand_messages_of_a_connection_and_others_have_their_turn() {
    let mut flood = Vec::new();
    (0..REQUEST_LEN / 5).for_each(|_| frontend::flush(&mut flood));
    let portions = Rig::new(11).pass(&flood);
    // The first read does not know the number of messages yet. No message is shorter than these.
    assert!(portions[0] <= LARGEST_READ / 4 + CROWDED_READ, "{portions:?}");
    assert!(portions[1..].iter().all(|count| *count <= CROWDED_READ), "{portions:?}");
}

#[test]
fn working_clients_get_turns_between_many_logins() {
    let mut rig = Rig::new(5);
    let mut crowd: Vec<_> = (0..60).map(|_| newcomer(&rig.folder)).collect();
    let (mut query, mut answer) = (Vec::new(), Vec::new());
    frontend::query(&mut query, b"SELECT 1");
    backend::ready_for_query(&mut answer, b'I');
    for _ in 0..TURNS_MAX {
        rig.client.write_all(&query).unwrap();
        rig.weir.turn().unwrap();
        assert_eq!(received(&mut rig.server), query.len(), "it has to wait for a crowd");
        let before = crowd.len();
        crowd.retain_mut(|client| received(client) == 0);
        assert!(before - crowd.len() <= LOGINS_MAX, "{} at a time", before - crowd.len());
        if crowd.is_empty() {
            return;
        }
        rig.server.write_all(&answer).unwrap();
        rig.weir.turn().unwrap();
        assert_eq!(received(&mut rig.client), answer.len());
        crowd.retain_mut(|client| received(client) == 0);
    }
    panic!("{} are not in", crowd.len());
}

#[test]
fn while_clients_send_more_than_is_read_one_is_accepted_per_turn() {
    const TURNS: usize = 40;
    let mut rig = Rig::new(7);
    let name = "long".repeat(100);
    let mut words = Vec::new();
    frontend::startup(&mut words, 0, &[("user", "app"), ("application_name", &name)]);
    let path = rig.folder.join(".s.PGSQL.6432");
    let mut crowd: Vec<_> = (0..120).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let before = rig.clients();
    // Each one has another byte to send after each read, and never finishes.
    for byte in &words[..TURNS] {
        for client in &mut crowd {
            client.write_all(&[*byte]).unwrap();
        }
        rig.weir.turn().unwrap();
    }
    let entered = (rig.clients() - before) as usize;
    assert!((TURNS..2 * TURNS).contains(&entered), "{entered} in {TURNS} turns");
}

#[test]
fn orders_do_not_touch_exported_connections() {
    let kill = || ShellMail::Kill(["app".to_owned()].into());
    let mut rig = Rig::new(8);
    let theirs = rig.export();
    assert_eq!(theirs.len(), 2);
    rig.tell(kill());
    let (done, _) = mpsc::unbounded_channel();
    rig.tell(ShellMail::Cede(Arc::default(), done));
    rig.tell(ShellMail::Thaw);
    assert_eq!((received(&mut rig.client), received(&mut rig.server)), (0, 0));
    assert_eq!(rig.clients(), 0);
    drop(theirs);

    // Another process did not get it after all.
    let mut rig = Rig::new(9);
    drop(rig.export());
    rig.tell(kill());
    assert_eq!((received(&mut rig.client), received(&mut rig.server)), (0, 0));
    rig.tell(ShellMail::Thaw);
    assert_eq!(rig.clients(), 0);
}
