//! The kill matrix: a party is ended at each moment of a client's life. Only those lose that the
//! table names, and nothing is left behind. WEIR_TESTS=full tries all parties at all moments.

use std::{fs, time::Duration};

use testkit::{Postgres, RawClient, eventually, frontend, poll_until};

use super::{
    Direct, PATIENCE,
    moments::{MOMENTS, Moment, Site, Victim, reach},
    shared::Shared,
};
use crate::support;

/// The size of the pool. One server is the victim's, one the busy bystander's.
const SIZE: u32 = 3;
const WAITS: Duration = Duration::from_millis(300);
/// Four pages. The state of one client takes one or more.
const MORE_MEMORY: u64 = 4 * 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Client,
    /// It is terminated, as by `pg_terminate_backend`.
    Backend,
    /// It is killed, so PostgreSQL starts all processes again.
    BackendKilled,
    Weir,
    Postmaster,
}

const PARTIES: [Party; 5] =
    [Party::Client, Party::Backend, Party::BackendKilled, Party::Weir, Party::Postmaster];
/// The clients besides the victim that lose their connections.
#[derive(Debug, PartialEq, Eq)]
struct Losses {
    victim: bool,
    /// A client at rest, with a setting.
    resting: bool,
    /// A client in a transaction of its own.
    busy: bool,
}

fn expected(party: Party, moment: Moment) -> Losses {
    let has_backend = moment.has_backend();
    match party {
        Party::Client => Losses { victim: true, resting: false, busy: false },
        Party::Backend => Losses { victim: has_backend, resting: false, busy: false },
        Party::BackendKilled | Party::Postmaster => {
            Losses { victim: has_backend, resting: false, busy: true }
        }
        // Transactions go on to their ends.
        Party::Weir => {
            let victim = !has_backend || moment == Moment::Pinned;
            Losses { victim, resting: true, busy: false }
        }
    }
}

impl Site for Direct {
    fn postgres(&self) -> &Postgres {
        &self.postgres
    }

    fn database(&self) -> &str {
        &self.database
    }

    fn port(&self) -> u16 {
        self.pooler.port()
    }

    fn weir(&self) -> u32 {
        self.pooler.pid()
    }

    fn client(&self) -> RawClient {
        Self::client(self)
    }

    fn suspend(&self) -> RawClient {
        let mut console = self.pooler.console();
        console.send(frontend::query("SUSPEND"));
        console
    }
}

/// Ends the party. PostgreSQL and Weir run again then.
fn end(direct: &mut Direct, party: Party, client: RawClient, backend: u32) -> Option<RawClient> {
    let backend = match backend {
        // One that waits for clients.
        0 => direct.idle_backend(),
        backend => backend,
    };
    match party {
        Party::Client => {
            drop(client);
            return None;
        }
        Party::Backend => {
            let order = format!("SELECT pg_terminate_backend({backend})");
            direct.postgres.sql("postgres", &order);
        }
        Party::BackendKilled => {
            testkit::send_signal(backend, "KILL");
            let is_gone = || !fs::exists(format!("/proc/{backend}")).unwrap_or(false);
            eventually("the backend is gone", PATIENCE, || is_gone().then_some(()));
            eventually("PostgreSQL is up again", PATIENCE, || direct.postgres.is_ready());
        }
        Party::Weir => {
            direct.pooler.kill9();
            direct.pooler.restart();
        }
        Party::Postmaster => {
            direct.postgres.kill9();
            direct.postgres.launch();
        }
    }
    Some(client)
}

impl Direct {
    /// A backend that serves nobody, or lingers.
    fn idle_backend(&self) -> u32 {
        eventually("a backend is idle", PATIENCE, || {
            let servers = self.pooler.admin("SHOW SERVERS").with("database", &self.database);
            let idle = servers.with("state", "idle");
            idle.column("remote_pid").first().map(|process| process.parse().expect("a number"))
        })
    }

    /// The sockets of the pooler, of which each is a client, a server, or one for all.
    fn sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pooler.pid());
        let files = fs::read_dir(folder).expect("the process is there").flatten();
        let links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    }
}

/// Has the connection ended? A client that was lost has been told, or not.
pub(crate) fn is_lost(client: &mut RawClient, is_expected: bool) -> bool {
    client.set_timeout(if is_expected { PATIENCE } else { WAITS });
    loop {
        match client.try_read() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// The client's own setting. Its request before may not be answered yet.
pub(crate) fn setting_of(client: &mut RawClient) -> String {
    client.set_timeout(PATIENCE);
    client.send(frontend::query("SHOW work_mem"));
    let answer = client.read_until(|message| message.tag == b'D');
    answer.last().and_then(|message| message.row().pop()?).expect("a row")
}

fn try_cell(direct: &mut Direct, party: Party, moment: Moment) {
    let what = format!("{party:?} at {moment:?}");
    let mut busy = direct.client();
    busy.rows("BEGIN; SET LOCAL work_mem = '7MB'");
    // This needs a second server.
    let mut resting = direct.client();
    resting.rows("SET work_mem = '5MB'");
    let Victim { client, backend, others, console } = reach(direct, moment, SIZE);
    let mut rest = end(direct, party, client, backend);
    // The backends are free again, if the clients have not lost them.
    drop(others);
    // SUSPEND ends with its console.
    drop(console);
    let losses = expected(party, moment);
    let found = Losses {
        victim: rest.as_mut().is_none_or(|client| is_lost(client, losses.victim)),
        resting: is_lost(&mut resting, losses.resting),
        busy: is_lost(&mut busy, losses.busy),
    };
    assert_eq!(found, losses, "{what}");
    if !found.resting {
        resting.set_timeout(PATIENCE);
        assert_eq!(resting.value("SHOW work_mem"), "5MB", "{what}");
    }
    if !found.busy {
        busy.set_timeout(PATIENCE);
        assert_eq!(busy.value("SHOW work_mem"), "7MB", "{what}");
        busy.rows("COMMIT");
        if party == Party::Weir {
            assert!(busy.read_to_end().is_empty(), "{what}");
        }
    }
    if moment == Moment::Ready && !found.victim {
        let victim = rest.as_mut().expect("it is there");
        assert_eq!(setting_of(victim), "6MB", "{what}");
    }
    drop((rest, resting, busy));
    // New clients are served, and the victim's work has left nothing.
    let mut next = direct.client();
    assert_eq!(next.value("SELECT count(*) FROM copied"), "0", "{what}");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually(&format!("the lock is free: {what}"), PATIENCE, || {
        (next.value(locks) == "0").then_some(())
    });
}

/// The memory of the pool's lobby.
fn memory(direct: &Direct) -> u64 {
    let lobby = Shared::find(direct.pooler.pid());
    lobby.unwrap_or_else(|| panic!("no lobby: {}", direct.column("why"))).size()
}

/// The sockets and the memory of a pooler without clients.
struct Empty {
    sockets: usize,
    memory: u64,
}

impl Empty {
    fn of(direct: &Direct) -> Self {
        Self { sockets: direct.sockets(), memory: memory(direct) }
    }
}

/// Waits until the pooler has no more sockets than one client at rest needs, and the lobby has no
/// more memory than the lines of some more backends and places.
fn expect_no_leak(direct: &Direct, first: &Empty, what: &str) {
    // A server has two sockets: its own, and that of its backend.
    let sockets_max = first.sockets + 2 * SIZE as usize;
    let memory_max = first.memory + MORE_MEMORY;
    let mut seen = (String::new(), 0, 0, 0);
    let is_empty = poll_until(PATIENCE, || {
        seen =
            (direct.column("cl_active"), direct.sockets(), memory(direct), direct.backends().len());
        let is_empty = seen.0 == "0" && seen.1 <= sockets_max && seen.2 <= memory_max;
        (is_empty && seen.3 <= SIZE as usize).then_some(())
    });
    assert!(is_empty.is_some(), "{what}: left over: {seen:?}, {sockets_max}, {memory_max}");
}

fn try_all(cells: impl IntoIterator<Item = (Party, Moment)>) {
    // SUSPEND waits while PostgreSQL or Weir starts again.
    let mut direct = Direct::start_with(SIZE, |setup| setup.set("suspend_timeout", 60));
    direct.client().rows("SET synchronous_commit = on; CREATE TABLE copied (a int)");
    eventually("it has left", PATIENCE, || (direct.column("cl_active") == "0").then_some(()));
    // When a backend ends, Weir reads the lines of all places, which take memory from then on.
    let backend = direct.backends()[0];
    direct.postgres.sql("postgres", &format!("SELECT pg_terminate_backend({backend}, 10000)"));
    drop(direct.client().rows("SELECT 1"));
    eventually("it has left", PATIENCE, || (direct.column("cl_active") == "0").then_some(()));
    let first = Empty::of(&direct);
    for (party, moment) in cells {
        try_cell(&mut direct, party, moment);
        expect_no_leak(&direct, &first, &format!("{party:?} at {moment:?}"));
    }
}

/// Backends that end at once prove nothing against the server.
#[test]
fn backends_that_end_at_once_are_replaced() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    let mut busy = direct.client();
    busy.rows("BEGIN");
    // Each of them is lost in a transaction as soon as a backend serves it.
    for mut client in direct.clients(12) {
        client.send(frontend::query("BEGIN"));
    }
    drop(busy);
    let mut next = direct.client();
    next.set_timeout(PATIENCE);
    assert_eq!(next.value("SELECT 1"), "1");
    assert_eq!(direct.column("data_path"), "direct");
}

#[test]
fn only_those_lose_that_the_matrix_names_strict() {
    if !support::only_weir() {
        return;
    }
    let is_full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    let cells = PARTIES.into_iter().flat_map(|party| MOMENTS.map(|moment| (party, moment)));
    // The short form starts PostgreSQL and Weir again once.
    let is_short = |(party, moment): &(Party, Moment)| match party {
        Party::Client | Party::Backend => true,
        Party::BackendKilled => *moment == Moment::Pinned,
        Party::Weir => *moment == Moment::InTransaction,
        Party::Postmaster => *moment == Moment::InResult,
    };
    try_all(cells.filter(|cell| is_full || is_short(cell)));
}
