//! libpq's password file: lines of `host:port:database:user:password`, with `*` for any value.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Returns the password of the first line that matches host, port, database and user. As in libpq,
/// a file that others may read is ignored with a warning.
pub(super) fn find(path: &Path, place: &[&str; 2], login: &[&str; 2]) -> Option<String> {
    let mode = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.permissions().mode();
    if mode & 0o077 != 0 {
        eprintln!(
            "WARNING: password file \"{}\" has group or world access; permissions should be \
             u=rw (0600) or less",
            path.display()
        );
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    let wanted = [place[0], place[1], login[0], login[1]];
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
