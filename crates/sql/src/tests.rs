//! Tests of the crate's face: texts and what is seen in them.

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
