//! An ordinary server of a direct pool that nobody uses goes to the lobby when the lobby needs one.

use config::Proxied;
use engine::pool::Gate;
use engine::shell::Attending;

use crate::direct::{
    announced, asked, attend, comes, direct, leaves, log_in, newcomer, wants, why,
};
use crate::messages::*;
use crate::rig::{Rig, server_welcome_with};

/// A pool with an idle server, number 1, and with server 2 in its lobby. Returns the startup packet
/// of the first one.
fn with_idle() -> (Rig, String) {
    let rig = direct(2, |_| {});
    let client = newcomer(&rig);
    log_in(&rig, 0);
    leaves(&rig, &announced(&rig), Some(Proxied::NoRoom));
    rig.server(1).connect();
    let startup = String::from_utf8_lossy(&rig.server(1).take()).into_owned();
    rig.server(1).send([server_welcome_with(1, &[("weir.state", "v1;w:1.1")])]);
    client.expect_welcome(&[]);
    client.send([query("SELECT 1")]);
    rig.server(1).take();
    rig.server(1).send([complete("SELECT 1"), ready('I')]);
    assert!(rig.server(1).is_parked());
    rig.wait(61);
    let _other = newcomer(&rig);
    attend(&rig, 2);
    assert_eq!((why(&rig), rig.lobby(|lobby| lobby.guests)), (None, 1));
    (rig, startup)
}

/// Returns the ticket that it is given behind DISCARD ALL.
#[track_caller]
fn ticket(rig: &Rig, startup: &str) -> String {
    let key = startup.split_once("weir.key\0").expect("it is sent a key").1[..16].to_owned();
    let sent = String::from_utf8_lossy(&rig.server(1).take()).into_owned();
    let (discard, set) = sent.split_once("/*weir ").expect("a marked text");
    assert!(discard.contains("DISCARD ALL\0"), "{sent:?}");
    let begin = format!("{key}*/SELECT pg_catalog.set_config('weir.ticket','");
    let set = set.strip_prefix(&begin).expect("the key");
    set.split('\'').next().expect("a ticket").to_owned()
}

fn replies() -> [Message; 4] {
    [complete("DISCARD ALL"), ready('I'), row_of(&[Some("")]), done("SELECT 1")]
}

#[test]
fn an_idle_server_goes_to_the_lobby_that_needs_one() {
    let (rig, startup) = with_idle();
    let (servers, before) = (rig.servers(), announced(&rig).ticket);
    wants(&rig);
    let ticket = ticket(&rig, &startup);
    // While it has not replied, its replies would mix with those to a client.
    assert_eq!(announced(&rig).ticket, before);
    rig.server(1).send(replies());
    let backend = announced(&rig);
    assert_eq!(backend.ticket, ticket);
    comes(&rig, &backend);
    rig.wait(6);
    assert!(rig.server(1).is_open() && !rig.server(1).is_parked());
    assert_eq!(rig.servers(), servers, "no other was opened");
    assert_eq!(asked(&rig), []);
}

#[test]
fn the_last_idle_server_stays_while_there_is_room_for_another() {
    let (rig, _) = with_idle();
    rig.reload(|config| config.global.default_pool_size = 3);
    let servers = rig.servers();
    wants(&rig);
    assert!(rig.server(1).is_parked());
    assert_eq!(rig.servers(), servers + 1);
}

#[test]
fn a_server_that_refuses_its_ticket_is_closed() {
    let (rig, startup) = with_idle();
    wants(&rig);
    ticket(&rig, &startup);
    let refusal = error("55P02", "parameter \"weir.ticket\" cannot be set now");
    rig.server(1).send([complete("DISCARD ALL"), ready('I'), refusal, ready('I')]);
    assert!(!rig.server(1).is_open());
    assert_eq!(why(&rig), None);
}

#[test]
fn a_server_is_closed_if_it_may_not_go_to_the_lobby_any_more() {
    for order in [true, false] {
        let (rig, startup) = with_idle();
        wants(&rig);
        ticket(&rig, &startup);
        rig.order(|pool| match order {
            true => pool.set_gate(Gate::Paused),
            false => pool.replace_servers(),
        });
        rig.server(1).send(replies());
        assert!(!rig.server(1).is_open());
        // The backend may be there already, and is not left waiting.
        let Attending { serial, .. } = announced(&rig);
        assert!(rig.lobby(|lobby| lobby.closed.contains(&serial)));
    }
}

#[test]
fn a_backend_that_does_not_come_back_is_given_up() {
    let (rig, startup) = with_idle();
    wants(&rig);
    ticket(&rig, &startup);
    rig.server(1).send(replies());
    let Attending { serial, .. } = announced(&rig);
    rig.wait(6);
    assert!(!rig.server(1).is_open());
    assert!(rig.lobby(|lobby| lobby.closed.contains(&serial)));
    assert_eq!(why(&rig), None);
}

#[test]
fn a_server_may_be_lost_on_its_way() {
    let (rig, startup) = with_idle();
    wants(&rig);
    ticket(&rig, &startup);
    // It may die on its way.
    rig.server(1).die();
    assert_eq!(why(&rig), None);
    let servers = rig.servers();
    wants(&rig);
    assert_eq!(rig.servers(), servers + 1);
}
