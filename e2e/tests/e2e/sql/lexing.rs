//! The ends of statements and the reading of names, by the crate `sql` and by PostgreSQL.

use sql::{Verb, identifier, statements};
use testkit::{Postgres, RawClient};

const TEXTS: usize = 4_000;

/// Pieces of text within quotes and comments. Each may end them or hide their end.
const NOISE: [&str; 16] =
    ["'", "''", "\"", "\\", "\\'", "\\\\", "$", "$$", "$a$", "--", "/*", "*/", "\n", ";", " ", "a"];

/// Beginnings of values, and the ends of these values unless a piece of noise ends them earlier.
const VALUES: [(&str, &str); 12] = [
    ("'", "'"),
    ("E'", "'"),
    ("e'", "' --'\n 'b\\'c'"),
    ("n'", "'"),
    ("U&'", "'"),
    ("'", "'\r'b\\'"),
    ("$$", "$$"),
    ("$a$", "$a$"),
    ("$\u{e9}1$", "$\u{e9}1$"),
    ("1 AS \"", "\""),
    ("1/*", "*/"),
    ("1--", "\n"),
];

#[test]
fn statements_end_where_postgresql_ends_them() {
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let mut client = postgres.superuser("postgres");
        for standard in [true, false] {
            let setting = if standard { "on" } else { "off" };
            client.rows(&format!("SET standard_conforming_strings = {setting}"));
            client.rows("SET escape_string_warning = off; SET backslash_quote = on");
            compare(&mut client, standard);
        }
    }
}

fn compare(client: &mut RawClient, standard: bool) {
    let mut dice = Dice(u64::from(standard) + 1);
    let mut accepted = [0; 4];
    for _ in 0..TEXTS {
        let text = text(&mut dice);
        client.send(testkit::frontend::query(&text));
        let answer = client.read_to_ready();
        if answer.iter().any(|message| message.tag == b'E') {
            continue;
        }
        let run = answer.iter().filter(|message| message.tag == b'C').count();
        let parts = statements(text.as_bytes(), standard);
        let found = parts.filter(|part| part.verb != Verb::Empty).count();
        assert_eq!(found, run, "standard_conforming_strings {standard}: {text:?}");
        accepted[run.min(3)] += 1;
    }
    // Counts texts of one, two, and three or more statements.
    assert!(accepted[1..].iter().all(|count| *count > 100), "too few were valid: {accepted:?}");
}

fn text(dice: &mut Dice) -> String {
    let mut text = String::new();
    for _ in 0..1 + dice.below(3) {
        text += "SELECT 1";
        for _ in 0..1 + dice.below(2) {
            let (begin, end) = VALUES[dice.below(VALUES.len())];
            text.extend([",", begin]);
            (0..dice.below(4)).for_each(|_| text += NOISE[dice.below(NOISE.len())]);
            text += end;
        }
        text += ";";
    }
    text
}

struct Dice(u64);

impl Dice {
    /// Returns a pseudo-random number below `end`, the same in each run.
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn names_are_read_as_postgresql_reads_them() {
    let long = format!("l{}", "o".repeat(80));
    let wide = format!("\"{}\"", "\u{e9}".repeat(50));
    for postgres in [Postgres::shared(), Postgres::shared_v18()] {
        let mut client = postgres.superuser("postgres");
        for raw in
            ["a", "A$1_b", "\"A b\"", "\"a\"\"b\"", "\"a'--\"", "\u{c9}T\u{c9}", "_x", &long, &wide]
        {
            let text = format!("/* x */ PREPARE {raw} AS SELECT 1");
            let part = statements(text.as_bytes(), true).next().expect("one statement");
            assert_eq!(part.verb, Verb::Prepare);
            let name = identifier(&text.as_bytes()[part.name.expect("a name")]).into_owned();
            client.rows(&text);
            let known = client.value("SELECT name FROM pg_prepared_statements");
            assert_eq!(String::from_utf8(name).expect("whole characters"), known, "{raw}");
            client.rows("DEALLOCATE ALL");
        }
    }
}
