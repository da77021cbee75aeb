//! What differs, and whether it is stated.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::differences::{ALL, Difference};
use super::transcript::{Reply, lines};

/// Stated lines that were seen, by list and place in it.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeSet<(usize, usize)>);

impl Seen {
    /// Stated lines that were not.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (number, difference) in all().enumerate() {
            for (place, (case, line)) in difference.lines.iter().enumerate() {
                if !self.0.contains(&(number, place)) {
                    missing.push(format!("stated, but no longer seen: {case} {line}"));
                }
            }
        }
        missing
    }
}

fn all() -> impl Iterator<Item = &'static Difference> {
    ALL.iter().copied().flatten()
}

/// The differing lines that no difference states: `-` is PgBouncer's, `+` Weir's.
pub(super) fn unstated(
    case: &str,
    theirs: &[Reply],
    ours: &[Reply],
    seen: &Mutex<Seen>,
) -> Vec<String> {
    let [theirs, ours] = lines(theirs, ours);
    let mut seen = seen.lock().expect("no panic");
    let mut differing = differing(&theirs, &ours);
    differing.retain(|line| {
        let mut stated = false;
        for (number, difference) in all().enumerate() {
            for (place, (case_like, line_like)) in difference.lines.iter().enumerate() {
                if is_like(case, case_like) && is_like(line, line_like) {
                    seen.0.insert((number, place));
                    stated = true;
                }
            }
        }
        !stated
    });
    differing
}

/// The lines that are not in the longest sequence both have.
fn differing(theirs: &[String], ours: &[String]) -> Vec<String> {
    let mut common = vec![vec![0_usize; ours.len() + 1]; theirs.len() + 1];
    for (i, one) in theirs.iter().enumerate().rev() {
        for (j, other) in ours.iter().enumerate().rev() {
            common[i][j] = if one == other {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < theirs.len() || j < ours.len() {
        if i < theirs.len() && j < ours.len() && theirs[i] == ours[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || (i < theirs.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("- {}", theirs[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", ours[j]));
            j += 1;
        }
    }
    lines
}

/// True when the text is like the pattern, in which `*` stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some(place) = text.find(part) else { return false };
        text = &text[place + part.len()..];
    }
    text.ends_with(end)
}

#[test]
fn differing_lines_and_patterns() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(differing(&lines("a b c d"), &lines("a c x d")), ["- b", "+ x"]);
    for (text, pattern, like) in [
        ("abc", "abc", true),
        ("abc", "a*", true),
        ("abc", "*c", true),
        ("abc", "a*c", true),
        ("aXbXc", "a*b*c", true),
        ("abc", "b*", false),
        ("abc", "a*b", false),
    ] {
        assert_eq!(is_like(text, pattern), like, "{text} like {pattern}");
    }
}
