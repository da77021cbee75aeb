//! A sample of `make route-diff`: texts with the verdict of PostgreSQL's parser and the catalogs.
//! `regress/route-diff --record` writes it.

use super::*;
use crate::catalog::{Catalog, Part as Rows};
use crate::scanner::scan_either;

#[test]
fn no_text_goes_to_a_standby_that_the_oracle_keeps_on_the_primary() {
    let mut catalog = Catalog::default();
    for line in include_str!("recorded/catalog.txt").lines() {
        let columns: Vec<_> = line.split('\t').map(unescaped).collect();
        let (name, row) = columns.split_first().expect("a name");
        let rows = Rows::ALL.into_iter().find(|rows| Some(format!("{rows:?}")) == *name);
        let row: Vec<_> = row.iter().map(Option::as_deref).collect();
        catalog.add(rows.expect("a query's name"), &row).expect("a row of the query");
    }
    let view = catalog.view();
    let (mut reads, mut gone) = (0, 0);
    for line in include_str!("recorded/texts.txt").lines() {
        let (place, text) = line.split_once('\t').expect("two columns");
        let text = unescaped(text).unwrap_or_default();
        let seen = scan_either(text.as_bytes());
        let verdict = read_verdict(text.as_bytes(), seen, Some(&view)).verdict;
        let may_go = !matches!(verdict, Verdict::Refused(_));
        assert!(place == "standby" || !may_go, "{text}");
        reads += u32::from(place == "standby");
        gone += u32::from(may_go);
    }
    assert!(reads > 100 && gone * 10 >= reads * 8, "{gone} of {reads} reads may go");
}

/// Returns a value of COPY's text format; None for NULL.
fn unescaped(column: &str) -> Option<String> {
    let mut letters = column.chars();
    let mut value = String::new();
    while let Some(letter) = letters.next() {
        value.push(match (letter, letter == '\\') {
            (letter, false) => letter,
            (_, true) => match letters.next()? {
                'N' => return None,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            },
        });
    }
    Some(value)
}
