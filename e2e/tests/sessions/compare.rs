//! What of two answers must be equal, and the stated limits of `pool_mode = auto`.

use testkit::Message;

use crate::script::Step;

/// The message without what may differ between two databases; `None` if it is compared elsewhere.
pub(crate) fn comparable(message: &Message) -> Option<Message> {
    let Message { tag, mut body } = message.clone();
    match tag {
        // Parameters are compared when the session is at rest, notifications at the end.
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

/// A column is its name, its table's number (4 bytes), and 14 bytes more.
fn clear_tables(body: &mut [u8]) {
    let mut at = 2;
    while let Some(length) = body.get(at..).and_then(|rest| rest.iter().position(|b| *b == 0)) {
        at += length + 1;
        body[at..at + 4].fill(0);
        at += 18;
    }
}

/// The number of a temporary schema is the backend's.
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

fn has_error(messages: &[Message], words: &str) -> bool {
    let mut errors = messages.iter().filter(|message| message.tag == b'E');
    errors.any(|error| String::from_utf8_lossy(&error.body).contains(words))
}

/// Errors about names of statements.
const OF_NAMES: [&str; 4] = [" 26000 ", " 42P05 ", " 0A000 ", " 25P02 "];

/// The name of the limit, stated in `docs/auto-mode.md`, that this difference is.
/// `shares_names`: SQL's PREPARE uses the names of the protocol's statements, too.
pub(crate) fn limit(
    step: &Step,
    shares_names: bool,
    direct: &[Message],
    through: &[Message],
) -> Option<&'static str> {
    let has_any = |messages, codes: &[&str]| codes.iter().any(|code| has_error(messages, code));
    let asks_for_a_number = step.says("currval") || step.says("lastval");
    if asks_for_a_number && has_any(through, &[" 55000 ", " 26000 "]) {
        return Some("a client's first currval or lastval");
    }
    let changed = "cached plan must not change result type";
    if has_error(direct, changed) != has_error(through, changed) {
        return Some("a changed table");
    }
    let missing = [" 3F000 ", " 42P01 ", " 42704 "];
    if step.says("pg_temp") && has_any(direct, &missing) && has_any(through, &missing) {
        return Some("the temporary schema");
    }
    if shares_names && (has_any(direct, &OF_NAMES) || has_any(through, &OF_NAMES)) {
        return Some("a name of SQL's PREPARE and of the protocol");
    }
    None
}
