//! The sessions of a pool are spread evenly over the standbys (`balance = session`), and a single
//! statement goes to the less busy one (`balance = statement`).

use std::sync::Arc;

use config::{Balance, PoolMode};
use engine::ids::{Micros, NodeId};
use engine::routing::readers::Readers;
use engine::routing::rules::{Catalog, ReadRules, Routing};

use crate::clusters::clustered;
use crate::messages::*;
use crate::rig::{Client, Rig};

const READ: &str = "select 1";
pub(crate) const STALE_WAIT: Micros = 200_000;

/// A primary and two standbys.
pub(crate) struct Cluster {
    pub(crate) rig: Rig,
    pub(crate) readers: Arc<Readers>,
}

impl Cluster {
    pub(crate) fn new(balance: Balance, workers: usize) -> Self {
        Self::of_size(20, balance, workers)
    }

    /// Each node has at most so many servers.
    fn of_size(size: u32, balance: Balance, workers: usize) -> Self {
        let rules = ReadRules { balance, stale_wait: STALE_WAIT, ..ReadRules::default() };
        Self::by(rules, size, workers)
    }

    pub(crate) fn by(rules: ReadRules, size: u32, workers: usize) -> Self {
        let readers = Arc::new(Readers::new(["a", "b", "c"].map(|name| (name.to_owned(), 1))));
        let catalog = Arc::new(Catalog::new(Default::default(), 1, false, 0));
        let routing = Routing::new(rules, readers.clone(), catalog, None);
        let auto = |config: &mut config::Config| {
            clustered(config);
            config.global.pool_mode = PoolMode::Auto;
            config.global.default_pool_size = size;
        };
        let rig = Rig::with_workers(workers, auto).routed_by(routing);
        rig.later(1_000);
        Self { rig, readers }
    }

    /// Standby 1 or 2 has everything up to this moment.
    pub(crate) fn has_all_before(&self, standby: u16, moment: Micros) {
        self.readers.get(NodeId(standby)).expect("a standby").set(Some(moment), 0, 0);
    }

    /// The client reads. Returns the server that answers.
    pub(crate) fn reads(&self, client: &Client) -> usize {
        let number = self.begins_read(client);
        self.rig.server(number).send([done("OK")]);
        client.expect([done("OK")]);
        self.rig.later(1_000);
        number
    }

    /// The client sends a read, which gets no answer yet. Returns the server that has it.
    pub(crate) fn begins_read(&self, client: &Client) -> usize {
        client.send([query(READ)]);
        let asked = |number: &usize| !self.rig.server(*number).take().is_empty();
        (0..self.rig.servers()).find(asked).expect("a server has the read")
    }
}

#[test]
fn sessions_are_spread_evenly_over_all_workers() {
    let cluster = Cluster::new(Balance::Session, 2);
    for standby in [1, 2] {
        cluster.has_all_before(standby, Micros::MAX);
    }
    let clients: Vec<_> = (0..8).map(|number| cluster.rig.client_at(number / 4)).collect();
    // Reads follow one another, so each standby has one server.
    let places: Vec<_> = clients.iter().map(|client| cluster.reads(client)).collect();
    let first = places.iter().filter(|place| **place == places[0]).count();
    assert_eq!(first, 4, "{places:?}");
    let again: Vec<_> = clients.iter().map(|client| cluster.reads(client)).collect();
    assert_eq!(again, places, "they stay");
}

/// Three sessions that have read, and the server of each. The first and the third share a standby.
fn three(cluster: &Cluster) -> ([Client; 3], [usize; 3]) {
    for standby in [1, 2] {
        cluster.has_all_before(standby, Micros::MAX);
    }
    let mut clients = [(); 3].map(|()| cluster.rig.client());
    let mut places = [0, 1, 2].map(|at| cluster.reads(&clients[at]));
    assert_ne!(places[0], places[1]);
    if places[2] == places[1] {
        clients.swap(0, 1);
        places.swap(0, 1);
    }
    (clients, places)
}

#[test]
pub(crate) fn a_session_that_left_does_not_count() {
    let cluster = Cluster::new(Balance::Session, 1);
    let ([first, second, third], places) = three(&cluster);
    second.leave();
    assert_eq!(cluster.reads(&first), places[1], "it was alone, and nobody is there now");
    assert_eq!(cluster.reads(&third), places[2]);
}

#[test]
pub(crate) fn a_session_does_not_go_back_in_time_for_the_balance() {
    let cluster = Cluster::new(Balance::Session, 1);
    let ([first, second, third], places) = three(&cluster);
    let before = cluster.rig.now();
    assert_eq!(cluster.reads(&first), places[0]);
    second.leave();
    for standby in [1, 2] {
        cluster.has_all_before(standby, before);
    }
    assert_eq!(cluster.reads(&first), places[0], "the other one may lack what it has read");
    for standby in [1, 2] {
        cluster.has_all_before(standby, cluster.rig.now());
    }
    assert_eq!(cluster.reads(&first), places[1]);
    assert_eq!(cluster.reads(&third), places[2]);
}

#[test]
pub(crate) fn balance_moves_no_session_to_a_full_standby() {
    let cluster = Cluster::of_size(1, Balance::Session, 1);
    let ([first, second, third], places) = three(&cluster);
    second.leave();
    // Another client has the only server there. Its hint makes it no session of that standby.
    let busy = cluster.rig.client();
    let hinted = ["b", "c"].map(|name| format!("/* weir: node={name} */ select 1"));
    let full = (0..2).find(|node| {
        busy.send([query(&hinted[*node])]);
        let has_it = !cluster.rig.server(places[1]).take().is_empty();
        if !has_it {
            cluster.rig.server(places[0]).answers(&hinted[*node]);
            busy.expect([done("OK")]);
        }
        has_it
    });
    assert!(full.is_some(), "the hint names the standby of the session that left");
    for client in [&first, &third] {
        assert_eq!(cluster.reads(client), places[0], "it would have to wait at the other one");
    }
    cluster.rig.server(places[1]).send([done("OK")]);
    busy.expect([done("OK")]);
    assert_eq!(cluster.reads(&first), places[1], "now it can move");
}

#[test]
fn a_statement_goes_to_the_less_busy_standby() {
    let cluster = Cluster::new(Balance::Statement, 1);
    for standby in [1, 2] {
        cluster.has_all_before(standby, Micros::MAX);
    }
    let (busy, client) = (cluster.rig.client(), cluster.rig.client());
    let place = cluster.begins_read(&busy);
    for _ in 0..20 {
        let other = cluster.reads(&client);
        assert_ne!(other, place, "that standby has a read already");
    }
    cluster.rig.server(place).send([done("OK")]);
    busy.expect([done("OK")]);
}
