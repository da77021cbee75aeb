//! Splits a script into commands as psql does. SQL ends at a semicolon outside of quotes, brackets
//! and comments. A backslash command ends with its line.

/// The text of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Sql(&'a str),
    /// The text from the backslash on, without the line's end.
    Backslash(&'a str),
}

/// Returns the commands of a text, each with the number of its first line.
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

/// Returns the length of white space and comments before a command.
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

/// Returns the length of a backslash command. It ends with its line, unless the line ends with a
/// backslash.
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

/// Returns the length up to and including the semicolon, or up to a backslash command.
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
            b'\\' => return at,
            _ => 1,
        };
        // Stops only between characters: special ones are ASCII.
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Is there a separate `E` before the quote? Then a backslash escapes the next character.
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
            // A doubled quote begins another string at once, with the same result.
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

/// Returns the length of a comment; comments nest.
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
