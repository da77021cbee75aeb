//! No client ever gets a byte of another client's answers, whatever the others do.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::support;
use testkit::{Pooler, RawClient, frontend};

const CLIENTS: u32 = 40;
const SERVERS: u64 = 5;

/// A generator of pseudo-random numbers, the same in every run.
pub(crate) struct Dice(pub(crate) u32);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % sides
    }
}

#[test]
fn forty_clients_on_five_servers_each_get_their_own_answers_core_strict() {
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("default_pool_size", SERVERS).workers(2).start();
    let over = AtomicBool::new(false);
    let answers = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 1..=CLIENTS {
            let (pooler, database, over, answers) = (&pooler, &database, &over, &answers);
            scope.spawn(move || {
                let mut dice = Dice(number * 7919);
                while !over.load(Ordering::Relaxed) {
                    let count = visit(pooler, database, number, &mut dice);
                    answers.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
        std::thread::park_timeout(Duration::from_secs(5));
        over.store(true, Ordering::Relaxed);
    });
    let answers = answers.into_inner();
    assert!(answers > 1000, "only {answers} answers: too few to tell anything");
    pooler.wait_until_quiet(&database, SERVERS);
}

/// Opens one connection, sends some requests, and ends it at a random moment.
pub(crate) fn visit(pooler: &Pooler, database: &str, number: u32, dice: &mut Dice) -> u32 {
    let mut client = pooler.client(database);
    let requests = dice.roll(20);
    for request in 0..requests {
        let tag = format!("client {number} request {request}");
        match dice.roll(5) {
            0 => assert_eq!(client.value(&format!("SELECT '{tag}'")), tag),
            1 => pipeline(&mut client, &tag),
            2 => transaction(&mut client, &tag),
            3 => failure(&mut client, &tag),
            _ => long_result(&mut client, &tag, dice.roll(2000)),
        }
    }
    match dice.roll(4) {
        0 => client.send(frontend::terminate()),
        1 => client.send(frontend::query(&format!("SELECT 'unread of {number}', pg_sleep(0.01)"))),
        2 => {
            client.rows("BEGIN");
            client.send(&frontend::query("SELECT 'cut off'")[..9]);
        }
        _ => {}
    }
    requests
}

fn pipeline(client: &mut RawClient, tag: &str) {
    let one = |part: u32| {
        [
            frontend::parse("", "SELECT $1::text"),
            frontend::bind("", "", &[Some(&format!("{tag} part {part}"))]),
            frontend::execute("", 0),
        ]
        .concat()
    };
    client.send([one(0), one(1), frontend::sync(), one(2), frontend::sync()].concat());
    let mut messages = client.read_to_ready();
    messages.extend(client.read_to_ready());
    let rows: Vec<_> = messages.iter().filter(|m| m.tag == b'D').map(|m| m.row()).collect();
    let expected: Vec<_> = (0..3).map(|part| [Some(format!("{tag} part {part}"))]).collect();
    assert_eq!(rows, expected);
}

fn transaction(client: &mut RawClient, tag: &str) {
    client.rows("BEGIN");
    client.rows(&format!("SET LOCAL application_name = '{tag}'"));
    assert_eq!(client.value("SELECT current_setting('application_name')"), tag);
    client.rows("ROLLBACK");
}

fn failure(client: &mut RawClient, tag: &str) {
    let error = client.query(&format!("SELECT '{tag}'::int")).error.expect("no number");
    assert!(error.message().contains(&format!("\"{tag}\"")), "{tag} got {error:?}");
}

fn long_result(client: &mut RawClient, tag: &str, rows: u32) {
    let sql = format!("SELECT '{tag} row ' || n FROM generate_series(1, {rows}) n");
    let rows = client.rows(&sql);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row[0].as_deref(), Some(format!("{tag} row {}", index + 1).as_str()));
    }
}
