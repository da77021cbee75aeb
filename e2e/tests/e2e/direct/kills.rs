//! The kill matrix: a party is ended at each moment of a client's life. Only those lose that the
//! table names, and nothing is left behind. WEIR_TESTS=full tries all parties at all moments.

use std::{fs, process::Command, time::Duration};

use testkit::{RawClient, eventually, frontend};

use super::{Direct, PATIENCE, pid};
use crate::support;

/// The size of the pool. One server is the victim's, one the busy bystander's.
const SIZE: u32 = 3;
const WAITS: Duration = Duration::from_millis(300);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    AtRest,
    InTransaction,
    InResult,
    InCopy,
    Pinned,
    HandOff,
    Login,
    Cancel,
}

const PARTIES: [Party; 5] =
    [Party::Client, Party::Backend, Party::BackendKilled, Party::Weir, Party::Postmaster];
const MOMENTS: [Moment; 8] = [
    Moment::AtRest,
    Moment::InTransaction,
    Moment::InResult,
    Moment::InCopy,
    Moment::Pinned,
    Moment::HandOff,
    Moment::Login,
    Moment::Cancel,
];

impl Moment {
    /// Does the victim have a backend then?
    fn has_backend(self) -> bool {
        match self {
            Self::InTransaction | Self::InResult | Self::InCopy | Self::Pinned | Self::Cancel => {
                true
            }
            Self::AtRest | Self::HandOff | Self::Login => false,
        }
    }
}

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

struct Victim {
    client: RawClient,
    backend: u32,
}

/// Brings a new client to this moment.
fn reach(direct: &Direct, moment: Moment) -> Victim {
    let startup = frontend::startup(&[("user", "app"), ("database", &direct.database)]);
    let mut client = match moment {
        Moment::HandOff | Moment::Login => RawClient::connect(direct.pooler.port()),
        Moment::AtRest
        | Moment::InTransaction
        | Moment::InResult
        | Moment::InCopy
        | Moment::Pinned
        | Moment::Cancel => direct.client(),
    };
    let mut backend = 0;
    if moment.has_backend() {
        client.rows("BEGIN");
        backend = pid(&mut client);
    }
    match moment {
        Moment::AtRest => drop(client.rows("SET work_mem = '6MB'")),
        Moment::InTransaction => drop(client.rows("SELECT 1")),
        Moment::InResult => {
            let text = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
            client.send(frontend::query(text));
            // The rest waits until the client reads on.
            assert_eq!(client.read().tag, b'T');
        }
        Moment::InCopy => {
            client.send(frontend::query("COPY copied FROM STDIN"));
            assert_eq!(client.read().tag, b'G');
            client.send(frontend::copy_data(b"1\n"));
        }
        Moment::Pinned => drop(client.rows("SELECT pg_advisory_lock(77); COMMIT")),
        // Weir has not read this, or is just handing the client on.
        Moment::HandOff => client.send(startup),
        Moment::Login => client.send(&startup[..9]),
        Moment::Cancel => {
            client.send(frontend::query("SELECT pg_sleep(60)"));
            let text = "SELECT pg_sleep(60)";
            support::until_running_at(&direct.postgres, &direct.database, text);
            client.cancel(direct.pooler.port());
        }
    }
    Victim { client, backend }
}

/// Ends the party. PostgreSQL and Weir run again then.
fn end(direct: &mut Direct, party: Party, victim: Victim) -> Option<RawClient> {
    let backend = match victim.backend {
        // One that waits for clients.
        0 => direct.idle_backend(),
        backend => backend,
    };
    match party {
        Party::Client => {
            drop(victim.client);
            return None;
        }
        Party::Backend => {
            let order = format!("SELECT pg_terminate_backend({backend})");
            direct.postgres.sql("postgres", &order);
        }
        Party::BackendKilled => {
            let done = Command::new("kill").args(["-KILL", &backend.to_string()]).status();
            assert!(done.is_ok_and(|done| done.success()));
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
    Some(victim.client)
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
fn is_lost(client: &mut RawClient, is_expected: bool) -> bool {
    client.set_timeout(if is_expected { PATIENCE } else { WAITS });
    loop {
        match client.try_read() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn try_cell(direct: &mut Direct, party: Party, moment: Moment) {
    let what = format!("{party:?} at {moment:?}");
    let mut busy = direct.client();
    busy.rows("BEGIN; SET LOCAL work_mem = '7MB'");
    // This needs a second server.
    let mut resting = direct.client();
    resting.rows("SET work_mem = '5MB'");
    let victim = reach(direct, moment);
    let mut rest = end(direct, party, victim);
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
    drop((rest, resting, busy));
    // New clients are served, and the victim's work has left nothing.
    let mut next = direct.client();
    assert_eq!(next.value("SELECT count(*) FROM copied"), "0", "{what}");
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    eventually(&format!("the lock is free: {what}"), PATIENCE, || {
        (next.value(locks) == "0").then_some(())
    });
}

/// Waits until the pooler has no more sockets than one client at rest needs.
fn expect_no_leak(direct: &Direct, first: usize, what: &str) {
    // A server has two sockets: its own, and that of its backend.
    let sockets_max = first + 2 * SIZE as usize;
    eventually(&format!("nothing is left: {what}"), PATIENCE, || {
        let are_gone = direct.column("cl_active") == "0" && direct.sockets() <= sockets_max;
        (are_gone && direct.backends().len() <= SIZE as usize).then_some(())
    });
}

fn try_all(cells: impl IntoIterator<Item = (Party, Moment)>) {
    let mut direct = Direct::start(SIZE);
    direct.client().rows("SET synchronous_commit = on; CREATE TABLE copied (a int)");
    eventually("it has left", PATIENCE, || (direct.column("cl_active") == "0").then_some(()));
    let first = direct.sockets();
    for (party, moment) in cells {
        try_cell(&mut direct, party, moment);
        expect_no_leak(&direct, first, &format!("{party:?} at {moment:?}"));
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
fn only_those_lose_that_the_matrix_names() {
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
