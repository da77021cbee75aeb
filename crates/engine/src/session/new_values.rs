//! The values of a client and its server after a transaction (`pool_mode = auto`), from what the server
//! tells about its session. Plain data: `session/verdict.rs` collects what is known and applies the
//! result.

use sql::Signs;

use crate::session::carried::{Carried, ROLE, Setting};
use crate::session::left::Left;
use crate::session::resets::Resets;
use crate::session::setting_names::SettingNames;
use crate::session::state::Traces;
use crate::vars::{Slots, TrackedNames, Vars};

/// Everything that is known when a transaction is over.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub names: &'a TrackedNames,
    /// The content of the session.
    pub left: &'a Left,
    /// The channels of the session that the client takes to other servers, if they are known.
    pub channels: Option<Carried>,
    /// The texts of the transaction.
    pub traces: Traces,
    pub resets: Resets,
    /// Names of application settings in these texts.
    pub named: Option<&'a SettingNames>,
    /// Is `left` the server's own report? A report tells a reset from an empty or an old value.
    pub reports: bool,
    /// The server's values at the end, before the transaction, and at the server's login.
    pub there: &'a Vars,
    pub before: &'a Vars,
    pub at_login: &'a Vars,
    /// The client's values before it was told values that may be the server's.
    pub followed: Option<&'a Vars>,
    /// The client's values, those that it gave itself, and its values at login.
    pub own: &'a Vars,
    pub given: Slots,
    pub startup: &'a Vars,
}

/// The values from now on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewValues {
    pub there: Vars,
    pub own: Vars,
    /// The parameters whose values the client gave itself.
    pub given: Slots,
}

impl Ended<'_> {
    pub(crate) fn values(mut self) -> NewValues {
        // If every message has failed, the texts have reset nothing.
        if !self.traces.outcome.ran {
            self.resets = Resets::default();
        }
        let mut there = self.there.clone();
        if let Some(prepared) = &self.left.prepared {
            there.prepared = prepared.clone();
        }
        if let Some(channels) = self.channels.take() {
            there.channels = channels;
        }
        let mut own = there.clone();
        if let Some(settings) = &self.left.settings {
            self.take_settings(settings, &mut there);
            own = there.clone();
            go_back(&mut own, self.startup, self.before, settings);
            self.go_back_tracked(&mut own, settings);
            let is_set = settings.all().iter().filter_map(|one| self.names.slot(&one.name));
            is_set.for_each(|slot| self.given.add(slot));
        }
        self.stay_as_given(&mut own);
        if let Some(settings) = self.left.settings.as_ref().filter(|_| !self.reports) {
            self.keep_given(&mut own, settings);
        }
        own.prepared = match self.traces.deallocates {
            true => there.prepared.clone(),
            // Also the statements that the server could not prepare when the client was linked.
            false => there.prepared.with(self.own.prepared.without(&self.before.prepared)),
        };
        NewValues { there, own, given: self.given }
    }

    /// May an unknown text have reset a setting?
    fn is_opaque(&self) -> bool {
        self.traces.outcome.ran && self.traces.signs.intersects(Signs::OPAQUE)
    }

    fn take_settings(&self, settings: &Carried, there: &mut Vars) {
        // The server has never reported this parameter, so Weir cannot track it.
        let untracked = |setting: &&Setting| {
            self.names.slot(&setting.name).is_none_or(|slot| self.there.get(slot).is_none())
        };
        there.carried = Carried::new(settings.all().iter().filter(untracked).cloned().collect());
        let defaults = self.left.defaults.all().iter().filter(|one| self.sets_default(one));
        there.carried = there.carried.with(defaults);
        if !self.reports && !self.is_opaque() {
            keep_cleared(there, self.startup, self.before, &self.resets);
        }
    }

    /// Has the session set this setting, although its value is the server's default? Yes, if it had
    /// set the same value before, or if a committed text names the setting and sets something.
    fn sets_default(&self, one: &Setting) -> bool {
        let was_set = self.before.carried.get(&one.name) == Some(&*one.value);
        let sets = self.traces.signs.contains(Signs::SETTINGS)
            && !self.traces.signs.contains(Signs::LOCAL)
            && self.traces.outcome.ran
            && !self.traces.outcome.undone
            && self.named.is_some_and(|names| names.are_set(&one.name));
        (was_set || sets) && !self.resets.may_include(&one.name, self.traces.resets)
    }

    /// A tracked parameter was reset if the session no longer sets it and its value has changed. If
    /// the old value was the server's default, it was reset only if a text reset it by name.
    fn go_back_tracked(&self, own: &mut Vars, settings: &Carried) {
        for slot in 0..self.names.len() {
            let name = self.names.name(slot).as_bytes();
            let changed = self.before.get(slot) != own.get(slot);
            let is_named = self.traces.resets && self.resets.include(name, true);
            let is_reset = !self.is_set(slot, settings) && (changed || is_named);
            if let (Some(value), true) = (self.startup.get(slot), is_reset) {
                own.set(slot, value);
            }
        }
    }

    /// Keeps the client's value where the server itself has changed a parameter that the client does
    /// not follow (`replies/parameters.rs`).
    fn stay_as_given(&self, own: &mut Vars) {
        for slot in (0..self.names.len()).filter(|slot| self.given.has(*slot)) {
            if let Some(value) = self.own.get(slot)
                && self.there.get(slot) != Some(value)
            {
                own.set(slot, value);
            }
        }
    }

    /// Keeps the client's own values that no text has reset. If the session does not count such a
    /// value as set, it equals the old default of the server, which a reload has changed.
    fn keep_given(&self, own: &mut Vars, settings: &Carried) {
        // A setting that an unseen reset may have changed has the server's default value.
        let may_be_reset = |slot: usize| {
            self.resets.may_include(self.names.name(slot).as_bytes(), self.traces.resets)
                || self.is_opaque() && self.there.get(slot) == self.at_login.get(slot)
        };
        for slot in (0..self.names.len()).filter(|slot| self.given.has(*slot)) {
            if let Some(value) = self.followed.and_then(|before| before.get(slot))
                && !may_be_reset(slot)
                && !self.is_set(slot, settings)
            {
                own.set(slot, value);
            }
        }
    }

    /// Does the session count this parameter as set?
    fn is_set(&self, slot: usize, settings: &Carried) -> bool {
        settings.all().iter().any(|one| self.names.slot(&one.name) == Some(slot))
    }
}

/// An empty role or application setting looks like one that was reset. If no text reset it, the
/// empty value is the client's value where the startup packet has another one.
fn keep_cleared(there: &mut Vars, startup: &Vars, before: &Vars, resets: &Resets) {
    let names = startup.carried.all().iter().map(|setting| &setting.name);
    let cleared = names.filter(|name| before.carried.get(name).is_some());
    let cleared = cleared.filter(|name| !resets.include(name, true)).filter_map(|name| {
        let value: &[u8] = match &**name {
            ROLE => b"none",
            name if name.contains(&b'.') => b"",
            _ => return None,
        };
        Some(Setting { name: name.clone(), value: value.into() })
    });
    let cleared: Vec<_> = cleared.collect();
    there.carried = there.carried.with(cleared.iter());
}

/// RESET returns a setting to its value at the session's start. For the server that is its own
/// login; for the client it is its startup packet, which the server has not seen. `before`: the
/// server's values when the transaction began.
fn go_back(own: &mut Vars, startup: &Vars, before: &Vars, there: &Carried) {
    let mut settings = own.carried.all().to_vec();
    for setting in startup.carried.all() {
        let was_there = before.carried.get(&setting.name).is_some();
        let is_missing =
            there.get(&setting.name).is_none() && own.carried.get(&setting.name).is_none();
        if was_there && is_missing {
            settings.push(setting.clone());
        }
    }
    own.carried = Carried::new(settings);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str) -> usize {
        TrackedNames::new(&[]).slot(name.as_bytes()).expect("it is tracked")
    }

    fn vars(time_zone: &str, carried: &[(&str, &str)]) -> Vars {
        let mut vars = Vars::default();
        vars.set(slot("DateStyle"), b"ISO");
        vars.set(slot("TimeZone"), time_zone.as_bytes());
        vars.carried = carried_of(carried);
        vars
    }

    fn carried_of(settings: &[(&str, &str)]) -> Carried {
        let one = |(name, value): &(&str, &str)| Setting {
            name: name.as_bytes().into(),
            value: value.as_bytes().into(),
        };
        Carried::new(settings.iter().map(one).collect())
    }

    /// The transaction of a client with the startup packet `startup`, whose text was `text`.
    fn ended(text: &str, [startup, before, there]: [&Vars; 3], left: &[(&str, &str)]) -> NewValues {
        let mut resets = Resets::default();
        resets.note(text.as_bytes());
        let mut traces = Traces { signs: Signs::SETTINGS, ..Traces::default() };
        (traces.outcome.ran, traces.resets) = (true, text.starts_with("reset"));
        let left = Left { settings: Some(carried_of(left)), ..Left::default() };
        Ended {
            names: &TrackedNames::new(&[]),
            left: &left,
            channels: None,
            traces,
            resets,
            named: None,
            reports: false,
            there,
            before,
            followed: None,
            at_login: &vars("UTC", &[]),
            // The client is told what the server reports.
            own: there,
            given: Slots::default(),
            startup,
        }
        .values()
    }

    #[test]
    fn a_setting_of_the_session_becomes_the_clients() {
        let old = vars("UTC", &[]);
        let new = ended("set work_mem = '1MB'", [&old, &old, &old], &[("work_mem", "1MB")]);
        assert_eq!(new.own, vars("UTC", &[("work_mem", "1MB")]));
        assert_eq!(new.there, new.own);
    }

    #[test]
    fn a_reset_goes_back_to_the_startup_packet_which_the_server_has_not_seen() {
        let startup = vars("Asia/Tokyo", &[("work_mem", "2MB")]);
        let before = startup.clone();
        let there = vars("UTC", &[("work_mem", "2MB")]);
        let new = ended("reset all", [&startup, &before, &there], &[]);
        assert_eq!(new.own, startup);
        assert_eq!(new.there, vars("UTC", &[]));
    }

    #[test]
    fn a_tracked_parameter_that_the_session_sets_counts_as_given() {
        let old = vars("UTC", &[]);
        let there = vars("Asia/Tokyo", &[]);
        let text = "set timezone = 'Asia/Tokyo'";
        let new = ended(text, [&old, &old, &there], &[("TimeZone", "Asia/Tokyo")]);
        assert_eq!(new.own, there);
        assert!(new.given.has(slot("TimeZone")) && !new.given.has(slot("DateStyle")));
    }
}
