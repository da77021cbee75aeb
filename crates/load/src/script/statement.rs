//! One SQL command of a script, with the positions of its variables.

use crate::names::{Names, Slot, name_len};

/// pgbench's limit on parameters of a statement.
const PARAMETERS_MAX: usize = 255;

#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The text for the simple protocol, split where values are inserted.
    pub(crate) pieces: Vec<Piece>,
    /// The text for the other protocols, with `$1`, `$2`, …
    pub(crate) text: Vec<u8>,
    /// The variables that are its parameters.
    pub(crate) parameters: Vec<Slot>,
    /// Its number among the statements of the script.
    pub(crate) number: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// The value, or the name unchanged if there is no such variable.
    Variable(Slot),
}

impl Statement {
    /// # Errors
    /// When it has too many variables.
    pub(crate) fn new(sql: &str, number: usize, names: &mut Names) -> Result<Self, String> {
        let mut statement =
            Self { pieces: Vec::new(), text: Vec::new(), parameters: Vec::new(), number };
        let mut rest = sql;
        while let Some((before, name, after)) = next_variable(rest) {
            let slot = names.slot(name);
            statement.pieces.push(Piece::Text(before.to_owned()));
            statement.pieces.push(Piece::Variable(slot));
            statement.parameters.push(slot);
            let parameter = format!("${}", statement.parameters.len());
            statement.text.extend_from_slice(before.as_bytes());
            statement.text.extend_from_slice(parameter.as_bytes());
            rest = after;
        }
        statement.pieces.push(Piece::Text(rest.to_owned()));
        statement.text.extend_from_slice(rest.as_bytes());
        if statement.parameters.len() > PARAMETERS_MAX {
            return Err(format!("statement has too many arguments (maximum is {PARAMETERS_MAX})"));
        }
        Ok(statement)
    }
}

/// Returns the text before the next `:name`, the name, and the text after it. A name does not begin
/// with a digit, so `12:30` remains a time. It does not follow a second colon, so `::int` remains a
/// cast. As in pgbench, quotes are ignored.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == b':')?;
        let name_at = at + 1;
        let len = name_len(&bytes[name_at..]);
        if len > 0 && !bytes[name_at].is_ascii_digit() {
            return Some((&text[..at], &text[name_at..name_at + len], &text[name_at + len..]));
        }
        at += bytes[at..].iter().take_while(|byte| **byte == b':').count();
        // Several colons are not followed by a variable.
        if at > name_at {
            at += name_len(&bytes[at..]);
        }
    }
}
