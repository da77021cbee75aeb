//! Auto mode: a client that listens gets each notification once, even while Weir queries its
//! server.

use crate::listen::{
    GAP, begin, begins, handing_over, has_lock, left, listen, listening, locks, rig,
};
use crate::messages::*;
use crate::rig::{Client, Rig, Server};
use crate::state_reports::{done_with, reporting};

const ZONE: (&str, &str) = ("TimeZone", "Asia/Tokyo");

fn own_zone() -> Message {
    status(ZONE.0, ZONE.1)
}

/// A client with its own time zone that listens. It keeps its server: there is no listener yet.
fn pinned(rig: &Rig) -> (Client, Server) {
    let client = rig.client_with(0, &[ZONE]);
    client.send([query("LISTEN news")]);
    let server = rig.server(0);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    server.send([complete("SET"), own_zone(), ready('I')]);
    server.expect([query("LISTEN news")]);
    server.send([done("LISTEN")]);
    client.expect([done("LISTEN")]);
    left(&server, &["news"]);
    (client, server)
}

/// RESET has set the server's own value, so Weir sets the client's value again. The server has not
/// answered yet.
fn given_its_own_again(client: &Client, server: &Server) {
    client.send([query("RESET TimeZone")]);
    server.expect([query("RESET TimeZone")]);
    let reset = || [complete("RESET"), status("TimeZone", "UTC"), ready('I')];
    server.send(reset());
    client.expect(reset());
    left(server, &["news"]);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    client.expect([own_zone()]);
}

#[test]
fn notifications_while_a_kept_server_gets_settings_are_delivered() {
    let rig = rig(1);
    let (client, server) = pinned(&rig);
    given_its_own_again(&client, &server);
    server.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    server.send([told(5, "news", "2"), complete("SET"), own_zone(), ready('I')]);
    client.expect([told(5, "news", "2")]);
}

#[test]
fn a_hand_over_that_settings_delayed_follows_them() {
    let rig = rig(1);
    let (client, server) = pinned(&rig);
    given_its_own_again(&client, &server);
    let mark = begin(&rig.server(1), "LISTEN \"news\";");
    server.expect([]);
    server.send([complete("SET"), own_zone(), ready('I')]);
    rig.wait(0);
    handing_over(&server, &mark);
}

#[test]
fn a_hand_over_that_a_cancel_request_delayed_follows_it() {
    let rig = rig(2);
    let client = rig.connect_from(1, engine::auth::Peer::default());
    client.say_hello(&[]);
    let (pid, secret) = client.expect_welcome(&[]);
    let server = rig.server(0);
    listen(&client, &server);
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    rig.connect().send([cancel_request(pid, &secret)]);
    assert_eq!(rig.cancels().len(), 1);
    server.send([done("SELECT")]);
    client.expect([done("SELECT")]);
    let mark = begin(&rig.server(1), "LISTEN \"news\";");
    server.expect([]);
    rig.finish_cancel();
    rig.wait(0);
    handing_over(&server, &mark);
}

#[test]
fn a_hand_over_that_failed_is_tried_again_for_a_client_that_only_listens() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    let mark = begin(&rig.server(1), "LISTEN \"news\";");
    handing_over(&server, &mark);
    server.send([error("57014", "canceled"), ready('I'), done("UNLISTEN")]);
    client.expect([warning("01000", GAP)]);
    server.answers("LISTEN \"news\";");
    // Not at once, because the reason may last.
    rig.wait(1);
    server.expect([]);
    rig.wait(60);
    handing_over(&server, &mark);
}

#[test]
fn only_its_own_mark_parts_a_client_from_its_server() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    // A server that already listens also delivers earlier notifications, such as another client's
    // mark.
    let (other, own) = (told(6, &mark, "0.9.9.9"), told(5, &mark, &token));
    listener.send([other.clone(), told(5, "news", "1"), own.clone(), told(5, "news", "2")]);
    server.send([complete("LISTEN"), complete("NOTIFY"), other, told(5, "news", "1"), own]);
    client.expect([told(5, "news", "1")]);
    server.send([told(5, "news", "2"), ready('I'), done("UNLISTEN")]);
    client.expect([told(5, "news", "2")]);
    assert!(server.is_parked());
}

#[test]
fn a_parameter_that_changes_while_the_server_is_asked_is_told() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    client.send([query("SET work_mem = '8MB'")]);
    server.expect([query("SET work_mem = '8MB'")]);
    server.send([done("SET")]);
    client.expect([done("SET")]);
    server.take();
    // PostgreSQL has reloaded its configuration.
    let reload = status("TimeZone", "Europe/Berlin");
    let found = item_of('s', "work_mem", "8MB");
    server.send([found, complete("SELECT"), reload.clone(), ready('I')]);
    client.expect([reload]);
}

#[test]
fn while_the_listener_is_lost_a_client_hears_from_its_server() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    begins(&client, &server);
    rig.set_automatic(false);
    listener.die();
    client.send([query("COMMIT")]);
    server.take();
    server.send([told(5, "news", "1"), done("COMMIT")]);
    client.expect([told(5, "news", "1"), done("COMMIT")]);
}

#[test]
fn notifications_of_a_lost_listener_come_before_those_of_the_server() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    begins(&client, &server);
    rig.set_automatic(false);
    listener.send([told(5, "news", "1")]);
    listener.die();
    client.send([query("COMMIT")]);
    server.take();
    server.send([complete("COMMIT"), told(5, "news", "2"), ready('I')]);
    client.expect([complete("COMMIT"), ready('I'), told(5, "news", "1"), told(5, "news", "2")]);
}

/// The server also delivers what the listener has delivered, in the order of the commits.
#[test]
pub(crate) fn the_servers_order_counts() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    begins(&client, &server);
    rig.set_automatic(false);
    listener.send([told(5, "news", "2")]);
    listener.die();
    client.send([query("COMMIT")]);
    server.take();
    server.send([complete("COMMIT"), told(5, "news", "1"), told(5, "news", "2"), ready('I')]);
    client.expect([complete("COMMIT"), ready('I'), told(5, "news", "1"), told(5, "news", "2")]);
}

#[test]
fn a_client_that_keeps_its_server_finds_the_listener_again_though_it_listens_to_more() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    locks(&client, &server);
    listener.die();
    client.send([query("LISTEN more")]);
    server.take();
    server.send([done("LISTEN")]);
    client.take();
    has_lock(&server, &["more", "news"]);
    let second = rig.server(2);
    begin(&second, "LISTEN \"news\";");
    second.answers("LISTEN \"more\";");
    client.expect([warning("01000", GAP)]);
    // The listener delivers this one.
    server.send([told(5, "news", "1")]);
    client.expect([]);
}

/// The answer to the client's first request is void, since the client has asked for more.
#[test]
pub(crate) fn a_new_listener_warns_first() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    locks(&client, &server);
    listener.die();
    let second = rig.server(2);
    client.send([query("LISTEN more")]);
    server.expect([query("LISTEN more")]);
    server.send([done("LISTEN")]);
    client.take();
    rig.hold_mail(true);
    begin(&second, "LISTEN \"news\";");
    has_lock(&server, &["more", "news"]);
    rig.hold_mail(false);
    server.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    second.send([told(5, "news", "1")]);
    client.expect([]);
    second.answers("LISTEN \"more\";");
    client.expect([warning("01000", GAP)]);
    server.send([told(5, "news", "2")]);
    client.expect([]);
    second.send([told(5, "news", "2")]);
    client.expect([told(5, "news", "2")]);
}

/// There is no gap then.
#[test]
fn a_client_that_listens_anew_is_not_warned_of_an_earlier_loss() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    rig.set_automatic(false);
    listener.die();
    client.send([query("UNLISTEN news")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("UNLISTEN news")]);
    server.send([done("UNLISTEN")]);
    left(&server, &[]);
    client.take();
    listen(&client, &server);
    rig.set_automatic(true);
    rig.wait(0);
    let second = rig.server(2);
    let mark = begin(&second, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked.clone(), ready('I')]);
    server.send([done("UNLISTEN")]);
    second.send([marked, told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
}

/// The server's report cannot say what it listens to, so the server is asked.
#[test]
pub(crate) fn unlisten_counts_unreported() {
    let (rig, client, server) = reporting(|_| {});
    let both = query("LISTEN more; LISTEN news");
    client.send([both.clone()]);
    server.expect([both]);
    server.send([complete("LISTEN"), complete("LISTEN"), done_with("v1;l:more;l:news")]);
    client.take();
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"more\";LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked.clone(), ready('I')]);
    server.send([done_with("v1")]);
    listener.send([marked]);
    client.send([query("BEGIN"), query("UNLISTEN news")]);
    server.expect([query("LISTEN \"more\";LISTEN \"news\";")]);
    server.send([done_with("v1;l:more;l:news")]);
    server.expect([query("BEGIN"), query("UNLISTEN news")]);
    server.send([complete("BEGIN"), ready('T'), complete("UNLISTEN"), ready('T')]);
    client.take();
    listener.send([told(6, "news", "1"), told(6, "more", "1")]);
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done_with("v1;u")]);
    client.expect([done("OK")]);
    left(&server, &["more"]);
    client.expect([told(6, "more", "1")]);
    assert!(!server.is_parked());
    listener.answers("UNLISTEN \"news\";");
    listener.send([told(6, "news", "2"), told(6, "more", "2")]);
    client.expect([told(6, "more", "2")]);
}

/// The listener of the new process.
fn next_listener(rig: &Rig) -> Server {
    rig.wait(0);
    let listener = rig.server(rig.servers() - 1);
    begin(&listener, "LISTEN \"news\";");
    listener
}

#[test]
fn a_client_that_keeps_its_server_in_the_next_process_is_warned_of_lost_notifications() {
    let rig = rig(1);
    let (client, server, ..) = listening(&rig, 0);
    locks(&client, &server);
    // The old listener was to deliver this, but ends with its process.
    server.send([told(6, "news", "1")]);
    client.expect([]);
    rig.hand_over();
    server.send([told(6, "news", "2")]);
    client.expect([told(6, "news", "2")]);
    let listener = next_listener(&rig);
    client.expect([warning("01000", GAP)]);
    server.send([told(6, "news", "3")]);
    listener.send([told(6, "news", "3")]);
    client.expect([told(6, "news", "3")]);
}

#[test]
fn a_loss_of_notifications_kept_during_a_transaction_is_reported() {
    let rig = rig(1);
    let (client, server, listener, _) = listening(&rig, 0);
    begins(&client, &server);
    listener.send([told(6, "news", "1")]);
    rig.hand_over();
    next_listener(&rig);
    client.expect([]);
    client.send([query("COMMIT")]);
    server.answers("COMMIT");
    client.expect([done("OK"), warning("01000", GAP)]);
    assert!(server.is_parked());
}

#[test]
fn a_client_that_hears_from_its_server_alone_misses_nothing_in_the_next_process() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    rig.hand_over();
    server.send([told(6, "news", "1")]);
    client.expect([told(6, "news", "1")]);
}

/// The listener delivered some channels, and the server delivers the newest.
#[test]
fn a_client_that_keeps_its_server_for_a_new_channel_is_told_at_once() {
    let rig = rig(1);
    let (client, server, ..) = listening(&rig, 0);
    client.send([query("LISTEN more")]);
    server.answers("LISTEN \"news\";");
    server.answers("LISTEN more");
    client.take();
    left(&server, &["news", "more"]);
    rig.hand_over();
    client.expect([warning("01000", GAP)]);
    for channel in ["news", "more"] {
        server.send([told(6, channel, "1")]);
        client.expect([told(6, channel, "1")]);
    }
}
