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
const UNREPORTED: [(&str, &str); 6] = [
    ("search_path", "public"),
    ("work_mem", "4MB"),
    (OBJECT, "none"),
    (ROLE, "none"),
    (PRIVILEGED, "none"),
    (BUFFERS, "8MB"),
];

/// Who the session acts as. A role may be revoked from whoever has become it.
pub(crate) const ROLE: &str = "role";

/// Only the user who has logged in may set it, and no role.
pub(crate) const PRIVILEGED: &str = "log_statement";

/// The pooler cannot set it where there was a temporary table before.
pub(crate) const BUFFERS: &str = "temp_buffers";

/// No setting, but a temporary table: it is made, undone and shown like one.
pub(crate) const OBJECT: &str = "temporary_table";

/// Reported at any moment, and tracked by nobody.
pub(crate) const UNTRACKED: &str = "sim_load";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, String>,
    /// Those that were set since the session began.
    set: BTreeSet<&'static str>,
    /// What RESET goes back to.
    defaults: BTreeMap<&'static str, String>,
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
        let set = BTreeSet::new();
        Self { set, defaults: values.clone(), reported: values.clone(), values }
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
        self.set.insert(name);
        self.values.insert(name, value.to_owned());
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
        self.set.remove(name);
        self.values.insert(name, self.defaults[name].clone());
    }

    pub(crate) fn reset_all(&mut self) {
        let settings = all().map(|(name, _)| *name).filter(|name| ![OBJECT, ROLE].contains(name));
        settings.for_each(|name| self.reset(name));
    }

    /// What it was set to in this session, and is no default.
    pub(crate) fn set_in_session(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let set = self.set.iter().filter(|name| **name != OBJECT);
        set.map(|name| (*name, self.values[name].as_str()))
    }

    /// Back to what it was, except for what the client knows.
    pub(crate) fn restore(&mut self, saved: Self) {
        self.values = saved.values;
        self.set = saved.set;
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
        let is_reported = |name: &str| NAMES.iter().any(|(known, _)| *known == name);
        let reported = self.values.iter().filter(|(name, _)| is_reported(name));
        let changed: Vec<_> = reported
            .filter(|(name, value)| self.reported.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        self.reported = self.values.clone();
        changed
    }
}
