//! The run-time parameters of a simulated session that PostgreSQL reports.

use std::collections::BTreeMap;

/// Reported by name and default; the pooler tracks all of them.
pub(crate) const NAMES: [(&str, &str); 5] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
    ("application_name", ""),
];

/// Reported at any moment, and tracked by nobody.
pub(crate) const UNTRACKED: &str = "sim_load";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, String>,
    /// What RESET goes back to.
    defaults: BTreeMap<&'static str, String>,
    /// What the client was told last.
    reported: BTreeMap<&'static str, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let values: BTreeMap<_, _> =
            NAMES.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { defaults: values.clone(), reported: values.clone(), values }
    }
}

impl Settings {
    /// The name as PostgreSQL spells it.
    pub(crate) fn known(name: &str) -> Option<&'static str> {
        NAMES.iter().map(|(known, _)| *known).find(|known| known.eq_ignore_ascii_case(name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(Self::known(name)?).map(String::as_str)
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.values.insert(name, value.to_owned());
    }

    /// A parameter of the startup packet: RESET goes back to it.
    pub(crate) fn begin_with(&mut self, name: &'static str, value: &str) {
        self.defaults.insert(name, value.to_owned());
        self.begin_changed(name, value);
    }

    /// As if set just after login: RESET knows nothing of it.
    pub(crate) fn begin_changed(&mut self, name: &'static str, value: &str) {
        self.set(name, value);
        self.reported.insert(name, value.to_owned());
    }

    pub(crate) fn reset(&mut self) {
        self.values = self.defaults.clone();
    }

    /// Back to what it was, except for what the client knows.
    pub(crate) fn restore(&mut self, saved: Self) {
        self.values = saved.values;
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// What the client has to be told; it knows from now on.
    pub(crate) fn changes(&mut self) -> Vec<(&'static str, String)> {
        let changed: Vec<_> = self
            .values
            .iter()
            .filter(|(name, value)| self.reported.get(*name) != Some(value))
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        self.reported = self.values.clone();
        changed
    }
}
