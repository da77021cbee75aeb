//! A line of `auth_hba_file` or `auth_ident_file` as words.

/// One word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Without quotes: it may be a keyword.
    Bare(String),
    /// In double quotes, so it is no keyword. A quote within was doubled.
    Quoted(String),
    Comma,
}

/// The rest of a line. A comment begins with `#`.
pub(super) struct Words<'a> {
    rest: &'a str,
}

/// A quote that is never closed.
#[derive(Debug)]
pub(super) struct Unclosed;

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { rest: line }
    }

    /// Returns the next word; None at the end of the line.
    pub(super) fn next(&mut self) -> Result<Option<Word>, Unclosed> {
        let text = self.rest.trim_start_matches(is_blank);
        let Some(first) = text.chars().next().filter(|first| *first != '#') else {
            self.rest = "";
            return Ok(None);
        };
        if first == ',' {
            self.rest = &text[1..];
            return Ok(Some(Word::Comma));
        }
        if first == '"' {
            let (word, rest) = quoted(&text[1..]).ok_or(Unclosed)?;
            self.rest = rest;
            return Ok(Some(Word::Quoted(word)));
        }
        let end = text.find(|c| is_blank(c) || matches!(c, ',' | '#' | '"')).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.rest = rest;
        Ok(Some(Word::Bare(word.to_owned())))
    }

    /// Returns the next word without consuming it.
    pub(super) fn peek(&self) -> Result<Option<Word>, Unclosed> {
        Self { rest: self.rest }.next()
    }

    /// Returns the rest of the line unchanged.
    pub(super) fn rest(self) -> &'a str {
        self.rest
    }
}

/// A blank, as C's isspace() defines it.
pub(crate) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0b' | '\x0c')
}

/// Returns the text up to the closing quote, and what follows it.
pub(crate) fn quoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        word.push_str(before);
        match after.strip_prefix('"') {
            Some(further) => {
                word.push('"');
                rest = further;
            }
            None => return Some((word, after)),
        }
    }
}
