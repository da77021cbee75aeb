//! The effect of a call on the session, by the function's name.
//!
//! `functions/builtin.txt` has the names of the functions that `pg_catalog` has in both PostgreSQL
//! 15 and 18. `functions/reserved.txt` has the keywords that cannot be the name of a function (see
//! `pg_get_keywords()`). The end-to-end tests compare both with the servers, and regenerate them
//! with `UPDATE_NAMES=1`.

use crate::names::Names;
use crate::signs::Signs;

/// The meaning of the name before a parenthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// A function that touches the session, or runs SQL that it is given.
    Stateful(Signs),
    /// A function of PostgreSQL without effect on the session.
    Builtin,
    /// No function, unless it is quoted or has a schema: `IN (…)`, `VALUES (…)`.
    Reserved,
    Unknown,
}

impl Callee {
    pub(crate) fn of(name: &[u8]) -> Self {
        let Some(place) = NAMES.find(name) else { return Self::Unknown };
        match STATEFUL.get(place) {
            Some((signs, _)) => Self::Stateful(*signs),
            None if place < STATEFUL.len() + BUILTIN_COUNT => Self::Builtin,
            None => Self::Reserved,
        }
    }
}

macro_rules! stateful {
    ($($name:literal: $signs:expr,)+) => {
        const STATEFUL: &[(Signs, &str)] = &[$(($signs, $name)),+];
        const TEXT: &str = concat!(
            $($name, "\n",)+
            include_str!("functions/builtin.txt"),
            include_str!("functions/reserved.txt"),
        );
    };
}

const LOCK: Signs = Signs::LOCK;
const UNLOCK: Signs = Signs::LOCK.with(Signs::RELEASE);
/// A temporary replication slot may be among them.
const SLOT: Signs = Signs::LOAD;
const RUNS_SQL: Signs = Signs::OPAQUE;

stateful! {
    "set_config": Signs::SETTINGS,
    "setseed": Signs::SEED,
    "currval": Signs::SEQUENCE,
    "lastval": Signs::SEQUENCE,
    "nextval": Signs::DRAWS,
    "setval": Signs::DRAWS,
    "pg_advisory_lock": LOCK,
    "pg_advisory_lock_shared": LOCK,
    "pg_try_advisory_lock": LOCK,
    "pg_try_advisory_lock_shared": LOCK,
    "pg_advisory_unlock": UNLOCK,
    "pg_advisory_unlock_shared": UNLOCK,
    "pg_advisory_unlock_all": UNLOCK,
    "pg_listening_channels": Signs::LISTEN,
    "pg_prepared_statement": Signs::PREPARED,
    "pg_backup_start": Signs::LOAD,
    "pg_start_backup": Signs::LOAD,
    "pg_backup_stop": Signs::LOAD,
    "pg_stop_backup": Signs::LOAD,
    "pg_replication_origin_session_setup": Signs::LOAD,
    "pg_replication_origin_session_reset": Signs::LOAD,
    "pg_create_physical_replication_slot": SLOT,
    "pg_create_logical_replication_slot": SLOT,
    "pg_copy_physical_replication_slot": SLOT,
    "pg_copy_logical_replication_slot": SLOT,
    "pg_cancel_backend": Signs::SIGNALS,
    "pg_terminate_backend": Signs::SIGNALS,
    "pg_backend_pid": Signs::PROCESS_ID,
    "query_to_xml": RUNS_SQL,
    "query_to_xmlschema": RUNS_SQL,
    "query_to_xml_and_xmlschema": RUNS_SQL,
    "ts_rewrite": RUNS_SQL,
    "ts_stat": RUNS_SQL,
    // Extensions that come with PostgreSQL: dblink and pg_trgm.
    "dblink_connect": Signs::LOAD,
    "dblink_connect_u": Signs::LOAD,
    "set_limit": Signs::SETTINGS,
}

const BUILTIN_COUNT: usize = lines(include_str!("functions/builtin.txt"));

static NAMES: Names<8192> = Names::of(TEXT);

#[expect(clippy::indexing_slicing, reason = "at compile time, where it is an error")]
const fn lines(text: &str) -> usize {
    let text = text.as_bytes();
    let (mut at, mut lines) = (0, 0);
    while at < text.len() {
        lines += (text[at] == b'\n') as usize;
        at += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_each_other() {
        for (name, callee) in [
            ("set_config", Callee::Stateful(Signs::SETTINGS)),
            ("set_limit", Callee::Stateful(Signs::SETTINGS)),
            ("ts_rewrite", Callee::Stateful(Signs::OPAQUE)),
            ("pg_advisory_xact_lock", Callee::Builtin),
            ("abs", Callee::Builtin),
            ("xpath_exists", Callee::Builtin),
            ("substring", Callee::Builtin),
            ("all", Callee::Reserved),
            ("xmltable", Callee::Reserved),
            ("over", Callee::Unknown),
            ("mine", Callee::Unknown),
        ] {
            assert_eq!(Callee::of(name.as_bytes()), callee, "{name}");
        }
    }
}
