//! The valid word nearest to a mistyped one.

/// The candidate with the smallest edit distance to `typed`, if it is near enough to be meant;
/// else the shortest that begins with `typed`.
#[must_use]
pub fn nearest<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Beyond this length nobody mistyped a key, and the distance costs the product of the lengths.
    const LONGEST: usize = 64;

    if typed.is_empty() || typed.len() > LONGEST {
        return None;
    }
    let typed = typed.to_ascii_lowercase();
    let words: Vec<_> = candidates.collect();
    let distances = words.iter().map(|word| (distance(&typed, word), *word));
    let (distance, word) = distances.min_by_key(|(distance, _)| *distance)?;
    let allowed = (typed.chars().count() / 3).max(1);
    if distance <= allowed {
        return Some(word);
    }
    let begun = words.into_iter().filter(|word| typed.len() >= 3 && word.starts_with(&typed));
    begun.min_by_key(|word| word.len())
}

/// Returns the suggestion after an error, if there is one.
pub(crate) fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |word| format!(" (did you mean \"{word}\"?)"))
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours between `a`
/// and `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(before[j - 2] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        let cases =
            [("", "", 0), ("", "ab", 2), ("abc", "abd", 1), ("listen", "litsen", 1), ("a", "é", 1)];
        for (a, b, expected) in cases {
            assert_eq!(distance(a, b), expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        let words = ["listen_port", "listen_addr", "pool_mode"];
        let find = |typed| nearest(typed, words.into_iter());
        assert_eq!(find("listen_prot"), Some("listen_port"));
        assert_eq!(find("Pool-Mode"), Some("pool_mode"));
        assert_eq!(find("pool"), Some("pool_mode"));
        assert_eq!(find("colour"), None);
        assert_eq!(find(""), None);
        assert_eq!(find(&"x".repeat(10_000)), None);
    }
}
