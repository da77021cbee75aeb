use super::*;
use crate::pattern::{PATTERNS, Pattern};
use crate::server::{Session, session};
use crate::traffic::Credentials;

fn traffic(work: Work) -> Traffic {
    Traffic::new(work, Credentials::new("bench", "bench", "secret"))
}

/// Returns a client that has logged in at `session`.
fn logged_in(session: &mut Session, traffic: &mut Traffic) -> Client {
    let mut sent = Vec::new();
    let mut client = Client::start(traffic, &mut sent);
    deliver(session, &mut client, traffic, sent).unwrap();
    client
}

/// Passes bytes between the client and the session until neither sends any more.
fn deliver(
    session: &mut Session,
    client: &mut Client,
    traffic: &mut Traffic,
    mut sent: Vec<u8>,
) -> Result<()> {
    while !sent.is_empty() {
        let mut answer = Vec::new();
        session.feed(&sent, &mut answer);
        loop {
            let mut piece = Vec::new();
            session.refill(&mut piece);
            if piece.is_empty() {
                break;
            }
            answer.append(&mut piece);
        }
        sent.clear();
        let used = client.handle(&answer, traffic, &mut sent)?;
        assert_eq!(used, answer.len());
        if session.is_closed() {
            client.handle_end(traffic)?;
        }
    }
    Ok(())
}

fn answer_to(session: &mut Session, sent: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    session.feed(sent, &mut answer);
    answer
}

#[test]
fn every_protocol_gets_its_answer() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        let mut traffic = traffic(Work::Query(protocol));
        let mut session = session(1);
        let mut client = logged_in(&mut session, &mut traffic);
        assert_eq!((traffic.ready, traffic.logging_in), (1, 0));
        for done in 1..=3 {
            let mut sent = Vec::new();
            client.ask(&mut traffic, &mut sent);
            deliver(&mut session, &mut client, &mut traffic, sent).unwrap();
            assert_eq!(traffic.transactions, done, "{protocol:?}");
        }
    }
}

#[test]
fn a_large_result_is_counted_in_bytes() {
    let mut traffic = traffic(Work::Bulk { row_bytes: 100, total_bytes: 200_000 });
    let mut session = session(1);
    let mut client = logged_in(&mut session, &mut traffic);
    let mut sent = Vec::new();
    client.ask(&mut traffic, &mut sent);
    deliver(&mut session, &mut client, &mut traffic, sent).unwrap();
    assert_eq!((traffic.transactions, traffic.bytes), (1, 200_000));
}

#[test]
fn a_login_counts_when_the_pooler_has_closed() {
    let mut traffic = traffic(Work::Login);
    logged_in(&mut session(1), &mut traffic);
    assert_eq!((traffic.logins, traffic.logging_in, traffic.ready), (1, 0, 0));
}

#[test]
fn any_changed_byte_of_an_answer_is_noticed() {
    let mut position = 0;
    loop {
        let mut traffic = traffic(Work::Query(Protocol::Simple));
        let mut session = session(1);
        let mut client = logged_in(&mut session, &mut traffic);
        let mut sent = Vec::new();
        client.ask(&mut traffic, &mut sent);
        let mut answer = answer_to(&mut session, &sent);
        let Some(byte) = answer.get_mut(position) else { break };
        *byte ^= 1;
        // A larger length makes an answer that never ends. Any other change is an error.
        let result = client.handle(&answer, &mut traffic, &mut Vec::new());
        assert!(result.is_err() || traffic.transactions == 0, "byte {position}");
        position += 1;
    }
    assert!(position > 60);
}

#[test]
fn the_answer_to_another_client_is_an_error() {
    let mut traffic = traffic(Work::Query(Protocol::Simple));
    let mut session = session(1);
    let mut client = logged_in(&mut session, &mut traffic);
    client.ask(&mut traffic, &mut Vec::new());
    let mut other = Vec::new();
    ask_number(Protocol::Simple, traffic.next_number(), "", &mut other);
    let answer = answer_to(&mut session, &other);
    let error = client.handle(&answer, &mut traffic, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("wrong answer: got D"), "{error}");
}

#[test]
fn ready_before_authentication_is_an_error() {
    let mut traffic = traffic(Work::Query(Protocol::Simple));
    let mut client = Client::start(&mut traffic, &mut Vec::new());
    let error = client.handle(b"Z\0\0\0\x05I", &mut traffic, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("without AuthenticationOk"), "{error}");
}

#[test]
fn errors_and_early_ends_name_the_awaited_answer() {
    let mut traffic = traffic(Work::Query(Protocol::Simple));
    let mut client = Client::start(&mut traffic, &mut Vec::new());
    let mut bytes = Vec::new();
    put(&mut bytes, b'E', &[b"SFATAL\0C08P01\0Mno more connections allowed\0\0"]);
    let error = client.handle(&bytes, &mut traffic, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "FATAL 08P01 no more connections allowed in answer to a login");
    let error = client.handle_end(&mut traffic).unwrap_err();
    assert!(error.to_string().ends_with("waiting for login"), "{error}");
}

#[test]
fn a_client_refuses_an_answer_with_other_settings() {
    let mut traffic = traffic(Work::Query(Protocol::Simple));
    traffic.sessions.groups = 2;
    let (mut session, mut other) = (session(1), session(2));
    let mut client = logged_in(&mut session, &mut traffic);
    logged_in(&mut other, &mut traffic);
    let mut sent = Vec::new();
    client.ask(&mut traffic, &mut sent);
    deliver(&mut session, &mut client, &mut traffic, sent).unwrap();
    assert_eq!(traffic.transactions, 1);
    let mut sent = Vec::new();
    client.ask(&mut traffic, &mut sent);
    assert!(deliver(&mut other, &mut client, &mut traffic, sent).is_err());
}

#[test]
fn a_flood_is_counted_when_all_of_it_is_answered() {
    for pattern in PATTERNS {
        let work = Work::Flood { pattern, messages: 10_000 };
        let mut traffic = traffic(work);
        let mut session = session(1);
        let mut client = logged_in(&mut session, &mut traffic);
        let mut sent = Vec::new();
        client.ask(&mut traffic, &mut sent);
        while !sent.is_empty() {
            assert_eq!(traffic.transactions, 0, "{pattern:?}");
            deliver(&mut session, &mut client, &mut traffic, std::mem::take(&mut sent)).unwrap();
            client.refill(&mut sent);
        }
        assert_eq!(traffic.transactions, 10_000, "{pattern:?}");
        assert!(client.is_idle());
    }
}

#[test]
fn a_missing_answer_to_a_flood_is_an_error() {
    let mut traffic = traffic(Work::Flood { pattern: Pattern::EmptyQuery, messages: 10 });
    let mut session = session(1);
    let mut client = logged_in(&mut session, &mut traffic);
    let mut sent = Vec::new();
    client.ask(&mut traffic, &mut sent);
    let answer = answer_to(&mut session, &sent);
    let first = Frame::split(&answer).unwrap().unwrap().1;
    assert!(client.handle(&answer[first..], &mut traffic, &mut Vec::new()).is_err());
}
