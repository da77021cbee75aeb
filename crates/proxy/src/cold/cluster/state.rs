//! The question for a node's state, and its answer.

use ::cluster::{Lsn, Receiver, Replication, Role, Sample};

/// One row: system identifier, is it in recovery, name of the present WAL file, position in the
/// WAL, timelines of the control file, timeline of a streaming WAL receiver, received WAL; for
/// [`Replication`] the settings of synchronous commits, the times when settings were read, WAL senders
/// (name, `state` and `sync_state` of each), the connection string of a streaming WAL receiver, and its name without one; and when
/// PostgreSQL was started.
///
/// The control file has the timeline of the last checkpoint, which may be older than the promotion;
/// the name of a primary's WAL file has the present one.
pub(crate) const QUESTION: &str = "SELECT s.system_identifier, r.recovery, \
    CASE WHEN r.recovery THEN NULL ELSE \
    pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END, CASE WHEN r.recovery THEN \
    pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END, \
    c.timeline_id, m.min_recovery_end_timeline, w.received_tli, \
    pg_catalog.pg_last_wal_receive_lsn(), \
    pg_catalog.current_setting('synchronous_standby_names'), \
    pg_catalog.current_setting('synchronous_commit'), \
    pg_catalog.concat(pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_conf_load_time()), \
    (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(pg_catalog.chr(9), application_name, state, \
    sync_state), pg_catalog.chr(10)) FROM pg_catalog.pg_stat_replication), w.conninfo, pg_catalog.current_setting('cluster_name'), \
    (EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::pg_catalog.int8 FROM \
    (SELECT pg_catalog.pg_is_in_recovery() AS recovery) r CROSS JOIN \
    pg_catalog.pg_control_system() s CROSS JOIN pg_catalog.pg_control_checkpoint() c \
    CROSS JOIN pg_catalog.pg_control_recovery() m LEFT JOIN \
    pg_catalog.pg_stat_wal_receiver w ON w.status = 'streaming'";

/// An answer to [`QUESTION`].
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) sample: Sample,
    pub(crate) replication: Replication,
    pub(super) senders: Vec<Sender>,
}

/// A WAL sender, as `pg_stat_replication` shows it. Without `pg_monitor`, it shows the name only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) sync_state: String,
}

impl Sender {
    /// PostgreSQL allows no control characters in `application_name`.
    fn of(line: &str) -> Self {
        let mut words = line.split('\t').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        Self { name: word(), state: word(), sync_state: word() }
    }
}

/// The digits of a timeline in the name of a WAL file.
const TIMELINE_DIGITS: usize = 8;

impl State {
    /// Reads the row with the answer.
    pub(crate) fn of<'a>(column: impl Fn(usize) -> Option<&'a str>) -> Option<Self> {
        let number = |at: usize| column(at).and_then(|text| text.parse::<u32>().ok());
        // PostgreSQL prints it as a signed number.
        let system = column(0)?.parse::<i64>().ok()?.cast_unsigned();
        let is_in_recovery = column(1)? == "t";
        let of_file = column(2).and_then(|name| name.get(..TIMELINE_DIGITS));
        let of_file = of_file.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let received = number(6);
        let (role, timeline) = if is_in_recovery {
            let known = [number(4), number(5), received].into_iter().flatten().max()?;
            (Role::Standby(received.map(|timeline| Receiver { timeline })), known)
        } else {
            (Role::Primary, of_file?)
        };
        // A standby that has replayed nothing yet has no position.
        let wal = column(3).and_then(Lsn::parse).unwrap_or_default();
        let received = match role {
            Role::Primary => Lsn::default(),
            Role::Standby(_) => column(7).and_then(Lsn::parse).unwrap_or_default(),
        };
        let text = |at: usize| column(at).unwrap_or_default().to_owned();
        let senders: Vec<_> = column(11).unwrap_or_default().lines().map(Sender::of).collect();
        let replication = Replication {
            names: text(8),
            level: text(9),
            loaded: text(10),
            senders: senders.iter().map(|sender| sender.name.clone()).collect(),
            receiver: column(12).map(|source| receiver_name(source, &text(13))),
        };
        let started = column(14)?.parse().ok()?;
        let sample = Sample { system, started, timeline, role, wal, received };
        Some(Self { sample, replication, senders })
    }
}

/// Returns the name of a WAL receiver at its sender, by the connection string that PostgreSQL shows
/// for it: in the order of libpq's options, and without quotes.
fn receiver_name(source: &str, cluster_name: &str) -> String {
    let before = source.split(" fallback_application_name=").next().unwrap_or_default();
    match (before.rsplit_once(" application_name="), cluster_name) {
        (Some((_, name)), _) => name.to_owned(),
        (None, "") => "walreceiver".to_owned(),
        (None, name) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_wal_receiver_is_found() {
        for (source, cluster_name, name) in [
            (
                "user=copyist password=******** dbname=replication host=10.0.0.1 port=5432 \
                 application_name=b fallback_application_name=walreceiver sslmode=prefer",
                "main",
                "b",
            ),
            ("host=a fallback_application_name=15/main sslmode=prefer", "15/main", "15/main"),
            ("host=a fallback_application_name=walreceiver", "", "walreceiver"),
            ("host=a application_name=b c fallback_application_name=x", "", "b c"),
        ] {
            assert_eq!(receiver_name(source, cluster_name), name, "{source}");
        }
    }
}
