//! The comparison of two answers.

use testkit::Message;

use crate::player::{Heard, Parameters, Rows, now};
use crate::script::{Check, Step};

/// Returns the message without the parts that may differ between two databases. Returns `None` if
/// it is compared elsewhere.
pub(crate) fn comparable(message: &Message) -> Option<Message> {
    let Message { tag, mut body } = message.clone();
    match tag {
        // Parameters are compared when the session is at rest, and notifications at the end.
        b'S' | b'A' => return None,
        b'T' => clear_tables(&mut body),
        b'E' | b'N' => {
            let error = message.error().expect("an error or a notice");
            let text = without_temporary_schema(error.message());
            body = format!("{} {} {text}", error.severity(), error.code()).into_bytes();
        }
        _ => {}
    }
    Some(Message { tag, body })
}

/// Clears the table ids. A column has its name, the id of its table (4 bytes), and 14 more bytes.
fn clear_tables(body: &mut [u8]) {
    let mut at = 2;
    while let Some(length) = body.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0)) {
        at += length + 1;
        body[at..at + 4].fill(0);
        at += 18;
    }
}

/// Removes the number of a temporary schema, which depends on the backend.
fn without_temporary_schema(text: &str) -> String {
    let mut parts = text.split("pg_temp_");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "pg_temp" + part.trim_start_matches(|letter: char| letter.is_ascii_digit())
    })
}

pub(crate) fn show(message: Option<&Message>) -> String {
    match message {
        Some(Message { tag: tag @ (b'E' | b'N'), body }) => {
            format!("{}: {}", char::from(*tag), String::from_utf8_lossy(body))
        }
        Some(message) => format!("{message:?}"),
        None => "nothing".to_owned(),
    }
}

/// Returns how the answers to a step differ from those of the direct connection. `rows` are other
/// rows that they may have.
pub(crate) fn difference(
    step: &Step,
    expected: &Heard,
    heard: &Heard,
    rows: &Rows,
) -> Option<String> {
    let (direct, through) = (&expected.replies, &heard.replies);
    let is_same = |(one, other): &(&Message, &Message)| {
        one == other
            || one.tag == b'D'
                && other.tag == b'D'
                && match step.check {
                    Check::Equal => false,
                    Check::Reading(_) => rows.contains(&other.body),
                    Check::Moment(_) => true,
                }
    };
    let same = direct.iter().zip(through).take_while(is_same).count();
    if same < direct.len().max(through.len()) || expected.status != heard.status {
        let [direct, through] = [direct.get(same), through.get(same)].map(show);
        return Some(format!("message {same}\n    direct:  {direct}\n    through: {through}"));
    }
    match step.check {
        Check::Moment(_) => through.iter().find_map(|message| misplaced(message, heard.moment)),
        Check::Equal | Check::Reading(_) => None,
    }
}

/// Returns why the time in a row is wrong.
fn misplaced(message: &Message, earliest: f64) -> Option<String> {
    if message.tag != b'D' {
        return None;
    }
    let value = message.row().into_iter().next().flatten().unwrap_or_default();
    let time: f64 = value.parse().ok()?;
    let is_right = (earliest..=now()).contains(&time);
    (!is_right).then(|| format!("the time is {:.6} s before the Parse", earliest - time))
}

/// Returns the parameters whose values differ from those on a direct connection.
pub(crate) fn misinformed(direct: &Parameters, through: &Parameters) -> Option<String> {
    let differing = direct.iter().filter_map(|(name, value)| {
        let other = through.get(name);
        (other != Some(value)).then(|| format!("{name}: direct {value:?}, through {other:?}"))
    });
    let differing: Vec<_> = differing.collect();
    (!differing.is_empty()).then(|| differing.join("; "))
}
