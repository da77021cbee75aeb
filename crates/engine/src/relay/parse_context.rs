//! What a text means. One text can mean two things to two clients: its tables
//! and functions are those of the schemas in `search_path`, and `"$user"` in that is whoever the
//! client has become; a literal of a date is read by the client's time zone and `DateStyle`, letters
//! by its encoding; and a temporary table hides one of the same name. PostgreSQL does all that when the
//! text is parsed. So only texts of one context are one statement (`prepared.rs`).
//!
//! Whether a text may lead to another context within its transaction is told from its words here.
//! Which context that would be nobody knows then, until the transaction is over and PostgreSQL has
//! been asked (`session/verdict.rs`).

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::fast::FixedState;
use sql::Signs;

use crate::session::carried::{ROLE, SESSION_AUTHORIZATION, Setting};
use crate::vars::{APPLICATION_NAME, TrackedNames, Vars};

const SEARCH_PATH: &[u8] = b"search_path";
/// What stands for the schema of whoever one is.
const OWN_SCHEMA: &[u8] = b"$user";

/// What else has a say when a text is parsed and is not reported by every version of PostgreSQL: how
/// literals are read (the first five), and what is a string, and what `a = NULL` means.
const READING: [&[u8]; 7] = [
    b"array_nulls",
    b"IntervalStyle",
    b"lc_monetary",
    b"timezone_abbreviations",
    b"xmloption",
    b"backslash_quote",
    b"transform_null_equals",
];

/// What stands in a text that changes the context: names of settings, words of commands, the view by
/// which settings can be changed; and `ALL` of them.
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
/// What a name can be written with so that it cannot be read.
const ESCAPES: [&[u8]; 2] = [b"\\", b"u&"];
/// So much of a text and of its parameters is searched, in bytes. What is longer may say anything.
const SEARCHED_LEN_MAX: usize = 65_536;

/// Set in the digest of what is nobody else's, and in no other.
const PRIVATE: u64 = 0b10;

/// Equal for clients to whom a text means the same. A digest: that two should be equal by chance
/// is as good as impossible, and who brings it about on purpose harms only others of its own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ParseContext(pub u64);

impl ParseContext {
    /// What is so with the server by itself.
    pub const COMMON: Self = Self(0);

    /// That of a client with these values.
    pub fn of(vars: &Vars, names: &TrackedNames) -> Self {
        let path_slot = names.slot(SEARCH_PATH);
        let path = vars.carried.get(SEARCH_PATH).or_else(|| vars.get(path_slot?));
        let who = vars.carried.get(ROLE).or_else(|| vars.carried.get(SESSION_AUTHORIZATION));
        let who = who.filter(|_| path.is_none_or(|path| contains(path, OWN_SCHEMA)));
        // All that is reported but the application's name may have a say in how a literal is read.
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

    /// A digest for what is found there by what has this digest.
    pub fn digest(self, of: u64) -> u64 {
        FixedState::default().hash_one((self, of)) | 1
    }

    /// Nobody else's, and not even the same client's a moment later. A `key` is one client's, and
    /// `serial` the number of one of its messages.
    pub fn private(key: u64, serial: u64) -> Self {
        Self(FixedState::default().hash_one((key, serial)) | PRIVATE)
    }

    pub fn is_private(self) -> bool {
        self.0 & PRIVATE != 0
    }
}

/// May a text with these signs, run with these parameters, change by its own words what others mean?
/// Functions that it calls may do so as well.
pub fn may_change_context(signs: Signs, text: &[u8], parameters: &[u8]) -> bool {
    let sets = signs.intersects(Signs::SETTINGS | Signs::LOCAL);
    let says = |words: &[&[u8]], text: &[u8]| {
        text.len() > SEARCHED_LEN_MAX || words.iter().any(|word| contains(text, word))
    };
    sets && (says(&WORDS, text) || says(&ESCAPES, text) || says(&WORDS, parameters))
}

/// Has it a literal that PostgreSQL reads as the time at which the text is parsed, alone or in a range
/// or an array? What was that time for one client is not so for the next. A word too many costs only
/// the sharing.
pub fn is_of_its_moment(sql: &[u8]) -> bool {
    const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
    let is_one = |word: &[u8]| WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
    let has_one = |text: &[u8]| text.split(|byte| !byte.is_ascii_alphabetic()).any(is_one);
    // The letter behind a backslash need not be one.
    let may_say = |literal: &[u8]| {
        let mut parts = literal.split(|byte| *byte == b'\\');
        parts.any(|part| has_one(part) || part.get(1..).is_some_and(has_one))
    };
    // However the client writes strings.
    let may_be = |standard| sql::literals(sql, standard).any(may_say);
    WORDS.iter().any(|word| contains(sql, word)) && (may_be(true) || may_be(false))
}

/// Does that word stand in the text, in letters of whatever case?
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
    fn only_the_path_and_who_one_is_in_it_matter() {
        assert_eq!(context(&[("work_mem", "5MB")]), ParseContext::COMMON);
        let a = context(&[("search_path", "a")]);
        assert_ne!(a, ParseContext::COMMON);
        assert_ne!(a, context(&[("search_path", "b")]));
        assert_eq!(a, context(&[("search_path", "a"), ("role", "r"), ("work_mem", "5MB")]));
        let own = |who| context(&[("search_path", "\"$user\", a"), ("role", who)]);
        assert_ne!(own("r"), own("s"));
        // The server's own path may have it.
        assert_ne!(context(&[("role", "r")]), ParseContext::COMMON);
        assert_ne!(context(&[("role", "r")]), context(&[("session_authorization", "s")]));
    }

    #[test]
    fn what_is_not_reported_and_has_a_say_in_how_a_text_is_read_matters() {
        for name in READING {
            let with =
                |value| context(&[(str::from_utf8(name).unwrap(), value), ("work_mem", "5MB")]);
            assert_ne!(with("a"), ParseContext::COMMON);
            assert_ne!(with("a"), with("b"));
        }
    }

    #[test]
    fn a_path_that_is_reported_counts_like_one_that_is_carried() {
        let names = TrackedNames::new(&["search_path".to_owned()]);
        let mut vars = Vars::default();
        vars.set(names.slot(SEARCH_PATH).unwrap(), b"a");
        assert_eq!(ParseContext::of(&vars, &names), context(&[("search_path", "a")]));
    }

    #[test]
    fn literals_are_read_by_what_is_reported() {
        let names = TrackedNames::new(&["IntervalStyle".to_owned()]);
        let with = |slot, value: &str| {
            let mut vars = Vars::default();
            vars.set(slot, value.as_bytes());
            ParseContext::of(&vars, &names)
        };
        let zone = with(TIME_ZONE, "UTC");
        assert_ne!(zone, with(TIME_ZONE, "Asia/Tokyo"));
        assert_ne!(zone, with(DATE_STYLE, "UTC"));
        assert_ne!(with(names.len() - 1, "iso_8601"), with(names.len() - 1, "postgres"));
        assert_eq!(with(APPLICATION_NAME, "a"), with(APPLICATION_NAME, "b"));
    }

    #[test]
    fn a_statement_with_the_time_of_its_parse_is_shared_with_nobody() {
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
    fn texts_that_may_lead_elsewhere() {
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
