//! Where the commands of a script begin and end: SQL up to a semicolon that stands in no quotes,
//! brackets or comments, and a backslash command up to the end of its line, as psql finds them.

/// One command as it stands in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Sql(&'a str),
    /// From the backslash on, without the line's end.
    Backslash(&'a str),
}

/// The commands of a text, each with the number of the line it begins in.
pub(super) struct Split<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Split<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn line(&self, at: usize) -> usize {
        self.text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = (usize, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.at += blank_len(&self.text[self.at..]);
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let line = self.line(self.at);
        if rest.starts_with('\\') {
            let len = backslash_len(rest);
            self.at += len;
            return Some((line, Raw::Backslash(rest[..len].trim_end())));
        }
        let len = sql_len(rest);
        self.at += len;
        Some((line, Raw::Sql(rest[..len].trim_end())))
    }
}

/// White space and comments that stand before a command.
fn blank_len(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let blanks = rest.len() - rest.trim_start().len();
        if blanks > 0 {
            at += blanks;
        } else if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else {
            return at;
        }
    }
}

/// A backslash command ends with its line, unless a backslash stands before the line's end.
fn backslash_len(text: &str) -> usize {
    let mut at = 0;
    loop {
        let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
        let line = text[at..end].trim_end_matches('\r');
        if end == text.len() || !line.ends_with('\\') {
            return end;
        }
        at = end + 1;
    }
}

/// Up to and with the semicolon, or up to a backslash command.
fn sql_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut brackets) = (0, 0usize);
    while let Some(byte) = bytes.get(at) {
        let rest = &text[at..];
        at += match byte {
            b'\'' => quoted_len(rest, is_escaping(&text[..at])),
            b'"' => quoted_len(rest, false),
            b'$' if !text[..at].ends_with(is_word) => dollar_len(rest).unwrap_or(1),
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => comment_len(rest),
            b'(' => {
                brackets += 1;
                1
            }
            b')' => {
                brackets = brackets.saturating_sub(1);
                1
            }
            b';' if brackets == 0 => return at + 1,
            // `\;` holds statements together.
            b'\\' if rest.starts_with("\\;") => 2,
            b'\\' => return at,
            _ => 1,
        };
        // A step never ends within a character: what is special is ASCII.
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Does `E` stand alone before the quote? Then a backslash hides what follows it.
fn is_escaping(before: &str) -> bool {
    let Some(rest) = before.strip_suffix(['e', 'E']) else { return false };
    !rest.ends_with(is_word)
}

fn quoted_len(text: &str, escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if *byte == b'\\' && escapes {
            at += 1;
        } else if *byte == quote {
            // A doubled quote opens the next string at once, which comes to the same.
            return at;
        }
    }
    text.len()
}

fn dollar_len(text: &str) -> Option<usize> {
    let tag_len = text[1..].find('$')?;
    let tag = &text[..tag_len + 2];
    let name = &tag[1..tag.len() - 1];
    let is_tag = name.chars().all(|c| is_word(c) && c != '$');
    if !is_tag || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(text[tag.len()..].find(tag).map_or(text.len(), |end| tag.len() + end + tag.len()))
}

/// Comments nest.
fn comment_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0usize);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}
