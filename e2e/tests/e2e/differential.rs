//! Sends the same bytes to PostgreSQL directly and through the pooler. The replies must be the
//! same, message by message, except for the differences that `differences.rs` states. The bytes are
//! cut at different places on their way from the client and from the server.
//!
//! A script ends in a state in which it can be played again on the same connection. Each time, its
//! bytes come in two parts, and the second part is sent only after the pooler has read the first.
//! By default some places are tried, with `WEIR_TESTS=full` all of them.

mod differences;
mod scripts;

use std::time::Duration;

use crate::relay::{Cut, Relay};
use crate::support;
use differences::comparable;
use scripts::{END, Script};
use testkit::{Message, Pooler, Postgres, RawClient, ServerAuth, frontend};

/// Places that are tried in one script by default.
const SAMPLE: usize = 7;
/// The maximum number of places, even with `WEIR_TESTS=full`. The middle of a long script is
/// uniform.
const PLACES_MAX: usize = 1_500;

/// Returns some places within `length` bytes, or all.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let full = std::env::var("WEIR_TESTS").is_ok_and(|which| which == "full");
    let most = if full { PLACES_MAX } else { SAMPLE };
    // An odd step differs from most message lengths, so the places move through the messages.
    let step = (length / most).max(1) | 1;
    (1..length).step_by(step)
}

/// Sends a script in two parts, and reads the answers to its end.
#[track_caller]
fn play(client: &mut RawClient, script: &Script, place: usize) -> Vec<Message> {
    let (one, other) = script.bytes.split_at(place);
    // If the pooler closes the connection after the first part, the second part cannot be sent.
    if client.send_apart(one).is_ok() {
        let _ = client.try_send(other);
    }
    read_to_end(client, script)
}

#[track_caller]
fn read_to_end(client: &mut RawClient, script: &Script) -> Vec<Message> {
    if script.closes {
        return client.read_to_end();
    }
    let mut ending = false;
    client.read_until(|message| {
        ending |= message.tag == b'D' && message.row() == [Some(END.to_owned())];
        ending && message.tag == b'Z'
    })
}

#[track_caller]
fn assert_same(cell: &str, direct: &[Message], through: &[Message]) {
    let direct: Vec<_> = direct.iter().filter_map(comparable).collect();
    let through: Vec<_> = through.iter().filter_map(comparable).collect();
    let same = direct.iter().zip(&through).take_while(|(one, other)| one == other).count();
    assert!(
        direct == through,
        "{cell}: message {same} differs\n direct: {:?}\n through: {:?}\n all: {through:?}",
        direct.get(same),
        through.get(same),
    );
}

/// Creates a database with the tables that the scripts use.
fn database() -> String {
    let postgres = Postgres::shared();
    let database = postgres.database();
    postgres.sql(
        &database,
        "CREATE TABLE t (n int, s text); CREATE TABLE sink (n int, s text); \
         INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 5) n; \
         GRANT ALL ON t, sink TO app",
    );
    database
}

/// Returns PostgreSQL's own answers.
#[track_caller]
fn direct(database: &str, script: &Script) -> Vec<Message> {
    let mut client = support::direct(database);
    client.send(&script.bytes);
    read_to_end(&mut client, script)
}

/// Makes the pool open two servers. They are used in turn, so a script may need a statement on one
/// that it has prepared on the other.
fn with_two_servers(pooler: &Pooler, database: &str) {
    let mut clients = [pooler.client(database), pooler.client(database)];
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    clients.iter_mut().for_each(|client| drop(client.rows("COMMIT")));
}

fn client_cuts(mode: &str) {
    let database = database();
    let setup = Pooler::before(Postgres::shared())
        .set("pool_mode", mode)
        .set("default_pool_size", 2)
        .set("server_round_robin", 1)
        .database(&database, "");
    let pooler = setup.start();
    if mode == "transaction" {
        with_two_servers(&pooler, &database);
    }
    for script in scripts::for_mode(mode) {
        let expected = direct(&database, &script);
        let mut client = pooler.unix_client(&database);
        client.set_timeout(Duration::from_secs(20));
        for place in places(script.bytes.len()) {
            let cell = format!("{mode}, {}, cut behind byte {place}", script.name);
            assert_same(&cell, &expected, &play(&mut client, &script, place));
            if script.closes {
                client = pooler.unix_client(&database);
            }
        }
    }
}

#[test]
fn replies_are_postgresqls_in_session_mode_wherever_the_client_cuts_strict() {
    if support::only_weir() {
        client_cuts("session");
    }
}

#[test]
fn replies_are_postgresqls_in_transaction_mode_wherever_the_client_cuts_strict() {
    if support::only_weir() {
        client_cuts("transaction");
    }
}

#[test]
fn replies_are_postgresqls_in_statement_mode_wherever_the_client_cuts_strict() {
    if support::only_weir() {
        client_cuts("statement");
    }
}

#[test]
fn replies_are_postgresqls_wherever_the_server_cuts_strict() {
    if !support::only_weir() {
        return;
    }
    for mode in ["session", "transaction"] {
        let database = database();
        let relay = Relay::before(Postgres::shared().port());
        let pooler = Pooler::before(Postgres::shared())
            .set("pool_mode", mode)
            .set("default_pool_size", 1)
            // The server is asked nothing else.
            .set("role_check_interval", 0)
            .database_at(&database, &relay.connection())
            .start();
        for script in scripts::for_mode(mode).into_iter().filter(|script| !script.closes) {
            let expected = direct(&database, &script);
            let mut client = pooler.unix_client(&database);
            // The first run prepares the statements that the other runs find on the server.
            let whole = script.bytes.len();
            play(&mut client, &script, whole);
            relay.cut(Cut::Nowhere);
            play(&mut client, &script, whole);
            let [_, answer] = relay.passed();
            let places = places(answer.len()).map(Cut::Behind);
            // Single bytes are tried only if the answer is short enough for that.
            let pieces = [1, 5].map(Cut::Pieces).into_iter().filter(|_| answer.len() < 2_000);
            for cut in places.chain(pieces) {
                relay.cut(cut);
                let cell = format!("{mode}, {}, server, {cut:?}", script.name);
                assert_same(&cell, &expected, &play(&mut client, &script, whole));
                let [_, again] = relay.passed();
                assert_eq!(again.len(), answer.len(), "{cell}: another answer of the server's");
            }
        }
    }
}

#[test]
fn login_replies_are_postgresqls_wherever_the_client_cuts_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = database();
    let role = postgres.role(ServerAuth::Trust);
    let startup = frontend::startup(&[("user", &role.name), ("database", &database)]);
    let hello = |mut client: RawClient, place: usize| {
        if place > 0 {
            client.send_apart(&startup[..place]).expect("nobody has hung up");
        }
        client.send(&startup[place..]);
        let mut messages = client.read_to_ready();
        // Difference 1: the order of the parameters, and the pooler's own parameters.
        messages.retain(|m| m.tag != b'S' || !m.parameter().0.starts_with("pgbouncer."));
        messages.sort_by_key(|m| (m.tag == b'S').then(|| m.parameter()));
        messages
    };
    let expected = hello(RawClient::connect(postgres.port()), 0);
    for mode in support::MODES {
        let pooler = Pooler::before(postgres)
            .set("pool_mode", mode)
            .secret(&role.name, &role.password)
            .database(&database, "")
            .start();
        for place in places(startup.len()) {
            let client = RawClient::connect_unix(pooler.socket_folder(), pooler.port());
            let client = client.expect("it listens");
            let cell = format!("{mode}, login, cut behind byte {place}");
            assert_same(&cell, &expected, &hello(client, place));
        }
    }
}
