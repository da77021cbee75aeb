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

/// This bit is set in digests that belong to one client only.
const PRIVATE: u64 = 0b10;

/// Two clients with equal contexts give a text the same meaning. It is a digest. A client that
/// causes a collision on purpose harms only other clients of its own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParseContext(pub u64);

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
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    let is_one = |word: &[u8]| WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
    let has_one = |text: &[u8]| text.split(|byte| !byte.is_ascii_alphabetic()).any(is_one);
    // The letter after a backslash may be an escape for another one.
    let may_say = |literal: &[u8]| {
        let mut parts = literal.split(|byte| *byte == b'\\');
        parts.any(|part| has_one(part) || part.get(1..).is_some_and(has_one))
    };
    // The text is read with both settings of standard_conforming_strings.
    let may_be = |standard| sql::literals(sql, standard).any(may_say);
    WORDS.iter().any(|word| contains(sql, word)) && (may_be(true) || may_be(false))
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
        for (sql, shared) in [
            ("SELECT * FROM t WHERE at < 'now'", false),
            ("SELECT ' Today 12:00'::timestamp", false),
            ("SELECT '[today,tomorrow)'::daterange", false),
            ("SELECT '{\"2024-05-01\",Yesterday}'::date[]", false),
            ("SELECT $$now$$::timestamptz, E'\\ttoday12:00'::timestamp", false),
            ("SELECT E'it\\'s', 'now'::date", false),
            ("SELECT now(), 'x', at AS today FROM t", true),
            ("SELECT 'known', 'nowhere' /* 'now' */ AS \"'now'\"", true),
            ("SELECT 'infinity'::date, 'allballs'::time", true),
        ] {
            let [one, other] =
                [(); 2].map(|()| interner.intern(sql.as_bytes(), b"", ParseContext::COMMON));
            assert_eq!(Arc::ptr_eq(&one, &other), shared, "{sql}");
        }
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
