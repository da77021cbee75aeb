//! Properties that hold for any bytes.

use proptest::prelude::*;

use crate::{Scanner, Verdict, hint, identifier, read_verdict, scan, scan_either, statements};

/// Complete tokens: they stay the same between any others. Random sequences of them are valid far
/// more often than random bytes.
const WORDS: &[&str] = &[
    "SELECT",
    "set",
    "LOCAL",
    "set_config",
    "(",
    ")",
    "'a'",
    ",",
    "true",
    ";",
    "INTO",
    "INSERT",
    "temp",
    "CREATE",
    "f",
    "pg_catalog",
    ".",
    "\u{e9}",
    "EXECUTE",
    "PREPARE",
    "AS",
    "EXPLAIN",
    "1",
    "WITH",
    "hold",
    "DECLARE",
    "ON",
    "conflict",
    "DO",
    "=",
    "pg_settings",
    "UPDATE",
];

/// More of them.
const LONGER: &[&str] =
    &["E'a\\''", "\"b\"", "$a$ ' $a$", "TRANSACTION", "OVER", "X'0a'", "U&'a'", "+", "$1", "CALL"];

/// Pieces that change the meaning of their neighbours.
const FRAGMENTS: &[&str] = &[
    "E'", "'", "\\", "\"", "$$", "$a$", "$", "--", "\n", "/*", "*/", "U&", "n", "x", "::", "e5",
    " ", "FUNCTION", "BEGIN", "ATOMIC", "END", "CASE", "&", "-", "/", "*", "over", "distinct",
    "ROLLBACK", "TO",
];

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select([WORDS, FRAGMENTS].concat()), 0..30)
        .prop_map(|pieces| pieces.concat().into_bytes())
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![pieces(), prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_scanned_split_and_read_as_a_name(text in texts(), standard: bool) {
        scan(&text, standard);
        let mut end = 0;
        for part in statements(&text, standard) {
            prop_assert!(end <= part.range.start && part.range.start <= part.range.end);
            prop_assert!(part.range.end <= text.len());
            end = part.range.end;
            if let Some(name) = part.name {
                prop_assert!(part.range.start < name.start && name.end <= part.range.end);
                let name = identifier(&text[name]);
                prop_assert!(name.len() <= 63);
            }
        }
        prop_assert!(identifier(&text).len() <= 63);
    }

    #[test]
    fn it_makes_no_difference_where_a_text_is_cut(text in texts(), standard: bool) {
        let whole = scan(&text, standard);
        for at in 0..=text.len() {
            let mut scanner = Scanner::new(standard);
            scanner.feed(&text[..at]);
            scanner.feed(&text[at..]);
            prop_assert_eq!(scanner.finish(), whole, "cut at {}", at);
        }
        let mut scanner = Scanner::new(standard);
        text.iter().for_each(|byte| scanner.feed(&[*byte]));
        prop_assert_eq!(scanner.finish(), whole, "byte by byte");
    }

    #[test]
    fn blanks_and_comments_between_tokens_make_no_difference(
        tokens in prop::collection::vec(
            (
                prop::sample::select([WORDS, LONGER].concat()),
                prop::sample::select(&[" ", "\t\x0b", "\n", " -- '\n", "/* ' /**/ $$ */", "--\r"][..]),
            ),
            0..20,
        ),
    ) {
        let plain: String = tokens.iter().flat_map(|(token, _)| [*token, " "]).collect();
        let other: String = tokens.iter().flat_map(|(token, between)| [*token, *between]).collect();
        prop_assert_eq!(scan(other.as_bytes(), true), scan(plain.as_bytes(), true), "{}", other);
        let verbs = |text: &str| -> Vec<_> {
            statements(text.as_bytes(), true)
                .map(|part| (part.verb, part.name.map(|name| text[name].to_owned())))
                .collect()
        };
        prop_assert_eq!(verbs(&other), verbs(&plain), "{}", other);
    }

    #[test]
    fn a_text_has_all_the_signs_of_its_statements(text in pieces()) {
        let whole = scan(&text, true).signs;
        for part in statements(&text, true) {
            let signs = scan(&text[part.range.clone()], true).signs;
            prop_assert!(whole.contains(signs), "{:?} in {:?}", signs, whole);
        }
    }

    #[test]
    fn a_read_is_one_statement_whatever_stands_beside_it(text in texts()) {
        let verdict = |text: &[u8]| read_verdict(text, scan_either(text), None).verdict;
        hint(&text);
        let reading = read_verdict(&text, scan_either(&text), None);
        prop_assert!(reading.cause.start <= reading.cause.end && reading.cause.end <= text.len());
        if let Verdict::Refused(_) = reading.verdict {
            return Ok(());
        }
        for (before, after) in [
            ("DELETE FROM t;", ""),
            ("", "\n; DELETE FROM t"),
            ("", "\nFOR UPDATE"),
            ("SELECT 1;", ""),
            ("", "\npg_is_in_recovery"),
        ] {
            let more = [before.as_bytes(), &text, after.as_bytes()].concat();
            prop_assert!(matches!(verdict(&more), Verdict::Refused(_)), "{before}{after}");
        }
        let same = [b"/* a */ ;", &text[..], b"\n; -- a"].concat();
        prop_assert_eq!(verdict(&same), reading.verdict);
    }
}
