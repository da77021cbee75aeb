//! Tracked parameters: settings that a client may carry from server to server because PostgreSQL
//! reports each change of them (ParameterStatus, protocol chapter 55.2.7), and the welcome text
//! that is built from them. How sets of values are shared is in `values.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::session::carried::{Carried, Order, Setting};
use crate::values::Values;

/// Names in the order of their slots. The first six are always tracked, as PgBouncer does; the sixth since
/// its 1.26: without it a client that makes itself read-only leaves that to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedNames(Vec<String>);

const ALWAYS: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "default_transaction_read_only",
];

impl TrackedNames {
    /// The fixed six and those of `track_extra_parameters`.
    pub fn new(extra: &[String]) -> Self {
        let mut names: Vec<String> = ALWAYS.iter().map(|name| (*name).to_owned()).collect();
        for name in extra {
            if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                names.push(name.clone());
            }
        }
        Self(names)
    }

    /// The slot of a parameter; names are compared without regard to case, as PostgreSQL does.
    pub fn slot(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    pub fn name(&self, slot: usize) -> &str {
        &self.0[slot]
    }

    /// In the order of the slots.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Slots of those that are always tracked.
pub const CLIENT_ENCODING: usize = 0;
pub const DATE_STYLE: usize = 1;
pub const TIME_ZONE: usize = 2;
pub const STANDARD_CONFORMING_STRINGS: usize = 3;
pub const APPLICATION_NAME: usize = 4;

/// Some of the tracked parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots(u64);

impl Slots {
    pub const ALL: Self = Self(u64::MAX);

    pub fn add(&mut self, slot: usize) {
        self.0 |= Self::bit(slot);
    }

    pub fn remove(&mut self, slot: usize) {
        self.0 &= !Self::bit(slot);
    }

    /// Those that there is no room for count as being among them.
    pub fn has(self, slot: usize) -> bool {
        let bit = Self::bit(slot);
        bit == 0 || self.0 & bit != 0
    }

    fn bit(slot: usize) -> u64 {
        u32::try_from(slot).ok().and_then(|slot| 1_u64.checked_shl(slot)).unwrap_or(0)
    }
}

/// Those whose values PostgreSQL reads without regard to case: it reports `utf8` back as `UTF8`. Of
/// others like them a client's own spelling is set once, and is the server's from then on.
const CASELESS: [&str; 5] =
    ["client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "IntervalStyle"];

/// The one reported parameter whose value is a list of names: SET takes a literal for a single
/// name, while set_config() takes it for the list.
const NAME_LIST: &str = "search_path";

/// A value for each tracked parameter, where one is known, and what is carried besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vars {
    tracked: Vec<Option<Arc<[u8]>>>,
    /// Settings that are not tracked.
    pub carried: Carried,
    /// Statements of SQL's PREPARE: names and texts.
    pub prepared: Carried,
    /// Channels that are listened to: names without values.
    pub channels: Carried,
}

impl Vars {
    pub fn get(&self, slot: usize) -> Option<&[u8]> {
        self.tracked.get(slot)?.as_deref()
    }

    /// Those of which a value is known.
    pub fn known(&self) -> Slots {
        let mut known = Slots::default();
        let all = self.tracked.iter().enumerate();
        all.filter(|(_, value)| value.is_some()).for_each(|(slot, _)| known.add(slot));
        known
    }

    /// Is no value known?
    pub fn is_empty(&self) -> bool {
        self.tracked.iter().all(Option::is_none)
            && self.carried.is_empty()
            && self.prepared.is_empty()
            && self.channels.is_empty()
    }

    /// Is there anything that PostgreSQL does not report?
    pub fn has_untracked(&self) -> bool {
        !(self.carried.is_empty() && self.prepared.is_empty() && self.channels.is_empty())
    }

    pub fn set(&mut self, slot: usize, value: &[u8]) {
        if self.tracked.len() <= slot {
            self.tracked.resize(slot + 1, None);
        }
        self.tracked[slot] = Some(value.into());
    }

    /// What is known, in the order of the slots.
    pub fn tracked(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.tracked.iter().map(|value| value.as_deref())
    }

    /// These values, and `defaults` where nothing is known here.
    pub fn or(&self, defaults: &Self) -> Self {
        let mut all = defaults.clone();
        all.carried = self.carried.with(defaults.carried.all().iter());
        all.prepared = self.prepared.clone();
        all.channels = self.channels.clone();
        for (slot, value) in self.tracked.iter().enumerate() {
            if let Some(value) = value {
                all.set(slot, value);
            }
        }
        all
    }

    /// Is each of these that is tracked so there as well?
    pub fn are_tracked_by(&self, others: &Self) -> bool {
        let mut all = self.tracked.iter().enumerate();
        all.all(|(slot, value)| value.is_none() || others.get(slot).is_some())
    }

    /// What servers do not report, though it is tracked, cannot be tracked: it is carried.
    pub fn carry_unreported(&mut self, reported: &Self, names: &TrackedNames) {
        let mut carried = self.carried.all().to_vec();
        for (slot, value) in self.tracked.iter_mut().enumerate() {
            if reported.get(slot).is_none()
                && let Some(value) = value.take()
            {
                let name = names.name(slot).to_ascii_lowercase().into_bytes().into();
                carried.push(Setting { name, value: (*value).into() });
            }
        }
        self.carried = Carried::new(carried);
    }

    /// What servers report now, and did not when nothing was known of it here, is tracked: as it was
    /// carried, or else as it is by itself (`reported`).
    pub fn track_reported(&mut self, reported: &Self, names: &TrackedNames) {
        for slot in 0..names.len() {
            let (None, Some(default)) = (self.get(slot), reported.get(slot)) else { continue };
            let name = names.name(slot).to_ascii_lowercase();
            let (own, others) = self.carried.split(name.as_bytes());
            self.carried = others;
            self.set(slot, own.as_deref().unwrap_or(default));
        }
    }

    /// The SQL that turns a server into one with these values; None if nothing differs.
    pub fn difference(
        &self,
        server: &Present<'_>,
        names: &TrackedNames,
        order: Order,
    ) -> Option<Vec<u8>> {
        let (mut sql, have) = (Vec::new(), server.vars);
        for slot in 0..names.len() {
            let Some(wanted) = self.get(slot) else { continue };
            let name = names.name(slot);
            if have.get(slot).is_some_and(|value| means_the_same(name, value, wanted)) {
                continue;
            }
            if !server.given.has(slot) && server.at_login.get(slot) == Some(wanted) {
                sql.extend_from_slice(b"RESET ");
                sql.extend_from_slice(name.as_bytes());
                sql.push(b';');
                continue;
            }
            if name.eq_ignore_ascii_case(NAME_LIST) {
                sql.extend_from_slice(b"SELECT pg_catalog.set_config('search_path', ");
                quote_literal(wanted, &mut sql);
                sql.extend_from_slice(b", false);");
                continue;
            }
            sql.extend_from_slice(b"SET ");
            sql.extend_from_slice(name.as_bytes());
            sql.extend_from_slice(b" = ");
            quote_literal(wanted, &mut sql);
            sql.push(b';');
        }
        self.carried.difference(&have.carried, order, &mut sql);
        self.prepared.deallocate_others(&have.prepared, &mut sql);
        self.channels.listen(&have.channels, &mut sql);
        (!sql.is_empty()).then_some(sql)
    }
}

/// What a server has, which is to have other values.
#[derive(Debug)]
pub struct Present<'a> {
    pub vars: &'a Vars,
    /// What it reported when it was logged in to.
    pub at_login: &'a Vars,
    /// Those whose wanted value somebody has given. Others go back to `at_login` by RESET:
    /// `pg_settings` then names the source that it names on a direct connection.
    pub given: Slots,
}

/// Are these one value of that parameter? Two schemas or users may differ by case alone.
fn means_the_same(name: &str, one: &[u8], other: &[u8]) -> bool {
    let is_caseless = || CASELESS.iter().any(|known| known.eq_ignore_ascii_case(name));
    one == other || one.eq_ignore_ascii_case(other) && is_caseless()
}

/// As PostgreSQL's quote_literal(): right whatever standard_conforming_strings says.
pub(crate) fn quote_literal(value: &[u8], sql: &mut Vec<u8>) {
    if value.contains(&b'\\') {
        sql.extend_from_slice(b" E");
    }
    sql.push(b'\'');
    for &byte in value {
        if byte == b'\'' || byte == b'\\' {
            sql.push(byte);
        }
        sql.push(byte);
    }
    sql.push(b'\'');
}

/// A text of the database's encoding, which is right whatever encoding the query will be read in.
pub(crate) fn quote_bytes(text: &[u8], sql: &mut Vec<u8>) {
    if text.is_ascii() {
        return quote_literal(text, sql);
    }
    sql.extend_from_slice(b"pg_catalog.convert_from(pg_catalog.decode('");
    for byte in text {
        sql.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    sql.extend_from_slice(b"','hex'),pg_catalog.getdatabaseencoding())");
}

/// What a server of the pool reported at its login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Untracked parameters, in the order reported.
    fixed: Vec<(Vec<u8>, Vec<u8>)>,
    /// The messages that tell of them, which are the same for every client.
    fixed_messages: Vec<u8>,
    pub vars: Values,
}

impl Welcome {
    /// With these untracked parameters.
    pub fn new(fixed: Vec<(Vec<u8>, Vec<u8>)>, vars: Values) -> Self {
        let mut fixed_messages = Vec::new();
        for (name, value) in &fixed {
            wire::backend::parameter_status(&mut fixed_messages, name, value);
        }
        Self { fixed, fixed_messages, vars }
    }

    /// The untracked parameters.
    pub fn fixed(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.fixed
    }

    /// Append the ParameterStatus messages for a client with the values `vars`.
    pub fn write(&self, vars: &Vars, names: &TrackedNames, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed_messages);
        for slot in 0..names.len() {
            if let Some(value) = vars.get(slot) {
                wire::backend::parameter_status(out, names.name(slot).as_bytes(), value);
            }
        }
    }

    /// Record one parameter a server reported.
    pub fn learn(&mut self, name: &[u8], value: &[u8], names: &TrackedNames) {
        if let Some(slot) = names.slot(name) {
            self.vars.change(|vars| vars.set(slot, value));
        } else {
            let mut fixed = std::mem::take(&mut self.fixed);
            match fixed.iter_mut().find(|(known, _)| known == name) {
                Some(known) => known.1 = value.to_vec(),
                None => fixed.push((name.to_vec(), value.to_vec())),
            }
            *self = Self::new(fixed, self.vars.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> TrackedNames {
        TrackedNames::new(&["IntervalStyle".to_owned(), "timezone".to_owned()])
    }

    #[test]
    fn extra_names_are_added_once() {
        assert_eq!(names().len(), 7);
        assert_eq!(names().slot(b"TIMEZONE"), Some(2));
        assert_eq!(names().slot(b"search_path"), None);
    }

    #[test]
    fn slots_beyond_those_that_can_be_counted_are_always_there() {
        let mut vars = Vars::default();
        vars.set(63, b"63");
        vars.set(2, b"2");
        let known = vars.known();
        assert!(known.has(2) && known.has(63) && known.has(64) && known.has(1_000));
        assert!(!known.has(0) && !known.has(62) && Slots::ALL.has(0));
    }

    #[test]
    fn only_what_differs_is_set_and_quoted() {
        let (mut want, mut have) = (Vars::default(), Vars::default());
        want.set(0, b"utf8");
        have.set(0, b"UTF8");
        let sql = |want: &Vars, given: Slots| {
            let server = Present { vars: &have, at_login: want, given };
            want.difference(&server, &names(), Order::WhoFirst)
        };
        assert_eq!(sql(&want, Slots::ALL), None);
        want.set(4, b"it's \\");
        let set = b"SET application_name =  E'it''s \\\\';";
        assert_eq!(sql(&want, Slots::ALL).unwrap(), set);
        assert_eq!(sql(&want, Slots::default()).unwrap(), b"RESET application_name;");
    }

    #[test]
    fn a_welcome_shows_the_clients_own_values() {
        let mut welcome = Welcome::default();
        welcome.learn(b"server_version", b"15.1", &names());
        welcome.learn(b"DateStyle", b"ISO, MDY", &names());
        let mut own = Vars::default();
        own.set(1, b"German");
        let mut out = Vec::new();
        welcome.write(&own.or(&welcome.vars), &names(), &mut out);
        let mut expected = Vec::new();
        wire::backend::parameter_status(&mut expected, b"server_version", b"15.1");
        wire::backend::parameter_status(&mut expected, b"DateStyle", b"German");
        assert_eq!(out, expected);
    }
}
