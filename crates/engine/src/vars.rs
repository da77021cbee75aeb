//! Tracked parameters: settings that a client may carry from server to server because PostgreSQL
//! reports each change (ParameterStatus, protocol chapter 55.2.7). Also the welcome that is built
//! from them. `values.rs` shares equal sets of values.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::session::carried::{Carried, Order, Setting};
use crate::values::Values;

/// The names of the tracked parameters, in the order of their slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedNames {
    names: Vec<String>,
    /// The first slot of the parameters that are tracked without being asked for, and that PgBouncer
    /// 1.25.2 does not track.
    newer: usize,
}

/// Always tracked. PgBouncer tracks the sixth since 1.26: otherwise a client that makes itself
/// read-only leaves that to the next client.
const ALWAYS: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "default_transaction_read_only",
];

/// Always tracked, too, as in PgBouncer since 1.26. PostgreSQL reports the second from version 16
/// on, the third from version 18 on.
const NEWER: [&str; 3] = ["IntervalStyle", "scram_iterations", "search_path"];

/// PostgreSQL reports this parameter since it has it.
const UNKNOWN_UNLESS_REPORTED: &str = "scram_iterations";

impl TrackedNames {
    /// Returns the fixed ones and those of `track_extra_parameters`.
    pub fn new(extra: &[String]) -> Self {
        let mut all = Self { names: Vec::new(), newer: 0 };
        all.add(ALWAYS);
        all.add(extra.iter().map(String::as_str));
        all.newer = all.len();
        all.add(NEWER);
        all
    }

    fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            if self.slot(name.as_bytes()).is_none() {
                self.names.push(name.to_owned());
            }
        }
    }

    /// May `ignore_startup_parameters` drop this parameter of a startup packet?
    pub fn may_be_ignored(&self, slot: usize) -> bool {
        slot >= self.newer
    }

    /// Returns the slot of a parameter. As in PostgreSQL, the case of names is ignored.
    pub fn slot(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }

    pub fn name(&self, slot: usize) -> &str {
        &self.names[slot]
    }

    /// Returns the names in the order of the slots.
    pub fn all(&self) -> &[String] {
        &self.names
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Slots of parameters that are always tracked.
pub const CLIENT_ENCODING: usize = 0;
pub const DATE_STYLE: usize = 1;
pub const TIME_ZONE: usize = 2;
pub const STANDARD_CONFORMING_STRINGS: usize = 3;
pub const APPLICATION_NAME: usize = 4;

/// A subset of the tracked parameters.
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

    /// Is none included?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the included slots among the first `count`. Slots beyond the capacity are none of them.
    pub fn each(self, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(move |slot| self.0 & Self::bit(*slot) != 0)
    }

    /// Is this slot included? Slots beyond the capacity always are.
    pub fn has(self, slot: usize) -> bool {
        let bit = Self::bit(slot);
        bit == 0 || self.0 & bit != 0
    }

    fn bit(slot: usize) -> u64 {
        u32::try_from(slot).ok().and_then(|slot| 1_u64.checked_shl(slot)).unwrap_or(0)
    }
}

/// Parameters whose values are case-insensitive: PostgreSQL reports `utf8` as `UTF8`. Other such
/// parameters are set once in the client's spelling, which then is the server's.
const CASELESS: [&str; 5] =
    ["client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "IntervalStyle"];

/// The one reported parameter whose value is a list of names: SET takes a literal as a single name,
/// while set_config() takes it as the list.
const NAME_LIST: &str = "search_path";

/// The known values of tracked parameters, and everything else that is carried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vars {
    tracked: Vec<Option<Arc<[u8]>>>,
    /// Settings that are not tracked.
    pub carried: Carried,
    /// Statements of SQL's PREPARE: names and texts.
    pub prepared: Carried,
    /// Channels of LISTEN: names without values.
    pub channels: Carried,
}

impl Vars {
    pub fn get(&self, slot: usize) -> Option<&[u8]> {
        self.tracked.get(slot)?.as_deref()
    }

    /// Returns the parameters with a known value.
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

    /// Returns the tracked values in the order of the slots.
    pub fn tracked(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.tracked.iter().map(|value| value.as_deref())
    }

    /// Returns these values, and those of `defaults` where none is known.
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

    /// Are all parameters that are tracked here also tracked in `others`?
    pub fn are_tracked_by(&self, others: &Self) -> bool {
        let mut all = self.tracked.iter().enumerate();
        all.all(|(slot, value)| value.is_none() || others.get(slot).is_some())
    }

    /// Moves values that servers do not report from the tracked to the carried ones. Drops a value
    /// that they do not know.
    pub fn carry_unreported(&mut self, reported: &Self, names: &TrackedNames) {
        let mut carried = self.carried.all().to_vec();
        for (slot, value) in self.tracked.iter_mut().enumerate() {
            if reported.get(slot).is_some() {
                continue;
            }
            let Some(value) = value.take() else { continue };
            let name = names.name(slot).to_ascii_lowercase();
            if name != UNKNOWN_UNLESS_REPORTED {
                carried.push(Setting { name: name.into_bytes().into(), value: (*value).into() });
            }
        }
        self.carried = Carried::new(carried);
    }

    /// Moves values that servers report now to the tracked ones: the carried value, or else the
    /// server's own (`reported`).
    pub fn track_reported(&mut self, reported: &Self, names: &TrackedNames) {
        for slot in 0..names.len() {
            let (None, Some(default)) = (self.get(slot), reported.get(slot)) else { continue };
            let name = names.name(slot).to_ascii_lowercase();
            let (own, others) = self.carried.split(name.as_bytes());
            self.carried = others;
            self.set(slot, own.as_deref().unwrap_or(default));
        }
    }

    /// Returns the SQL that gives the server these values; None if nothing differs.
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
            if !server.given.has(slot) && server.is_default(slot, wanted) {
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

/// The values of a server that needs other ones.
#[derive(Debug)]
pub struct Present<'a> {
    pub vars: &'a Vars,
    /// The values that the server reported at login.
    pub at_login: &'a Vars,
    /// Other defaults that servers of the pool have reported, before or after a reload.
    pub defaults: &'a [Values],
    /// The parameters whose wanted value was given explicitly. Others return to the server's default
    /// by RESET, whatever that is by now. Then `pg_settings` shows the same source as on a direct
    /// connection.
    pub given: Slots,
}

impl Present<'_> {
    /// Is or was this the server's default?
    fn is_default(&self, slot: usize, value: &[u8]) -> bool {
        self.at_login.get(slot) == Some(value)
            || self.defaults.iter().any(|known| known.get(slot) == Some(value))
    }
}

/// Are these the same value of this parameter? Schemas or users may differ only in case.
fn means_the_same(name: &str, one: &[u8], other: &[u8]) -> bool {
    let is_caseless = || CASELESS.iter().any(|known| known.eq_ignore_ascii_case(name));
    one == other || one.eq_ignore_ascii_case(other) && is_caseless()
}

/// Quotes like PostgreSQL's quote_literal(), correct with any standard_conforming_strings.
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

/// Quotes a text of the database's encoding, correct in any client encoding.
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

/// The parameters that a server of the pool reported at login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Untracked parameters, in the order of the reports.
    fixed: Vec<(Vec<u8>, Vec<u8>)>,
    /// The messages with them, which are the same for every client.
    fixed_messages: Vec<u8>,
    pub vars: Values,
}

impl Welcome {
    /// Returns a welcome with these untracked parameters.
    pub fn new(fixed: Vec<(Vec<u8>, Vec<u8>)>, vars: Values) -> Self {
        let mut fixed_messages = Vec::new();
        for (name, value) in &fixed {
            wire::backend::parameter_status(&mut fixed_messages, name, value);
        }
        Self { fixed, fixed_messages, vars }
    }

    /// Has a server with this welcome told the same?
    pub fn is(&self, other: &Self) -> bool {
        self.vars == other.vars && self.fixed == other.fixed
    }

    /// Returns the untracked parameters.
    pub fn fixed(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.fixed
    }

    /// Appends the ParameterStatus messages for a client with the values `vars`.
    pub fn write(&self, vars: &Vars, names: &TrackedNames, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed_messages);
        for slot in 0..names.len() {
            if let Some(value) = vars.get(slot) {
                wire::backend::parameter_status(out, names.name(slot).as_bytes(), value);
            }
        }
    }

    /// Returns a digest of the parameters that `write` tells this client. The library makes the same
    /// from the parameters of a backend (`extension/guest.c`).
    pub fn digest(&self, vars: &Vars, names: &TrackedNames) -> u64 {
        let fixed = self.fixed.iter().map(|(name, value)| digest(name, value));
        let tracked = (0..names.len()).filter_map(|slot| {
            vars.get(slot).map(|value| digest(names.name(slot).as_bytes(), value))
        });
        fixed.chain(tracked).fold(0, u64::wrapping_add)
    }

    /// Records a parameter that a server has reported.
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

/// Returns the share of one parameter in `Welcome::digest`.
fn digest(name: &[u8], value: &[u8]) -> u64 {
    let hash = mix(mix(0xcbf2_9ce4_8422_2325, name), value);
    // Spreads the bits: otherwise the changes of two parameters could cancel out in the sum.
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

/// Adds a text to a hash (FNV-1a).
fn mix(hash: u64, text: &[u8]) -> u64 {
    text.iter()
        .chain(&[0xff])
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> TrackedNames {
        TrackedNames::new(&["IntervalStyle".to_owned(), "timezone".to_owned()])
    }

    #[test]
    fn extra_names_are_added_once() {
        assert_eq!(names().len(), 9);
        assert_eq!(names().slot(b"TIMEZONE"), Some(2));
        let slot = |name: &[u8]| names().slot(name).expect("it is tracked");
        assert!(!names().may_be_ignored(slot(b"intervalstyle")));
        assert!(names().may_be_ignored(slot(b"search_path")));
        assert_eq!(names().slot(b"work_mem"), None);
    }

    #[test]
    fn slots_beyond_the_capacity_are_always_included() {
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
            let server = Present { vars: &have, at_login: want, defaults: &[], given };
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
