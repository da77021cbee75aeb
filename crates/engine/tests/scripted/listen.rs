//! Auto mode: a client that listens, and the listener of its pool, when something fails.

use config::PoolMode;

use crate::messages::*;
use crate::rig::{Client, Rig, Server, add_others};

/// A rig with this number of workers. The pool's listener belongs to the first.
pub(crate) fn rig(workers: usize) -> Rig {
    Rig::with_workers(workers, |config| {
        config.global.pool_mode = PoolMode::Auto;
        config.global.default_pool_size = 1;
    })
}

/// The client's server runs LISTEN and is probed.
#[track_caller]
pub(crate) fn listen(client: &Client, server: &Server) {
    client.send([query("LISTEN news")]);
    server.expect([query("LISTEN news")]);
    server.send([done("LISTEN")]);
    client.expect([done("LISTEN")]);
    left(server, &["news"]);
}

/// Answers the probe: the server listens to these channels.
#[track_caller]
pub(crate) fn left(server: &Server, channels: &[&str]) {
    let question = show(&server.take()).join("");
    assert!(question.contains("pg_listening_channels"), "{question}");
    let rows = channels.iter().map(|channel| row(&format!("l:{channel}")));
    server.send(rows.chain([done("SELECT")]));
}

/// The texts of the queries that have arrived.
pub(crate) fn orders(server: &Server) -> Vec<String> {
    let plain = |line: String| line.replace("\\\"", "\"").replace("\\'", "'").replace("\\x00", "");
    let lines = show(&server.take()).into_iter().map(plain);
    lines.map(|line| line.strip_prefix("Q ").expect("a query").to_owned()).collect()
}

/// The listener's first order: the channel of marks, and these channels. Returns the name of the
/// former.
#[track_caller]
pub(crate) fn begin(listener: &Server, channels: &str) -> String {
    let said = orders(listener).join("");
    let mark = said.split('"').nth(1).expect("a name").to_owned();
    assert_eq!(said, format!("LISTEN \"{mark}\";{channels}"));
    listener.send([done("LISTEN")]);
    mark
}

/// The client's server gets the order to hand over. Returns the mark's payload.
#[track_caller]
pub(crate) fn handing_over(server: &Server, mark: &str) -> String {
    let said = orders(server);
    let token = said[0].split('\'').nth(1).expect("a payload").to_owned();
    let order = format!("LISTEN \"{mark}\";NOTIFY \"{mark}\",'{token}'");
    assert_eq!(said, [order, "UNLISTEN *".to_owned()]);
    token
}

/// A client that listens begins a transaction on this server.
pub(crate) fn begins(client: &Client, server: &Server) {
    client.send([query("BEGIN")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
}

/// Answers the probe: an advisory lock, and these channels.
pub(crate) fn has_lock(server: &Server, channels: &[&str]) {
    server.take();
    let heard = channels.iter().map(|channel| row(&format!("l:{channel}")));
    let rows = std::iter::once(row("k")).chain(heard);
    server.send(rows.chain([done("SELECT")]));
}

/// A client that listens takes an advisory lock on this server, and so keeps the server.
pub(crate) fn locks(client: &Client, server: &Server) {
    client.send([query("SELECT pg_advisory_lock(1)")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("SELECT pg_advisory_lock(1)")]);
    server.send([done("SELECT")]);
    client.take();
    has_lock(server, &["news"]);
}

/// A client without a server. The listener delivers `news` to it.
pub(crate) fn listening(rig: &Rig, worker: usize) -> (Client, Server, Server, String) {
    let client = rig.client_at(worker);
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked.clone(), ready('I')]);
    server.send([done("UNLISTEN")]);
    listener.send([marked]);
    client.expect([]);
    assert!(server.is_parked());
    (client, server, listener, mark)
}

pub(crate) const DEAF: &str = "notifications do not arrive: Weir has no listening connection";
pub(crate) const GAP: &str =
    "notifications may have been lost: Weir's listening connection was interrupted";

#[test]
fn the_mark_separates_the_notifications_of_both_connections() {
    let rig = rig(2);
    let client = rig.client_at(1);
    let server = rig.server(0);
    listen(&client, &server);
    server.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    // The listener reads this before the mark. The server delivers it.
    listener.send([told(5, "news", "2")]);
    let token = handing_over(&server, &mark);
    server.send([told(5, "news", "2"), complete("LISTEN"), told(5, "news", "3")]);
    client.expect([told(5, "news", "2"), told(5, "news", "3")]);
    listener.send([told(5, "news", "3"), told(6, &mark, "another"), told(6, &mark, &token)]);
    listener.send([told(5, "news", "4")]);
    client.expect([]);
    server.send([complete("NOTIFY"), told(6, &mark, &token), told(5, "news", "4"), ready('I')]);
    client.expect([]);
    server.send([told(5, "news", "5"), done("UNLISTEN")]);
    client.expect([told(5, "news", "4")]);
    listener.send([told(5, "news", "5")]);
    client.expect([told(5, "news", "5")]);
    assert!(server.is_parked());
}

#[test]
fn a_client_that_continues_at_once_is_unlinked_later() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    client.send([query("BEGIN")]);
    server.expect([query("BEGIN")]);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    server.send([complete("BEGIN"), ready('T')]);
    client.expect([complete("BEGIN"), ready('T')]);
    client.send([query("COMMIT")]);
    server.expect([query("COMMIT")]);
    server.send([done("COMMIT")]);
    client.expect([done("COMMIT")]);
    client.send([query("SELECT 1")]);
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked, ready('I'), done("UNLISTEN")]);
    // The client gets the same server, which listens again.
    server.answers("LISTEN \"news\";");
    server.expect([query("SELECT 1")]);
}

#[test]
fn a_mark_on_its_way_is_waited_for_though_the_client_listens_to_more() {
    let rig = rig(2);
    let client = rig.client_at(1);
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked.clone(), ready('I')]);
    server.send([done("UNLISTEN")]);
    // Weir asks the listener for another channel, before it has read this.
    client.send([query("LISTEN more")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("LISTEN more")]);
    server.send([done("LISTEN")]);
    client.expect([done("LISTEN")]);
    left(&server, &["news", "more"]);
    listener.send([marked, told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
}

#[test]
fn notifications_during_a_transaction_are_delivered_after_it() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    begins(&client, &server);
    listener.send([told(5, "news", "1"), told(5, "other", "x")]);
    server.send([told(5, "news", "1")]);
    client.expect([]);
    client.send([query("COMMIT")]);
    server.take();
    server.send([told(5, "news", "1"), done("COMMIT")]);
    client.expect([done("COMMIT"), told(5, "news", "1")]);
    listener.send([told(5, "news", "2")]);
    client.expect([told(5, "news", "2")]);
}

#[test]
fn a_client_hears_of_itself_from_its_server_and_once() {
    let rig = rig(2);
    let client = rig.connect_from(1, engine::auth::Peer::default());
    client.say_hello(&[]);
    let (own, _) = client.expect_welcome(&[]);
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    let mark = begin(&listener, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    listener.send([marked.clone()]);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked, ready('I'), done("UNLISTEN")]);
    client.send([query("NOTIFY news")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("NOTIFY news")]);
    let (before, after) = (told(server.pid(), "news", ""), told(own, "news", ""));
    // The client gets it from whichever connection delivers it first.
    listener.send([before.clone()]);
    client.expect([]);
    server.send([complete("NOTIFY"), before.clone(), ready('I')]);
    client.expect([complete("NOTIFY"), after.clone(), ready('I')]);
    client.send([query("NOTIFY news")]);
    server.expect([query("NOTIFY news")]);
    server.send([complete("NOTIFY"), before.clone(), ready('I')]);
    client.expect([complete("NOTIFY"), after, ready('I')]);
    listener.send([before.clone(), before.clone()]);
    client.expect([before]);
}

#[test]
pub(crate) fn a_listener_without_a_login_is_tried_again() {
    let rig = rig(2);
    let client = rig.client_at(1);
    let server = rig.server(0);
    rig.set_automatic(false);
    listen(&client, &server);
    for attempt in 1..4 {
        let listener = rig.server(attempt);
        let pause = match attempt % 2 {
            0 => {
                listener.connect();
                listener.send([fatal("53300", "too many connections")]);
                15_000
            }
            _ => {
                listener.refuse();
                100
            }
        };
        client.send([query("SELECT 1")]);
        server.answers("SELECT 1");
        client.expect([done("OK")]);
        rig.wait_ms(pause - 5);
        assert_eq!(rig.servers(), attempt + 1);
        rig.wait_ms(5);
    }
    server.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    client.leave();
    server.answers("DISCARD ALL");
    assert!(server.is_parked());
}

#[test]
fn a_listener_that_refuses_is_given_up() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    listener.take();
    listener.send([error("25006", "cannot execute LISTEN during recovery"), ready('I')]);
    assert!(!listener.is_open());
    assert_eq!(rig.servers(), 2);
    rig.wait(2);
    let listener = rig.server(2);
    let mark = begin(&listener, "LISTEN \"news\";");
    handing_over(&server, &mark);
    // The server refuses to hand over. It stays with the client and listens.
    server.send([error("57014", "canceled"), ready('I'), done("UNLISTEN")]);
    client.expect([warning("01000", GAP)]);
    server.answers("LISTEN \"news\";");
    client.send([query("SELECT 1")]);
    server.expect([query("SELECT 1")]);
    server.send([told(5, "news", "1"), done("SELECT")]);
    client.expect([told(5, "news", "1"), done("SELECT")]);
    handing_over(&server, &mark);
}

#[test]
fn a_listener_that_is_lost_is_replaced() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    let idle = rig.client_at(0);
    listener.die();
    let listener = rig.server(2);
    begin(&listener, "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
    idle.expect([]);
    // A client in a transaction gets no warning either.
    client.send([query("BEGIN")]);
    server.answers("LISTEN \"news\";");
    server.take();
    server.send([complete("BEGIN"), ready('T')]);
    client.take();
    listener.die();
    begin(&rig.server(3), "LISTEN \"news\";");
    client.expect([]);
    client.send([query("COMMIT")]);
    server.take();
    server.send([done("COMMIT")]);
    client.expect([done("COMMIT"), warning("01000", GAP)]);
}

#[test]
fn actions_without_a_listener_hide_no_later_notification() {
    let rig = rig(2);
    let (client, server, listener, _) = listening(&rig, 1);
    rig.set_automatic(false);
    listener.die();
    client.send([query("NOTIFY news")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("NOTIFY news")]);
    let news = told(server.pid(), "news", "");
    server.send([complete("NOTIFY"), news.clone(), ready('I')]);
    client.take();
    rig.set_automatic(true);
    rig.wait(0);
    let listener = rig.server(2);
    begin(&listener, "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
    // Another client uses the same server.
    listener.send([news.clone()]);
    client.expect([news]);
}

#[test]
fn a_listener_that_is_lost_on_the_way_is_asked_again() {
    for lost_late in [false, true] {
        let rig = rig(2);
        let client = rig.client_at(1);
        let server = rig.server(0);
        listen(&client, &server);
        let listener = rig.server(1);
        let mark = begin(&listener, "LISTEN \"news\";");
        let token = handing_over(&server, &mark);
        let marked = told(5, &mark, &token);
        if lost_late {
            listener.send([marked.clone()]);
        }
        listener.die();
        server.send([complete("LISTEN"), complete("NOTIFY"), marked, ready('I'), done("UNLISTEN")]);
        let listener = rig.server(2);
        begin(&listener, "LISTEN \"news\";");
        client.expect([warning("01000", GAP)]);
        listener.send([told(5, "news", "1")]);
        client.expect([told(5, "news", "1")]);
        assert!(server.is_parked());
    }
}

#[test]
fn a_client_that_stops_listening_or_leaves_gets_no_more() {
    let rig = rig(2);
    let (client, server, listener, mark) = listening(&rig, 1);
    let (leaving, staying) = (rig.client_at(0), rig.client_at(0));
    client.send([query("UNLISTEN news")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("UNLISTEN news")]);
    server.send([done("UNLISTEN")]);
    left(&server, &[]);
    listener.answers("UNLISTEN \"news\";");
    listener.send([told(5, "news", "1")]);
    client.take();
    for one in [&leaving, &staying] {
        listen(one, &server);
        // The server hands over as soon as the listener listens.
        if std::ptr::eq(one, &leaving) {
            listener.answers("LISTEN \"news\";");
        }
        let token = handing_over(&server, &mark);
        let marked = told(5, &mark, &token);
        listener.send([marked.clone()]);
        server.send([complete("LISTEN"), complete("NOTIFY"), marked, ready('I'), done("UNLISTEN")]);
    }
    leaving.leave();
    listener.send([told(5, "news", "2")]);
    staying.expect([told(5, "news", "2")]);
    staying.leave();
    listener.answers("UNLISTEN \"news\";");
    client.expect([]);
    rig.wait(601);
    rig.wait(601);
    assert!(!listener.is_open());
}

#[test]
fn a_client_that_comes_while_the_listener_stops_waits() {
    let rig = rig(1);
    let (client, server, listener, mark) = listening(&rig, 0);
    client.leave();
    listener.expect([query("UNLISTEN \"news\";")]);
    let next = rig.client();
    listen(&next, &server);
    next.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    listener.send([done("UNLISTEN")]);
    listener.expect([query("LISTEN \"news\";")]);
    next.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    listener.send([done("LISTEN")]);
    handing_over(&server, &mark);
}

/// A client that keeps its server because of its encoding.
pub(crate) fn of_another_encoding(rig: &Rig) -> (Client, Server) {
    let client = rig.client_with(0, &[("client_encoding", "LATIN1")]);
    let server = rig.server(0);
    client.send([query("LISTEN news")]);
    server.expect([query("SET client_encoding = 'LATIN1';")]);
    let is_set = status("client_encoding", "LATIN1");
    server.send([complete("SET"), is_set, ready('I')]);
    server.answers("LISTEN news");
    client.expect([done("OK")]);
    left(&server, &["news"]);
    assert!(!server.is_parked());
    (client, server)
}

#[test]
fn a_client_that_listens_does_so_in_the_next_process() {
    let rig = rig(1);
    let (client, ..) = listening(&rig, 0);
    rig.hand_over();
    rig.wait(0);
    let listener = rig.server(rig.servers() - 1);
    begin(&listener, "LISTEN \"news\";");
    client.expect([warning("01000", GAP)]);
    listener.send([told(5, "news", "1")]);
    client.expect([told(5, "news", "1")]);
}

#[test]
fn a_client_with_an_encoding_of_its_own_keeps_the_server_on_which_it_listens() {
    let rig = rig(1);
    let (client, server) = of_another_encoding(&rig);
    server.send([told(6, "news", "1")]);
    client.expect([told(6, "news", "1")]);
    assert_eq!(rig.servers(), 1, "nobody has asked for a listener");
    // The client keeps it after a transaction that leaves nothing, until UNLISTEN.
    client.send([query("SELECT 1")]);
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    assert!(!server.is_parked());
    client.send([query("UNLISTEN news")]);
    server.answers("UNLISTEN news");
    left(&server, &[]);
    assert!(server.is_parked());
}

#[test]
fn a_client_that_changes_its_encoding_keeps_the_channels_of_its_server() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    client.send([query("SET client_encoding = 'LATIN1'")]);
    server.expect([query("SET client_encoding = 'LATIN1'")]);
    server.send([complete("SET"), status("client_encoding", "LATIN1"), ready('I')]);
    client.expect([complete("SET"), status("client_encoding", "LATIN1"), ready('I')]);
    let setting = item_of('s', "client_encoding", "LATIN1");
    let channel = row("l:news");
    server.take();
    server.send([setting, channel, done("SELECT")]);
    assert!(!server.is_parked());
    server.send([told(6, "news", "1")]);
    client.expect([told(6, "news", "1")]);
}

#[test]
fn a_parked_server_that_still_listens_is_made_to_stop() {
    let rig = rig(1);
    let (client, server, ..) = listening(&rig, 0);
    client.send([query("SELECT 1")]);
    server.answers("LISTEN \"news\";");
    server.answers("SELECT 1");
    client.expect([done("OK")]);
    assert!(server.is_parked());
    server.send([told(5, "news", "1")]);
    client.expect([]);
    server.answers("UNLISTEN *");
    assert!(server.is_parked());
    let other = rig.client();
    other.send([query("SELECT 2")]);
    server.expect([query("SELECT 2")]);
}

#[test]
fn a_listener_in_the_middle_of_a_message_gets_its_orders_afterwards() {
    let rig = rig(1);
    let (client, server, listener, _) = listening(&rig, 0);
    client.send([query("UNLISTEN news")]);
    server.answers("LISTEN \"news\";");
    server.expect([query("UNLISTEN news")]);
    server.send([done("UNLISTEN")]);
    let news = told(5, "news", "1");
    let (first, second) = news.split_at(7);
    listener.send([first.to_vec()]);
    left(&server, &[]);
    listener.expect([]);
    listener.send([second.to_vec()]);
    listener.expect([query("UNLISTEN \"news\";")]);
}

#[test]
fn an_unlisten_before_the_mark_ends_the_wait() {
    let rig = rig(1);
    let client = rig.client();
    let server = rig.server(0);
    listen(&client, &server);
    let listener = rig.server(1);
    let asked = listener.take();
    client.send([query("UNLISTEN news")]);
    server.expect([query("UNLISTEN news")]);
    server.send([done("UNLISTEN")]);
    left(&server, &[]);
    assert!(server.is_parked());
    assert!(show(&asked).join("").contains("news"));
    listener.send([done("LISTEN")]);
    listener.expect([query("UNLISTEN \"news\";")]);
}

#[test]
fn an_unneeded_listener_makes_room() {
    let rig = Rig::new(|config| {
        add_others(config);
        config.global.pool_mode = PoolMode::Auto;
        config.global.max_db_connections = 2;
    });
    let (client, server, listener, _) = listening(&rig, 0);
    let busy = rig.client();
    busy.send([query("BEGIN")]);
    server.send([complete("BEGIN"), ready('T')]);
    let bob = rig.connect();
    bob.say_hello_as("bob", "app");
    rig.wait(1);
    assert!(listener.is_open(), "somebody listens");
    client.leave();
    listener.answers("UNLISTEN \"news\";");
    rig.wait(1);
    assert!(!listener.is_open());
    bob.expect_welcome(&[]);
    assert!(rig.logged("evicted"));
}

/// The next client has the slot of the first one. It listens to a channel of that name in another database.
#[test]
pub(crate) fn a_notification_is_not_for_the_next_client_in_a_slot() {
    let rig = Rig::with_workers(2, |config| {
        add_others(config);
        config.global.pool_mode = PoolMode::Auto;
    });
    let (client, _, first_listener, _) = listening(&rig, 1);
    // The first listener's worker does not know yet that the client has left.
    rig.hold_mail_of(0);
    client.leave();
    let next = rig.client_of(1, "alice", "other");
    let server = rig.server(2);
    listen(&next, &server);
    let listener = rig.server(3);
    let mark = begin(&listener, "LISTEN \"news\";");
    let token = handing_over(&server, &mark);
    let marked = told(5, &mark, &token);
    server.send([complete("LISTEN"), complete("NOTIFY"), marked.clone(), ready('I')]);
    server.send([done("UNLISTEN")]);
    listener.send([marked, told(5, "news", "its own")]);
    next.expect([told(5, "news", "its own")]);
    first_listener.send([told(5, "news", "of the other database")]);
    next.expect([]);
}
