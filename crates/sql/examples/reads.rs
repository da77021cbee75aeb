//! Judges many texts, for `regress/route-diff`:
//!
//! * `reads queries` prints a query of the catalogs per line, after its name and a tab
//! * `reads judge CATALOG TEXTS` reads the rows of these queries and prints a verdict for each text
//!
//! Both files have the text format of COPY. A line of CATALOG begins with the name of the query; a
//! line of TEXTS is a text.

use std::collections::HashSet;
use std::io::{BufWriter, Write, stdout};
use std::{env, fs};

use weir_sql::{Catalog, CatalogPart, Verdict, read_verdict, scan_either};

fn main() {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["queries"] => {
            CatalogPart::ALL.iter().for_each(|part| println!("{part:?}\t{}", part.query()));
        }
        ["judge", catalog, texts] => judge(catalog, texts),
        _ => panic!("usage: reads queries | reads judge CATALOG TEXTS"),
    }
}

fn judge(catalog: &str, texts: &str) {
    let (rows, texts) = (read(catalog), read(texts));
    let mut catalog = Catalog::default();
    let mut parts = HashSet::new();
    for line in rows.lines() {
        let columns: Vec<_> = line.split('\t').map(unescaped).collect();
        let [Some(name), values @ ..] = &columns[..] else { panic!("no name: {line}") };
        let part = CatalogPart::ALL.into_iter().find(|part| format!("{part:?}") == *name);
        let part = part.expect("a query's name");
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        catalog.add(part, &values).unwrap_or_else(|_| panic!("not a row of {part:?}: {line}"));
        parts.insert(name.clone());
    }
    let view = catalog.view();
    eprintln!("{} dangerous names from {} queries", view.len(), parts.len());
    let mut out = BufWriter::new(stdout().lock());
    for line in texts.lines() {
        let text = unescaped(line).unwrap_or_default();
        let reading = read_verdict(text.as_bytes(), scan_either(text.as_bytes()), Some(&view));
        let cause = text.get(reading.cause).unwrap_or_default().replace(['\n', '\t', '\r'], " ");
        let name = match reading.verdict {
            Verdict::Read => "read",
            Verdict::ReadOnlyTransaction => "read only transaction",
            Verdict::Refused(refusal) => refusal.name(),
        };
        writeln!(out, "{name}\t{cause}").expect("the verdicts can be written");
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns a value of COPY's text format; None for NULL.
fn unescaped(column: &str) -> Option<String> {
    if column == "\\N" {
        return None;
    }
    let mut value = String::with_capacity(column.len());
    let mut letters = column.chars();
    while let Some(letter) = letters.next() {
        value.push(match (letter, letter == '\\') {
            (_, false) => letter,
            (_, true) => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('v') => '\u{b}',
                Some(other) => other,
                None => '\\',
            },
        });
    }
    Some(value)
}
