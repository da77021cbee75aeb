//! The probe: the query that asks PostgreSQL what a transaction has left in its session (`pool_mode
//! = auto`). It runs between transactions, after a text that may have changed the session.
//! `session/verdict.rs` decides when to ask and what follows from the answer.
//!
//! The query is one SELECT. Each row is one item in the text form of `session/written.rs`: bytes of
//! the database's encoding, escaped as ASCII, because the client's encoding may differ from server
//! to server. The client's `search_path` is active, so every name and operator is qualified. (IN
//! would look its operator up in that path.)

use wire::backend;

use crate::session::left::{Item, Left, Told, Topics};
use crate::session::state::AllLent;
use crate::vars::{quote_bytes, quote_literal};

/// The part of the answer that has arrived.
#[derive(Debug)]
pub struct Probe {
    topics: Topics,
    told: Told,
    incomplete: bool,
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
    let (name, value) = (written("name"), written("value"));
    let item = format!(
        "SELECT pg_catalog.concat(kind, CASE WHEN name IS NOT NULL AND \
         COALESCE(pg_catalog.octet_length(value), 0) OPERATOR(pg_catalog.<=) 65536 \
         THEN pg_catalog.concat(':', {name}, CASE WHEN value IS NOT NULL \
         THEN pg_catalog.concat('=', {value}) END) END) FROM ("
    );
    [item.as_bytes(), &given, &parts, b") found (kind, name, value)"].concat()
}

/// Writes bytes above 127, backslashes, semicolons and equals signs as `\ooo`. PostgreSQL's `escape`
/// doubles backslashes. A setting would decide what a backslash means in a literal.
fn written(column: &str) -> String {
    let escaped = format!(
        "pg_catalog.encode(pg_catalog.convert_to({column}, pg_catalog.getdatabaseencoding()), 'escape')"
    );
    let double = "pg_catalog.repeat(pg_catalog.chr(92), 2)";
    let signs = [(double, "134"), ("pg_catalog.chr(59)", "073"), ("pg_catalog.chr(61)", "075")];
    signs.iter().fold(escaped, |sql, (sign, octal)| {
        format!(
            "pg_catalog.replace({sql}, {sign}, pg_catalog.concat(pg_catalog.chr(92), '{octal}'))"
        )
    })
}

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
    "SELECT 'k', NULL, NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_locks \
     WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())",
    "SELECT 'c', NULL, NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_cursors WHERE is_holdable)",
    "SELECT 'p', name, statement FROM pg_catalog.pg_prepared_statements WHERE from_sql",
    "SELECT 'l', channel, NULL FROM pg_catalog.pg_listening_channels() channel",
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
        Self { topics, told: Told::default(), incomplete: false }
    }

    /// Takes one message of the answer.
    pub fn message(&mut self, code: u8, body: &[u8]) {
        if code == backend::DATA_ROW {
            let item = only_value(body).map(|item| self.told.item(item));
            self.incomplete |= item != Some(Item::Known);
        }
    }

    /// Not all of the session's state was asked for, since the server was to report it.
    pub fn doubt(&mut self) {
        self.incomplete = true;
    }

    /// Returns None if the messages were no answer to the query, or not a complete one.
    pub fn finish(self) -> Option<Left> {
        (!self.incomplete).then(|| self.told.left(self.topics))
    }
}

/// Returns the value of a DataRow that has one.
fn only_value(body: &[u8]) -> Option<&[u8]> {
    let (count, rest) = body.split_first_chunk()?;
    let (len, value) = rest.split_first_chunk()?;
    let len = usize::try_from(i32::from_be_bytes(*len)).ok()?;
    (u16::from_be_bytes(*count) == 1 && value.len() == len).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::left::ALL;
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
        let mut probe = Probe::new(ALL);
        for values in rows {
            probe.message(backend::DATA_ROW, &row(values));
        }
        probe.finish()
    }

    #[test]
    fn each_row_is_an_item() {
        let left = answer(&[&[Some("s:role=bob")], &[Some("l:news")]]).unwrap();
        assert_eq!(left.settings.unwrap().get(b"role"), Some(&b"bob"[..]));
        assert!(left.channels.unwrap().get(b"news").is_some());
    }

    #[test]
    fn messages_that_are_no_answer_are_rejected() {
        assert_eq!(answer(&[&[Some("s:a")]]), None);
        assert_eq!(answer(&[&[Some("t"), Some("t")]]), None);
        assert_eq!(answer(&[&[None]]), None);
        assert_eq!(answer(&[&[Some("?")]]), None);
        for cut in [&b"\0\x01\0\0\0\x02t"[..], b"\0\x01\0\0\0\x01tt", b"\0\x01\0", b""] {
            let mut probe = Probe::new(ALL);
            probe.message(backend::DATA_ROW, cut);
            assert_eq!(probe.finish(), None);
        }
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
