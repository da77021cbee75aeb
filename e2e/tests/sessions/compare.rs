//! The comparison of two answers, and the stated limits of `pool_mode = auto`.

use testkit::Message;

use crate::script::Step;
use crate::texts::LOGIN_VALUES;

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

fn has_error(messages: &[Message], words: &str) -> bool {
    let mut errors = messages.iter().filter(|message| message.tag == b'E');
    errors.any(|error| String::from_utf8_lossy(&error.body).contains(words))
}

/// Returns whether a row of one column has this value.
fn has_row(messages: &[Message], value: &str) -> bool {
    let length = (value.len() as u32).to_be_bytes();
    let body = [&[0, 1], &length[..], value.as_bytes()].concat();
    messages.iter().any(|message| message.tag == b'D' && message.body == body)
}

/// SQLSTATEs of errors about names of statements.
const OF_NAMES: [&str; 4] = [" 26000 ", " 42P05 ", " 0A000 ", " 25P02 "];

/// Returns the name of the limit in `docs/auto-mode.md` that explains this difference.
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
    if has_error(direct, changed) && !has_error(through, changed) {
        return Some("a changed table");
    }
    let within_a_text = step.says("to default; show");
    let by_null = LOGIN_VALUES
        .iter()
        .any(|(value, default)| has_row(direct, value) && has_row(through, default));
    if within_a_text || by_null {
        return Some("a default within a transaction");
    }
    let describes = direct.iter().any(|message| message.tag == b't');
    if (describes || has_error(direct, "bind message supplies")) && has_error(through, " 25P02 ") {
        return Some("a Bind or Describe in a failed transaction");
    }
    if step.says("prepare r") && has_error(direct, " 42P05 ") && !has_any(through, &["ERROR"]) {
        return Some("a statement that cannot be prepared at present");
    }
    if !has_error(direct, " 34000 ") && has_error(through, " 34000 portal \"\" ") {
        return Some("the unnamed portal");
    }
    let missing = [" 3F000 ", " 42P01 ", " 42704 "];
    if step.says("pg_temp") && has_any(direct, &missing) && has_any(through, &missing) {
        return Some("the temporary schema");
    }
    let names_by_sql = ["execute", "deallocate", "prepare"].iter().any(|word| step.says(word));
    let runs_missing = has_error(direct, " 26000 ") && !has_any(through, &["ERROR"]);
    if runs_missing && !names_by_sql {
        return None;
    }
    if shares_names && (has_any(direct, &OF_NAMES) || has_any(through, &OF_NAMES)) {
        return Some("a name of SQL's PREPARE and of the protocol");
    }
    None
}
