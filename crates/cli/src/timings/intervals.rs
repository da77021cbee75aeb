//! The times between the checkpoints of SHOW TIMINGS, and sums of them.

use load::Outcome;

/// The name of a checkpoint's column; empty for accept.
type Checkpoint = &'static str;

const ACCEPTED: Checkpoint = "";

/// A time of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    from: Checkpoint,
    to: Checkpoint,
    /// The connections that count, by their servers; empty for all.
    servers: &'static [&'static str],
    /// Does the wait for the first server count, too, if it comes later?
    adds_server: bool,
}

const fn interval(
    name: &'static str,
    from: Checkpoint,
    to: Checkpoint,
    about: &'static str,
) -> Interval {
    Interval { name, about, from, to, servers: &[], adds_server: false }
}

/// The intervals between checkpoints, then the sums. Sums have a capital letter.
pub(super) const INTERVALS: [Interval; 12] = [
    interval("startup", ACCEPTED, "startup_us", "accepted, startup packet read"),
    interval("login", "startup_us", "authenticated_us", "startup packet read, authenticated"),
    interval("welcome", "authenticated_us", "welcomed_us", "authenticated, told so"),
    interval("wait", "queued_us", "linked_us", "server asked for, server chosen"),
    interval("apply", "linked_us", "applied_us", "server chosen, state applied"),
    interval("request", "applied_us", "sent_us", "state applied, first request sent"),
    interval("answer", "sent_us", "first_byte_us", "first request sent, first answer"),
    interval("rest", "first_byte_us", "done_us", "first answer, connection ended"),
    Interval {
        servers: &["new", "evicting"],
        ..interval("Fork", "queued_us", "applied_us", "wait and apply, if the server was new")
    },
    Interval {
        servers: &["reused", "stolen"],
        ..interval("Reactivate", "queued_us", "applied_us", "wait and apply, if it was open")
    },
    Interval {
        adds_server: true,
        ..interval("Init", ACCEPTED, "welcomed_us", "accepted, told so; and a later wait and apply")
    },
    interval("Total", ACCEPTED, "done_us", "accepted, connection ended"),
];

impl Interval {
    pub(super) fn is_sum(self) -> bool {
        self.name.starts_with(char::is_uppercase)
    }

    /// Has the run the columns of this interval?
    pub(super) fn is_known(self, run: &Outcome) -> bool {
        [self.from, self.to].into_iter().all(|name| name == ACCEPTED || at(run, name).is_some())
    }

    /// Returns the times of all connections that have both ends, in milliseconds.
    pub(super) fn times(self, run: &Outcome) -> Vec<f64> {
        let time = |row: &Vec<Option<String>>| {
            let server = text(run, row, "server").unwrap_or_default();
            if !self.servers.is_empty() && !self.servers.contains(&server) {
                return None;
            }
            let mut micros =
                moment(run, row, self.to)?.saturating_sub(moment(run, row, self.from)?);
            if self.adds_server
                && let Some(queued) = moment(run, row, "queued_us")
                && queued >= moment(run, row, self.to)?
            {
                micros += moment(run, row, "applied_us").unwrap_or(queued).saturating_sub(queued);
            }
            Some(micros as f64 / 1_000.0)
        };
        run.rows.iter().filter_map(time).collect()
    }
}

fn at(run: &Outcome, column: &str) -> Option<usize> {
    run.columns.iter().flatten().position(|known| known.name == column)
}

fn text<'a>(run: &Outcome, row: &'a [Option<String>], column: &str) -> Option<&'a str> {
    row.get(at(run, column)?)?.as_deref()
}

/// Returns the microseconds from accept to the checkpoint.
fn moment(run: &Outcome, row: &[Option<String>], checkpoint: Checkpoint) -> Option<u64> {
    match checkpoint {
        ACCEPTED => Some(0),
        name => text(run, row, name)?.parse().ok(),
    }
}
