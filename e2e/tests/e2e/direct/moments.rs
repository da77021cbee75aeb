//! The moments of a direct client's life at which the kill matrices end a party.

use testkit::{Postgres, RawClient, eventually, frontend};

use super::{PATIENCE, shared::Shared};
use crate::support;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    AtRest,
    /// It has sent a request, and all backends serve others.
    Ready,
    InTransaction,
    InResult,
    InCopy,
    Pinned,
    HandOff,
    /// Weir has asked its backend to return it when its transaction ends.
    Recall,
    Login,
    Cancel,
}

pub(crate) const MOMENTS: [Moment; 10] = [
    Moment::AtRest,
    Moment::Ready,
    Moment::InTransaction,
    Moment::InResult,
    Moment::InCopy,
    Moment::Pinned,
    Moment::HandOff,
    Moment::Recall,
    Moment::Login,
    Moment::Cancel,
];

impl Moment {
    /// Does the victim have a backend then?
    pub(crate) fn has_backend(self) -> bool {
        match self {
            Self::InTransaction
            | Self::InResult
            | Self::InCopy
            | Self::Pinned
            | Self::Recall
            | Self::Cancel => true,
            Self::AtRest | Self::Ready | Self::HandOff | Self::Login => false,
        }
    }
}

/// A server and a Weir whose pool is direct. Its rules let clients in without a password.
pub(crate) trait Site {
    fn postgres(&self) -> &Postgres;
    fn database(&self) -> &str;
    fn port(&self) -> u16;
    /// The process id of Weir.
    fn weir(&self) -> u32;
    fn client(&self) -> RawClient;
    /// Begins a SUSPEND on the console.
    fn suspend(&self) -> RawClient;
}

pub(crate) struct Victim {
    pub(crate) client: RawClient,
    /// Its backend, or that of another client for which it waits; 0: none of these.
    pub(crate) backend: u32,
    /// The clients that occupy the other backends.
    pub(crate) others: Vec<RawClient>,
    /// The console on which SUSPEND runs.
    pub(crate) console: Option<RawClient>,
}

/// Brings a new client to this moment. One of `size` backends serves another client.
pub(crate) fn reach(site: &impl Site, moment: Moment, size: u32) -> Victim {
    let startup = frontend::startup(&[("user", "app"), ("database", site.database())]);
    let client = match moment {
        Moment::HandOff | Moment::Login => RawClient::connect(site.port()),
        _ => site.client(),
    };
    let mut victim = Victim { client, backend: 0, others: Vec::new(), console: None };
    let client = &mut victim.client;
    if moment.has_backend() {
        client.rows("BEGIN");
        victim.backend = super::pid(client);
    }
    match moment {
        Moment::AtRest => drop(client.rows("SET work_mem = '6MB'")),
        Moment::Ready => {
            victim.others = (1..size).map(|_| site.client()).collect();
            victim.others.iter_mut().for_each(|other| drop(other.rows("BEGIN")));
            victim.backend = super::pid(&mut victim.others[0]);
            client.send(frontend::query("SET work_mem = '6MB'"));
        }
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
        Moment::Recall => {
            victim.console = Some(site.suspend());
            let shared = Shared::find(site.weir()).expect("a lobby");
            eventually("it is recalled", PATIENCE, || (shared.recalled() > 0).then_some(()));
        }
        // Until Weir reads this, its supervisor could give the connection to the next Weir.
        Moment::Login => client.send_apart(&startup[..9]).expect("it is connected"),
        Moment::Cancel => {
            client.send(frontend::query("SELECT pg_sleep(60)"));
            let text = "SELECT pg_sleep(60)";
            support::until_running_at(site.postgres(), site.database(), text);
            client.cancel(site.port());
        }
    }
    victim
}
