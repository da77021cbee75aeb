//! `min_spare_servers` and `max_spare_servers`: the number of idle servers follows the demand.

use config::Config;

use crate::direct;
use crate::messages::*;
use crate::rig::{Client, Rig, add_others, app, server_welcome, server_welcome_with};

fn spares(config: &mut Config, min: u32, max: u32) {
    (config.global.min_spare_servers, config.global.max_spare_servers) = (min, max);
}

fn idle(rig: &Rig) -> Vec<usize> {
    (0..rig.servers()).filter(|at| rig.server(*at).is_parked()).collect()
}

fn open(rig: &Rig) -> usize {
    (0..rig.servers()).filter(|at| rig.server(*at).is_open()).count()
}

/// Lets so many ticks pass.
fn ticks(rig: &Rig, count: usize) {
    (0..count).for_each(|_| rig.wait_ms(200));
}

/// A client in a transaction, and the number of its server.
struct Busy(Client, usize);

/// A client begins a transaction on an idle server.
#[track_caller]
fn begins(rig: &Rig) -> Busy {
    let client = rig.client();
    let before = idle(rig);
    client.send([query("begin")]);
    let after = idle(rig);
    let at = before.into_iter().find(|at| !after.contains(at)).expect("the client waits");
    rig.server(at).take();
    rig.server(at).send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    Busy(client, at)
}

fn commits(rig: &Rig, Busy(client, at): &Busy) {
    client.send([query("commit")]);
    rig.server(*at).answers("commit");
    client.take();
}

#[test]
fn clients_of_a_rising_load_find_servers_ready() {
    let rig = Rig::new(|config| spares(config, 2, 0));
    let first = rig.client();
    ticks(&rig, 3);
    assert_eq!((open(&rig), idle(&rig).len()), (2, 2), "that of its login is one of them");
    let mut busy = Vec::new();
    for servers in 3..13 {
        busy.push(begins(&rig));
        ticks(&rig, 1);
        assert_eq!((open(&rig), idle(&rig).len()), (servers, 2));
    }
    assert!(first.is_open());
    busy.iter().for_each(|busy| commits(&rig, busy));
    ticks(&rig, 100);
    assert_eq!(open(&rig), 12, "nothing closes them before server_idle_timeout");
}

#[test]
fn a_steep_rise_opens_more_at_once() {
    let rig = Rig::new(|config| spares(config, 16, 0)).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    rig.server(0).connect();
    rig.server(0).send([server_welcome(0)]);
    client.expect_welcome(&[]);
    for under_way in [1, 2, 4, 4] {
        rig.wait_ms(200);
        let logged_in = rig.servers() - under_way;
        assert_eq!(rig.pool(|pool| pool.counts().1 as usize), under_way);
        for at in logged_in..rig.servers() {
            rig.server(at).connect();
            rig.server(at).send([server_welcome(at)]);
        }
    }
    assert_eq!(idle(&rig).len(), 12);
}

#[test]
pub(crate) fn servers_are_closed_when_the_load_falls_the_coldest_first() {
    let rig = Rig::new(|config| spares(config, 1, 3));
    let _first = rig.client();
    ticks(&rig, 2);
    let mut busy = Vec::new();
    for _ in 0..10 {
        busy.push(begins(&rig));
        ticks(&rig, 1);
    }
    for busy in &busy {
        rig.later(1_000);
        commits(&rig, busy);
    }
    let full = open(&rig);
    assert_eq!(full, 11);
    ticks(&rig, 4);
    assert_eq!(open(&rig), full, "they were all in use a moment ago");
    let mut sizes = Vec::new();
    for _ in 0..30 {
        ticks(&rig, 1);
        sizes.push(open(&rig));
    }
    assert!(sizes.is_sorted_by(|one, next| one == next || *one == next + 1), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&3));
    assert!(rig.logged("max_spare_servers exceeded"));
    let warmest: Vec<_> = busy[7..].iter().map(|Busy(_, at)| *at).collect();
    let mut left = idle(&rig);
    left.sort_by_key(|at| warmest.iter().position(|warm| warm == at));
    assert_eq!(left, warmest);
    busy[9].0.leave();
    begins(&rig);
}

#[test]
fn spare_servers_close_no_server_of_others_and_keep_to_the_limits() {
    type Change = fn(&mut Config);
    let limits: [Change; 4] = [
        |config| config.global.default_pool_size = 2,
        |config| config.global.max_db_connections = 3,
        |config| config.global.max_user_connections = 2,
        |config| config.global.max_server_connections = 3,
    ];
    for (at, limit) in limits.into_iter().enumerate() {
        let rig = Rig::with_workers(2, |config| {
            add_others(config);
            app(config).min_spare_servers = Some(9);
            config.global.max_spare_servers = 9;
            limit(config);
        });
        // The other pool has no spare servers of its own.
        rig.each_pool(|_| panic!("there is none yet"));
        let other = rig.client_of(1, "bob", "app");
        let bobs = idle(&rig);
        rig.reload(|config| app(config).max_spare_servers = Some(9));
        let _client = rig.client();
        ticks(&rig, 10);
        let expected = [4, 3, 4, 3][at];
        assert_eq!(open(&rig), expected, "limit {at}");
        assert!(bobs.iter().all(|at| rig.server(*at).is_open()) && other.is_open());
        assert!(!rig.logged("evicted"));
    }
}

#[test]
fn a_pool_that_another_one_starves_gives_its_spare_servers_up() {
    let rig = Rig::with_workers(1, |config| {
        add_others(config);
        app(config).min_spare_servers = Some(3);
        config.global.max_server_connections = 3;
    });
    let _alice = rig.client();
    ticks(&rig, 4);
    assert_eq!(idle(&rig).len(), 3);
    let _bob = rig.client_of(0, "bob", "other");
    assert_eq!(rig.times_logged("evicted"), 1);
    ticks(&rig, 10);
    assert_eq!((open(&rig), rig.times_logged("evicted")), (3, 1));
}

#[test]
fn a_pool_without_clients_gets_no_spare_servers() {
    let rig = Rig::new(|config| {
        spares(config, 3, 0);
        app(config).user = Some("alice".into());
        app(config).min_pool_size = Some(1);
    });
    ticks(&rig, 10);
    assert_eq!(open(&rig), 1, "the least size, without a client");
    let client = rig.client();
    ticks(&rig, 10);
    assert_eq!(open(&rig), 3);
    client.leave();
    rig.wait(601);
    assert_eq!(open(&rig), 1);
    ticks(&rig, 10);
    assert_eq!(open(&rig), 1);
}

#[test]
fn a_reload_changes_the_numbers() {
    let rig = Rig::new(|_| {});
    let _client = rig.client();
    ticks(&rig, 5);
    assert_eq!(open(&rig), 1);
    rig.reload(|config| spares(config, 4, 0));
    ticks(&rig, 5);
    assert_eq!(open(&rig), 4);
    rig.reload(|config| spares(config, 1, 2));
    ticks(&rig, 15);
    assert_eq!(open(&rig), 2);
    rig.reload(|config| app(config).min_spare_servers = Some(3));
    rig.reload(|config| app(config).max_spare_servers = Some(0));
    ticks(&rig, 15);
    assert_eq!(open(&rig), 3, "the database's own keys");
    rig.reload(|config| {
        spares(config, 0, 0);
        app(config).min_spare_servers = None;
    });
    ticks(&rig, 15);
    assert_eq!(open(&rig), 3, "they stay until server_idle_timeout");
    rig.wait(601);
    assert_eq!(open(&rig), 0);
}

/// The servers in the lobby count as in use, and the lobby takes the spare ones first.
#[test]
fn a_lobby_takes_spare_servers_before_it_opens_others() {
    let rig = direct::direct(9, |config| spares(config, 3, 0));
    let _client = direct::newcomer(&rig);
    direct::attend(&rig, 0);
    for _ in 0..5 {
        let before = rig.servers();
        ticks(&rig, 1);
        for at in before..rig.servers() {
            rig.server(at).connect();
            rig.server(at).send([server_welcome_with(at, &[("weir.state", "v1;w:1.1")])]);
        }
    }
    assert_eq!(idle(&rig).len(), 3);
    let opened = rig.servers();
    direct::wants(&rig);
    assert_eq!((rig.servers(), idle(&rig).len()), (opened, 2));
}
