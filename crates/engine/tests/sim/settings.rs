//! The run-time parameters of a simulated session: those that PostgreSQL reports, and others.

use std::collections::{BTreeMap, BTreeSet};

/// Reported by name and default; the pooler tracks all of them.
pub(crate) const NAMES: [(&str, &str); 5] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("application_name", ""),
];

/// What a session has besides, of which the pooler hears only if it asks (`pool_mode = auto`).
const UNREPORTED: [(&str, &str); 8] = [
    (PATH, "public"),
    ("work_mem", "4MB"),
    (OBJECT, NONE),
    (CURSOR, NONE),
    (LOCK, NONE),
    (ROLE, "none"),
    (PRIVILEGED, "none"),
    (BUFFERS, "8MB"),
];

/// Servers of a newer version report it.
pub(crate) const PATH: &str = "search_path";

/// Who the session acts as. A role may be revoked from whoever has become it.
pub(crate) const ROLE: &str = "role";

/// Only the user who has logged in may set it, and no role.
pub(crate) const PRIVILEGED: &str = "log_statement";

/// The pooler cannot set it where there was a temporary table before.
pub(crate) const BUFFERS: &str = "temp_buffers";

/// No setting, but a temporary table: it is made, undone and shown like one.
pub(crate) const OBJECT: &str = "temporary_table";

/// A cursor WITH HOLD, likewise.
pub(crate) const CURSOR: &str = "holdable_cursor";

/// How often the session has taken an advisory lock. The end of a transaction does not change that.
pub(crate) const LOCK: &str = "advisory_lock";

/// What keeps a client on its server.
const PINS: [&str; 3] = [OBJECT, CURSOR, LOCK];
/// There is no such thing.
const NONE: &str = "none";

/// Reported at any moment, and tracked by nobody.
pub(crate) const UNTRACKED: &str = "sim_load";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, String>,
    /// Those that were set since the session began.
    set: BTreeSet<&'static str>,
    /// Those that are set until the transaction ends: the value to go back to, and whether it was set.
    local: BTreeMap<&'static str, (String, bool)>,
    /// What RESET goes back to.
    defaults: BTreeMap<&'static str, String>,
    /// Is `search_path` reported, as PostgreSQL 18 does it?
    pub(crate) reports_path: bool,
    /// What the client was told last.
    reported: BTreeMap<&'static str, String>,
}

/// Each client has a role that it may become.
pub(crate) fn role_of(role: &str) -> Option<usize> {
    role.strip_prefix('r')?.parse().ok()
}

fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    NAMES.iter().chain(&UNREPORTED)
}

impl Default for Settings {
    fn default() -> Self {
        let values: BTreeMap<_, _> =
            all().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let (set, local) = (BTreeSet::new(), BTreeMap::new());
        let (defaults, reported) = (values.clone(), values.clone());
        Self { set, local, defaults, reports_path: false, reported, values }
    }
}

impl Settings {
    /// The name as PostgreSQL spells it.
    pub(crate) fn known(name: &str) -> Option<&'static str> {
        all().map(|(known, _)| *known).find(|known| known.eq_ignore_ascii_case(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(Self::known(name)?).map(String::as_str)
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.local.remove(name);
        self.set.insert(name);
        self.values.insert(name, value.to_owned());
    }

    /// Until the transaction ends.
    pub(crate) fn set_local(&mut self, name: &'static str, value: &str) {
        let is_set = self.set.contains(name);
        let before = self.values.insert(name, value.to_owned()).unwrap_or_default();
        self.local.entry(name).or_insert((before, is_set));
    }

    /// The transaction has ended.
    pub(crate) fn end_local(&mut self) {
        for (name, (value, is_set)) in std::mem::take(&mut self.local) {
            self.values.insert(name, value);
            if is_set {
                self.set.insert(name);
            }
        }
    }

    /// A parameter of the startup packet: RESET goes back to it.
    pub(crate) fn begin_with(&mut self, name: &'static str, value: &str) {
        self.defaults.insert(name, value.to_owned());
        self.begin_changed(name, value);
    }

    /// As if set just after login: RESET knows nothing of it.
    pub(crate) fn begin_changed(&mut self, name: &'static str, value: &str) {
        self.values.insert(name, value.to_owned());
        self.reported.insert(name, value.to_owned());
    }

    pub(crate) fn reset(&mut self, name: &'static str) {
        self.local.remove(name);
        self.set.remove(name);
        self.values.insert(name, self.defaults[name].clone());
    }

    pub(crate) fn reset_all(&mut self) {
        let is_setting = |name: &&str| !PINS.contains(name) && *name != ROLE;
        let settings = all().map(|(name, _)| *name).filter(is_setting);
        settings.for_each(|name| self.reset(name));
    }

    /// Temporary table, cursor and lock are gone.
    pub(crate) fn drop_pins(&mut self) {
        PINS.into_iter().for_each(|name| self.reset(name));
    }

    /// Is there something that keeps a client on its server?
    pub(crate) fn has_pins(&self) -> bool {
        PINS.into_iter().any(|name| self.is_there(name))
    }

    /// Is there a table, cursor or lock?
    pub(crate) fn is_there(&self, pin: &str) -> bool {
        self.get(pin) != Some(NONE)
    }

    /// How often the lock is held.
    pub(crate) fn locks(&self) -> usize {
        self.get(LOCK).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn set_locks(&mut self, count: usize) {
        match count {
            0 => self.reset(LOCK),
            count => self.set(LOCK, &count.to_string()),
        }
    }

    /// What it was set to in this session, and is no default.
    pub(crate) fn set_in_session(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let set = self.set.iter().filter(|name| !PINS.contains(name));
        set.map(|name| (*name, self.values[name].as_str()))
    }

    /// Back to what it was, except for what the client knows, and for locks.
    pub(crate) fn restore(&mut self, saved: Self) {
        let locks = self.locks();
        self.values = saved.values;
        self.set = saved.set;
        self.local = saved.local;
        self.set_locks(locks);
    }

    /// All but those that hardly anybody sets, and nobody has.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let is_rare = |name: &str| [ROLE, PRIVILEGED, BUFFERS].contains(&name);
        let shown = self.values.iter().filter(move |(name, _)| !is_rare(name) || self.is_set(name));
        shown.map(|(name, value)| (*name, value.as_str()))
    }

    fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// Of the role that the session acts as: whose it is.
    pub(crate) fn role_of(&self) -> Option<usize> {
        role_of(self.get(ROLE)?)
    }

    /// What the client has to be told; it knows from now on.
    pub(crate) fn changes(&mut self) -> Vec<(&'static str, String)> {
        let reports_path = self.reports_path;
        let is_reported = |name: &str| {
            NAMES.iter().any(|(known, _)| *known == name) || reports_path && name == PATH
        };
        let reported = self.values.iter().filter(|(name, _)| is_reported(name));
        let changed: Vec<_> = reported
            .filter(|(name, value)| self.reported.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        self.reported = self.values.clone();
        changed
    }
}
