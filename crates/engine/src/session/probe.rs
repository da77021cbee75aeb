//! The probe: the query that asks PostgreSQL what a transaction has left in its session (`pool_mode
//! = auto`). It runs between transactions, after a text that may have changed the session.
//! `session/verdict.rs` decides when to ask and what follows from the answer.
//!
//! The query is one SELECT with rows of three texts: a kind (one letter), a name, a value. The
//! client's `search_path` is active, so every name and operator is qualified. (IN would look its
//! operator up in that path.) Values are bytes of the database's encoding, escaped as ASCII,
//! because the client's encoding may differ from server to server.

use wire::backend;

use crate::notify::listening::CHANNELS_MAX;
use crate::session::carried::{Carried, Setting};
use crate::session::pins::Pins;
use crate::session::state::AllLent;
use crate::vars::{quote_bytes, quote_literal};

/// Settings that belong to a transaction and not to the session, although PostgreSQL lists them
/// with the others.
const OF_TRANSACTION: [&[u8]; 3] =
    [b"transaction_isolation", b"transaction_read_only", b"transaction_deferrable"];

/// The prefix of the library `weir`'s settings.
pub(crate) const OURS: &[u8] = b"weir.";
/// The settings of the library that clients may set.
const OF_CLIENTS: [&[u8]; 2] = [b"weir.route", b"weir.token"];

/// The parts of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Settings that the session has set.
    pub settings: bool,
    /// Objects that keep a client on its server, such as temporary tables.
    pub objects: bool,
}

/// The part of the answer that has arrived.
#[derive(Debug)]
pub struct Probe {
    topics: Topics,
    settings: Vec<Setting>,
    defaults: Vec<Setting>,
    /// Bytes that the settings take, including those beyond the limit.
    settings_len: usize,
    /// Names of statements, and the texts that prepared them.
    prepared: Vec<Setting>,
    /// Names of lent statements that still exist.
    lent: Vec<Box<[u8]>>,
    channels: Vec<Box<[u8]>>,
    pins: Pins,
    incomplete: bool,
}

/// The content of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The settings, including tracked parameters, if the probe asked for them.
    pub settings: Option<Carried>,
    /// Application settings whose values are the server's own defaults. PostgreSQL does not tell
    /// whether the session has set such a value.
    pub defaults: Carried,
    /// Statements of SQL's PREPARE that other servers can prepare: name and text. Set if the probe
    /// asked for objects.
    pub prepared: Option<Carried>,
    /// The names, of those asked for, that still have a statement.
    pub lent: Vec<Box<[u8]>>,
    /// Channels that the session listens to, if the probe asked for objects. If they are too many
    /// or not ASCII, the client keeps its server instead.
    pub channels: Option<Carried>,
    pub pins: Pins,
}

impl Left {
    /// The whole content of a session in which no statements were lent.
    pub fn of_session(
        settings: Vec<Setting>,
        prepared: Vec<Setting>,
        channels: Vec<Box<[u8]>>,
        pins: Pins,
    ) -> Self {
        let topics = Topics { settings: true, objects: true };
        Self::new(topics, settings, prepared, channels, pins)
    }

    fn new(
        topics: Topics,
        mut settings: Vec<Setting>,
        prepared: Vec<Setting>,
        channels: Vec<Box<[u8]>>,
        mut pins: Pins,
    ) -> Self {
        settings.retain(|one| !OF_TRANSACTION.contains(&&*one.name) && !is_ours(&one.name));
        let fits = !pins.contains(Pins::PREPARED);
        let prepared = portable(prepared).filter(|_| fits).unwrap_or_else(|| {
            pins |= Pins::PREPARED;
            Carried::default()
        });
        if channels.len() > CHANNELS_MAX || channels.iter().any(|name| !name.is_ascii()) {
            pins |= Pins::LISTEN;
        }
        let channels = channels.into_iter().filter(|name| name.is_ascii());
        Self {
            settings: topics.settings.then(|| Carried::new(settings)),
            defaults: Carried::default(),
            channels: topics.objects.then(|| Carried::names(channels)),
            prepared: topics.objects.then_some(prepared),
            lent: Vec::new(),
            pins,
        }
    }
}

/// Is this a setting of the library `weir`? If the library is not loaded, any user can set a name
/// with this prefix.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(OURS) && !OF_CLIENTS.contains(&name)
}

/// Builds the query.
///
/// * `login`: the user that the server is logged in as
/// * `customs`: names of settings that PostgreSQL does not list, because no extension defines them
///   (`app.tenant`)
/// * `lent`: names of statements that SQL has not prepared
pub(crate) fn question<'a>(
    topics: Topics,
    login: &[u8],
    customs: impl Iterator<Item = &'a [u8]>,
    lent: &AllLent,
) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if topics.settings {
        parts.extend(SETTINGS.iter().map(|part| part.as_bytes().to_vec()));
        let mut other_user = b"SELECT 's', 'session_authorization', session_user::pg_catalog.text \
            WHERE session_user OPERATOR(pg_catalog.<>) "
            .to_vec();
        quote_literal(login, &mut other_user);
        other_user.extend_from_slice(b"::pg_catalog.name");
        parts.push(other_user);
        parts.extend(custom_settings(customs));
    }
    if topics.objects {
        parts.extend(OBJECTS.iter().map(|part| part.as_bytes().to_vec()));
    }
    if !lent.is_empty() {
        let mut part = b"SELECT 'n', name, NULL FROM pg_catalog.pg_prepared_statements \
            WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY["
            .to_vec();
        quote_list(lent.keys().map(|name| &**name), &mut part);
        part.extend_from_slice(b"]::pg_catalog.text[])");
        parts.push(part);
    }
    let given = if topics.settings { given(login) } else { Vec::new() };
    let parts = parts.join(&b" UNION ALL "[..]);
    [ASCII_OF, &given, &parts, b") found (kind, name, value)"].concat()
}

/// Writes bytes above 127 as `\ooo` and doubles backslashes. A value that is too long is left out.
const ASCII_OF: &[u8] = b"SELECT kind, \
    pg_catalog.encode(pg_catalog.convert_to(name, pg_catalog.getdatabaseencoding()), 'escape'), \
    CASE WHEN pg_catalog.octet_length(value) OPERATOR(pg_catalog.<=) 65536 THEN \
    pg_catalog.encode(pg_catalog.convert_to(value, pg_catalog.getdatabaseencoding()), 'escape') END \
    FROM (";

/// A session has a role only after SET ROLE, or if ALTER ROLE gives it one.
const SETTINGS: [&str; 2] = [
    "SELECT 's', name, pg_catalog.current_setting(name) FROM pg_catalog.pg_settings \
     WHERE source OPERATOR(pg_catalog.=) 'session'",
    "SELECT 's', 'role', pg_catalog.current_setting('role') \
     WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none' \
     OR EXISTS (SELECT 1 FROM given WHERE given.name OPERATOR(pg_catalog.=) 'role')",
];

/// Every kind of temporary object depends on the temporary schema.
const OBJECTS: [&str; 5] = [
    "SELECT 't', NULL, NULL WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid \
     AND EXISTS (SELECT 1 FROM pg_catalog.pg_depend WHERE refclassid OPERATOR(pg_catalog.=) \
     'pg_catalog.pg_namespace'::pg_catalog.regclass AND refobjid OPERATOR(pg_catalog.=) \
     (SELECT pg_catalog.pg_my_temp_schema()))",
    "SELECT 'a', NULL, NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_locks \
     WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    "SELECT 'h', NULL, NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_cursors WHERE is_holdable)",
    "SELECT 'p', name, statement FROM pg_catalog.pg_prepared_statements WHERE from_sql",
    "SELECT 'l', NULL, channel FROM pg_catalog.pg_listening_channels() channel",
];

/// SQL for the names of settings to which ALTER ROLE or ALTER DATABASE gives a value in new
/// sessions.
fn given(login: &[u8]) -> Vec<u8> {
    let mut sql = b"WITH given (name) AS (\
        SELECT pg_catalog.lower(pg_catalog.split_part(one.setting, '=', 1)) \
        FROM pg_catalog.pg_db_role_setting own, pg_catalog.unnest(own.setconfig) one (setting) \
        WHERE (own.setdatabase OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
        OR own.setdatabase OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
        WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())) \
        AND (own.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid \
        OR pg_catalog.pg_get_userbyid(own.setrole) OPERATOR(pg_catalog.=) "
        .to_vec();
    quote_literal(login, &mut sql);
    sql.extend_from_slice(b"::pg_catalog.name)) ");
    sql
}

/// The server's default comes from its configuration, or from ALTER DATABASE and ALTER ROLE. It may
/// differ from node to node, so it is not carried. `set_config` with NULL returns it, and sets it for
/// this transaction only. A setting that was set and then reset has an empty value.
fn custom_settings<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut list = Vec::new();
    quote_list(names, &mut list);
    if list.is_empty() {
        return None;
    }
    let mut sql = b"SELECT CASE WHEN custom.value OPERATOR(pg_catalog.<>) custom.initial \
        THEN 's' ELSE 'd' END, custom.name, custom.value FROM (SELECT one.name, one.value, \
        COALESCE(pg_catalog.set_config(one.name, NULL, true), '') AS initial FROM (\
        SELECT asked.name, pg_catalog.current_setting(asked.name, true) AS value \
        FROM pg_catalog.unnest(ARRAY["
        .to_vec();
    sql.extend_from_slice(&list);
    // OFFSET has the values read before `set_config` changes them.
    sql.extend_from_slice(
        b"]::pg_catalog.text[]) asked (name) \
        WHERE pg_catalog.current_setting(asked.name, true) IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_settings known \
        WHERE known.name OPERATOR(pg_catalog.=) asked.name) OFFSET 0) one OFFSET 0) custom \
        WHERE custom.value OPERATOR(pg_catalog.<>) '' \
        OR custom.initial OPERATOR(pg_catalog.<>) ''",
    );
    Some(sql)
}

fn quote_list<'a>(names: impl Iterator<Item = &'a [u8]>, sql: &mut Vec<u8>) {
    for (at, name) in names.enumerate() {
        sql.extend_from_slice(if at == 0 { b"" } else { b"," });
        quote_bytes(name, sql);
    }
}

impl Probe {
    pub fn new(topics: Topics) -> Self {
        Self {
            topics,
            settings: Vec::new(),
            defaults: Vec::new(),
            settings_len: 0,
            prepared: Vec::new(),
            lent: Vec::new(),
            channels: Vec::new(),
            pins: Pins::NONE,
            incomplete: false,
        }
    }

    /// Takes one message of the answer.
    pub fn message(&mut self, code: u8, body: &[u8]) {
        if code == backend::DATA_ROW {
            self.incomplete |= self.row(body).is_none();
        }
    }

    fn row(&mut self, body: &[u8]) -> Option<()> {
        let (count, mut rest) = body.split_first_chunk()?;
        if u16::from_be_bytes(*count) != 3 {
            return None;
        }
        let kind = value(&mut rest)??;
        let mut text = || match value(&mut rest)? {
            Some(escaped) => Some(Some(unescaped(escaped)?)),
            None => Some(None),
        };
        let (name, text) = (text()?, text()?);
        let pins = match kind {
            b"s" => self.setting(name?, text),
            b"d" => {
                let pins = self.setting(name?, text);
                self.defaults.extend(self.settings.pop_if(|_| pins.is_empty()));
                pins
            }
            b"l" => {
                if self.channels.len() <= CHANNELS_MAX {
                    self.channels.push(text?.into());
                }
                Pins::NONE
            }
            b"t" => Pins::TEMPORARY,
            b"a" => Pins::LOCK,
            b"h" => Pins::CURSOR,
            b"p" => self.statement(name?, text),
            b"n" => {
                self.lent.push(name?.into());
                Pins::NONE
            }
            _ => return None,
        };
        self.pins |= pins;
        Some(())
    }

    /// Takes one setting. Returns the reasons to keep the server if the setting cannot be carried.
    fn setting(&mut self, name: Vec<u8>, value: Option<Vec<u8>>) -> Pins {
        let Some(value) = value else { return Pins::SETTING };
        self.settings_len += name.len() + value.len();
        if self.settings_len > SETTINGS_LEN_MAX {
            return Pins::SETTING;
        }
        self.settings.push(Setting { name: name.into(), value: value.into() });
        Pins::NONE
    }

    /// Takes one statement. Returns the reasons to keep the server if the statement cannot be
    /// carried.
    fn statement(&mut self, name: Vec<u8>, text: Option<Vec<u8>>) -> Pins {
        let Some(text) = text.filter(|_| self.prepared.len() < PREPARED_MAX) else {
            return Pins::PREPARED;
        };
        self.prepared.push(Setting { name: name.into(), value: text.into() });
        Pins::NONE
    }

    /// Not all of the session's state was asked for, since the server was to report it.
    pub fn doubt(&mut self) {
        self.incomplete = true;
    }

    /// Returns None if the messages were no answer to the query, or not a complete one.
    pub fn finish(self) -> Option<Left> {
        let Self { topics, settings, prepared, lent, channels, pins, incomplete, .. } = self;
        let left = Left::new(topics, settings, prepared, channels, pins);
        let left = Left { lent, defaults: Carried::new(self.defaults), ..left };
        (!incomplete).then_some(left)
    }
}

/// Limit of the names and values of carried settings, in bytes. With more, the client keeps its
/// server.
const SETTINGS_LEN_MAX: usize = 65_536;

/// Limit of carried statements, and of the length of their texts. With more, the client keeps its
/// server, since each further server would have to prepare all of them.
const PREPARED_MAX: usize = 16;
const PREPARED_LEN_MAX: usize = 16_384;

/// Returns the statements with the texts that prepare them on another server. None if a statement
/// has no such text, or if there are too many.
fn portable(prepared: Vec<Setting>) -> Option<Carried> {
    if prepared.len() > PREPARED_MAX {
        return None;
    }
    let own = |one: Setting| {
        // The meaning of other letters depends on the client's encoding. The meaning of a backslash
        // depends on standard_conforming_strings, which can even change the number of statements.
        if !one.name.is_ascii() || !one.value.is_ascii() || one.value.contains(&b'\\') {
            return None;
        }
        let value = own_text(&one.name, &one.value)?.into();
        Some(Setting { value, ..one })
    };
    let all = prepared.into_iter().map(own).collect::<Option<Vec<_>>>()?;
    let len: usize = all.iter().map(|one| one.value.len()).sum();
    (len <= PREPARED_LEN_MAX).then(|| Carried::new(all))
}

/// PostgreSQL returns the whole string in which a PREPARE stood. This returns the part of this
/// PREPARE.
fn own_text<'a>(name: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    if sql::statements(text, true).nth(1).is_none() {
        // The statement as it was written, up to the semicolon.
        return Some(text);
    }
    let mut found = sql::statements(text, true).filter(|one| {
        let own = one.name.clone().and_then(|range| text.get(range));
        one.verb == sql::Verb::Prepare && own.is_some_and(|own| *sql::identifier(own) == *name)
    });
    let own = found.next()?;
    found.next().is_none().then(|| text.get(own.range)).flatten()
}

/// Reverses PostgreSQL's `encode(…, 'escape')`.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
        } else if let Some(behind) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = behind;
        } else {
            let (digits, behind) = rest.split_at_checked(3)?;
            bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()?);
            rest = behind;
        }
    }
    Some(bytes)
}

/// The next value of a DataRow. The outer None: there are no more values.
fn value<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (len, behind) = rest.split_first_chunk()?;
    let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) else {
        *rest = behind;
        return Some(None);
    };
    let (text, behind) = behind.split_at_checked(len)?;
    *rest = behind;
    Some(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::state::Lent;

    fn row(values: &[Option<&str>]) -> Vec<u8> {
        let mut body = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            body.extend_from_slice(&value.map_or(-1, |text| text.len() as i32).to_be_bytes());
            body.extend_from_slice(value.unwrap_or_default().as_bytes());
        }
        body
    }

    fn answer(rows: &[&[Option<&str>]]) -> Option<Left> {
        let mut probe = Probe::new(Topics { settings: true, objects: true });
        for values in rows {
            probe.message(backend::DATA_ROW, &row(values));
        }
        probe.finish()
    }

    #[test]
    fn settings_and_reasons_are_told_apart() {
        let left = answer(&[
            &[Some("s"), Some("role"), Some("bob")],
            &[Some("s"), Some("transaction_isolation"), Some("serializable")],
            &[Some("t"), None, None],
            &[Some("l"), None, Some("news")],
            &[Some("n"), Some("mine"), None],
        ])
        .unwrap();
        assert_eq!(left.lent, [b"mine"[..].into()]);
        let settings = left.settings.unwrap();
        assert_eq!(settings.get(b"role"), Some(&b"bob"[..]));
        assert_eq!(settings.all().len(), 1);
        assert_eq!(left.pins, Pins::TEMPORARY);
        assert_eq!(left.channels, Some(Carried::names(std::iter::once(b"news"[..].into()))));
        let letters = answer(&[&[Some("l"), None, Some(r"\303\244")]]).unwrap();
        assert_eq!((letters.channels, letters.pins), (Some(Carried::default()), Pins::LISTEN));
        let nothing = answer(&[]).unwrap();
        assert_eq!((nothing.settings, nothing.pins), (Some(Carried::default()), Pins::NONE));
        let unasked = Probe::new(Topics { settings: false, objects: false }).finish();
        assert_eq!(unasked, Some(Left::default()));
    }

    #[test]
    fn a_statement_is_carried_by_its_own_text() {
        let prepared = |name: &str, text: &str| {
            let left = answer(&[&[Some("p"), Some(name), Some(text)]]).unwrap();
            let own = left.prepared.unwrap();
            let text = own.get(name.as_bytes()).map(|text| String::from_utf8_lossy(text).into());
            (text, left.pins)
        };
        let carried = |text: &str| (Some(text.to_owned()), Pins::NONE);
        let pinned = (None, Pins::PREPARED);
        assert_eq!(prepared("a", "PREPARE a AS SELECT 1;"), carried("PREPARE a AS SELECT 1;"));
        assert_eq!(
            prepared("B", "SELECT 1; prepare \"B\"(int) as select $1; DO ''"),
            carried("prepare \"B\"(int) as select $1")
        );
        assert_eq!(prepared("a", "PREPARE b AS SELECT 1; SELECT 2"), pinned);
        assert_eq!(
            prepared("a", "PREPARE a AS SELECT 'it\\\\'s'; INSERT INTO t VALUES ('x')"),
            pinned
        );
        assert_eq!(
            prepared("a", "PREPARE a AS SELECT 1; DEALLOCATE a; PREPARE a AS SELECT 2"),
            pinned
        );
        assert_eq!(prepared("a", &format!("PREPARE a AS SELECT {}", "1".repeat(20_000))), pinned);
    }

    #[test]
    fn more_settings_than_are_carried_are_not_kept_here() {
        let value = "x".repeat(1_000);
        let names: Vec<_> = (0..100).map(|at| format!("app.x{at}")).collect();
        let mut probe = Probe::new(Topics { settings: true, objects: false });
        for name in &names {
            probe.message(backend::DATA_ROW, &row(&[Some("s"), Some(name), Some(&value)]));
        }
        let left = probe.finish().unwrap();
        assert_eq!((left.settings.unwrap().all().len(), left.pins), (65, Pins::SETTING));
        let long = answer(&[&[Some("s"), Some("app.x"), None]]).unwrap();
        assert_eq!((long.settings, long.pins), (Some(Carried::default()), Pins::SETTING));
    }

    #[test]
    fn of_statements_that_are_too_long_or_too_many_none_is_carried() {
        let short = [Some("p"), Some("a"), Some("PREPARE a AS SELECT 1")];
        let names: Vec<_> = (0..=PREPARED_MAX).map(|at| format!("a{at}")).collect();
        let texts: Vec<_> =
            names.iter().map(|name| format!("PREPARE {name} AS SELECT 1")).collect();
        let all = names.iter().zip(&texts).map(|(name, text)| [Some("p"), Some(name), Some(text)]);
        let all: Vec<_> = all.collect();
        let many: Vec<_> = all.iter().map(|row| &row[..]).collect();
        for rows in [&[&short[..], &[Some("p"), Some("b"), None]][..], &many] {
            let left = answer(rows).unwrap();
            assert_eq!((left.prepared, left.pins), (Some(Carried::default()), Pins::PREPARED));
        }
        assert_eq!(answer(&many[1..]).unwrap().pins, Pins::NONE);
    }

    #[test]
    fn values_are_bytes_written_in_ascii() {
        let value = |text: &str| {
            let left = answer(&[&[Some("s"), Some("a"), Some(text)]])?;
            left.settings?.get(b"a").map(<[u8]>::to_vec)
        };
        assert_eq!(value("it's").unwrap(), b"it's");
        assert_eq!(value(r"\303\244\\x").unwrap(), b"\xc3\xa4\\x");
        for broken in [r"\", r"\30", r"\8x1", r"\777"] {
            assert_eq!(value(broken), None, "{broken}");
        }
        let prepared = answer(&[&[Some("p"), Some("a"), Some(r"PREPARE a AS SELECT '\303\244'")]]);
        assert_eq!(prepared.unwrap().pins, Pins::PREPARED);
    }

    #[test]
    fn messages_that_are_no_answer_are_rejected() {
        assert_eq!(answer(&[&[Some("s"), Some("a")]]), None);
        assert_eq!(answer(&[&[Some("s"), None, Some("1")]]), None);
        assert_eq!(answer(&[&[Some("?"), None, None]]), None);
        let mut cut = Probe::new(Topics { settings: true, objects: true });
        cut.message(backend::DATA_ROW, b"\0\x03\0\0\0\x09s");
        assert_eq!(cut.finish(), None);
    }

    #[test]
    fn only_what_is_asked_for_is_in_the_question() {
        let ask = |settings, objects, customs: &[&str]| {
            let customs = customs.iter().map(|name| name.as_bytes());
            let sql = question(Topics { settings, objects }, b"o'b", customs, &AllLent::new());
            String::from_utf8(sql).unwrap()
        };
        let settings = ask(true, false, &[]);
        assert!(settings.contains("'o''b'") && !settings.contains("pg_locks"));
        assert!(!settings.contains("ARRAY["));
        assert!(ask(true, false, &["app.x", "b.y"]).contains("ARRAY['app.x','b.y']"));
        let lent = Lent { since: 1, is_placeholder: false };
        let lent = AllLent::from([(b"it's"[..].into(), lent)]);
        let topics = Topics { settings: false, objects: false };
        let names = question(topics, b"", std::iter::empty(), &lent);
        assert!(String::from_utf8(names).unwrap().contains("ANY (ARRAY['it''s']"));
        let objects = ask(false, true, &["app.x"]);
        assert!(objects.contains("pg_locks") && !objects.contains("current_setting"));
    }
}
