//! The settings that decide what a text means. One text can mean two things to two clients:
//!
//! * Its tables and functions are found through `search_path`, in which `"$user"` is the client's
//!   current role.
//! * A date literal is read by the client's time zone and `DateStyle`, letters by its encoding.
//! * A temporary table hides a table of the same name.
//!
//! PostgreSQL decides all this when it parses the text. So only texts of one parse context are one
//! statement (`prepared.rs`).
//!
//! This file also tells from a text's words whether it may change the parse context within its
//! transaction. The new context is unknown until the transaction is over and PostgreSQL has been
//! asked (`session/verdict.rs`).

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::fast::FixedState;
use sql::Signs;

use crate::session::carried::{ROLE, SESSION_AUTHORIZATION, Setting};
use crate::vars::{APPLICATION_NAME, TrackedNames, Vars};

const SEARCH_PATH: &[u8] = b"search_path";
/// Stands for the schema named like the current role.
const OWN_SCHEMA: &[u8] = b"$user";

/// Settings that affect parsing and that some versions of PostgreSQL do not report: how literals
/// are read (the first five), how strings end, and the meaning of `a = NULL`.
const READING: [&[u8]; 7] = [
    b"array_nulls",
    b"IntervalStyle",
    b"lc_monetary",
    b"timezone_abbreviations",
    b"xmloption",
    b"backslash_quote",
    b"transform_null_equals",
];

/// Words of texts that change the parse context: names of settings, commands, the view through
/// which settings can be changed, and `ALL`.
const WORDS: [&[u8]; 17] = [
    b"path",
    b"schema",
    b"role",
    b"authorization",
    b"zone",
    b"style",
    b"names",
    b"encoding",
    b"conforming",
    b"array_nulls",
    b"monetary",
    b"abbreviations",
    b"xml",
    b"quote",
    b"null_equals",
    b"pg_settings",
    b"all",
];
/// Escapes that can hide a name.
const ESCAPES: [&[u8]; 2] = [b"\\", b"u&"];
/// Bytes of a text and its parameters that are searched. A longer text counts as one that may
/// change the context.
const SEARCHED_LEN_MAX: usize = 65_536;

/// Words of literals that PostgreSQL replaces by the time of parsing. The library has the same list
/// (`extension/context.h`).
const MOMENTS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

/// This bit is set in digests that belong to one client only.
const PRIVATE: u64 = 0b10;

/// Two clients with equal contexts give a text the same meaning. It is a digest. A client that
/// causes a collision on purpose harms only other clients of its own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParseContext(pub u64);

/// May the present transaction of a server's client have changed the parse context?
#[derive(Clone, Copy, Debug, Default)]
pub struct ContextChange(bool);

impl ContextChange {
    #[inline]
    pub(crate) fn is_possible(self) -> bool {
        self.0
    }

    /// A text may change it, or the server has changed a parameter by itself.
    #[inline]
    pub(crate) fn note(&mut self) {
        self.0 = true;
    }

    /// A transaction is over. `is_open`: the context is not known yet.
    #[inline]
    pub(crate) fn end_transaction(&mut self, is_open: bool) {
        self.0 = is_open;
    }
}

impl ParseContext {
    /// The context of a server whose client has changed nothing.
    pub const COMMON: Self = Self(0);

    /// The context of a client with these values.
    pub fn of(vars: &Vars, names: &TrackedNames) -> Self {
        let path_slot = names.slot(SEARCH_PATH);
        let path = vars.carried.get(SEARCH_PATH).or_else(|| vars.get(path_slot?));
        let who = vars.carried.get(ROLE).or_else(|| vars.carried.get(SESSION_AUTHORIZATION));
        let who = who.filter(|_| path.is_none_or(|path| contains(path, OWN_SCHEMA)));
        // Every reported parameter except the application's name may affect how a literal is read.
        let reads = |slot: &usize| *slot != APPLICATION_NAME && Some(*slot) != path_slot;
        let reported = (0..names.len()).filter(reads).map(|slot| vars.get(slot));
        let is_read_by =
            |one: &&Setting| READING.iter().any(|name| name.eq_ignore_ascii_case(&one.name));
        let mut carried = vars.carried.all().iter().filter(is_read_by).peekable();
        if path.is_none()
            && who.is_none()
            && carried.peek().is_none()
            && reported.clone().all(|value| value.is_none())
        {
            return Self::COMMON;
        }
        let mut hasher = FixedState::default().build_hasher();
        (path, who).hash(&mut hasher);
        carried.for_each(|setting| setting.hash(&mut hasher));
        reported.for_each(|value| value.hash(&mut hasher));
        Self(hasher.finish() & !PRIVATE | 1)
    }

    /// Combines another digest with this context.
    pub fn digest(self, of: u64) -> u64 {
        FixedState::default().hash_one((self, of)) | 1
    }

    /// A context that no other client has, nor this client a moment later. `key` belongs to one
    /// client, `serial` to one of its messages.
    pub fn private(key: u64, serial: u64) -> Self {
        Self(FixedState::default().hash_one((key, serial)) | PRIVATE)
    }

    pub fn is_private(self) -> bool {
        self.0 & PRIVATE != 0
    }
}

/// May a text with these signs and parameters change the parse context by its own words? Functions
/// that it calls may change it as well.
pub fn may_change_context(signs: Signs, text: &[u8], parameters: &[u8]) -> bool {
    let sets = signs.intersects(Signs::SETTINGS | Signs::LOCAL);
    let says = |words: &[&[u8]], text: &[u8]| {
        text.len() > SEARCHED_LEN_MAX || words.iter().any(|word| contains(text, word))
    };
    sets && (says(&WORDS, text) || says(&ESCAPES, text) || says(&WORDS, parameters))
}

/// Does the text contain a literal such as 'now', which PostgreSQL replaces by the time of parsing?
/// Such a text is not shared. A false positive costs only the sharing.
pub fn is_of_its_moment(sql: &[u8]) -> bool {
    let is_possible = MOMENTS.iter().any(|word| contains(sql, word)) || may_hide_moment(sql);
    // The text is read with both settings of standard_conforming_strings.
    is_possible && [true, false].into_iter().any(|standard| has_moment(sql, standard))
}

/// May a literal consist of other letters than the text shows? It may have escapes, or parts on
/// several lines.
fn may_hide_moment(sql: &[u8]) -> bool {
    let is_cut = |at: usize| {
        let rest = sql.get(at + 1..).unwrap_or_default().trim_ascii_start();
        rest.starts_with(b"'") || rest.starts_with(b"--")
    };
    ESCAPES.iter().any(|escape| contains(sql, escape))
        || sql.iter().enumerate().any(|(at, byte)| *byte == b'\'' && is_cut(at))
}

fn has_moment(sql: &[u8], standard_strings: bool) -> bool {
    let is_word = |word: &[u8]| MOMENTS.iter().any(|known| known.eq_ignore_ascii_case(word));
    let says = |literal: &[u8]| literal.split(|byte| !byte.is_ascii_alphabetic()).any(is_word);
    let mut literal = Vec::new();
    let mut has_escapes = false;
    let mut end = 0;
    for part in sql::literals(sql, standard_strings) {
        let start = part.as_ptr().addr() - sql.as_ptr().addr();
        let between = sql.get(end..start).unwrap_or_default();
        if between.is_empty() && end > 0 {
            literal.push(b'\''); // a doubled quote
        } else if !is_line_end(between) {
            if says(&literal) {
                return true;
            }
            literal.clear();
            has_escapes = !standard_strings || part.starts_with(b"E") || part.starts_with(b"e");
        }
        end = start + part.len();
        // The escapes of U&'…' are not read.
        if part.starts_with(b"U") || part.starts_with(b"u") {
            return true;
        }
        let (body, has_escapes) = match dollar_body(part) {
            Some(body) => (body, false),
            None => (quoted_body(part), has_escapes),
        };
        match has_escapes {
            true => unescape(body, &mut literal),
            false => literal.extend_from_slice(body),
        }
    }
    says(&literal)
}

/// Is this what stands between two parts of one literal: white space with a line end, and comments?
fn is_line_end(between: &[u8]) -> bool {
    let is_blank = |line: &[u8]| line.is_empty() || line.starts_with(b"--");
    let mut lines = between.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    between.iter().any(|byte| matches!(byte, b'\n' | b'\r')) && lines.all(is_blank)
}

/// Returns the contents of `$tag$…$tag$`.
fn dollar_body(part: &[u8]) -> Option<&[u8]> {
    let tag = part.strip_prefix(b"$")?.iter().position(|byte| *byte == b'$')? + 2;
    part.get(tag..part.len().checked_sub(tag)?)
}

/// Returns the contents of `'…'` or `E'…'`.
fn quoted_body(part: &[u8]) -> &[u8] {
    let begin = part.iter().position(|byte| *byte == b'\'').map_or(0, |at| at + 1);
    let body = part.get(begin..).unwrap_or_default();
    body.strip_suffix(b"'").unwrap_or(body)
}

/// Appends the string that these contents of `E'…'` stand for. Characters beyond LATIN1 become `?`.
fn unescape(mut body: &[u8], to: &mut Vec<u8>) {
    while let Some((&byte, rest)) = body.split_first() {
        body = rest;
        let escape = if byte == b'\\' { rest.split_first() } else { None };
        let Some((&letter, behind)) = escape else {
            to.push(byte);
            continue;
        };
        let (radix, most, digits) = match letter {
            b'x' => (16, 2, behind),
            b'u' => (16, 4, behind),
            b'U' => (16, 8, behind),
            _ => (8, 3, rest),
        };
        let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
        let (number, after) =
            digits.split_at(digits.iter().take(most).take_while(is_digit).count());
        let number = str::from_utf8(number).ok().and_then(|it| u32::from_str_radix(it, radix).ok());
        let (stands_for, left) = match number {
            Some(number) => (u8::try_from(number).unwrap_or(b'?'), after),
            None if b"bfnrt".contains(&letter) => (b' ', behind),
            None => (letter, behind),
        };
        to.push(stands_for);
        body = left;
    }
}

/// Does the text contain that word, in upper or lower case?
pub fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::relay::interner::Interner;
    use crate::session::carried::Carried;
    use crate::vars::{DATE_STYLE, TIME_ZONE};

    fn context(settings: &[(&str, &str)]) -> ParseContext {
        let setting = |&(name, value): &(&str, &str)| Setting {
            name: name.as_bytes().into(),
            value: value.as_bytes().into(),
        };
        let mut vars = Vars::default();
        vars.carried = Carried::new(settings.iter().map(setting).collect());
        ParseContext::of(&vars, &TrackedNames::new(&[]))
    }

    #[test]
    fn only_the_path_and_the_role_in_it_matter() {
        assert_eq!(context(&[("work_mem", "5MB")]), ParseContext::COMMON);
        let a = context(&[("search_path", "a")]);
        assert_ne!(a, ParseContext::COMMON);
        assert_ne!(a, context(&[("search_path", "b")]));
        assert_eq!(a, context(&[("search_path", "a"), ("role", "r"), ("work_mem", "5MB")]));
        let own = |who| context(&[("search_path", "\"$user\", a"), ("role", who)]);
        assert_ne!(own("r"), own("s"));
        // The server's own path may contain it.
        assert_ne!(context(&[("role", "r")]), ParseContext::COMMON);
        assert_ne!(context(&[("role", "r")]), context(&[("session_authorization", "s")]));
    }

    #[test]
    fn unreported_settings_that_affect_parsing_matter() {
        for name in READING {
            let with =
                |value| context(&[(str::from_utf8(name).unwrap(), value), ("work_mem", "5MB")]);
            assert_ne!(with("a"), ParseContext::COMMON);
            assert_ne!(with("a"), with("b"));
        }
    }

    #[test]
    fn a_reported_path_counts_like_a_carried_one() {
        let names = TrackedNames::new(&[]);
        let mut vars = Vars::default();
        vars.set(names.slot(SEARCH_PATH).unwrap(), b"a");
        assert_eq!(ParseContext::of(&vars, &names), context(&[("search_path", "a")]));
    }

    #[test]
    fn literals_are_read_by_what_is_reported() {
        let names = TrackedNames::new(&[]);
        let intervals = names.slot(b"IntervalStyle").unwrap();
        let with = |slot, value: &str| {
            let mut vars = Vars::default();
            vars.set(slot, value.as_bytes());
            ParseContext::of(&vars, &names)
        };
        let zone = with(TIME_ZONE, "UTC");
        assert_ne!(zone, with(TIME_ZONE, "Asia/Tokyo"));
        assert_ne!(zone, with(DATE_STYLE, "UTC"));
        assert_ne!(with(intervals, "iso_8601"), with(intervals, "postgres"));
        assert_eq!(with(APPLICATION_NAME, "a"), with(APPLICATION_NAME, "b"));
    }

    #[test]
    fn a_statement_with_the_time_of_its_parse_is_not_shared() {
        let mut interner = Interner::default();
        let texts = include_str!("../../../../extension/test/direct/moments.txt");
        let texts = texts.lines().map(|line| line.split_once('\t').unwrap());
        let texts: Vec<_> =
            texts.map(|(depends, sql)| (depends == "yes", sql.replace('␤', "\n"))).collect();
        assert!(texts.len() > 25);
        let mut is_shared = |sql: &str| {
            let [one, other] =
                [(); 2].map(|()| interner.intern(sql.as_bytes(), b"", ParseContext::COMMON));
            Arc::ptr_eq(&one, &other)
        };
        let wrong: Vec<_> =
            texts.iter().filter(|(depends, sql)| is_shared(sql) == *depends).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn the_library_has_the_same_lists() {
        let header = include_str!("../../../../extension/context.h");
        let words = |define: &str| {
            let (_, rest) = header.split_once(&format!("#define {define}")).unwrap();
            let list = rest.split_once("\n\n").unwrap().0;
            list.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let moments = MOMENTS.map(|word| String::from_utf8_lossy(word).into_owned());
        assert_eq!(words("CONTEXT_MOMENTS"), moments);
        let settings = words("CONTEXT_SETTINGS");
        let names = TrackedNames::new(&[]);
        for name in READING {
            assert!(settings.iter().any(|one| one.as_bytes() == name), "{name:?}");
        }
        for name in &settings {
            let is_tracked = names.slot(name.as_bytes()).is_some();
            assert!(is_tracked || READING.contains(&name.as_bytes()), "{name}");
            let text = format!("SET LOCAL {name} = DEFAULT");
            let signs = sql::scan(text.as_bytes(), true).signs;
            assert!(may_change_context(signs, text.as_bytes(), b""), "{name}");
        }
        for name in names.all() {
            let counts = settings.contains(name);
            let is_known = ["application_name", "client_encoding"].contains(&name.as_str());
            assert!(counts || is_known || !is_reading(name), "{name}");
        }
    }

    /// Reported settings that affect no text.
    fn is_reading(name: &str) -> bool {
        !["scram_iterations", "default_transaction_read_only"].contains(&name)
    }

    #[test]
    fn a_private_realm_is_no_other() {
        let all = [(1, 1), (1, 2), (2, 1)].map(|(key, serial)| ParseContext::private(key, serial));
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
        assert!(!all.contains(&ParseContext::COMMON));
    }

    #[test]
    fn texts_that_may_change_the_context() {
        let moves = |text: &str, parameters: &str| {
            may_change_context(
                sql::scan(text.as_bytes(), true).signs,
                text.as_bytes(),
                parameters.as_bytes(),
            )
        };
        for text in [
            "SET search_path = a",
            "set local Search_Path to a",
            "SET SCHEMA 'a'",
            "SET LOCAL ROLE r",
            "SET SESSION AUTHORIZATION r",
            "RESET ALL",
            "DISCARD ALL",
            "SELECT set_config('search_path', $1, true)",
            "SET LOCAL TIME ZONE 'Asia/Tokyo'",
            "SET datestyle TO german",
            "SET NAMES 'latin1'",
            "SET LOCAL transform_null_equals = on",
            "SET LOCAL XML OPTION DOCUMENT",
            "SELECT set_config('array_nulls', 'off', true)",
            "SELECT set_config(E'\\x73earch_p\\x61th', 'a', true)",
            "SET U&\"\\0073earch_pa\\0074h\" = a",
            "UPDATE pg_settings SET setting = 'a' WHERE name LIKE 'sea%'",
        ] {
            assert!(moves(text, ""), "{text}");
        }
        assert!(moves("SELECT set_config($1, $2, true)", "search_path a"));
        let long = "x".repeat(SEARCHED_LEN_MAX + 1);
        assert!(moves("SELECT set_config($1, $2, true)", &long));
        assert!(moves(&format!("SET LOCAL app.x = '{long}'"), ""));
        assert!(!moves(&format!("SELECT '{long}'"), &long));
        for text in [
            "SELECT 1 FROM t WHERE path = 'all'",
            "SET LOCAL statement_timeout = 5",
            "SET app.tenant = 7",
            "SELECT set_config('app.tenant', $1, true)",
            "SELECT mine()",
        ] {
            assert!(!moves(text, "seven"), "{text}");
        }
    }
}
