//! Formats results of the console: as tables like psql, or as JSON.

use std::fmt::Write as _;

use load::{Column, Outcome};
use serde_json::Value;

/// The OIDs of `int8`, `int2`, `int4` and `numeric`.
const NUMBERS: [u32; 4] = [20, 21, 23, 1700];

/// Returns psql's output: a table, or the tag of a command without rows.
pub(super) fn tables(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        match &outcome.columns {
            Some(columns) => table(&mut text, columns, &outcome.rows),
            None => text += &format!("{}\n", outcome.tag),
        }
    }
    text
}

fn table(out: &mut String, columns: &[Column], rows: &[Vec<Option<String>>]) {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|value| shown(value.as_deref())).collect()).collect();
    let width = |at: usize| {
        let values = cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        values.max().unwrap_or(0).max(columns[at].name.chars().count())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let heads: Vec<String> = columns
        .iter()
        .zip(&widths)
        .map(|(column, width)| format!(" {:^width$} ", column.name))
        .collect();
    let lines: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let _ = writeln!(out, "{}\n{}", heads.join("|"), lines.join("+"));
    for row in &cells {
        let cell = |((cell, column), width): ((&String, &Column), &usize)| match is_number(column) {
            true => format!(" {cell:>width$} "),
            false => format!(" {cell:<width$} "),
        };
        let row: Vec<String> = row.iter().zip(columns).zip(&widths).map(cell).collect();
        let _ = writeln!(out, "{}", row.join("|").trim_end());
    }
    let plural = if rows.len() == 1 { "" } else { "s" };
    let _ = writeln!(out, "({} row{plural})\n", rows.len());
}

/// Replaces control characters, since clients choose some of the shown names and must not control
/// the terminal.
fn shown(value: Option<&str>) -> String {
    value.unwrap_or_default().replace(char::is_control, "?")
}

fn is_number(column: &Column) -> bool {
    NUMBERS.contains(&column.type_oid)
}

/// Returns an array with one object for each row. The order of its members is that of the columns.
pub(crate) fn json(outcomes: &[Outcome]) -> String {
    let mut objects = Vec::new();
    for outcome in outcomes {
        for row in &outcome.rows {
            let columns = outcome.columns.iter().flatten();
            let members: Vec<String> = columns
                .zip(row)
                .map(|(column, value)| {
                    let name = Value::from(column.name.as_str());
                    format!("{name}: {}", member(column, value.as_deref()))
                })
                .collect();
            objects.push(format!("  {{{}}}", members.join(", ")));
        }
    }
    if objects.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", objects.join(",\n")) }
}

fn member(column: &Column, value: Option<&str>) -> Value {
    let Some(text) = value else { return Value::Null };
    // Numbers that JSON cannot represent stay text.
    let number = || serde_json::from_str(text).ok().filter(Value::is_number);
    is_number(column).then(number).flatten().unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let column = |name: &str, type_oid| Column { name: name.to_owned(), type_oid };
        let row = |database: Option<&str>, wait: &str| {
            vec![database.map(str::to_owned), Some(wait.to_owned())]
        };
        Outcome {
            columns: Some(vec![column("db", 25), column("maxwait", 23)]),
            rows: vec![row(Some("shop\x1b[2J"), "7"), row(None, "12")],
            tag: "SHOW".to_owned(),
        }
    }

    #[test]
    fn a_table_is_psqls() {
        let text = tables(&[outcome()]);
        let expected = "    db    | maxwait \n\
                        ----------+---------\n \
                        shop?[2J |       7\n          \
                        |      12\n\
                        (2 rows)\n\n";
        assert_eq!(text, expected);
        let tag = Outcome { tag: "PAUSE".to_owned(), ..Outcome::default() };
        assert_eq!(tables(&[tag]), "PAUSE\n");
    }

    #[test]
    fn json_has_numbers_and_nulls_and_escapes() {
        let text = json(&[outcome()]);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["db"], "shop\x1b[2J");
        assert_eq!((&read[0]["maxwait"], &read[1]["db"]), (&Value::from(7), &Value::Null));
        assert!(text.find("\"db\"") < text.find("\"maxwait\""), "{text}");
        assert_eq!(json(&[Outcome::default()]), "[]\n");
    }
}
