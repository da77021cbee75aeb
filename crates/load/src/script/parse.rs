//! Parses the text of a script into actions.

use std::fmt;

use super::{
    Action, Script, Statement,
    split::{Raw, Split},
};
use crate::{
    expr,
    names::{Names, name_len},
};

/// An error in a script, in pgbench's words if it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptError {
    file: String,
    line: usize,
    reason: String,
    /// The command's name, without its backslash.
    command: String,
    /// The text of the command, and the position of the error in it.
    shown: Option<(String, usize)>,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)?;
        if !self.command.is_empty() {
            write!(f, " in command \"{}\"", self.command)?;
        }
        if let Some((text, at)) = &self.shown {
            write!(f, "\n{text}\n{:at$}^ error found here", "")?;
        }
        Ok(())
    }
}

/// Reads a script. Its variables get slots of `names`.
///
/// # Errors
/// The error and its position.
pub(crate) fn parse(name: &str, text: &str, names: &mut Names) -> Result<Script, ScriptError> {
    let mut script = Script { name: name.to_owned(), actions: Vec::new(), statements: 0 };
    for (line, raw) in Split::new(text) {
        let action = match raw {
            Raw::Sql(sql) => {
                script.statements += 1;
                let statement = Statement::new(sql, script.statements - 1, names);
                statement.map(Action::Sql).map_err(Wrong::new)
            }
            Raw::Backslash(text) => backslash(text, names),
        };
        script.actions.push(action.map_err(|wrong| wrong.at(name, line, raw))?);
    }
    if script.actions.is_empty() {
        return Err(Wrong::new("script has no commands").at(name, 1, Raw::Sql("")));
    }
    Ok(script)
}

/// An error in one command, and its position there.
struct Wrong {
    reason: String,
    at: Option<usize>,
}

impl Wrong {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), at: None }
    }

    fn at(self, file: &str, line: usize, raw: Raw<'_>) -> ScriptError {
        let (command, text) = match raw {
            Raw::Sql(_) => (String::new(), None),
            Raw::Backslash(text) => (words(text).0.to_owned(), Some(text)),
        };
        let shown = match (self.at, text) {
            (Some(at), Some(text)) if !text[..at].contains('\n') => Some((text.to_owned(), at)),
            _ => None,
        };
        ScriptError { file: file.to_owned(), line, reason: self.reason, command, shown }
    }
}

fn backslash(text: &str, names: &mut Names) -> Result<Action, Wrong> {
    let (command, arguments) = words(text);
    match command {
        "set" => set(text, arguments, names),
        "sleep" => sleep(arguments),
        _ => Err(Wrong::new("invalid command")),
    }
}

/// A backslash at the end of a line counts as a blank.
fn set(text: &str, arguments: &str, names: &mut Names) -> Result<Action, Wrong> {
    let (name, expression) = words(arguments);
    let one_line = expression.replace("\\\r\n", "   ").replace("\\\n", "  ");
    if one_line.trim().is_empty() {
        return Err(Wrong::new("missing argument"));
    }
    if name_len(name.as_bytes()) != name.len() {
        return Err(Wrong::new(format!("invalid variable name: \"{name}\"")));
    }
    let at = text.len() - expression.len();
    let expr = expr::parse(&one_line, names);
    let expr = expr.map_err(|error| Wrong { reason: error.reason, at: Some(at + error.at) })?;
    Ok(Action::Set(names.slot(name), expr))
}

/// A unit may follow its number directly, as in `10ms`.
fn sleep(arguments: &str) -> Result<Action, Wrong> {
    let arguments = arguments.trim();
    let (amount, unit) =
        arguments.split_at(arguments.bytes().take_while(u8::is_ascii_digit).count());
    if arguments.is_empty() {
        return Err(Wrong::new("missing argument"));
    }
    let amount: u64 =
        amount.parse().map_err(|_| Wrong::new("invalid sleep time, must be an integer"))?;
    let unit_us = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "s" => 1_000_000,
        "ms" => 1_000,
        "us" => 1,
        _ => return Err(Wrong::new("unrecognized time unit, must be us, ms or s")),
    };
    Ok(Action::Sleep(amount.saturating_mul(unit_us)))
}

/// Returns the first word, without a leading backslash, and the rest.
fn words(text: &str) -> (&str, &str) {
    let text = text.trim_start().trim_start_matches('\\');
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    text.split_at(end)
}
