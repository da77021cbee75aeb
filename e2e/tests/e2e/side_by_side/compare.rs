//! Compares the output of both poolers, and checks whether each difference is listed.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::differences::{ALL, Difference};
use super::transcript::{Reply, lines};
use testkit::is_root;

/// The case whose client has another system user than the pooler, if the tests run as root.
const OF_ROOT: &str = "shutdown: the console of a unix user";

/// The listed lines that occurred, by list and position.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeSet<(usize, usize)>);

impl Seen {
    /// Returns the listed lines that did not occur.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (number, difference) in all().enumerate() {
            for (place, (case, line)) in difference.lines.iter().enumerate() {
                // Only root gets what another user does not get.
                let is_of_root = *case == OF_ROOT && !is_root();
                if !is_of_root && !self.0.contains(&(number, place)) {
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

/// Returns the differing lines that are not listed. `-` marks PgBouncer's lines, `+` Weir's.
pub(super) fn unstated(
    case: &str,
    theirs: &[Reply],
    ours: &[Reply],
    seen: &Mutex<Seen>,
) -> Vec<String> {
    let [theirs, ours] = lines(theirs, ours);
    let mut seen = seen.lock().expect("no panic");
    let mut differing = differing(&theirs, &ours);
    for (number, difference) in all().enumerate() {
        for (place, (case_like, line_like)) in difference.lines.iter().enumerate() {
            if captures(case, case_like).is_some() && strike(&mut differing, line_like) {
                seen.0.insert((number, place));
            }
        }
    }
    differing
}

/// Removes the lines that a listed line excuses. Returns whether there was one.
fn strike(differing: &mut Vec<String>, stated: &str) -> bool {
    let before = differing.len();
    match stated.split_once(" => + ") {
        None => differing.retain(|line| captures(line, stated).is_none()),
        Some((theirs, ours)) => {
            let mut at = 0;
            while at < differing.len() {
                let wanted = captures(&differing[at], theirs);
                let other = wanted.and_then(|wanted| {
                    let is_it = |line: &String| {
                        line.strip_prefix("+ ").and_then(|line| captures(line, ours)).as_ref()
                            == Some(&wanted)
                    };
                    differing.iter().position(is_it)
                });
                match other {
                    Some(other) => {
                        differing.remove(at.max(other));
                        differing.remove(at.min(other));
                        at = 0;
                    }
                    None => at += 1,
                }
            }
        }
    }
    differing.len() < before
}

/// Returns the lines that are not in the longest common subsequence.
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

/// Returns the texts that match `*` in the pattern. `%` matches any text as well, but is not
/// returned.
fn captures<'a>(text: &'a str, pattern: &str) -> Option<Vec<&'a str>> {
    let wild = |letter| matches!(letter, '*' | '%');
    let mut captured = Vec::new();
    let Some(first) = pattern.find(wild) else { return (text == pattern).then_some(captured) };
    let mut text = text.strip_prefix(&pattern[..first])?;
    let mut pattern = &pattern[first..];
    while !pattern.is_empty() {
        let end = pattern[1..].find(wild).map(|end| end + 1);
        let literal = &pattern[1..end.unwrap_or(pattern.len())];
        let place = match end {
            Some(_) => text.find(literal)?,
            None => text.strip_suffix(literal)?.len(),
        };
        if pattern.starts_with('*') {
            captured.push(&text[..place]);
        }
        text = &text[place + literal.len()..];
        pattern = end.map_or("", |end| &pattern[end..]);
    }
    Some(captured)
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
        assert_eq!(captures(text, pattern).is_some(), like, "{text} like {pattern}");
    }
    assert_eq!(captures("aXbYc", "a*b%c"), Some(vec!["X"]));
}

#[test]
fn a_line_that_became_another_is_excused_with_it_only() {
    let stated = "- say *, old => + say *, % new";
    let strike = |lines: &[&str]| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let found = strike(&mut lines, stated);
        (found, lines.len())
    };
    assert_eq!(strike(&["- say a, old", "+ say a, quite new"]), (true, 0));
    assert_eq!(strike(&["- say a, old", "+ say b, quite new"]), (false, 2));
    assert_eq!(strike(&["- say a, old"]), (false, 1));
}
