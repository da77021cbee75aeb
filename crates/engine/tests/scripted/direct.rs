//! Direct pools (docs/direct.md): trials, and the servers that serve a lobby. The rig notes what the
//! engines order of the lobbies.

use config::{Config, DataPath, Host, PoolMode, Proxied};
use engine::pool::Gate;
use engine::shell::{Attending, Mail};

use crate::messages::*;
use crate::rig::{Client, Rig, pid_of, server_welcome, server_welcome_with};

pub(crate) fn direct(size: u32, change: impl FnOnce(&mut Config)) -> Rig {
    let rig = Rig::with_workers(1, |config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.data_path = DataPath::Direct;
        config.global.direct_socket = "/run/weir/direct".to_owned();
        config.global.default_pool_size = size;
        let app = config.databases.get_mut("app").expect("the base has it");
        std::sync::Arc::make_mut(app).hosts = vec![Host::Tcp("127.0.0.1".to_owned())];
        change(config);
    });
    rig.manual()
}

pub(crate) fn log_in(rig: &Rig, at: usize) {
    rig.server(at).connect();
    rig.server(at).send([server_welcome_with(at, &[("weir.state", "v1")])]);
}

/// The backend that was announced last.
pub(crate) fn announced(rig: &Rig) -> Attending {
    rig.lobby(|lobby| lobby.expected.last().expect("one was announced").clone())
}

pub(crate) fn comes(rig: &Rig, backend: &Attending) {
    rig.mail(0, Mail::BackendCame { server: backend.server, serial: backend.serial });
}

pub(crate) fn leaves(rig: &Rig, backend: &Attending, why: Option<Proxied>) {
    rig.mail(0, Mail::LeftLobby { server: backend.server, serial: backend.serial, why });
}

/// The lobby asks for another server.
pub(crate) fn wants(rig: &Rig) {
    let pool = rig.pool(|pool| pool.id);
    rig.mail(0, Mail::Attend { pool });
}

/// A client that waits for a trial, whose server is number `at`.
pub(crate) fn newcomer(rig: &Rig) -> Client {
    let client = rig.connect();
    client.say_hello(&[]);
    client
}

/// Opens a server for the lobby, with its backend in it.
pub(crate) fn attend(rig: &Rig, at: usize) -> Attending {
    log_in(rig, at);
    let backend = announced(rig);
    comes(rig, &backend);
    backend
}

/// A pool with one client in its lobby, and this number of servers there.
fn working(size: u32, servers: usize) -> (Rig, Vec<Attending>) {
    let rig = direct(size, |_| {});
    let _client = newcomer(&rig);
    let first = attend(&rig, 0);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 1);
    let others = (1..servers).map(|at| {
        wants(&rig);
        attend(&rig, at)
    });
    let all = std::iter::once(first).chain(others).collect();
    (rig, all)
}

pub(crate) fn why(rig: &Rig) -> Option<Proxied> {
    rig.pool(|pool| pool.proxied())
}

pub(crate) fn asked(rig: &Rig) -> Vec<u64> {
    let mut asked = rig.lobby(|lobby| std::mem::take(&mut lobby.asked));
    asked.sort_unstable();
    asked.dedup();
    asked
}

/// The client is served by an ordinary server now.
#[track_caller]
fn is_proxied(rig: &Rig, client: &Client, at: usize) {
    rig.set_automatic(true);
    rig.wait_ms(400);
    client.expect_welcome(&[]);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 0);
    client.send([query("SELECT 1")]);
    assert!(rig.servers() > at);
}

#[test]
fn a_trial_shows_that_the_lobby_works() {
    let (rig, backends) = working(2, 2);
    assert_eq!(why(&rig), None);
    assert_eq!(backends.len(), 2);
}

#[test]
fn a_backend_that_does_not_come_may_be_another_users() {
    for (foreign, expected) in [(None, Proxied::NoAnswer), (Some(pid_of(0)), Proxied::OtherUser)] {
        let rig = direct(2, |_| {});
        let client = newcomer(&rig);
        rig.lobby(|lobby| lobby.foreign = foreign);
        log_in(&rig, 0);
        rig.wait(6);
        assert_eq!(why(&rig), Some(expected));
        is_proxied(&rig, &client, 1);
    }
}

#[test]
fn a_trial_whose_login_is_ended_holds_up_nobody() {
    let rig = direct(2, |_| {});
    let client = newcomer(&rig);
    rig.server(0).connect();
    rig.order(|pool| pool.replace_servers());
    assert!(!rig.server(0).is_open());
    assert_eq!(rig.lobby(|lobby| lobby.expected.len()), 0);
    assert_eq!(why(&rig), Some(Proxied::NotTried));
    assert!(!rig.pool(|pool| pool.tries_lobby()));
    is_proxied(&rig, &client, 1);
}

#[test]
fn a_trial_whose_server_is_lost_holds_up_nobody() {
    let rig = direct(2, |_| {});
    let client = newcomer(&rig);
    log_in(&rig, 0);
    rig.server(0).die();
    assert!(!rig.pool(|pool| pool.tries_lobby()));
    is_proxied(&rig, &client, 1);
}

#[test]
fn a_trial_that_is_forgotten_ends_in_time() {
    let rig = direct(2, |config| config.global.data_path = DataPath::Proxy);
    rig.set_automatic(true);
    let _first = rig.client();
    rig.reload(|config| config.global.data_path = DataPath::Direct);
    // A trial begins, and nobody opens a server for it.
    rig.pool(|pool| pool.entrance(1_000_000));
    let client = newcomer(&rig);
    rig.wait(10);
    client.expect([]);
    rig.wait(21);
    assert!(!rig.pool(|pool| pool.tries_lobby()));
    is_proxied(&rig, &client, 0);
}

#[test]
fn a_lobby_without_room_is_found_when_the_backend_comes() {
    let rig = direct(2, |_| {});
    let client = newcomer(&rig);
    log_in(&rig, 0);
    leaves(&rig, &announced(&rig), Some(Proxied::NoRoom));
    assert!(!rig.server(0).is_open());
    assert_eq!(why(&rig), Some(Proxied::NoRoom));
    is_proxied(&rig, &client, 1);
}

#[test]
fn a_backend_comes_when_its_login_has_been_read() {
    let rig = direct(2, |_| {});
    let _client = newcomer(&rig);
    rig.server(0).connect();
    // Otherwise a client could leave the lobby with it before its login is known to be complete.
    assert_eq!(rig.lobby(|lobby| lobby.expected.len()), 0);
    rig.server(0).send([server_welcome_with(0, &[("weir.state", "v1")])]);
    assert_eq!(rig.lobby(|lobby| lobby.expected.len()), 1);
}

#[test]
fn a_backend_that_has_come_is_not_closed_for_silence() {
    let (rig, _) = working(2, 1);
    rig.wait(6);
    assert!(rig.server(0).is_open());
}

#[test]
fn a_server_without_the_library_has_no_ticket() {
    let rig = direct(2, |_| {});
    let _client = newcomer(&rig);
    rig.server(0).connect();
    rig.server(0).send([server_welcome(0)]);
    assert_eq!(why(&rig), Some(Proxied::NoLibrary));
    assert_eq!(rig.lobby(|lobby| lobby.expected.len()), 0);
}

#[test]
fn a_backend_that_comes_after_pause_or_reconnect_leaves() {
    for order in [true, false] {
        let (rig, _) = working(2, 1);
        wants(&rig);
        log_in(&rig, 1);
        asked(&rig);
        rig.order(|pool| match order {
            true => pool.set_gate(Gate::Paused),
            false => pool.replace_servers(),
        });
        asked(&rig);
        let backend = announced(&rig);
        comes(&rig, &backend);
        assert_eq!(asked(&rig), [backend.serial]);
    }
}

#[test]
fn a_lobby_that_works_pauses_after_a_failure() {
    let (rig, _) = working(3, 1);
    wants(&rig);
    log_in(&rig, 1);
    leaves(&rig, &announced(&rig), Some(Proxied::NoRoom));
    assert_eq!(why(&rig), None, "another backend serves it");
    let before = rig.servers();
    (0..50).for_each(|_| wants(&rig));
    assert_eq!(rig.servers(), before);
    rig.later(6_000_000);
    wants(&rig);
    assert_eq!(rig.servers(), before + 1);
}

#[test]
fn a_lobby_without_backends_fails_when_the_library_is_gone() {
    let (rig, backends) = working(2, 1);
    rig.order(|pool| pool.replace_servers());
    leaves(&rig, &backends[0], None);
    assert_eq!(why(&rig), None);
    wants(&rig);
    rig.server(1).connect();
    rig.server(1).send([server_welcome(1)]);
    assert_eq!(why(&rig), Some(Proxied::NoLibrary));
    let before = rig.servers();
    (0..50).for_each(|_| wants(&rig));
    assert_eq!(rig.servers(), before);
    // The library is back.
    rig.later(61_000_000);
    wants(&rig);
    attend(&rig, before);
    assert_eq!(why(&rig), None);
}

/// The clients in the lobby wait, so the lobby asks for a server again and again.
#[test]
fn a_pool_whose_last_server_is_lost_goes_on_with_another() {
    let (rig, _) = working(1, 1);
    rig.server(0).die();
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.guests)), (None, 1));
    wants(&rig);
    rig.server(1).refuse();
    assert_eq!(rig.servers(), 2);
    wants(&rig);
    assert_eq!(rig.servers(), 2, "a pause comes first");
    rig.later(6_000_000);
    wants(&rig);
    attend(&rig, 2);
    let client = newcomer(&rig);
    client.expect_welcome(&[]);
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.guests)), (None, 2));
}

/// A client that Weir has welcomed with a server of its own would be proxied until it disconnects.
#[test]
pub(crate) fn logins_wait_for_the_lobby_if_no_server_is_open() {
    let (rig, _) = working(2, 1);
    rig.server(0).die();
    let clients = [newcomer(&rig), newcomer(&rig)];
    assert_eq!((rig.servers(), rig.lobby(|lobby| lobby.guests)), (2, 1));
    assert_eq!(why(&rig), None, "clients in the lobby stay there");
    attend(&rig, 1);
    for client in &clients {
        client.expect_welcome(&[]);
    }
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.guests)), (None, 3));
}

/// Clients that are in the lobby are kept while PostgreSQL starts, and so are new ones.
#[test]
fn a_server_that_cannot_be_opened_for_a_login_leaves_the_pool_direct() {
    let (rig, _) = working(2, 1);
    rig.server(0).die();
    let client = newcomer(&rig);
    rig.server(1).refuse();
    client.expect_welcome(&[]);
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.guests)), (None, 2));
}

#[test]
pub(crate) fn the_last_server_is_lost_and_the_library_gone() {
    let (rig, _) = working(2, 1);
    rig.server(0).die();
    wants(&rig);
    rig.server(1).connect();
    rig.server(1).send([server_welcome(1)]);
    assert_eq!(why(&rig), Some(Proxied::NoLibrary));
    let client = newcomer(&rig);
    client.expect_welcome(&[]);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 1, "it is not in the lobby");
}

#[test]
fn a_refused_connection_does_not_make_the_pool_proxied() {
    let (rig, _) = working(2, 1);
    rig.server(0).die();
    wants(&rig);
    rig.server(1).refuse();
    assert_eq!(why(&rig), None);
}

/// Clients that wait for a server would wait until `query_wait_timeout`.
#[test]
pub(crate) fn clients_are_refused_with_their_pools_logins() {
    const ERROR: &str = "database \"app\" does not exist";
    let (rig, _) = working(1, 1);
    let refusals = || rig.lobby(|lobby| std::mem::take(&mut lobby.refusals));
    rig.server(0).die();
    wants(&rig);
    rig.server(1).connect();
    rig.server(1).send([fatal("3D000", ERROR)]);
    assert_eq!(refusals(), [ERROR]);
    wants(&rig);
    assert_eq!(refusals(), [ERROR], "another client has sent a request");
    let client = newcomer(&rig);
    client.expect_welcome(&[]);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 1, "it is not in the lobby");
    client.send([query("SELECT 1")]);
    let cached = "server login has been failing, cached error: ";
    client.expect_fatal(&format!("{cached}{ERROR} (server_login_retry)"));
    assert_eq!(rig.servers(), 2, "a pause comes first");
    // The database is there again.
    rig.later(16_000_000);
    wants(&rig);
    attend(&rig, 2);
    assert_eq!(why(&rig), None);
    newcomer(&rig).expect_welcome(&[]);
    assert_eq!((refusals().len(), rig.lobby(|lobby| lobby.guests)), (0, 2));
}

/// The login is refused while another server serves, which is lost then.
#[test]
pub(crate) fn a_refused_login_before_the_last_loss() {
    let (rig, _) = working(2, 1);
    wants(&rig);
    rig.server(1).connect();
    rig.server(1).send([fatal("55000", "database \"app\" is not accepting connections")]);
    rig.server(0).die();
    wants(&rig);
    let refusals = rig.lobby(|lobby| std::mem::take(&mut lobby.refusals));
    assert_eq!(refusals, ["database \"app\" is not accepting connections"]);
}

#[test]
fn a_refused_login_concerns_no_client_while_another_server_serves() {
    let (rig, _) = working(2, 1);
    wants(&rig);
    rig.server(1).connect();
    rig.server(1).send([fatal("53300", "too many connections for role \"alice\"")]);
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.refusals.len())), (None, 0));
}

#[test]
fn one_waiting_client_gets_one_place() {
    let rig = direct(3, |_| {});
    let client = newcomer(&rig);
    log_in(&rig, 0);
    leaves(&rig, &announced(&rig), Some(Proxied::NoRoom));
    rig.set_automatic(true);
    rig.wait_ms(400);
    client.expect_welcome(&[]);
    // That client is proxied, and the pool is direct later on.
    rig.set_automatic(false);
    rig.wait(62);
    rig.order(|pool| pool.replace_servers());
    let _other = newcomer(&rig);
    let at = rig.servers() - 1;
    let mut backends = vec![attend(&rig, at)];
    for at in at + 1..at + 3 {
        rig.later(1_000_000);
        wants(&rig);
        backends.push(attend(&rig, at));
    }
    asked(&rig);
    client.send([query("SELECT 1")]);
    rig.wait_ms(300);
    assert_eq!(asked(&rig), [backends[0].serial], "the oldest");
    rig.wait_ms(300);
    assert_eq!(asked(&rig), [backends[0].serial]);
    // It is busy, so another one has to go.
    rig.wait(2);
    assert_eq!(asked(&rig), [backends[0].serial, backends[1].serial]);
}

#[test]
fn servers_end_of_age_one_by_one() {
    let (rig, backends) = working(3, 3);
    rig.wait(3_700);
    assert_eq!(asked(&rig).len(), 1);
    assert_eq!(backends.len(), 3);
}

#[test]
fn an_idle_server_is_asked_to_leave() {
    let (rig, backends) = working(3, 2);
    let idles = |rig: &Rig| {
        let Attending { server, serial, .. } = backends[1];
        rig.mail(0, Mail::IdledInLobby { server, serial });
    };
    idles(&rig);
    assert_eq!(asked(&rig), [backends[1].serial]);
    leaves(&rig, &backends[1], None);
    assert!(!rig.server(1).is_open());
    // It is gone.
    idles(&rig);
    assert_eq!(asked(&rig), []);
    assert_eq!(why(&rig), None);
}

#[test]
fn servers_beyond_the_smallest_size_are_spare() {
    let (rig, _backends) = working(3, 3);
    assert_eq!(rig.pool(|pool| pool.spare_servers()), 3);
    rig.reload(|config| config.global.min_pool_size = 2);
    assert_eq!(rig.pool(|pool| pool.spare_servers()), 1);
}

#[test]
fn a_process_that_was_taken_over_keeps_its_servers() {
    let (rig, backends) = working(2, 1);
    // Clients that are busy still may keep this process from draining.
    rig.note_successor();
    rig.wait(3_700);
    let Attending { server, serial, .. } = backends[0];
    rig.mail(0, Mail::IdledInLobby { server, serial });
    assert_eq!(asked(&rig), []);
    let before = rig.servers();
    wants(&rig);
    assert_eq!(rig.servers(), before);
    assert_eq!(rig.lobby(|lobby| lobby.closings.len()), 0);
    // Without a backend its clients must go to the new process.
    leaves(&rig, &backends[0], None);
    wants(&rig);
    assert_eq!(rig.lobby(|lobby| lobby.closings.len()), 1);
}

#[test]
fn a_process_that_was_taken_over_tries_no_lobby() {
    let rig = direct(2, |_| {});
    rig.note_successor();
    let client = newcomer(&rig);
    log_in(&rig, 0);
    // No backend has a ticket.
    assert_eq!(rig.lobby(|lobby| lobby.expected.len()), 0);
    assert_eq!(why(&rig), Some(Proxied::NotTried));
    is_proxied(&rig, &client, 0);
}

#[test]
fn a_lobby_that_another_process_has_is_not_tried_again() {
    let (rig, backends) = working(3, 2);
    let exported = rig.export();
    assert_eq!(exported[0].attending.len(), 2);
    let ceded = rig.cede(exported);
    let servers: Vec<_> = backends.iter().map(|backend| backend.server).collect();
    assert_eq!(ceded[0].attending, servers);
    assert_eq!(rig.pool(|pool| (pool.is_attended(), pool.counts().0)), (false, 0));
    rig.pool(|pool| pool.cede_lobby());
    // Late news of a server are forgotten.
    comes(&rig, &backends[0]);
    let client = newcomer(&rig);
    assert_eq!(why(&rig), Some(Proxied::NotTried));
    rig.set_automatic(true);
    rig.wait_ms(400);
    client.expect_welcome(&[]);
    assert_eq!(rig.lobby(|lobby| lobby.guests), 1, "it is no guest here");
}
