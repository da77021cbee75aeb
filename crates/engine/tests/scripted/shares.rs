//! Pools that compete for servers under a common limit. Each gets a share by its weight, whichever
//! limit it is.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, Weight};
use engine::shares::TURN;

use crate::messages::*;
use crate::rig::{Client, Rig, add_others, app};

/// Number of clients of each pool.
const CLIENTS: usize = 4;
const TRANSACTION_US: u64 = 5_000;

/// A user with its weight, and a database with its weight.
type Rival = ((&'static str, u16), (&'static str, u16));

/// Pools that always have work.
struct Contest {
    rig: Rig,
    clients: Vec<Client>,
    /// The limit of servers.
    limit: usize,
}

impl Contest {
    fn new(workers: usize, limit: usize, rivals: &[Rival], set: impl FnOnce(&mut Config)) -> Self {
        let rig = Rig::with_workers(workers, |config| {
            add_others(config);
            config.global.query_wait_timeout = Duration::ZERO;
            let weight = |weight| Weight::try_from(weight).expect("within the range");
            for ((user, by_user), (database, by_database)) in rivals {
                config.auth_file.users.insert((*user).into(), "secret".into());
                config.users.entry((*user).into()).or_default().pool_weight = weight(*by_user);
                let mut entry = app(config).clone();
                entry.name = (*database).into();
                entry.pool_weight = weight(*by_database);
                config.databases.insert((*database).into(), Arc::new(entry));
            }
            set(config);
        });
        let clients = (0..rivals.len() * CLIENTS).map(|at| {
            let client = rig.connect_from(at % workers, Default::default());
            let ((user, _), (database, _)) = rivals[at / CLIENTS];
            client.say_hello_as(user, database);
            client
        });
        Self { clients: clients.collect(), rig, limit }
    }

    /// Returns how many of 10,000 transactions each pool gets.
    fn play(&self) -> Vec<u64> {
        let mut had = vec![0; self.clients.len() / CLIENTS];
        while had.iter().sum::<u64>() < 10_000 {
            self.rig.later(TRANSACTION_US);
            let open: Vec<_> = (0..self.rig.servers())
                .map(|at| self.rig.server(at))
                .filter(|server| server.is_open())
                .collect();
            assert!(open.len() <= self.limit, "more servers than allowed");
            for server in open {
                if !server.take().is_empty() {
                    server.send([done("OK")]);
                }
            }
            for (at, client) in self.clients.iter().enumerate() {
                let heard = client.take();
                if heard.ends_with(&done("OK")) {
                    had[at / CLIENTS] += 1;
                }
                if !heard.is_empty() {
                    client.send([query("one")]);
                }
            }
        }
        had
    }
}

#[track_caller]
fn check(limit: u32, rivals: &[Rival], set: impl Fn(&mut Config, u32)) {
    for workers in [1, 2] {
        let contest = Contest::new(workers, limit as usize, rivals, |config| set(config, limit));
        let had = contest.play();
        let weight = |((_, by_user), (_, by_database)): &Rival| {
            u64::from(*by_user) * u64::from(*by_database)
        };
        let sum: u64 = rivals.iter().map(weight).sum();
        for (had, rival) in had.iter().zip(rivals) {
            let fair = 10_000 * weight(rival) / sum;
            let off = had.abs_diff(fair);
            assert!(off * 20 <= fair, "{rivals:?} over {limit}: {had} for {rival:?}, not {fair}");
        }
        let (opened, turns) = (contest.rig.servers() as u64, 10_000 * TRANSACTION_US / TURN);
        assert!(opened < turns, "{rivals:?} over {limit}: {opened} servers were opened");
    }
}

const APP: (&str, u16) = ("app", 1);

#[test]
fn users_of_a_database_have_shares_by_weight() {
    let set = |config: &mut Config, limit| config.global.max_db_connections = limit;
    check(1, &[(("alice", 1), APP), (("bob", 1), APP)], set);
    check(3, &[(("alice", 1), APP), (("bob", 1), APP)], set);
    check(2, &[(("alice", 3), APP), (("bob", 1), APP)], set);
    check(4, &[(("alice", 5), APP), (("bob", 3), APP), (("carol", 2), APP)], set);
}

#[test]
fn databases_of_a_user_have_shares_by_weight() {
    let set = |config: &mut Config, limit| config.global.max_user_connections = limit;
    let alice = ("alice", 1);
    check(1, &[(alice, APP), (alice, ("other", 1))], set);
    check(2, &[(alice, ("app", 3)), (alice, ("other", 1))], set);
    check(4, &[(alice, ("app", 5)), (alice, ("other", 3)), (alice, ("third", 2))], set);
}

#[test]
fn pools_of_the_process_have_shares_by_both_weights() {
    let set = |config: &mut Config, limit| config.global.max_server_connections = limit;
    check(3, &[(("alice", 1), APP), (("bob", 1), ("other", 1))], set);
    let (alice, bob, heavy) = (("alice", 2), ("bob", 1), ("other", 3));
    check(4, &[(alice, APP), (alice, heavy), (bob, APP), (bob, heavy)], set);
    check(1, &[(("alice", 1000), ("app", 500)), (("bob", 1000), ("other", 1000))], set);
}

/// The first pool shares one limit with the second and another limit with the third. The second and
/// third pool share none.
#[test]
fn a_pool_under_two_limits_has_a_share_as_well() {
    let (alice, bob) = (("alice", 1), ("bob", 1));
    for (workers, limit) in [(1, 1), (2, 1), (2, 3)] {
        let rivals = [(alice, APP), (bob, APP), (alice, ("other", 1))];
        let contest = Contest::new(workers, 2 * limit as usize, &rivals, |config| {
            config.global.max_db_connections = limit;
            config.global.max_user_connections = limit;
        });
        let had = contest.play();
        // For half of the time the first pool works, for the other half both others.
        assert!(had.iter().all(|had| (2_500..4_200).contains(had)), "{limit}: {had:?}");
        let (opened, turns) = (contest.rig.servers() as u64, 10_000 * TRANSACTION_US / TURN);
        assert!(opened < 2 * turns, "{limit}: {opened} servers were opened");
    }
}
