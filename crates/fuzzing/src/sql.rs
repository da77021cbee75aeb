//! Any text, under either kind of strings: what is seen in it does not depend on where it is cut,
//! nothing hides a statement from what stands before or behind it, and parts that are said to be
//! statements and names are. A text that may run on a standby is one statement without a word that
//! writes or locks and without a dangerous name.

use ::sql::{Cache, Catalog, CatalogPart, CatalogView, Scanner, Seen, Signs, Verdict};
use ::sql::{hint, identifier, read_verdict, scan, scan_either, statements};

use crate::cuts::Cuts;
use crate::rng::Rng;

pub fn sql(text: &[u8]) {
    for standard in [true, false] {
        let seen = scan(text, standard);
        for cuts in [Cuts::Bytes, Cuts::Random(Rng::new(text.len() as u64))] {
            assert_eq!(in_pieces(text, standard, cuts), seen, "in pieces");
        }
        assert!(seen.functions == 0 || seen.signs.contains(Signs::OPAQUE));
        neighbours(text, standard, seen);
        parts(text, standard, seen);
    }
    let either = scan(text, true) | scan(text, false);
    let mut cache = Cache::new(1, 2);
    assert_eq!([cache.scan(text), cache.scan(text), scan_either(text)], [either; 3]);
    assert!(identifier(text).len() <= 63);
    reads(text);
}

/// Nothing that writes or locks is a read, whatever stands before or after it.
fn reads(text: &[u8]) {
    hint(text);
    let view = view();
    let reading = read_verdict(text, scan_either(text), Some(&view));
    assert!(reading.cause.start <= reading.cause.end && reading.cause.end <= text.len());
    if matches!(reading.verdict, Verdict::Refused(_)) {
        return;
    }
    for (before, after) in [
        ("DELETE FROM t;", ""),
        ("", "\n;SELECT 1"),
        ("", "\nFOR SHARE"),
        ("", "\ninto t"),
        ("", "\ndanger"),
        ("", "\n<!>"),
        ("", "\n\"danger\""),
    ] {
        let more = [before.as_bytes(), text, after.as_bytes()].concat();
        let verdict = read_verdict(&more, scan_either(&more), Some(&view)).verdict;
        assert!(matches!(verdict, Verdict::Refused(_)), "with {before}{after}");
    }
}

/// A function and an operator are dangerous.
fn view() -> CatalogView {
    let mut catalog = Catalog::default();
    let function = [Some("20000"), Some("danger"), Some("t"), Some("sql"), None];
    let operator = [Some("20001"), Some("<!>"), Some("20000")];
    catalog.add(CatalogPart::Functions, &function).expect("a row");
    catalog.add(CatalogPart::Operators, &operator).expect("a row");
    catalog.view()
}

fn in_pieces(text: &[u8], standard: bool, mut cuts: Cuts) -> Seen {
    let (mut scanner, mut rest) = (Scanner::new(standard), text);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(cuts.next(rest.len()));
        scanner.feed(piece);
        rest = behind;
    }
    scanner.finish()
}

/// Checks that a SET before the text is found, and one after it as well unless the text is
/// ambiguous.
fn neighbours(text: &[u8], standard: bool, seen: Seen) {
    let before = scan(&[b"SET a = 1;", text].concat(), standard).signs;
    assert_eq!(before, seen.signs | Signs::SETTINGS, "a SET before it");
    let behind = scan(&[text, b"\n;SET a = 1"].concat(), standard).signs;
    let certain = !seen.signs.contains(Signs::OPAQUE) || seen.functions != 0;
    assert!(!certain || behind == seen.signs | Signs::SETTINGS, "a SET behind it");
}

fn parts(text: &[u8], standard: bool, seen: Seen) {
    let mut end = 0;
    let mut count = 0;
    for part in statements(text, standard) {
        let range = part.range;
        assert!(end <= range.start && range.start <= range.end && range.end <= text.len());
        end = range.end;
        count += 1;
        let signs = scan(&text[range.clone()], standard).signs;
        assert!(seen.signs.contains(signs), "{signs:?} in {:?}", seen.signs);
        if let Some(name) = part.name {
            assert!(range.start < name.start && name.end <= range.end, "a name behind its verb");
            assert!(identifier(&text[name]).len() <= 63);
        }
    }
    assert!(count > 0, "at least one statement");
}
