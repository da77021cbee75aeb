//! The hint in a comment at the beginning of a text: where the application wants it to run.

/// The node that a text asks for. A hint counts before any judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint<'a> {
    Primary,
    Standby,
    /// A node, by its name in the configuration.
    Node(&'a [u8]),
    /// A hint of Weir's that is not understood. The text goes to the primary.
    Unknown(&'a [u8]),
}

/// Returns the hint of a text: `/* weir: primary */`, `/* weir: standby */`, `/* weir: node=NAME */`,
/// or Pgpool-II's `/*NO LOAD BALANCE*/`. It must stand in a comment before the first statement. Of
/// several hints the first one counts, but PRIMARY wins.
pub fn hint(text: &[u8]) -> Option<Hint<'_>> {
    // Nearly every text begins with a word.
    if text.first().is_none_or(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let mut rest = text;
    let mut found = None;
    loop {
        rest = rest.trim_ascii_start();
        match rest {
            [b'\x0b', behind @ ..] => rest = behind,
            [b'-', b'-', ..] => {
                let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                rest = rest.get(end?..).unwrap_or_default();
            }
            [b'/', b'*', behind @ ..] => {
                let Some(len) = comment_len(behind) else { return found };
                let inner = behind.get(..len).unwrap_or_default();
                rest = behind.get(len + 2..).unwrap_or_default();
                match read(inner.trim_ascii()) {
                    Some(Hint::Primary) => return Some(Hint::Primary),
                    one => found = found.or(one),
                }
            }
            _ => return found,
        }
    }
}

/// Returns the number of bytes before the `*/` that ends a comment. Comments nest.
fn comment_len(text: &[u8]) -> Option<usize> {
    let mut depth = 1_u32;
    let mut at = 0;
    loop {
        match text.get(at..at + 2)? {
            b"*/" => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
                at += 2;
            }
            b"/*" => {
                depth = depth.saturating_add(1);
                at += 2;
            }
            _ => at += 1,
        }
    }
}

fn read(comment: &[u8]) -> Option<Hint<'_>> {
    if comment.eq_ignore_ascii_case(b"NO LOAD BALANCE") {
        return Some(Hint::Primary);
    }
    let (head, rest) = comment.split_at_checked(5)?;
    if !head.eq_ignore_ascii_case(b"weir:") {
        return None;
    }
    let word = rest.trim_ascii();
    if word.eq_ignore_ascii_case(b"primary") {
        return Some(Hint::Primary);
    }
    if word.eq_ignore_ascii_case(b"standby") {
        return Some(Hint::Standby);
    }
    let is_name = |name: &&[u8]| {
        !name.is_empty()
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte))
    };
    match word.strip_prefix(b"node=").filter(is_name) {
        Some(name) => Some(Hint::Node(name)),
        None => Some(Hint::Unknown(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_before_the_first_word() {
        for (text, expected) in [
            ("/* weir: primary */ SELECT 1", Some(Hint::Primary)),
            ("/*weir:standby*/SELECT 1", Some(Hint::Standby)),
            ("  \n\t/* WEIR: Standby */ SELECT 1", Some(Hint::Standby)),
            ("/* weir: node=b-2 */ SELECT 1", Some(Hint::Node(b"b-2"))),
            ("/*NO LOAD BALANCE*/ SELECT 1", Some(Hint::Primary)),
            ("/* no load balance */ SELECT 1", Some(Hint::Primary)),
            ("-- a\n/* app:x */ /* weir: standby */ SELECT 1", Some(Hint::Standby)),
            ("/* weir: standby *//*NO LOAD BALANCE*/SELECT 1", Some(Hint::Primary)),
            ("/* weir: standby *//* weir: node=a */SELECT 1", Some(Hint::Standby)),
            ("/* weir: stanby */ SELECT 1", Some(Hint::Unknown(b"stanby"))),
            ("/* weir: node= */ SELECT 1", Some(Hint::Unknown(b"node="))),
            ("/* weir: node=a b */ SELECT 1", Some(Hint::Unknown(b"node=a b"))),
            ("/* /* weir: standby */ */ SELECT 1", None),
            ("/* weird: standby */ SELECT 1", None),
            ("SELECT 1 /* weir: standby */", None),
            ("SELECT '/* weir: standby */'", None),
            ("(/* weir: standby */ SELECT 1)", None),
            ("-- weir: standby\nSELECT 1", None),
            ("/* weir: standby", None),
            ("/* a */ /*/", None),
            ("--", None),
            ("", None),
            ("\u{b}\u{c}", None),
        ] {
            assert_eq!(hint(text.as_bytes()), expected, "{text:?}");
        }
    }
}
