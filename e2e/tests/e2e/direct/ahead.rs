//! A client that sends without waiting for answers takes turns with others.

use std::time::Duration;

use testkit::{RawClient, frontend};

use super::Direct;
use crate::pool::fairness::{ENDLESS, batch, longest_wait};
use crate::support;

#[test]
fn an_endless_pipeline_takes_turns_with_other_direct_clients_core() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(1);
    for texts in ENDLESS {
        let simple: Vec<u8> = texts.iter().flat_map(|text| frontend::query(text)).collect();
        let batches: Vec<u8> = texts.iter().flat_map(|text| batch(text)).collect();
        for requests in [simple, batches] {
            let mut other = direct.client();
            let wait = longest_wait(direct.client(), &mut other, &requests);
            assert!(wait < Duration::from_secs(1), "{texts:?}: {wait:?}");
        }
    }
}

/// Every answer of a long pipeline comes, in order, whatever it consists of.
#[test]
fn a_pipeline_that_is_read_in_parts_is_answered_in_order() {
    if !support::only_weir() {
        return;
    }
    const REQUESTS: usize = 3_000;
    let direct = Direct::start(1);
    let mut other = direct.client();
    let mut client = direct.client();
    client.rows("CREATE TABLE copied (n int)");
    let mut writer = client.writer();
    let requests: Vec<u8> = (0..REQUESTS).flat_map(request).collect();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &requests).expect("it is read"));
        for number in 0..REQUESTS {
            if number % 100 == 0 {
                other.rows("SET work_mem = '5MB'");
            }
            expect(&mut client, number);
        }
    });
    assert_eq!(client.value("SELECT count(*) FROM copied"), (REQUESTS / 10).to_string());
}

fn request(number: usize) -> Vec<u8> {
    match number % 10 {
        0 => [
            frontend::query("COPY copied FROM STDIN"),
            frontend::copy_data(format!("{number}\n").as_bytes()),
            frontend::copy_done(),
        ]
        .concat(),
        1 => [frontend::query("BEGIN"), batch(&format!("SELECT {number}")), frontend::query("END")]
            .concat(),
        2 => batch("SELECT 1/0"),
        3 => batch(&format!("SELECT {number}, repeat('x', 9000)")),
        4 => frontend::query(&format!("SELECT {number} /* {} */", "x".repeat(9_000))),
        _ => frontend::query(&format!("SELECT {number}")),
    }
}

/// Reads the answer to that request.
fn expect(client: &mut RawClient, number: usize) {
    let count = if number % 10 == 1 { 3 } else { 1 };
    let mut answers = Vec::new();
    for _ in 0..count {
        answers.extend(client.read_to_ready());
    }
    let error = answers.iter().find_map(|message| message.error());
    let row = answers.iter().find(|message| message.tag == b'D').map(|message| message.row());
    match number % 10 {
        0 => assert!(error.is_none(), "{number}: {error:?}"),
        2 => assert_eq!(error.expect("an error").code(), "22012", "{number}"),
        _ => assert_eq!(row.expect("a row")[0], Some(number.to_string())),
    }
}
