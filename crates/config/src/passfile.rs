//! libpq's password file: lines of `host:port:database:user:password`, with `*` for any value.

/// Returns the password of the first line of `text` that matches host, port, database and user.
pub fn password_in(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().find_map(|line| password(line, &wanted))
}

fn password(line: &str, wanted: &[&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for wanted in wanted {
        let (field, after) = field(rest)?;
        if field != "*" && unescaped(field) != *wanted {
            return None;
        }
        rest = after;
    }
    Some(unescaped(rest.trim_end_matches('\r')))
}

/// Returns the text up to an unescaped colon, and the rest.
fn field(text: &str) -> Option<(&str, &str)> {
    let mut hidden = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if hidden => hidden = false,
            '\\' => hidden = true,
            ':' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_or_does_not() {
        let wanted = ["localhost", "6432", "app", "al:ice"];
        for (line, found) in [
            ("localhost:6432:app:al\\:ice:secret", Some("secret")),
            ("*:*:*:*:any:thing\\\\x", Some("any:thing\\x")),
            ("localhost:5432:app:al\\:ice:secret", None),
            ("#*:*:*:*:secret", None),
            ("*:*:*", None),
            ("", None),
        ] {
            assert_eq!(password(line, &wanted).as_deref(), found, "{line}");
        }
    }
}
