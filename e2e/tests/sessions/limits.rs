//! The stated limits of auto mode (`docs/auto-mode.md`), of direct pools (`docs/direct.md`) and of
//! reads on standbys (`docs/routing.md`).

use testkit::Message;

use crate::path::DataPath;
use crate::script::Script;
use crate::texts::LOGIN_VALUES;

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

/// Returns whether this step is the first one after the beginning of a READ ONLY transaction.
fn is_first(script: &Script, number: usize) -> bool {
    let session = script.steps[number].session;
    let mut before = script.steps[..number].iter().rev();
    let before = before.find(|step| step.session == session);
    before.is_some_and(|step| step.says("read only"))
}

/// Returns the name of the stated limit that explains this difference of a step.
pub(crate) fn limit(
    path: DataPath,
    script: &Script,
    number: usize,
    direct: &[Message],
    through: &[Message],
) -> Option<&'static str> {
    let step = &script.steps[number];
    let has_any = |messages, codes: &[&str]| codes.iter().any(|code| has_error(messages, code));
    // The operator of an earlier script may have changed it within the last second.
    if has_error(through, "the role has been renamed or dropped") {
        return Some("a login just after a change of the role");
    }
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
    let recovers = " during recovery";
    if path == DataPath::Standbys && has_error(through, recovers) && !is_first(script, number) {
        return Some("a READ ONLY transaction on a standby");
    }
    let unnamed = " 26000 unnamed prepared statement ";
    if path == DataPath::Direct && has_error(through, unnamed) && !has_error(direct, unnamed) {
        return Some("an unnamed statement that no backend restores");
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
    if script.shares_names && (has_any(direct, &OF_NAMES) || has_any(through, &OF_NAMES)) {
        return Some("a name of SQL's PREPARE and of the protocol");
    }
    None
}
