//! The memory of many prepared statements of one client, and that it is freed with them.

use std::io::Write as _;
use std::thread;
use std::time::Duration;

use testkit::frontend::{close_statement, parse, sync};
use testkit::{Pooler, RawClient, poll_until};

use super::pooler;
use crate::support;

const STATEMENTS: usize = 31_000;
const TEXT_LEN: usize = 4_096;
/// The maximum growth that remains after they are closed, in KiB. The pooler frees memory if more
/// than 12 MiB are unused.
const LEFT_MAX_KIB: u64 = 16 * 1024;
/// The size of the texts, in KiB.
const TEXTS_KIB: u64 = (STATEMENTS * TEXT_LEN / 1024) as u64;

fn text(n: usize) -> String {
    let head = format!("select {n} -- ");
    head.clone() + &"x".repeat(TEXT_LEN - head.len())
}

/// Sends all messages and a Sync, and reads the answers.
fn say(client: &mut RawClient, messages: impl Iterator<Item = Vec<u8>>) {
    let bytes: Vec<u8> = messages.chain([sync()]).flatten().collect();
    let mut writer = client.writer();
    let sender = thread::spawn(move || writer.write_all(&bytes));
    let answers = client.read_to_ready();
    sender.join().expect("no panic").expect("all is taken");
    assert_eq!(answers.len(), STATEMENTS + 1, "the last is {:?}", answers.last());
}

fn left(pooler: &Pooler, before: u64) -> u64 {
    pooler.resident_kib().saturating_sub(before)
}

#[test]
fn the_memory_of_31_000_statements_is_given_back_when_they_are_closed() {
    if !support::only_weir() {
        return;
    }
    // Both run in parallel, since they mostly wait.
    thread::scope(|scope| {
        for mode in ["auto", "transaction"] {
            scope.spawn(move || memory_is_given_back(mode));
        }
    });
}

fn memory_is_given_back(mode: &str) {
    let (pooler, database) = pooler(mode);
    let mut client = pooler.client(&database);
    client.set_timeout(super::PATIENCE);
    let before = pooler.resident_kib();
    say(&mut client, (0..STATEMENTS).map(|n| parse(&format!("s{n}"), &text(n))));
    let kept = left(&pooler, before);
    assert!(kept > TEXTS_KIB / 2, "{mode}: {kept} KiB: are the texts kept at all?");
    assert!(kept < TEXTS_KIB * 3 / 2, "{mode}: {kept} KiB for texts of {TEXTS_KIB}");
    say(&mut client, (0..STATEMENTS).map(|n| close_statement(&format!("s{n}"))));
    let mut rest = 0;
    let is_back = poll_until(Duration::from_secs(120), || {
        rest = left(&pooler, before);
        (rest < LEFT_MAX_KIB).then_some(())
    });
    assert!(is_back.is_some(), "{mode}: {rest} of {kept} KiB are not given back");
    // Checks that the client is still connected.
    client.value("select 1");
}
