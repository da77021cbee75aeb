//! Clients that send many messages without waiting. The number of replies owed to one client is
//! limited, and all of them are answered in the end.

use config::PoolMode;
use wire::{HEADER_LEN, Header, frontend};

use crate::messages::*;
use crate::rig::{Client, Rig, Server};

/// The limit of owed replies, and a few more that one message can add.
const OWED_MAX: usize = 4_096 + 8;
const MANY: usize = 20_000;

fn pair(mode: PoolMode) -> (Rig, Client, Server) {
    let rig = Rig::new(|config| {
        config.global.default_pool_size = 1;
        config.global.pool_mode = mode;
    });
    let (client, server) = (rig.client(), rig.server(0));
    // Reads end in the middle of messages.
    rig.set_chunk(4_001);
    (rig, client, server)
}

/// The codes of the messages in these bytes.
fn codes(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut codes = Vec::new();
    while let Ok(Some(header)) = Header::parse(rest) {
        codes.push(header.code);
        rest = &rest[header.total..];
    }
    assert!(rest.is_empty() && HEADER_LEN == 5, "half a message");
    codes
}

/// Answers like PostgreSQL, message by message. Returns the number of messages.
fn answer(server: &Server) -> usize {
    let codes = codes(&server.take());
    assert!(codes.len() <= OWED_MAX, "{} messages were sent on", codes.len());
    let answers = codes.iter().map(|code| match *code {
        frontend::PARSE => parsed(),
        frontend::BIND => bound(),
        frontend::CLOSE => closed(),
        frontend::EXECUTE => complete("SELECT 1"),
        frontend::SYNC => ready('I'),
        frontend::QUERY => done("SELECT 1"),
        frontend::FLUSH => Message::new(),
        other => panic!("unexpected {:?}", char::from(other)),
    });
    server.send(answers.collect::<Vec<_>>());
    codes.len()
}

/// Sends these messages. Each one gets its answer, with the codes `answers`.
fn all_are_answered(mode: PoolMode, messages: &[Message], answers: &[u8]) {
    let (rig, client, server) = pair(mode);
    client.send(messages.iter().cloned());
    let mut got = Vec::new();
    while answer(&server) > 0 {
        got.append(&mut codes(&client.take()));
    }
    got.append(&mut codes(&client.take()));
    assert_eq!(got.len(), answers.len(), "{mode:?}");
    assert!(got == answers, "{mode:?}: the order of the answers");
    // Afterwards, other clients can use the server.
    let other = rig.client();
    other.send([query("select 2")]);
    server.expect([query("select 2")]);
}

fn repeated(messages: &[Message], count: usize) -> Vec<Message> {
    messages.iter().cloned().cycle().take(messages.len() * count).collect()
}

const MODES: [PoolMode; 3] = [PoolMode::Session, PoolMode::Transaction, PoolMode::Auto];

#[test]
fn a_batch_of_any_length_is_answered() {
    for mode in MODES {
        let mut messages = vec![parse("", "select 1"); MANY];
        messages.push(sync());
        let mut answers = vec![b'1'; MANY];
        answers.push(b'Z');
        if mode == PoolMode::Session {
            // The server stays with its client.
            let (_rig, client, server) = pair(mode);
            client.send(messages);
            while answer(&server) > 0 {}
            assert!(codes(&client.take()) == answers);
            continue;
        }
        all_are_answered(mode, &messages, &answers);
    }
}

#[test]
fn any_number_of_batches_is_answered() {
    for mode in [PoolMode::Transaction, PoolMode::Auto] {
        all_are_answered(mode, &vec![sync(); MANY], &vec![b'Z'; MANY]);
        let one = [parse("", "select 1"), bind(""), execute(), sync()];
        all_are_answered(mode, &repeated(&one, MANY / 4), &b"12CZ".repeat(MANY / 4));
        let one = [parse("a", "select 1"), close("a"), sync()];
        all_are_answered(mode, &repeated(&one, MANY / 4), &b"13Z".repeat(MANY / 4));
    }
}

#[test]
fn a_client_that_is_owed_too_much_continues_when_half_has_arrived() {
    let (_rig, client, server) = pair(PoolMode::Transaction);
    client.send(vec![parse("", "select 1"); MANY]);
    let first = codes(&server.take());
    assert!(first.len() <= OWED_MAX, "{} messages were sent on", first.len());
    assert_eq!(first.last(), Some(&frontend::FLUSH), "or PostgreSQL might keep the answers");
    server.send(vec![parsed(); first.len() / 2 - 8]);
    assert!(server.take().is_empty(), "less than half has come");
    server.send(vec![parsed(); 16]);
    assert!(codes(&server.take()).len() > first.len() / 4);
}

#[test]
fn the_bytes_kept_to_undo_messages_have_a_limit() {
    let (rig, client, server) = pair(PoolMode::Auto);
    rig.set_chunk(65_536);
    let text = "x".repeat(8_000);
    client.send(vec![parse("", &text); 1_000]);
    assert!(server.take().len() < 512 * 1024);
    assert!(client.unread() > 1 << 20, "the rest stays in the kernel");
}

#[test]
fn failing_batches_are_answered_in_any_number() {
    let (_rig, client, server) = pair(PoolMode::Transaction);
    let one = [parse("", "select 1"), bind(""), sync()];
    client.send(repeated(&one, MANY));
    let mut batches = 0;
    loop {
        let syncs =
            codes(&server.take()).into_iter().filter(|code| *code == frontend::SYNC).count();
        if syncs == 0 {
            break;
        }
        batches += syncs;
        server.send(repeated(&[error("42601", "syntax error"), ready('I')], syncs));
    }
    assert_eq!(batches, MANY);
    assert!(codes(&client.take()) == b"EZ".repeat(MANY));
}

#[test]
fn messages_that_a_copy_ignores_do_not_delay_its_data() {
    let (_rig, client, server) = pair(PoolMode::Transaction);
    client.send([query("copy t from stdin")]);
    client.send(vec![sync(); MANY]);
    server.take();
    server.send([copy_in()]);
    client.send([copy_data("x"), copy_done()]);
    let mut rest = Vec::new();
    loop {
        let more = codes(&server.take());
        if more.is_empty() {
            break;
        }
        rest.extend(more);
    }
    let end = [frontend::COPY_DATA, frontend::COPY_DONE, frontend::FLUSH];
    assert!(rest.ends_with(&end), "{} messages", rest.len());
}
