//! Comma-separated values (RFC 4180), whose first line has the names of the columns.

use anyhow::bail;
use load::{Column, Outcome};

/// A column without a type.
const UNTYPED: u32 = 0;

pub(super) fn written(outcome: &Outcome) -> String {
    let columns = outcome.columns.iter().flatten();
    let names: Vec<_> = columns.map(|column| cell(&column.name)).collect();
    let mut text = names.join(",") + "\n";
    for row in &outcome.rows {
        let cells: Vec<_> =
            row.iter().map(|value| cell(value.as_deref().unwrap_or_default())).collect();
        text += &cells.join(",");
        text.push('\n');
    }
    text
}

fn cell(value: &str) -> String {
    match value.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}

/// Reads them. An empty value is NULL.
///
/// # Errors
/// When a line has more or fewer values than the first one, or a quote is not closed.
pub(super) fn read(text: &str) -> anyhow::Result<Outcome> {
    let mut lines = lines(text)?.into_iter();
    let Some(names) = lines.next() else { bail!("it is empty") };
    let columns: Vec<_> =
        names.into_iter().map(|name| Column { name, type_oid: UNTYPED }).collect();
    let mut rows = Vec::new();
    for line in lines {
        if line.len() != columns.len() {
            bail!("row {} has {} values, not {}", rows.len() + 1, line.len(), columns.len());
        }
        rows.push(line.into_iter().map(|value| (!value.is_empty()).then_some(value)).collect());
    }
    Ok(Outcome { columns: Some(columns), rows, ..Outcome::default() })
}

fn lines(text: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let (mut lines, mut line, mut value) = (Vec::new(), Vec::new(), String::new());
    let mut is_quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                value.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => line.push(std::mem::take(&mut value)),
            '\r' if !is_quoted && letters.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                line.push(std::mem::take(&mut value));
                lines.push(std::mem::take(&mut line));
            }
            letter => value.push(letter),
        }
    }
    if is_quoted {
        bail!("a quote is not closed");
    }
    if !value.is_empty() || !line.is_empty() {
        line.push(value);
        lines.push(line);
    }
    Ok(lines)
}
