//! The run-time parameters of a simulated session: those that PostgreSQL reports, and others.

use std::collections::{BTreeMap, BTreeSet};

/// Names and defaults of the reported settings. Weir tracks all of them.
pub(crate) const NAMES: [(&str, &str); 5] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("application_name", ""),
];

/// Other settings. Weir learns their values only by the probe (`pool_mode = auto`).
const UNREPORTED: [(&str, &str); 9] = [
    (PATH, "public"),
    ("work_mem", "4MB"),
    (OBJECT, NONE),
    (CURSOR, NONE),
    (LOCK, NONE),
    (ROLE, "none"),
    (PRIVILEGED, "none"),
    (BUFFERS, "8MB"),
    (FORGED, ""),
];

/// A reload of the servers' configuration may change its default.
pub(crate) const STYLE: &str = "DateStyle";

/// Is this a default of [`STYLE`], from before or after a reload?
pub(crate) fn is_default_style(value: &[u8]) -> bool {
    value == b"ISO, MDY" || value.starts_with(b"reloaded")
}

/// Servers of a newer version report it.
pub(crate) const PATH: &str = "search_path";

/// The session's role. The right to it may be revoked from a client that has set it.
pub(crate) const ROLE: &str = "role";

/// Only the login user may set it, no role.
pub(crate) const PRIVILEGED: &str = "log_statement";

/// Weir cannot set it on a server that has had a temporary table.
pub(crate) const BUFFERS: &str = "temp_buffers";

/// The name of the library's reports, set by a client of a server that lacks the library.
pub(crate) const FORGED: &str = "weir.state";

/// A temporary table, represented as a setting.
pub(crate) const OBJECT: &str = "temporary_table";

/// A cursor WITH HOLD, represented in the same way.
pub(crate) const CURSOR: &str = "holdable_cursor";

/// The number of advisory locks of the session. The end of a transaction does not change it.
pub(crate) const LOCK: &str = "advisory_lock";

/// State that keeps a client on its server.
const PINS: [&str; 3] = [OBJECT, CURSOR, LOCK];
/// The value for "does not exist".
const NONE: &str = "none";

/// Reported at any moment. Weir does not track it.
pub(crate) const UNTRACKED: &str = "sim_load";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, String>,
    /// Settings that were set since the session began.
    set: BTreeSet<&'static str>,
    /// Settings that SET LOCAL has set: the value to go back to, and whether it was set.
    local: BTreeMap<&'static str, (String, bool)>,
    /// The values that RESET goes back to.
    defaults: BTreeMap<&'static str, String>,
    /// Settings from the startup packet.
    from_startup: BTreeSet<&'static str>,
    /// Is `search_path` reported, as by PostgreSQL 18?
    pub(crate) reports_path: bool,
    /// The values that the client was last told.
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
        let (set, local, from_startup) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let (defaults, reported) = (values.clone(), values.clone());
        Self { set, local, defaults, from_startup, reports_path: false, reported, values }
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

    /// Sets a value until the transaction ends.
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

    /// Applies a parameter of the startup packet: RESET goes back to it.
    pub(crate) fn begin_with(&mut self, name: &'static str, value: &str) {
        self.defaults.insert(name, value.to_owned());
        self.from_startup.insert(name);
        self.begin_changed(name, value);
    }

    /// The configuration was reloaded, and this is the new default.
    pub(crate) fn reload(&mut self, name: &'static str, value: &str) {
        if self.from_startup.contains(name) {
            return;
        }
        self.defaults.insert(name, value.to_owned());
        match self.local.get_mut(name) {
            Some((before, is_set)) if !*is_set => *before = value.to_owned(),
            Some(_) => {}
            None if self.set.contains(name) => {}
            None => drop(self.values.insert(name, value.to_owned())),
        }
    }

    /// Does it have the server's default, whatever that is?
    pub(crate) fn follows_default(&self, name: &str) -> bool {
        !self.set.contains(name) && !self.local.contains_key(name)
    }

    /// Sets a value just after login. RESET does not go back to it.
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

    /// Removes temporary table, cursor and lock.
    pub(crate) fn drop_pins(&mut self) {
        PINS.into_iter().for_each(|name| self.reset(name));
    }

    /// Is there state that keeps the client on its server?
    pub(crate) fn has_pins(&self) -> bool {
        PINS.into_iter().any(|name| self.is_there(name))
    }

    /// Is there a table, cursor or lock?
    pub(crate) fn is_there(&self, pin: &str) -> bool {
        self.get(pin) != Some(NONE)
    }

    /// Returns the number of times that the lock is held.
    pub(crate) fn locks(&self) -> usize {
        self.get(LOCK).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn set_locks(&mut self, count: usize) {
        match count {
            0 => self.reset(LOCK),
            count => self.set(LOCK, &count.to_string()),
        }
    }

    /// The values that were set in this session and are no defaults.
    pub(crate) fn set_in_session(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let set = self.set.iter().filter(|name| !PINS.contains(name));
        set.map(|name| (*name, self.values[name].as_str()))
    }

    /// Restores the saved values, except for the reports to the client and the locks.
    pub(crate) fn restore(&mut self, saved: Self) {
        let locks = self.locks();
        self.values = saved.values;
        self.set = saved.set;
        self.local = saved.local;
        self.set_locks(locks);
    }

    /// All settings, except rare ones that are not set.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let is_rare = |name: &str| [ROLE, PRIVILEGED, BUFFERS].contains(&name);
        // Weir does not carry settings with its own prefix.
        let values = self.values.iter().filter(|(name, _)| **name != FORGED);
        let shown = values.filter(move |(name, _)| !is_rare(name) || self.is_set(name));
        shown.map(|(name, value)| (*name, value.as_str()))
    }

    fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// The client that the session's role belongs to.
    pub(crate) fn role_of(&self) -> Option<usize> {
        role_of(self.get(ROLE)?)
    }

    /// Returns the values that the client must be told, and counts them as told.
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
