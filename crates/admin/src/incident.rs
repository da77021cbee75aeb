//! The page of `weir report`: one self-contained HTML file with the last hour. It has no script and
//! loads nothing. Every text in it is escaped: names come from clients.

mod plot;

use std::fmt::Write as _;

use crate::recording::Recording;
use crate::show::{self, Show, View};
use crate::snapshot::Snapshot;

/// The answer to a SHOW, as text. The columns are those of the pooler that has answered.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

impl Answer {
    /// Returns the value of a row in the column of this name; empty if there is none.
    fn text<'a>(&self, row: &'a [Option<String>], column: &str) -> &'a str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| row.get(at)?.as_deref()).unwrap_or_default()
    }

    /// Returns the value in the column of this name as a number; 0 if it is none.
    fn number(&self, row: &[Option<String>], column: &str) -> i64 {
        self.text(row, column).parse().unwrap_or(0)
    }
}

/// The tables of the page, in their order. The names are those of the SHOW commands.
const TABLES: [&str; 6] = ["EVENTS", "WAITS", "SLOW", "PINS", "POOLS", "STATE"];
const VERSION: &str = "VERSION";
const RECORDER: &str = "RECORDER";

const STYLE: &str = "body{font:14px sans-serif;margin:2em}p{max-width:75em}h1,h2{font-weight:600}\
    table{border-collapse:collapse;font-size:12px;width:max-content}td,th{border:1px solid #ccc;padding:2px 6px;\
    text-align:left;white-space:pre-wrap;max-width:40em;overflow-wrap:break-word}th{background:#eee}\
    .scroll{overflow-x:auto}svg{background:#fafafa;border:1px solid #ccc}\
    svg text{font:10px sans-serif}";

/// The content of the page.
#[derive(Debug)]
pub struct Incident {
    /// Why and when it was made, as a sentence.
    pub made: String,
    version: String,
    recorder: Answer,
    tables: Vec<(&'static dyn Show, Answer)>,
}

impl Incident {
    /// Asks for each table by a command of the console.
    ///
    /// # Errors
    /// The first error of `ask`.
    pub fn gather<E>(
        made: String,
        mut ask: impl FnMut(&str) -> Result<Answer, E>,
    ) -> Result<Self, E> {
        let mut show = |name: &str| ask(&format!("SHOW {name} EXTENDED"));
        let version = show(VERSION)?.rows.concat().into_iter().flatten().collect();
        let recorder = show(RECORDER)?;
        let mut tables = Vec::new();
        for table in TABLES.iter().filter_map(|name| show::find(name)) {
            tables.push((table, show(table.name())?));
        }
        Ok(Self { made, version, recorder, tables })
    }

    /// Takes each table from a copy of the state, without the console.
    #[must_use]
    pub fn of(made: String, snapshot: &Snapshot, recording: &Recording) -> Self {
        let rows = |command: &str| {
            let mut answer = Answer::default();
            let name =
                command.strip_prefix("SHOW ").and_then(|rest| rest.strip_suffix(" EXTENDED"));
            let Some(table) = name.and_then(show::find) else {
                return Ok::<_, std::convert::Infallible>(answer);
            };
            let heads = table.heads();
            answer.columns = heads.iter().map(|head| head.name.to_owned()).collect();
            let view = View {
                snapshot: snapshot.clone(),
                recording: recording.clone(),
                consoles: Vec::new(),
                sessions: 0,
                logins: 0,
                has_own: true,
            };
            table.rows(view, &mut |cells| {
                let texts = cells.iter().zip(&heads).map(|(cell, head)| {
                    let bytes = cell.to_text_bytes(head.kind)?;
                    Some(String::from_utf8_lossy(&bytes).into_owned())
                });
                answer.rows.push(texts.collect());
            });
            Ok(answer)
        };
        match Self::gather(made, rows) {
            Ok(incident) => incident,
        }
    }

    #[must_use]
    pub fn page(&self) -> String {
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <title>Weir: incident report</title><style>{STYLE}</style></head><body>\n\
             <h1>Incident report</h1>\n<p>{}</p>\n<p>{}</p>\n",
            escaped(&self.made),
            escaped(&self.version)
        );
        page += "<h2>The last hour</h2>\n";
        let events = self.tables.iter().find(|(table, _)| table.name() == "EVENTS");
        if let Some((_, events)) = events {
            page += &plot::all(&self.recorder, events);
        }
        for (table, answer) in &self.tables {
            write_table(&mut page, *table, answer);
        }
        page += "</body></html>\n";
        page
    }
}

fn write_table(page: &mut String, table: &dyn Show, answer: &Answer) {
    let _ = write!(
        page,
        "<h2 id=\"{0}\">SHOW {1}</h2>\n<p>{2}</p>\n",
        table.name().to_ascii_lowercase(),
        table.name(),
        escaped(&table.about().replace('`', ""))
    );
    if answer.rows.is_empty() {
        *page += "<p>No row.</p>\n";
        return;
    }
    *page += "<div class=\"scroll\"><table><tr>";
    let heads = table.heads();
    for name in &answer.columns {
        let about = heads.iter().find(|head| head.name == name).map_or("", |head| head.about);
        let _ = write!(page, "<th title=\"{}\">{}</th>", escaped(about), escaped(name));
    }
    *page += "</tr>\n";
    for row in &answer.rows {
        *page += "<tr>";
        for value in row {
            let _ = write!(page, "<td>{}</td>", escaped(value.as_deref().unwrap_or_default()));
        }
        *page += "</tr>\n";
    }
    *page += "</table></div>\n";
}

/// Returns a text for HTML, in an element or in an attribute's quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests;
