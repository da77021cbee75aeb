//! The output as lines that can be compared, without the parts that differ from run to run.

use testkit::{Message, ServerError};

/// Columns of console tables whose values are not compared. Their names and types are.
const MASKED_COLUMNS: [&str; 24] = [
    "ptr",
    "link",
    "connect_time",
    "request_time",
    "wait",
    "wait_us",
    "maxwait",
    "maxwait_us",
    "local_port",
    "port",
    "remote_pid",
    "fd",
    "cancel",
    "size",
    "used",
    "free",
    "memtotal",
    "recv_pos",
    "pkt_pos",
    "id",
    "ttl",
    "avg_wait_time",
    "wait_time",
    "total_wait_time",
];
/// Columns of times and traffic, of which only is compared whether they are 0.
const MEASURED: [&str; 4] = ["_time", "_recv", "_sent", "_bytes"];

/// Beginnings of log lines that are not compared, since they describe internals.
const UNTOLD: [&str; 2] = ["DEBUG ", "NOISE "];

/// One part of the output.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Line(String),
    /// A table of the console. A later version may have more columns.
    Table {
        columns: Vec<(String, u32)>,
        rows: Vec<Vec<Option<String>>>,
    },
}

/// Returns messages as replies. `console` combines rows into tables.
pub(super) fn replies(messages: &[Message], console: bool) -> Vec<Reply> {
    let mut replies = Vec::new();
    let mut parameters = Vec::new();
    for message in messages {
        if message.tag == b'S' {
            let (key, value) = message.parameter();
            // With application_name_add_host it contains the port.
            let value = value.split_once(" - 127.0.0.1:").map_or(&*value, |(name, _)| name);
            parameters.push(format!("parameter {key}={value}"));
            continue;
        }
        // The order of parameters is not defined.
        parameters.sort();
        replies.extend(parameters.drain(..).map(Reply::Line));
        match message.tag {
            b'T' if console => {
                let columns = message.columns().into_iter().zip(message.column_types()).collect();
                replies.push(Reply::Table { columns, rows: Vec::new() });
            }
            b'D' if console => match replies.last_mut() {
                Some(Reply::Table { rows, .. }) => rows.push(message.row()),
                _ => replies.push(Reply::Line("a row without columns".to_owned())),
            },
            _ => replies.push(Reply::Line(line(message))),
        }
    }
    replies
}

pub(super) fn line(message: &Message) -> String {
    match message.tag {
        b'E' => format!("error {}", fields(&message.error().expect("an error"))),
        b'N' => format!("notice {}", fields(&message.error().expect("a notice"))),
        b'R' => authentication(&message.body),
        b'K' => format!("key of {} bytes", message.body.len()),
        _ => format!("{message:?}"),
    }
}

/// Returns all fields except the place in PostgreSQL's source.
fn fields(error: &ServerError) -> String {
    let fields = error.fields.iter().filter(|(tag, _)| !"LFR".contains(*tag));
    fields.map(|(tag, text)| format!("{tag}[{text}]")).collect::<Vec<_>>().join(" ")
}

fn authentication(body: &[u8]) -> String {
    match body {
        [0, 0, 0, 10, names @ ..] => format!("authentication 10 {}", names.escape_ascii()),
        [0, 0, 0, code, rest @ ..] => format!(
            "authentication {code} and {} bytes",
            match code {
                // The length of a SCRAM challenge depends on its random part.
                11 => 0,
                _ => rest.len(),
            }
        ),
        _ => format!("authentication {}", body.escape_ascii()),
    }
}

/// Returns two replies at the same place as lines. Rows contain the columns that both have.
pub(super) fn lines(theirs: &[Reply], ours: &[Reply]) -> [Vec<String>; 2] {
    let columns = |replies: &[Reply]| -> Vec<Vec<String>> {
        let tables = replies.iter().filter_map(|reply| match reply {
            Reply::Table { columns, .. } => Some(columns.iter().map(|c| c.0.clone()).collect()),
            Reply::Line(_) => None,
        });
        tables.collect()
    };
    let (one, other) = (columns(theirs), columns(ours));
    let nothing = Vec::new();
    let common: Vec<Vec<String>> = one
        .iter()
        .enumerate()
        .map(|(n, names)| {
            let others = other.get(n).unwrap_or(&nothing);
            names.iter().filter(|name| others.contains(name)).cloned().collect()
        })
        .collect();
    [theirs, ours].map(|replies| as_lines(replies, &common))
}

fn as_lines(replies: &[Reply], common: &[Vec<String>]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut tables = common.iter();
    for reply in replies {
        match reply {
            Reply::Line(line) => lines.push(line.clone()),
            Reply::Table { columns, rows } => {
                let wanted = tables.next().map_or(&[][..], Vec::as_slice);
                lines.extend(columns.iter().map(|(name, oid)| format!("column {name} {oid}")));
                lines.extend(rows.iter().map(|row| row_line(columns, row, wanted)));
            }
        }
    }
    lines
}

fn row_line(columns: &[(String, u32)], row: &[Option<String>], wanted: &[String]) -> String {
    let mut line = "row".to_owned();
    let cell = |name: &str| {
        let index = columns.iter().position(|(other, _)| other == name);
        index.and_then(|index| row.get(index)?.as_deref())
    };
    for name in wanted {
        // SHOW TOTALS has rows for the columns of other tables.
        let counter = cell("name").filter(|_| name == "value").unwrap_or(name);
        line += &format!(" {name}={}", masked(counter, cell(name)));
    }
    line
}

fn masked(column: &str, value: Option<&str>) -> String {
    let measured = MEASURED.iter().any(|end| column.ends_with(end));
    // A rate per second depends on the moment.
    let rate = column.starts_with("avg_");
    match value {
        None => "NULL".to_owned(),
        Some(_) if rate || MASKED_COLUMNS.contains(&column) => "*".to_owned(),
        Some("0") => "0".to_owned(),
        Some(_) if measured => "*".to_owned(),
        Some(value) => value.to_owned(),
    }
}

/// Returns the different lines of a log, without time, process, addresses and numbers.
pub(super) fn log_lines(text: &str) -> Vec<Reply> {
    let told =
        |line: &String| !line.is_empty() && !UNTOLD.iter().any(|start| line.starts_with(start));
    let mut lines: Vec<String> = text.lines().map(log_line).filter(told).collect();
    lines.sort();
    lines.dedup();
    lines.into_iter().map(|line| Reply::Line(format!("log {line}"))).collect()
}

fn log_line(line: &str) -> String {
    // 2026-01-31 12:00:00.123 UTC [123] LOG …
    let stamped = line.starts_with(|c: char| c.is_ascii_digit());
    let line = line.split_once("] ").filter(|_| stamped).map_or(line, |(_, rest)| rest);
    // DEBUG-like places of the C source: @file:line in function f(): …
    let line = match line.split_once('@') {
        Some((head, rest)) if rest.contains(" in function ") => {
            let tail = rest.split_once("): ").map_or("", |(_, tail)| tail);
            format!("{head}@ {tail}")
        }
        _ => line.to_owned(),
    };
    mask_numbers(&line)
}

/// Replaces every number, decimal or hexadecimal after `0x`, by `N`.
fn mask_numbers(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        masked += &rest[..start];
        let tail = &rest[start..];
        let digits = |text: &str, hex: bool| {
            let is = |c: char| if hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
            text.find(|c| !is(c)).unwrap_or(text.len())
        };
        let end = match tail.strip_prefix("0x") {
            Some(hex) => 2 + digits(hex, true),
            None => digits(tail, false),
        };
        masked.push('N');
        rest = &tail[end..];
    }
    masked + rest
}
