//! The language of `cases/*.txt`. A line that begins with `#` is a comment.
//!
//! ```text
//! == NAME             a group; its cases are played one after the other on one pair of poolers
//! == NAME (fresh)     a group whose cases have poolers of their own, and start them themselves
//! | LINE              of the configuration file, in the section that was named last, at first
//!                     `[pgbouncer]`; beside PgBouncer's own sections there are [auth_file] and
//!                     [file NAME]. Behind `--` it is of this case only, which then is fresh
//! -- NAME             a case; what follows are its steps
//! start               starts the pooler and waits until it listens or has ended
//! A = key=value …     connection A logs in; `password` is the password, `minor` the protocol,
//!                     `unix` the socket. Without user or database: role and database of the group
//! A: SQL              a simple query, and all that answers it
//! A> word … | word …  messages, see `player.rs`; A< reads until ReadyForQuery or the end
//! A. bytes            bytes in hexadecimal digits, on a new connection if A is not open
//! A?                  one byte that is no message
//! A# reads nothing for a moment, A~ goes away, A! cancels what A does
//! admin: COMMAND      a console command; `stats:` the same of a user of `stats_users`
//! until: TABLE column=value … waits until SHOW TABLE has such a row
//! log: TEXT           waits for it in the log
//! signal: NAME        sends the process a signal; exit: waits for its end and tells the status
//! run: ARGUMENTS      runs the program to its end
//! psql: ARGUMENTS     runs psql
//! edit: FROM => TO    changes the file
//! ```
//!
//! `{db}`, `{pg}` (PostgreSQL's port), `{port}`, `{closed}` (where nobody listens), `{dir}`,
//! `{x*N}` (N times that letter) are put in by name.

const FILES: [&str; 16] = [
    include_str!("cases/auth.txt"),
    include_str!("cases/boot.txt"),
    include_str!("cases/cli.txt"),
    include_str!("cases/config.txt"),
    include_str!("cases/console.txt"),
    include_str!("cases/databases.txt"),
    include_str!("cases/limits.txt"),
    include_str!("cases/logs.txt"),
    include_str!("cases/modes.txt"),
    include_str!("cases/orders.txt"),
    include_str!("cases/quoting.txt"),
    include_str!("cases/refusals.txt"),
    include_str!("cases/servers.txt"),
    include_str!("cases/set.txt"),
    include_str!("cases/signals.txt"),
    include_str!("cases/startup.txt"),
];

/// Cases with the same configuration. They share one pair of poolers unless they are fresh.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) fresh: bool,
    pub(super) files: Vec<String>,
    pub(super) cases: Vec<Case>,
}

impl Group {
    /// Splits off cases with poolers of their own, since they can be played in parallel.
    pub(super) fn split(self) -> Vec<Self> {
        let Self { name, fresh, files, cases } = self;
        let part = |cases| Self { name: name.clone(), fresh, files: files.clone(), cases };
        let (own, shared): (Vec<_>, Vec<_>) =
            cases.into_iter().partition(|case| fresh || case.has_files());
        let mut parts: Vec<Self> = own.into_iter().map(|case| part(vec![case])).collect();
        if !shared.is_empty() {
            parts.insert(0, part(shared));
        }
        parts
    }
}

/// A few steps whose output is compared.
#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) files: Vec<String>,
    pub(super) steps: Vec<String>,
}

impl Case {
    /// Returns whether the case has a configuration of its own.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }
}

/// Returns all groups, or only the cases whose names contain `only`.
pub(super) fn groups(only: Option<&str>) -> Vec<Group> {
    let mut groups: Vec<Group> = FILES.iter().flat_map(|text| parse(text)).collect();
    if let Some(word) = only {
        for group in &mut groups {
            let Group { name, cases, .. } = group;
            cases.retain(|case| format!("{name}: {}", case.name).contains(word));
        }
    }
    groups.retain(|group| !group.cases.is_empty());
    groups
}

fn parse(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            let (name, fresh) = match name.strip_suffix(" (fresh)") {
                Some(name) => (name, true),
                None => (name, false),
            };
            groups.push(Group { name: name.to_owned(), fresh, ..Group::default() });
            continue;
        }
        let group = groups.last_mut().unwrap_or_else(|| panic!("no group before {line}"));
        if let Some(name) = line.strip_prefix("-- ") {
            group.cases.push(Case { name: name.to_owned(), ..Case::default() });
        } else if let Some(file_line) = line.strip_prefix('|') {
            let file_line = file_line.strip_prefix(' ').unwrap_or(file_line).to_owned();
            match group.cases.last_mut() {
                Some(case) => case.files.push(file_line),
                None => group.files.push(file_line),
            }
        } else {
            let case = group.cases.last_mut().unwrap_or_else(|| panic!("no case before {line}"));
            case.steps.push(line.to_owned());
        }
    }
    groups
}
