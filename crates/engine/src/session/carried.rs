//! Settings that a client carries from server to server (`pool_mode = auto`), beyond the tracked
//! parameters of `vars.rs`. A probe has found that the client's session sets them; `probe.rs`
//! decides which settings count. This file has the list, and the SQL that turns one list into
//! another.

use std::sync::Arc;

use crate::vars::{quote_bytes, quote_literal};

/// The settings that decide which role the session acts as. They come first, since the role decides
/// which other settings may be set.
pub(crate) const SESSION_AUTHORIZATION: &[u8] = b"session_authorization";
pub(crate) const ROLE: &[u8] = b"role";

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    pub name: Box<[u8]>,
    pub value: Box<[u8]>,
}

/// The order of a client's settings and the switch to the client's role. Some settings may be set
/// by a superuser only, so one order may fail where the other succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Switch to the client's role first, then apply the other settings.
    WhoFirst,
    /// Apply the settings as the server's login user, then switch to the client's role.
    WhoLast,
}

impl Order {
    pub fn other(self) -> Self {
        match self {
            Self::WhoFirst => Self::WhoLast,
            Self::WhoLast => Self::WhoFirst,
        }
    }
}

/// Settings sorted by name, each name once. Empty for nearly every client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Carried(Option<Arc<[Setting]>>);

impl Carried {
    /// If a name occurs several times, the last value counts.
    pub fn new(mut settings: Vec<Setting>) -> Self {
        settings.sort_by(|one, other| one.name.cmp(&other.name));
        settings.dedup_by(|later, first| {
            let is_same = later.name == first.name;
            if is_same {
                std::mem::swap(later, first);
            }
            is_same
        });
        Self((!settings.is_empty()).then(|| settings.into()))
    }

    pub fn all(&self) -> &[Setting] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let all = self.all();
        let at = all.binary_search_by(|setting| (*setting.name).cmp(name)).ok()?;
        Some(&all[at].value)
    }

    /// Returns the value of that name, and the list without it.
    pub fn split(&self, name: &[u8]) -> (Option<Box<[u8]>>, Self) {
        let Some(value) = self.get(name) else { return (None, self.clone()) };
        let others = self.all().iter().filter(|one| *one.name != *name);
        (Some(value.into()), Self::new(others.cloned().collect()))
    }

    /// Returns the order that is likely to work. Only a superuser can change the session
    /// authorization, and a superuser may set everything.
    pub fn usual_order(&self) -> Order {
        match self.get(SESSION_AUTHORIZATION) {
            Some(_) => Order::WhoLast,
            None => Order::WhoFirst,
        }
    }

    /// May the order decide whether a server accepts these settings in place of `have`? Then a role
    /// is involved, and a setting that may need the privileges of the role or of the login user.
    pub fn depend_on_order(&self, have: &Self) -> bool {
        let has_who = |one: &Self| one.get(ROLE).or(one.get(SESSION_AUTHORIZATION)).is_some();
        // An application's own settings need no privilege.
        let lacks = |one: &Setting, there: &Self| {
            !is_who(&one.name)
                && !one.name.contains(&b'.')
                && there.get(&one.name) != Some(&*one.value)
        };
        (has_who(self) || has_who(have))
            && (self.all().iter().any(|one| lacks(one, have))
                || have.all().iter().any(|one| lacks(one, self)))
    }

    /// Appends the SQL that turns a server with the settings `have` into one with these settings.
    /// Settings to remove are reset as the server's login user.
    pub fn difference(&self, have: &Self, order: Order, sql: &mut Vec<u8>) {
        if self == have {
            return;
        }
        let is_last = order == Order::WhoLast;
        let differs = |name: &[u8]| is_last || self.get(name) != have.get(name);
        let other_user = differs(SESSION_AUTHORIZATION);
        let other_role = other_user || differs(ROLE);
        if other_role && have.get(ROLE).is_some() {
            sql.extend_from_slice(b"RESET ROLE;");
        }
        if other_user && have.get(SESSION_AUTHORIZATION).is_some() {
            sql.extend_from_slice(b"RESET SESSION AUTHORIZATION;");
        }
        for Setting { name, .. } in have.all() {
            if !is_who(name) && self.get(name).is_none() {
                reset(name, sql);
            }
        }
        if is_last {
            self.set_missing(have, sql);
        }
        for (name, comes) in [(SESSION_AUTHORIZATION, other_user), (ROLE, other_role)] {
            if let (Some(value), true) = (self.get(name), comes) {
                sql.extend_from_slice(b"SELECT ");
                set_config(name, value, sql);
                sql.push(b';');
            }
        }
        if !is_last {
            self.set_missing(have, sql);
        }
    }

    fn set_missing(&self, have: &Self, sql: &mut Vec<u8>) {
        let missing = || self.without(have).filter(|one| !is_who(&one.name));
        for Setting { name, value } in missing().filter(|one| is_hidden(one)) {
            sql.extend_from_slice(b"SET ");
            quote_name(name, sql);
            sql.extend_from_slice(b" = ");
            quote_literal(value, sql);
            sql.push(b';');
        }
        let mut missing = missing().filter(|one| !is_hidden(one)).peekable();
        if missing.peek().is_none() {
            return;
        }
        sql.extend_from_slice(b"SELECT ");
        for (at, Setting { name, value }) in missing.enumerate() {
            if at > 0 {
                sql.push(b',');
            }
            set_config(name, value, sql);
        }
        sql.push(b';');
    }

    /// Appends the SQL that deallocates the statements of `have` that are not in this list. For
    /// prepared statements: a value is the text that prepares the statement.
    pub fn deallocate_others(&self, have: &Self, sql: &mut Vec<u8>) {
        for Setting { name, value } in have.all() {
            if self.get(name) != Some(value) {
                sql.extend_from_slice(b"DEALLOCATE ");
                quote_identifier(name, sql);
                sql.push(b';');
            }
        }
    }

    /// Appends the SQL that makes a server that listens to `have` listen to exactly these channels.
    /// For channels: the values are empty.
    pub fn listen(&self, have: &Self, sql: &mut Vec<u8>) {
        let mut have = have;
        let nothing = Self::default();
        if have.without(self).next().is_some() {
            sql.extend_from_slice(b"UNLISTEN *;");
            have = &nothing;
        }
        for channel in self.without(have) {
            sql.extend_from_slice(b"LISTEN ");
            quote_identifier(&channel.name, sql);
            sql.push(b';');
        }
    }

    /// A list of names without values.
    pub fn names(names: impl Iterator<Item = Box<[u8]>>) -> Self {
        Self::new(names.map(|name| Setting { name, value: Box::default() }).collect())
    }

    /// Returns the same names with a value that equals no other: PostgreSQL's texts contain no zero
    /// byte.
    pub fn of_unknown_values(&self) -> Self {
        let all = self.all().iter();
        let unknown = |one: &Setting| Setting { name: one.name.clone(), value: [0].into() };
        Self::new(all.map(unknown).collect())
    }

    /// The settings that are not in `others`.
    pub fn without<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a Setting> {
        self.all().iter().filter(|one| others.get(&one.name) != Some(&*one.value))
    }

    /// These settings, and those of `others` whose names are not among these.
    pub fn with<'a>(&self, others: impl Iterator<Item = &'a Setting>) -> Self {
        let new: Vec<_> = others.filter(|one| self.get(&one.name).is_none()).cloned().collect();
        match new.is_empty() {
            true => self.clone(),
            false => Self::new(self.all().iter().cloned().chain(new).collect()),
        }
    }

    /// The settings that are also in `others`.
    pub fn shared_with(&self, others: &Self) -> Self {
        let both = |one: &&Setting| others.get(&one.name) == Some(&*one.value);
        Self::new(self.all().iter().filter(both).cloned().collect())
    }
}

/// PostgreSQL truncates an identifier to this many bytes (`NAMEDATALEN` less one).
const IDENTIFIER_LEN_MAX: usize = 63;

/// Settings that a session can change, but that PostgreSQL hides from most users.
pub(crate) const HIDDEN: [&[u8]; 2] = [b"dynamic_library_path", b"extension_control_path"];

/// `set_config` fails for these, because it returns the value. They are no lists.
fn is_hidden(one: &Setting) -> bool {
    HIDDEN.contains(&&*one.name) && one.value.is_ascii()
}

fn is_who(name: &[u8]) -> bool {
    name == ROLE || name == SESSION_AUTHORIZATION
}

/// The value is in the database's encoding. The server reads the query in the encoding of its last
/// client, which may lack some of the letters. So the value is written as escaped bytes.
/// `set_config` takes lists (`search_path`) as SHOW returns them; SET would take such a list for
/// one name. `IS NULL` keeps the value out of the result: the client's encoding may lack its
/// letters.
fn set_config(name: &[u8], value: &[u8], sql: &mut Vec<u8>) {
    sql.extend_from_slice(b"pg_catalog.set_config(");
    quote_bytes(name, sql);
    sql.push(b',');
    quote_bytes(value, sql);
    sql.extend_from_slice(b",false) IS NULL");
}

fn reset(name: &[u8], sql: &mut Vec<u8>) {
    // RESET would truncate a longer part and so reset another setting, and it would read the
    // letters in the client's encoding. `set_config` with NULL resets a setting, too.
    let is_long = name.split(|byte| *byte == b'.').any(|part| part.len() > IDENTIFIER_LEN_MAX);
    if is_long || !name.is_ascii() {
        sql.extend_from_slice(b"SELECT pg_catalog.set_config(");
        quote_bytes(name, sql);
        return sql.extend_from_slice(b",NULL,false) IS NULL;");
    }
    sql.extend_from_slice(b"RESET ");
    quote_name(name, sql);
    sql.push(b';');
}

/// Writes `app.tenant` as `"app"."tenant"`.
fn quote_name(name: &[u8], sql: &mut Vec<u8>) {
    for (at, part) in name.split(|byte| *byte == b'.').enumerate() {
        if at > 0 {
            sql.push(b'.');
        }
        quote_identifier(part, sql);
    }
}

pub(crate) fn quote_identifier(name: &[u8], sql: &mut Vec<u8>) {
    sql.push(b'"');
    for &byte in name {
        sql.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
    }
    sql.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(settings: &[(&str, &str)]) -> Carried {
        let setting = |&(name, value): &(&str, &str)| Setting {
            name: name.as_bytes().into(),
            value: value.as_bytes().into(),
        };
        Carried::new(settings.iter().map(setting).collect())
    }

    fn sql(want: &[(&str, &str)], have: &[(&str, &str)]) -> String {
        let mut sql = Vec::new();
        let want = carried(want);
        want.difference(&carried(have), want.usual_order(), &mut sql);
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn equal_settings_need_nothing() {
        assert_eq!(sql(&[], &[]), "");
        assert_eq!(sql(&[("a", "1"), ("b", "2")], &[("b", "2"), ("a", "1")]), "");
    }

    #[test]
    fn missing_settings_are_set_and_surplus_ones_reset() {
        assert_eq!(
            sql(&[("search_path", "\"$user\", public")], &[("app.tenant", "7")]),
            "RESET \"app\".\"tenant\";\
             SELECT pg_catalog.set_config('search_path','\"$user\", public',false) IS NULL;"
        );
        assert_eq!(
            sql(&[("a", "1"), ("b", "it's")], &[("a", "2")]),
            "SELECT pg_catalog.set_config('a','1',false) IS NULL,pg_catalog.set_config('b','it''s',false) IS NULL;"
        );
    }

    #[test]
    fn hidden_settings_are_set_without_being_shown() {
        assert_eq!(
            sql(&[("a", "1"), ("dynamic_library_path", "$libdir:/it's")], &[]),
            "SET \"dynamic_library_path\" = '$libdir:/it''s';\
             SELECT pg_catalog.set_config('a','1',false) IS NULL;"
        );
        assert_eq!(
            sql(&[("dynamic_library_path", "/a")], &[("dynamic_library_path", "/b")]),
            "SET \"dynamic_library_path\" = '/a';"
        );
    }

    #[test]
    fn other_letters_are_sent_in_no_encoding() {
        assert_eq!(
            sql(&[("a", "x\u{e4}")], &[]),
            "SELECT pg_catalog.set_config('a',pg_catalog.convert_from(pg_catalog.decode(\
             '78c3a4','hex'),pg_catalog.getdatabaseencoding()),false) IS NULL;"
        );
    }

    #[test]
    fn settings_are_applied_by_a_role_that_may() {
        // A user who can become another session user can set anything before the change.
        assert_eq!(
            sql(
                &[("role", "r"), ("session_authorization", "u"), ("a", "1")],
                &[("role", "x"), ("session_authorization", "y")]
            ),
            "RESET ROLE;RESET SESSION AUTHORIZATION;\
             SELECT pg_catalog.set_config('a','1',false) IS NULL;\
             SELECT pg_catalog.set_config('session_authorization','u',false) IS NULL;\
             SELECT pg_catalog.set_config('role','r',false) IS NULL;"
        );
        // A new session user has no role until one is set.
        assert_eq!(
            sql(&[("role", "r"), ("a", "1")], &[("role", "r"), ("session_authorization", "y")]),
            "RESET ROLE;RESET SESSION AUTHORIZATION;\
             SELECT pg_catalog.set_config('role','r',false) IS NULL;\
             SELECT pg_catalog.set_config('a','1',false) IS NULL;"
        );
        // In the other order the role is always reset first, even if it is already the right one.
        let (want, mut sql) = (carried(&[("role", "r"), ("a", "1")]), Vec::new());
        want.difference(&carried(&[("role", "r")]), Order::WhoLast, &mut sql);
        assert_eq!(
            String::from_utf8(sql).unwrap(),
            "RESET ROLE;SELECT pg_catalog.set_config('a','1',false) IS NULL;\
             SELECT pg_catalog.set_config('role','r',false) IS NULL;"
        );
    }

    #[test]
    fn the_order_counts_if_a_role_and_another_setting_are_involved() {
        let depends = |want: &[_], have: &[_]| {
            assert_eq!(
                carried(want).depend_on_order(&carried(have)),
                carried(have).depend_on_order(&carried(want)),
            );
            carried(want).depend_on_order(&carried(have))
        };
        let (role, set, own) = (("role", "r"), ("a", "1"), ("app.a", "1"));
        assert!(depends(&[role, set], &[]));
        assert!(depends(&[role], &[set]));
        assert!(depends(&[role, set], &[role, ("a", "2")]));
        assert!(depends(&[("session_authorization", "y"), set], &[]));
        for same in [&[][..], &[role], &[set], &[role, own], &[role, set]] {
            assert!(!depends(same, same));
        }
        assert!(!depends(&[role, own], &[]));
        assert!(!depends(&[role, set], &[set]));
        assert!(!depends(&[set], &[("b", "1")]));
    }

    #[test]
    fn statements_are_told_apart_by_their_texts() {
        let mut sql = Vec::new();
        let want = carried(&[("a", "PREPARE a AS SELECT 1"), ("b", "PREPARE b AS SELECT 2")]);
        let have =
            carried(&[("a", "PREPARE a AS SELECT 3"), ("b", "PREPARE b AS SELECT 2"), ("c\"", "")]);
        want.deallocate_others(&have, &mut sql);
        let expected = "DEALLOCATE \"a\";DEALLOCATE \"c\"\"\";";
        assert_eq!(String::from_utf8(sql).unwrap(), expected);
        let missing: Vec<_> = want.without(&have).map(|one| &*one.name).collect();
        assert_eq!(missing, [b"a"]);
        assert_eq!(have.shared_with(&want), carried(&[("b", "PREPARE b AS SELECT 2")]));
    }

    #[test]
    fn channels_are_listened_to_and_no_others() {
        let channels =
            |names: &[&str]| Carried::names(names.iter().map(|one| one.as_bytes().into()));
        let sql = |want: &[&str], have: &[&str]| {
            let mut sql = Vec::new();
            channels(want).listen(&channels(have), &mut sql);
            String::from_utf8(sql).unwrap()
        };
        assert_eq!(sql(&["a"], &["a"]), "");
        assert_eq!(sql(&["a", "B\""], &["a"]), "LISTEN \"B\"\"\";");
        assert_eq!(sql(&["a"], &["a", "b"]), "UNLISTEN *;LISTEN \"a\";");
        assert_eq!(sql(&[], &["b"]), "UNLISTEN *;");
    }

    #[test]
    fn names_are_found() {
        let some = carried(&[("b", "2"), ("a", "1")]);
        assert_eq!(some.get(b"b"), Some(&b"2"[..]));
        assert_eq!(some.get(b"c"), None);
        assert!(carried(&[]).is_empty() && !some.is_empty());
        let again = carried(&[("a", "2"), ("b", "1"), ("a", "3"), ("a", "1")]);
        assert_eq!(again, carried(&[("a", "1"), ("b", "1")]));
    }
}
