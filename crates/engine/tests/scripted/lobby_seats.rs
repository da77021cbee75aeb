//! Servers whose backends are in lobbies, at a limit on the servers of several pools
//! (docs/direct.md).

use engine::pool::Idlest;
use engine::shell::Attending;

use crate::direct::{announced, asked, attend, comes, direct, leaves, log_in, newcomer, wants};
use crate::messages::*;
use crate::rig::{Client, Rig, add_others};

/// Direct pools that share this number of servers.
fn limited(servers_max: u32) -> Rig {
    direct(4, |config| {
        add_others(config);
        config.auth_file.users.insert("carol".into(), "secret".into());
        config.global.max_server_connections = servers_max;
    })
}

/// A client of a second pool.
fn bob(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello_as("bob", "app");
    client
}

/// The lobbies' thread has seen that this server of the first pool has been idle for longest.
fn idles(rig: &Rig, backend: &Attending) {
    let Attending { server, serial, worker, .. } = *backend;
    let since = rig.now();
    rig.pool(|pool| pool.note_idlest(Some(Idlest { since, server, serial, worker })));
}

#[test]
pub(crate) fn an_idle_server_leaves_its_lobby_for_another_pool() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    let first = attend(&rig, 0);
    idles(&rig, &first);
    let bob = bob(&rig);
    assert_eq!((asked(&rig), rig.servers()), (vec![first.serial], 1));
    leaves(&rig, &first, None);
    assert_eq!(rig.servers(), 2, "its seat is free");
    log_in(&rig, 1);
    comes(&rig, &announced(&rig));
    bob.expect_welcome(&[]);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 2, "its pool is direct");
}

#[test]
fn the_server_that_has_been_idle_for_longest_leaves_of_all_pools() {
    for order in [[1, 2], [2, 1]] {
        let rig = limited(2);
        let _alice = newcomer(&rig);
        let first = attend(&rig, 0);
        let _bob = bob(&rig);
        let second = attend(&rig, 1);
        let backends = [&first, &second];
        rig.each_pool(|pool| {
            let at = backends.iter().position(|backend| backend.pool == pool.id).expect("its pool");
            let Attending { server, serial, worker, .. } = *backends[at];
            pool.note_idlest(Some(Idlest { since: order[at], server, serial, worker }));
        });
        asked(&rig);
        let carol = rig.connect();
        carol.say_hello_as("carol", "app");
        let oldest = order.iter().position(|since| *since == 1).expect("one of them");
        assert_eq!(asked(&rig), [backends[oldest].serial]);
    }
}

/// It has asked for another one while all were busy.
#[test]
fn a_lobby_takes_no_seat_from_itself() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    let first = attend(&rig, 0);
    idles(&rig, &first);
    wants(&rig);
    assert_eq!((asked(&rig), rig.servers()), (vec![], 1));
}

#[test]
fn one_server_is_asked_at_a_time() {
    let rig = limited(2);
    let _alice = newcomer(&rig);
    let first = attend(&rig, 0);
    wants(&rig);
    let second = attend(&rig, 1);
    idles(&rig, &first);
    let _bob = bob(&rig);
    assert_eq!(asked(&rig), [first.serial]);
    idles(&rig, &second);
    for _ in 0..4 {
        rig.wait_ms(200);
        assert!(!asked(&rig).contains(&second.serial));
    }
    // The first one has got a client, and does not leave.
    rig.wait_ms(400);
    assert!(asked(&rig).contains(&second.serial));
}

#[test]
fn a_server_that_becomes_idle_later_leaves_if_a_client_still_waits() {
    for stays in [true, false] {
        let rig = limited(1);
        let _alice = newcomer(&rig);
        let first = attend(&rig, 0);
        let bob = bob(&rig);
        assert_eq!(asked(&rig), []);
        if !stays {
            bob.leave();
            rig.wait(31);
        }
        idles(&rig, &first);
        rig.wait_ms(200);
        assert_eq!(asked(&rig).len(), usize::from(stays));
    }
}

/// A lobby asks every 20 ms while its clients wait.
#[test]
fn a_lobby_without_a_seat_gets_the_next_one() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    let first = attend(&rig, 0);
    idles(&rig, &first);
    let bob = bob(&rig);
    leaves(&rig, &first, None);
    log_in(&rig, 1);
    let second = announced(&rig);
    comes(&rig, &second);
    bob.expect_welcome(&[]);
    asked(&rig);
    for _ in 0..50 {
        rig.later(20_000);
        wants(&rig);
    }
    assert_eq!(rig.servers(), 2);
    leaves(&rig, &second, None);
    assert_eq!(rig.servers(), 3, "no other request is needed");
    attend(&rig, 2);
}

#[test]
fn a_pool_that_is_always_busy_gives_a_seat_away_at_times() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    let first = attend(&rig, 0);
    let _bob = bob(&rig);
    for _ in 0..20 {
        rig.wait_ms(200);
    }
    assert_eq!(asked(&rig), [first.serial]);
}

#[test]
fn without_an_idle_server_the_trial_ends_in_time() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    attend(&rig, 0);
    let bob = bob(&rig);
    rig.wait(31);
    rig.server(0).die();
    rig.wait_ms(200);
    log_in(&rig, 1);
    rig.set_automatic(true);
    rig.wait_ms(200);
    bob.expect_welcome(&[]);
    bob.send([query("SELECT 1")]);
    assert!(bob.is_open());
}

#[test]
fn many_clients_of_a_trial_open_one_server() {
    let rig = limited(1);
    let _alice = newcomer(&rig);
    attend(&rig, 0);
    let clients = [bob(&rig), bob(&rig), bob(&rig)];
    assert_eq!(rig.servers(), 1, "there is no seat");
    rig.reload(|config| config.global.max_server_connections = 4);
    rig.wait_ms(400);
    assert_eq!(rig.servers(), 2);
    attend(&rig, 1);
    for client in clients {
        client.expect_welcome(&[]);
    }
}

/// Backends of three direct pools that share two seats, in any order of events. The lobbies' thread
/// looks at times, and a busy backend leaves when it has no client any more.
struct Play {
    rig: Rig,
    dice: u64,
    backends: Vec<Backend>,
    /// With what they have got so far.
    clients: Vec<(Client, Vec<u8>)>,
    /// Servers that the script has logged in, or found closed.
    seen: usize,
}

struct Backend {
    attending: Attending,
    is_busy: bool,
    is_asked: bool,
    idle_since: u64,
}

const SERVERS_MAX: u32 = 2;

impl Play {
    fn new(seed: u64) -> Self {
        let rig = limited(SERVERS_MAX);
        let (dice, backends, clients) = (seed, Vec::new(), Vec::new());
        Self { rig, dice, backends, clients, seen: 0 }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.dice >> 33) as usize % sides
    }

    fn step(&mut self) {
        match self.roll(8) {
            0 | 1 if self.clients.len() < 8 => {
                let name = ["alice", "bob", "carol"][self.roll(3)];
                let client = self.rig.connect();
                client.say_hello_as(name, "app");
                self.clients.push((client, Vec::new()));
            }
            2 if !self.clients.is_empty() => {
                let at = self.roll(self.clients.len());
                self.clients.swap_remove(at).0.leave();
            }
            3 | 4 if !self.backends.is_empty() => {
                let at = self.roll(self.backends.len());
                let now = self.rig.now();
                let backend = &mut self.backends[at];
                backend.is_busy = !backend.is_busy;
                backend.idle_since = now;
            }
            5 => self.look(),
            6 => self.log_in(),
            _ => self.rig.wait_ms(200),
        }
        self.obey();
        let mut servers = 0;
        self.rig.each_pool(|pool| servers += pool.counts().0);
        assert!(servers <= SERVERS_MAX, "{}", self.rig.pools());
    }

    fn log_in(&mut self) {
        for at in self.seen..self.rig.servers() {
            if self.rig.server(at).is_open() {
                log_in(&self.rig, at);
                let attending = announced(&self.rig);
                comes(&self.rig, &attending);
                let idle_since = self.rig.now();
                let backend = Backend { attending, is_busy: false, is_asked: false, idle_since };
                self.backends.push(backend);
            }
            self.seen = at + 1;
        }
    }

    /// The lobbies' thread tells each pool of its server that has been idle for longest.
    fn look(&mut self) {
        let spare = self.backends.iter().filter(|backend| !backend.is_busy && !backend.is_asked);
        let idlest = spare.map(|Backend { attending, idle_since, .. }| {
            let Attending { server, serial, worker, .. } = *attending;
            (attending.pool, Idlest { since: *idle_since, server, serial, worker })
        });
        let idlest: Vec<_> = idlest.collect();
        self.rig.each_pool(|pool| {
            let own = idlest.iter().filter(|(of, _)| *of == pool.id).map(|(_, idlest)| *idlest);
            pool.note_idlest(own.min_by_key(|idlest| idlest.since));
        });
    }

    fn obey(&mut self) {
        let asked = asked(&self.rig);
        for backend in &mut self.backends {
            backend.is_asked |= asked.contains(&backend.attending.serial);
        }
        let leaving = self.backends.extract_if(.., |backend| backend.is_asked && !backend.is_busy);
        let leaving: Vec<_> = leaving.collect();
        leaving.iter().for_each(|backend| leaves(&self.rig, &backend.attending, None));
    }

    fn is_welcome(&mut self) -> bool {
        self.clients.iter_mut().all(|(client, got)| {
            got.extend(client.take());
            got.windows(6).any(|part| part == b"Z\0\0\0\x05I")
        })
    }
}

#[test]
fn in_any_order_each_client_gets_in_and_the_limit_holds() {
    for seed in 0..300 {
        let mut play = Play::new(seed);
        (0..60).for_each(|_| play.step());
        // Now all backends are idle.
        play.backends.iter_mut().for_each(|backend| backend.is_busy = false);
        let is_served = (0..50).any(|_| {
            play.log_in();
            play.look();
            play.rig.wait_ms(200);
            play.obey();
            play.is_welcome()
        });
        assert!(is_served, "seed {seed}: {}", play.rig.pools());
    }
}
