//! The primary is lost while clients use it. They keep their connections, and are told what they
//! have lost.

use std::time::Duration;

use testkit::{Message, Pooler, Postgres, RawClient, ServerError, frontend};

use super::{cluster, node_of, setup, until_nodes_are, until_replayed, write};
use crate::auto::listen::until_free;
use crate::support;

/// Sends these messages. Returns the error, and the transaction status after it.
#[track_caller]
fn refused(client: &mut RawClient, messages: &[Vec<u8>]) -> (ServerError, u8) {
    client.send(messages.concat());
    answer(client)
}

#[track_caller]
pub(super) fn answer(client: &mut RawClient) -> (ServerError, u8) {
    let messages = client.read_to_ready();
    let errors: Vec<_> = messages.iter().filter_map(Message::error).collect();
    assert_eq!(errors.len(), 1, "{messages:?}");
    let error = errors.into_iter().next().expect("it is there");
    (error, messages.last().expect("ReadyForQuery").body[0])
}

/// The client's connection is as good as new.
#[track_caller]
pub(super) fn goes_on(client: &mut RawClient, node: &Postgres) {
    assert_eq!(node_of(client), node.port());
    client.rows("BEGIN");
    write(client, "afterwards");
    client.rows("COMMIT");
}

fn batch(text: &str) -> Vec<Vec<u8>> {
    vec![
        frontend::parse("", text),
        frontend::bind("", "", &[]),
        frontend::execute("", 0),
        frontend::sync(),
    ]
}

/// Two nodes, and a pooler that has seen both.
fn pair(keys: &str) -> (Vec<Postgres>, Pooler) {
    let nodes = cluster(1);
    let pooler = setup(&[&nodes[0], &nodes[1]], keys).start();
    until_nodes_are(&pooler, &["writable", "readable"]);
    until_replayed(&[&nodes[1]], "0");
    (nodes, pooler)
}

fn replace(pooler: &Pooler, [a, b]: [&Postgres; 2]) {
    a.kill9();
    until_nodes_are(pooler, &["down", "unfit"]);
    b.promote();
    until_nodes_are(pooler, &["down", "writable"]);
}

#[test]
fn a_transaction_that_was_not_committed_fails_and_the_client_stays_strict() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = pair("");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let begun = || {
        let mut client = pooler.client("app");
        client.rows("SET work_mem = '7MB'");
        client.rows("BEGIN");
        write(&mut client, "lost");
        client.rows("SET TimeZone = 'Asia/Tokyo'");
        client
    };
    let mut clients: Vec<_> = (0..6).map(|_| begun()).collect();
    let zone = pooler.client("app").parameters["TimeZone"].clone();
    replace(&pooler, [a, b]);
    let mut ends = Vec::new();
    for (client, request) in clients.iter_mut().zip([
        vec![frontend::query("SELECT 1")],
        batch("SELECT 1"),
        vec![frontend::query("COMMIT")],
        batch("COMMIT"),
    ]) {
        let (error, status) = refused(client, &request);
        assert_eq!((error.severity(), error.code()), ("ERROR", "40001"), "{error:?}");
        assert!(error.field('D').starts_with("Reason: "), "{error:?}");
        assert_eq!(client.parameters["TimeZone"], zone);
        ends.push(status);
    }
    assert_eq!(ends, *b"EEII");
    // PostgreSQL itself plays the failed transaction.
    for client in &mut clients[..2] {
        for text in ["SELECT 1", "SAVEPOINT a", "INSERT INTO acts VALUES (1)"] {
            let (error, status) = refused(client, &[frontend::query(text)]);
            assert_eq!((error.code(), status), ("25P02", b'E'));
        }
        let (error, status) = refused(client, &batch("SELECT 1"));
        assert_eq!((error.code(), status), ("25P02", b'E'));
    }
    clients[0].rows("ROLLBACK");
    let outcome = clients[1].query("COMMIT");
    assert_eq!(outcome.tags, ["ROLLBACK"]);
    // A client that gives its transaction up has no error.
    clients[4].rows("ROLLBACK");
    clients[5].send(batch("ROLLBACK").concat());
    let told = clients[5].read_to_ready();
    assert!(told.iter().all(|message| message.tag != b'E'), "{told:?}");
    for client in &mut clients {
        goes_on(client, b);
        assert_eq!(client.value("SHOW work_mem"), "7MB");
        assert_eq!(client.value("SHOW TimeZone"), zone);
    }
    assert_eq!(
        b.sql("postgres", "SELECT count(*) FROM acts WHERE act = 'lost'")[0][0].as_deref(),
        Some("0")
    );
}

#[test]
fn an_unanswered_commit_is_unknown_and_not_repeated_core_strict() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = pair("sample_interval=0.2");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let mut clients: Vec<_> = (0..5).map(|_| pooler.client("app")).collect();
    for client in &mut clients {
        client.rows("BEGIN");
        write(client, "in a transaction");
    }
    // Another server than those of the transactions is there.
    clients[4].rows("ROLLBACK");
    // Its plan is prepared: no text shows the COMMIT.
    clients[1].send([frontend::parse("end", "COMMIT"), frontend::sync()].concat());
    clients[1].read_to_ready();
    a.freeze();
    let prepared = [frontend::bind("", "end", &[]), frontend::execute("", 0), frontend::sync()];
    for (client, request) in clients.iter_mut().zip([
        frontend::query("COMMIT"),
        prepared.concat(),
        frontend::query("INSERT INTO acts VALUES (2, 'x'); COMMIT"),
        frontend::query("INSERT INTO acts VALUES (2, 'x')"),
        frontend::query("INSERT INTO acts VALUES (3, 'alone')"),
    ]) {
        client.send(request);
    }
    until_nodes_are(&pooler, &["down", "unfit"]);
    b.promote();
    let mut told = Vec::new();
    for client in &mut clients {
        let (error, status) = answer(client);
        assert!(error.field('D').contains("the cluster has another primary"), "{error:?}");
        told.push((error.code().to_owned(), char::from(status)));
    }
    let told: Vec<_> = told.iter().map(|(code, status)| (code.as_str(), *status)).collect();
    let unknown = ("08007", 'I');
    assert_eq!(told, [unknown, unknown, unknown, ("40001", 'E'), unknown]);
    clients[3].rows("ROLLBACK");
    clients.iter_mut().for_each(|client| goes_on(client, b));
    let rows = b.sql("postgres", "SELECT count(*) FROM acts WHERE act <> 'afterwards'");
    assert_eq!(rows[0][0].as_deref(), Some("0"), "nothing was repeated");
    a.thaw();
}

#[test]
fn a_copy_fails_and_the_client_stays() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = pair("");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let [mut alone, mut begun] = [0, 1].map(|_| pooler.client("app"));
    begun.rows("BEGIN");
    let data = frontend::copy_data(b"7\tcopied\n");
    for client in [&mut alone, &mut begun] {
        client.send(frontend::query("COPY acts FROM STDIN"));
        client.read_until(|message| message.tag == b'G');
        client.send(&data);
    }
    replace(&pooler, [a, b]);
    for (client, code, status) in [(&mut alone, "08007", b'I'), (&mut begun, "40001", b'E')] {
        let (error, after) = answer(client);
        assert_eq!((error.code(), after), (code, status), "{error:?}");
        // As if it had not read the error yet.
        client.send([data.clone(), frontend::copy_done()].concat());
    }
    begun.rows("ROLLBACK");
    goes_on(&mut alone, b);
    goes_on(&mut begun, b);
    let copied = b.sql("postgres", "SELECT count(*) FROM acts WHERE act = 'copied'");
    assert_eq!(copied[0][0].as_deref(), Some("0"));
}

#[test]
fn a_copy_that_has_failed_survives_an_online_restart() {
    if !support::only_weir() {
        return;
    }
    let (nodes, mut pooler) = pair("");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let [mut alone, mut begun] = [0, 1].map(|_| pooler.client("app"));
    begun.rows("BEGIN");
    let data = frontend::copy_data(b"7\tcopied\n");
    for client in [&mut alone, &mut begun] {
        client.send(frontend::query("COPY acts FROM STDIN"));
        client.read_until(|message| message.tag == b'G');
        client.send(&data);
    }
    replace(&pooler, [a, b]);
    for client in [&mut alone, &mut begun] {
        answer(client);
        client.send(&data);
    }
    pooler.take_over();
    for client in [&mut alone, &mut begun] {
        client.send([data.clone(), frontend::copy_done()].concat());
    }
    begun.rows("ROLLBACK");
    goes_on(&mut alone, b);
    goes_on(&mut begun, b);
}

#[test]
fn a_pinned_client_is_told_what_it_has_lost() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = pair("");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let mut idle = pooler.client("app");
    let mut busy = pooler.client("app");
    for client in [&mut idle, &mut busy] {
        client.rows("SET work_mem = '7MB'");
        client.rows("CREATE TEMP TABLE mine (number int)");
        client.rows("SELECT pg_advisory_lock(pg_backend_pid())");
    }
    busy.rows("BEGIN");
    write(&mut busy, "lost");
    replace(&pooler, [a, b]);
    for (client, expected) in [(&mut idle, b'I'), (&mut busy, b'E')] {
        let (error, status) = refused(client, &[frontend::query("SELECT * FROM mine")]);
        assert_eq!((error.code(), status), ("08006", expected));
        let detail = error.field('D');
        assert!(detail.contains("temporary object, advisory lock"), "{detail}");
    }
    busy.rows("ROLLBACK");
    for client in [&mut idle, &mut busy] {
        assert_eq!(client.query("SELECT * FROM mine").error.expect("it is gone").code(), "42P01");
        goes_on(client, b);
        assert_eq!(client.value("SHOW work_mem"), "7MB");
    }
    // An INSERT may draw a number.
    let pins = pooler.admin("SHOW PINS");
    let is_new = |reason: &&str| *reason == "drawn number";
    assert!(pins.column("reason").iter().all(is_new), "{pins:?}");
}

#[test]
fn a_client_that_listens_is_told_of_the_gap() {
    if !support::only_weir() {
        return;
    }
    let (nodes, pooler) = pair("");
    let [a, b] = &nodes[..] else { unreachable!("two nodes") };
    let mut client = pooler.client("app");
    client.rows("LISTEN news");
    // If its own server still listened, it would be warned of that loss, and of the listener's.
    until_free(&pooler);
    client.rows("BEGIN");
    write(&mut client, "lost");
    replace(&pooler, [a, b]);
    assert_eq!(refused(&mut client, &[frontend::query("SELECT 1")]).0.code(), "40001");
    client.rows("ROLLBACK");
    // Weir does not wait for `server_login_retry` (15 s).
    client.set_timeout(Duration::from_secs(10));
    let is_gap = |message: &Message| {
        message.tag == b'N' && format!("{message:?}").contains("notifications may have been lost")
    };
    client.read_until(is_gap);
    b.sql("postgres", "NOTIFY news, 'of b'");
    let news = client.read_until(|message| message.tag == b'A');
    assert!(news.last().expect("a notification").body.ends_with(b"of b\0"));
    goes_on(&mut client, b);
}
