//! Tests of the crate's interface: texts and their signs.

mod commands;
mod properties;
mod splitting;
mod state;

use crate::{Signs, scan};

/// The signs of a text under `standard_conforming_strings = on`.
fn signs(text: &str) -> Signs {
    scan(text.as_bytes(), true).signs
}

#[track_caller]
fn check(table: &[(&str, Signs)]) {
    for (text, expected) in table {
        assert_eq!(signs(text), *expected, "{text}");
    }
}
