//! The grammar of the console: one or two words, `SHOW word EXTENDED`, `SET word = value`,
//! `PGPOOL word word`, `FAILOVER word [word]`, or a command about a node, such as `SWITCHOVER word TO
//! word`. It knows these verbs by name, because of their form.

/// A parsed command line, without quotes; upper and lower case are as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Command { verb: Vec<u8>, argument: Vec<u8> },
    ShowExtended { what: Vec<u8> },
    Set { key: Vec<u8>, value: Vec<u8> },
    Failover { what: Vec<u8>, argument: Vec<u8> },
    OfNode { verb: NodeVerb, of: Vec<u8>, node: Vec<u8> },
    Pgpool { verb: Vec<u8>, argument: Vec<u8> },
}

/// The commands about a node of a database's cluster, or of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeVerb {
    Switchover,
    Detach,
    Attach,
}

impl NodeVerb {
    const ALL: [Self; 3] = [Self::Switchover, Self::Detach, Self::Attach];

    /// Returns its word, and the word before the node.
    fn words(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Self::Switchover => (b"switchover", b"to"),
            Self::Detach => (b"detach", b"node"),
            Self::Attach => (b"attach", b"node"),
        }
    }
}

/// Why a line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Grammar,
    /// A word is too long for PgBouncer.
    TooLong,
}

/// Maximal length of words, in bytes, by their position in the line.
const VERB_MAX: usize = 15;
const ARGUMENT_MAX: usize = 63;
const VALUE_MAX: usize = 255;

pub(super) fn parse(text: &[u8]) -> Result<Line, Refusal> {
    let line = set(text)
        .or_else(|| NodeVerb::ALL.into_iter().find_map(|verb| of_node(text, verb)))
        .or_else(|| pgpool(text))
        .or_else(|| failover(text))
        .or_else(|| show_extended(text))
        .or_else(|| command(text))
        .ok_or(Refusal::Grammar)?;
    let fits = match &line {
        Line::Command { verb, argument } => {
            verb.len() <= VERB_MAX && argument.len() <= ARGUMENT_MAX
        }
        Line::ShowExtended { what } => what.len() <= ARGUMENT_MAX,
        Line::OfNode { of: one, node: other, .. } | Line::Pgpool { verb: one, argument: other } => {
            one.len() <= ARGUMENT_MAX && other.len() <= ARGUMENT_MAX
        }
        Line::Failover { what, argument } => {
            what.len() <= VERB_MAX && argument.len() <= ARGUMENT_MAX
        }
        Line::Set { key, value } => key.len() <= ARGUMENT_MAX && value.len() <= VALUE_MAX,
    };
    if fits { Ok(line) } else { Err(Refusal::TooLong) }
}

fn command(text: &[u8]) -> Option<Line> {
    let mut cursor = Cursor(text);
    cursor.spaces();
    let verb = cursor.word()?;
    let mut argument = Vec::new();
    if cursor.spaces() {
        argument = cursor.word().unwrap_or_default();
    }
    cursor.end().then_some(Line::Command { verb, argument })
}

/// SELECT is another word for SHOW.
fn show_extended(text: &[u8]) -> Option<Line> {
    let mut cursor = Cursor(text);
    cursor.spaces();
    if !(cursor.keyword(b"show") || cursor.keyword(b"select")) || !cursor.spaces() {
        return None;
    }
    let what = cursor.word()?;
    let is_extended = cursor.spaces() && cursor.keyword(b"extended");
    (is_extended && cursor.end()).then_some(Line::ShowExtended { what })
}

fn of_node(text: &[u8], verb: NodeVerb) -> Option<Line> {
    let (first, before_node) = verb.words();
    let mut cursor = Cursor(text);
    cursor.spaces();
    if !cursor.keyword(first) || !cursor.spaces() {
        return None;
    }
    let of = cursor.word()?;
    if !cursor.spaces() || !cursor.keyword(before_node) || !cursor.spaces() {
        return None;
    }
    let node = cursor.word()?;
    cursor.end().then_some(Line::OfNode { verb, of, node })
}

/// The rest behind the first word is only read for SHOW.
fn pgpool(text: &[u8]) -> Option<Line> {
    let mut cursor = Cursor(text);
    cursor.spaces();
    if !cursor.keyword(b"pgpool") || !cursor.spaces() {
        return None;
    }
    let verb = cursor.word()?;
    if verb.eq_ignore_ascii_case(b"set") || verb.eq_ignore_ascii_case(b"reset") {
        return Some(Line::Pgpool { verb, argument: Vec::new() });
    }
    if !verb.eq_ignore_ascii_case(b"show") || !cursor.spaces() {
        return None;
    }
    let argument = cursor.word()?;
    cursor.end().then_some(Line::Pgpool { verb, argument })
}

fn failover(text: &[u8]) -> Option<Line> {
    let mut cursor = Cursor(text);
    cursor.spaces();
    if !cursor.keyword(b"failover") || !cursor.spaces() {
        return None;
    }
    let what = cursor.word()?;
    let mut argument = Vec::new();
    if cursor.spaces() {
        argument = cursor.word().unwrap_or_default();
    }
    cursor.end().then_some(Line::Failover { what, argument })
}

/// As in PgBouncer, there must be no blank around `to`.
fn set(text: &[u8]) -> Option<Line> {
    let mut cursor = Cursor(text);
    cursor.spaces();
    if !cursor.keyword(b"set") || !cursor.spaces() {
        return None;
    }
    let key = cursor.word()?;
    cursor.spaces();
    if !cursor.keyword(b"=") && !cursor.keyword(b"to") {
        return None;
    }
    cursor.spaces();
    let value = cursor.quoted(b'\'').or_else(|| cursor.word())?;
    cursor.end().then_some(Line::Set { key, value })
}

/// The rest of the line.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// Skips blanks. Returns true if there were any.
    fn spaces(&mut self) -> bool {
        let is_space = |b: &u8| b.is_ascii_whitespace() || *b == b'\x0b';
        self.advance(self.0.iter().take_while(|b| is_space(b)).count())
    }

    fn keyword(&mut self, keyword: &[u8]) -> bool {
        let found = self.0.get(..keyword.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(keyword))
            && self.advance(keyword.len())
    }

    /// Reads a bare word, or a text in double quotes.
    fn word(&mut self) -> Option<Vec<u8>> {
        let is_bare = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let len = self.0.iter().take_while(|b| is_bare(b)).count();
        if len == 0 {
            return self.quoted(b'"');
        }
        let word = self.0[..len].to_vec();
        self.advance(len);
        Some(word)
    }

    /// Reads a text in quotes; a quote within is doubled.
    fn quoted(&mut self, quote: u8) -> Option<Vec<u8>> {
        let mut rest = self.0.strip_prefix(&[quote])?;
        let mut text = Vec::new();
        loop {
            let (&first, others) = rest.split_first()?;
            rest = others;
            if first == quote {
                match rest.strip_prefix(&[quote]) {
                    Some(others) => rest = others,
                    None => break,
                }
            }
            text.push(first);
        }
        self.0 = rest;
        Some(text)
    }

    /// Is only a semicolon left, perhaps with blanks?
    fn end(&mut self) -> bool {
        self.spaces();
        self.keyword(b";");
        self.spaces();
        self.0.is_empty()
    }

    /// Skips `len` bytes, which must be there. Returns true unless `len` is 0.
    fn advance(&mut self, len: usize) -> bool {
        self.0 = self.0.get(len..).unwrap_or_default();
        len > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command(verb: &str, argument: &str) -> Result<Line, Refusal> {
        Ok(Line::Command { verb: verb.into(), argument: argument.into() })
    }

    fn set(key: &str, value: &str) -> Result<Line, Refusal> {
        Ok(Line::Set { key: key.into(), value: value.into() })
    }

    #[test]
    fn one_word_or_two_with_an_optional_semicolon() {
        for (text, verb, argument) in [
            ("RELOAD", "RELOAD", ""),
            ("reload ;", "reload", ""),
            ("SHOW POOLS", "SHOW", "POOLS"),
            (" show\n\tpools\x0b\r;\n", "show", "pools"),
            ("\"show\" \"a \"\"b\"\" c\";", "show", "a \"b\" c"),
            ("pause \"\"", "pause", ""),
            ("SET pool_mode", "SET", "pool_mode"),
        ] {
            assert_eq!(parse(text.as_bytes()), command(verb, argument), "{text:?}");
        }
    }

    #[test]
    fn set_takes_a_word_or_a_text() {
        for (text, key, value) in [
            ("set a=b", "a", "b"),
            ("SET a TO b ;", "a", "b"),
            ("set a tob", "a", "b"),
            ("set \"a b\"='it''s'", "a b", "it's"),
            ("set a = ''", "a", ""),
            ("set a=\"b c\"", "a", "b c"),
        ] {
            assert_eq!(parse(text.as_bytes()), set(key, value), "{text:?}");
        }
    }

    #[test]
    fn extended_follows_the_word_of_a_show() {
        for (text, what) in [
            ("show pools extended", "pools"),
            (" SELECT\tstats EXTENDED ;", "stats"),
            ("show extended extended", "extended"),
        ] {
            let line = Line::ShowExtended { what: what.into() };
            assert_eq!(parse(text.as_bytes()), Ok(line), "{text:?}");
        }
        assert_eq!(parse(b"show extended"), command("show", "extended"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            " ",
            ";",
            "; ;",
            "show pools;;",
            "show pools extra",
            "show pools extendeds",
            "show pools extended extended",
            "pause app extended",
            "select 1+1",
            "select version()",
            "show \"aa",
            "show -- c\n pools",
            "set a=b c",
            "set a=b,c",
            "sh\u{e9}w",
            "show'pools'",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(Refusal::Grammar), "{text:?}");
        }
    }

    #[test]
    fn words_have_a_longest_length() {
        let line = |verb: usize, argument: usize| {
            parse(format!("{} {}", "v".repeat(verb), "a".repeat(argument)).as_bytes()).is_ok()
        };
        assert!(line(15, 63));
        assert!(!line(16, 1) && !line(1, 64));
        let set = |key: usize, value: usize| {
            parse(format!("set {}='{}'", "k".repeat(key), "v".repeat(value)).as_bytes()).is_ok()
        };
        assert!(set(63, 255));
        assert!(!set(64, 1) && !set(1, 256));
        assert_eq!(parse(&[b'v'; 16]), Err(Refusal::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(text: Vec<u8>) {
            let _ = parse(&text);
        }

        #[test]
        fn nearly_right_text_is_parsed_or_refused(text in "[ \"';=a-zST]{0,40}") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn a_quoted_word_is_any_text(argument in "[^\\x00]{0,20}") {
            let argument = argument.trim_matches('"').to_owned();
            let text = format!("show \"{}\"", argument.replace('"', "\"\""));
            if argument.len() <= ARGUMENT_MAX {
                prop_assert_eq!(parse(text.as_bytes()), command("show", &argument));
            }
        }
    }
}
