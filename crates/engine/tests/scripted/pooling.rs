//! When a server is linked, kept and released, by pool mode.

use config::{Config, PoolMode};

use crate::messages::*;
use crate::rig::{Client, Rig, Server, app, server_welcome};

fn pair(rig: &Rig) -> (Client, Server) {
    (rig.client(), rig.server(0))
}

#[test]
fn a_query_and_its_answer() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    client.send([query("select 1")]);
    server.expect([query("select 1")]);
    let answer = [columns("?column?"), row("1"), complete("SELECT 1"), ready('I')];
    server.send(answer.clone());
    client.expect(answer);
    assert!(server.is_parked());
}

#[test]
fn a_transaction_keeps_its_server_to_its_end() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let second = rig.client();
    first.send([query("begin")]);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    second.send([query("other")]);
    assert_eq!(second.unread(), query("other").len(), "it waits, unread");
    first.send([query("fails")]);
    server.expect([query("fails")]);
    server.send([error("42601", "no"), ready('E')]);
    server.expect([]);
    first.send([query("rollback")]);
    server.expect([query("rollback")]);
    server.send([done("ROLLBACK")]);
    server.answers("other");
    first.expect([
        complete("BEGIN"),
        ready('T'),
        error("42601", "no"),
        ready('E'),
        done("ROLLBACK"),
    ]);
    second.expect([done("OK")]);
}

#[test]
fn reasons_that_keep_a_server_in_transaction_mode() {
    // (what the client sends, what the server has answered so far, is the server free?)
    let table: [(&str, Vec<Message>, Vec<Message>, bool); 9] = [
        ("a query", vec![query("q")], vec![complete("OK")], false),
        ("two queries", vec![query("q"), query("q")], vec![done("OK")], false),
        ("two answers", vec![query("q"), query("q")], vec![done("OK"), done("OK")], true),
        ("a transaction", vec![query("q")], vec![complete("BEGIN"), ready('T')], false),
        ("a failed one", vec![query("q")], vec![error("1", "no"), ready('E')], false),
        ("a batch without sync", vec![parse("", "q"), flush()], vec![parsed()], false),
        ("a batch", vec![bind(""), sync()], vec![closed(), bound(), ready('I')], true),
        (
            "a function call",
            vec![function_call()],
            vec![b"V\0\0\0\x08\xff\xff\xff\xff".to_vec()],
            false,
        ),
        ("two syncs", vec![sync(), sync()], vec![ready('I')], false),
    ];
    for (name, asked, answered, free) in table {
        let rig = Rig::transaction();
        let (client, server) = pair(&rig);
        client.send(asked);
        server.send(answered);
        assert_eq!(server.is_parked(), free, "{name}");
    }
}

#[test]
fn a_client_in_the_middle_of_a_message_keeps_its_server() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    let long = query(&"x".repeat(100));
    client.send([query("first"), long[..50].to_vec()]);
    server.send([done("OK")]);
    client.expect([done("OK")]);
    assert!(!server.is_parked());
    let other = rig.client();
    other.send([query("other")]);
    client.send([long[50..].to_vec()]);
    server.expect([query("first"), long]);
    server.send([done("OK")]);
    server.answers("other");
}

#[test]
fn a_header_cut_in_two_keeps_nothing() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    client.send([query("one"), b"Q\0\0".to_vec()]);
    server.answers("one");
    assert!(server.is_parked());
    client.send([query("two")[3..].to_vec()]);
    server.answers("two");
}

#[test]
fn a_client_with_half_a_header_gets_its_turn_in_a_busy_pool() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let second = rig.client();
    second.send([query("second")[..3].to_vec()]);
    first.send([query("first")]);
    second.send([query("second")[3..].to_vec()]);
    server.expect([query("first")]);
    let third = rig.client();
    third.send([query("third")]);
    server.send([done("OK")]);
    server.expect([query("second")]);
    server.send([done("OK")]);
    server.answers("third");
}

#[test]
fn session_mode_is_one_pair_for_good() {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.default_pool_size = 1;
    });
    let (first, server) = pair(&rig);
    first.send([query("one")]);
    server.answers("one");
    let second = rig.connect();
    second.say_hello(&[]);
    first.send([query("two")]);
    server.answers("two");
    second.expect([]);
    first.leave();
    server.answers("DISCARD ALL");
    assert_eq!(second.expect_welcome(&[]).0, server.pid());
    second.send([query("three")]);
    server.answers("three");
}

#[test]
fn a_reset_that_fails_ends_the_server() {
    let rig = Rig::session();
    let (client, server) = pair(&rig);
    client.send([terminate()]);
    server.expect([query("DISCARD ALL")]);
    server.send([error("25001", "no"), ready('I')]);
    assert!(!server.is_open());
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
}

#[test]
fn a_reset_may_be_wanted_in_every_mode() {
    let rig = Rig::new(|config| config.global.server_reset_query_always = true);
    let (client, server) = pair(&rig);
    server.answers("DISCARD ALL");
    client.send([query("one")]);
    server.answers("one");
    client.expect([done("OK")]);
    server.answers("DISCARD ALL");
    assert!(server.is_parked());
}

#[test]
fn a_pool_opens_one_server_at_a_time_until_a_client_has_waited() {
    let rig = Rig::of_size(10);
    let clients: Vec<Client> = (0..12).map(|_| rig.client()).collect();
    rig.set_automatic(false);
    for client in &clients {
        client.send([query("begin")]);
    }
    assert_eq!(rig.pool(|pool| pool.counts()), (2, 1), "one might free the first meanwhile");
    rig.wait(1);
    assert_eq!(rig.pool(|pool| pool.counts()), (5, 4), "so many logins at a time");
    rig.server(1).connect();
    rig.server(1).send([server_welcome(1)]);
    assert_eq!(rig.pool(|pool| pool.counts()), (6, 4), "the next begins when one has ended");
    rig.set_automatic(true);
    rig.wait(1);
    assert_eq!(rig.pool(|pool| pool.counts()), (10, 0));
    assert_eq!(rig.pool(|pool| pool.waiting_total()), 2);
}

#[test]
fn statement_mode_refuses_transactions() {
    let rig = Rig::new(|config| app(config).pool_mode = Some(PoolMode::Statement));
    let (client, server) = pair(&rig);
    client.send([query("select 1")]);
    server.answers("select 1");
    client.expect([done("OK")]);
    client.send([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    let text = "transaction blocks not allowed in statement pooling mode";
    client.expect([fatal("08P01", text)]);
    assert!(!client.is_open() && !server.is_open());
}

#[test]
fn statement_mode_refuses_a_whole_transaction_in_one_write() {
    let rig = Rig::new(|config| app(config).pool_mode = Some(PoolMode::Statement));
    let (client, server) = pair(&rig);
    client.send([query("begin"), query("commit")]);
    server.send([complete("BEGIN"), ready('T'), done("COMMIT")]);
    assert!(!client.is_open() && !server.is_open());
}

#[test]
fn the_users_mode_beats_the_databases() {
    let rig = Rig::new(|config| {
        app(config).pool_mode = Some(PoolMode::Session);
        let user = config.users.entry("alice".into()).or_default();
        user.pool_mode = Some(PoolMode::Transaction);
    });
    rig.client();
    assert!(rig.server(0).is_parked());
}

/// A client leaves. `kept`: its server is kept.
fn leaves(prepare: impl FnOnce(&Client, &Server), kept: bool, name: &str) {
    let rig = Rig::new(|config| config.global.cancel_lost_queries = false);
    let (client, server) = pair(&rig);
    prepare(&client, &server);
    client.leave();
    assert_eq!(server.is_open(), kept, "{name}");
    assert_eq!(rig.pool(|pool| pool.counts()), (u32::from(kept), 0), "{name}");
    assert_eq!((rig.clients_in_tables(), rig.clients_counted()), (0, 0), "{name}");
}

#[test]
fn a_client_that_leaves_never_hands_its_server_on_dirty() {
    leaves(|_, _| {}, true, "idle");
    leaves(|client, _| client.send([terminate()]), true, "politely");
    leaves(|client, _| client.send([query("q")[..3].to_vec()]), true, "in a header");
    leaves(|client, _| client.send([query("q")]), false, "in a query");
    leaves(|client, _| client.send([query("q"), terminate()]), false, "politely in a query");
    leaves(
        |client, server| {
            client.send([query("begin")]);
            server.send([complete("BEGIN"), ready('T')]);
        },
        false,
        "in a transaction",
    );
    leaves(
        |client, server| {
            client.send([query("q")]);
            server.send([row("x")[..9].to_vec()]);
        },
        false,
        "in the middle of an answer",
    );
    leaves(
        |client, server| {
            client.send([query("q"), query("r")[..6].to_vec()]);
            server.send([done("OK")]);
        },
        false,
        "in the middle of a message",
    );
    leaves(
        |client, server| {
            client.send([bind(""), flush()]);
            server.send([closed(), bound()]);
        },
        false,
        "without a sync",
    );
    leaves(
        |client, server| {
            client.send([query("copy")]);
            server.send([copy_in()]);
        },
        false,
        "in a copy",
    );
}

#[test]
fn a_server_that_has_not_got_everything_is_closed() {
    let rig = Rig::session();
    let (client, server) = pair(&rig);
    server.get_stuck();
    client.leave();
    assert!(!server.is_open());
    server.expect([]);
}

#[test]
fn a_client_with_nothing_to_say_gives_its_server_back() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    client.poke();
    assert!(server.is_parked());
    let (second, third) = (rig.client(), rig.client());
    client.send([query("one")]);
    second.poke();
    third.send([query("three")]);
    server.answers("one");
    server.answers("three");
    third.expect([done("OK")]);
}

#[test]
fn a_goodbye_needs_no_server() {
    let rig = Rig::of_size(1);
    let (client, server) = pair(&rig);
    let (waiting, idle) = (rig.client(), rig.client());
    client.send([query("one")]);
    waiting.send([query("two")]);
    waiting.say_goodbye();
    idle.say_goodbye();
    server.answers("one");
    assert!(server.is_parked());
    assert_eq!(rig.clients_in_tables(), 1);
    assert!(rig.logged("client close request"));
}

#[test]
fn a_client_that_left_the_queue_is_skipped() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let (second, third) = (rig.client(), rig.client());
    first.send([query("one")]);
    second.send([query("two")]);
    third.send([query("three")]);
    second.leave();
    server.answers("one");
    server.answers("three");
    third.expect([done("OK")]);
}

#[test]
fn a_client_that_leaves_while_its_values_are_set_leaves_a_good_server() {
    let rig = Rig::of_size(1);
    let (first, server) = pair(&rig);
    let second = rig.client_with(0, &[("TimeZone", "Asia/Tokyo")]);
    second.send([query("two")]);
    server.expect([query("SET TimeZone = 'Asia/Tokyo';")]);
    second.leave();
    first.send([query("one")]);
    server.send([status("TimeZone", "Asia/Tokyo"), done("SET")]);
    server.expect([query("RESET TimeZone;")]);
    server.send([status("TimeZone", "UTC"), done("SET")]);
    server.answers("one");
    first.expect([done("OK")]);
}

#[test]
fn notifications_and_notices_reach_the_linked_client_only() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    server.send([notification("early")]);
    client.expect([]);
    assert!(server.is_parked());
    client.send([query("one")]);
    server.send([notification("now"), notice("hear"), done("OK")]);
    client.expect([notification("now"), notice("hear"), done("OK")]);
}

#[test]
fn an_unknown_message_ends_the_client() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    client.send([b"!\0\0\0\x04".to_vec()]);
    client.expect_fatal("unknown pkt");
    assert!(server.is_open(), "the server never saw it");
}

#[test]
fn an_impossible_length_ends_the_client() {
    let rig = Rig::new(|config| config.global.max_packet_size = 1_000_000);
    let (client, _) = pair(&rig);
    client.send([b"Q\xff\xff\xff\xff".to_vec()]);
    client.expect_fatal("bad packet header: '51ffffffff'");
    let client = rig.client();
    client.send([b"Q\0\x10\0\0select".to_vec()]);
    client.expect_fatal("bad packet header: '510010000073656c'");
}

#[test]
fn a_server_used_once_if_its_lifetime_is_nothing() {
    let rig = Rig::new(|config| config.global.server_lifetime = std::time::Duration::ZERO).manual();
    let client = rig.connect();
    client.say_hello(&[]);
    let server = rig.server(0);
    rig.later(1_000);
    server.connect();
    rig.later(1_000);
    server.send([server_welcome(0)]);
    client.expect_welcome(&[]);
    assert_eq!(rig.servers(), 1);
    assert!(!server.is_open());
}

fn used_at_most(uses: u32) -> impl FnOnce(&mut Config) {
    move |config| config.global.server_max_uses = uses
}

/// The client runs a query, alone in its transaction, on the server that was opened as number `at`.
#[track_caller]
fn use_once(rig: &Rig, client: &Client, at: usize) {
    client.send([query("q")]);
    rig.server(at).answers("q");
    client.expect([done("OK")]);
}

#[test]
fn a_server_is_closed_after_its_last_use() {
    let rig = Rig::new(used_at_most(3));
    // The first login is a use, since the server tells the welcome.
    let (client, server) = pair(&rig);
    let other = rig.client();
    use_once(&rig, &client, 0);
    assert!(server.is_parked());
    use_once(&rig, &client, 0);
    server.expect([terminate()]);
    assert!(!server.is_open() && rig.logged("server_max_uses reached"));
    assert_eq!(rig.pool(|pool| pool.counts()), (0, 0));
    // Later servers are used as often, by any client.
    for client in [&client, &other, &client] {
        use_once(&rig, client, 1);
    }
    assert!(!rig.server(1).is_open());
    assert_eq!(rig.servers(), 2);
}

#[test]
fn a_transaction_is_one_use_and_a_waiting_client_gets_the_next_server() {
    let rig = Rig::new(|config| {
        config.global.server_max_uses = 2;
        config.global.default_pool_size = 1;
    });
    let (first, server) = pair(&rig);
    let second = rig.client();
    first.send([query("begin")]);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    second.send([query("q")]);
    for text in ["one", "two"] {
        first.send([query(text)]);
        server.expect([query(text)]);
        server.send([complete("SELECT 1"), ready('T')]);
    }
    assert!(server.is_open(), "in a transaction");
    first.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    server.expect([terminate()]);
    rig.server(1).answers("q");
    second.expect([done("OK")]);
}

#[test]
fn a_session_is_one_use() {
    let rig = Rig::new(|config| {
        config.global.pool_mode = PoolMode::Session;
        config.global.server_max_uses = 2;
        config.global.server_reset_query = String::new();
    });
    for is_open in [true, false] {
        let client = rig.client();
        for _ in 0..5 {
            use_once(&rig, &client, 0);
        }
        client.leave();
        assert_eq!(rig.server(0).is_open(), is_open);
    }
}

#[test]
fn uses_are_counted_over_workers_and_processes() {
    let rig = Rig::with_workers(2, used_at_most(5));
    let clients = [rig.client_at(0), rig.client_at(1)];
    use_once(&rig, &clients[0], 0);
    use_once(&rig, &clients[1], 0);
    rig.hand_over();
    use_once(&rig, &clients[0], 0);
    assert!(rig.server(0).is_open());
    // The new process has been told in the middle of the last use.
    clients[1].send([query("begin")]);
    let server = rig.server(0);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    clients[1].expect([complete("BEGIN"), ready('T')]);
    rig.hand_over();
    clients[1].send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    assert!(!server.is_open());
    use_once(&rig, &clients[0], 1);
}

#[test]
fn a_reload_changes_the_number_of_uses() {
    let rig = Rig::new(used_at_most(0));
    let (client, server) = pair(&rig);
    for _ in 0..10 {
        use_once(&rig, &client, 0);
    }
    rig.reload(used_at_most(3));
    use_once(&rig, &client, 0);
    assert!(!server.is_open());
    use_once(&rig, &client, 1);
    rig.reload(used_at_most(0));
    for _ in 0..3 {
        use_once(&rig, &client, 1);
    }
    assert!(rig.server(1).is_open());
}

#[test]
fn a_large_server_is_closed_when_it_is_free() {
    let rig = Rig::transaction();
    let (client, server) = pair(&rig);
    let serial = rig.pool(|pool| pool.parked().map(|parked| parked.server.serial).next()).unwrap();
    client.send([query("begin")]);
    server.expect([query("begin")]);
    server.send([complete("BEGIN"), ready('T')]);
    rig.server_is_large(serial + 1);
    rig.server_is_large(serial);
    assert!(server.is_open(), "its client is in a transaction");
    client.send([query("commit")]);
    server.expect([query("commit")]);
    server.send([done("COMMIT")]);
    server.expect([terminate()]);
    assert!(rig.logged("server_max_memory exceeded"));
    client.expect([complete("BEGIN"), ready('T'), done("COMMIT")]);
    use_once(&rig, &client, 1);
    rig.server_is_large(serial + 1);
    assert!(rig.server(1).is_parked(), "it is another one");
}
