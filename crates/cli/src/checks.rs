//! The checks of a configuration, one list for the start and for `weir check-config`.
//!
//! A start makes some of the checks by doing the action itself: it reads the TLS files, opens the
//! log, binds the addresses. For these the list contains a rehearsal, which only `check-config`
//! runs.

mod address;
mod secrets;
mod unit;

use std::{fmt, net::IpAddr, path::Path};

use config::{AccessPolicy, AuthType, Config, DataPath, Mistake, Proxied, SslMode};
use proxy::TlsContexts;

use crate::{pidfile, privileges};

/// The consequence of a finding, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Weir does not start.
    Stops,
    /// Weir starts, but `check-config --connect` has found that a database cannot be used.
    Fails,
    /// Weir starts, but some users cannot log in.
    KeepsOut,
    Warns,
}

/// One problem: its position and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// `FILE:LINE: `, unless the text begins with it.
    before: String,
    text: String,
}

impl Finding {
    /// Returns a mistake in the files, whose text begins with its position.
    pub(crate) fn mistake(mistake: &Mistake) -> Self {
        Self { level: Level::Stops, before: String::new(), text: mistake.to_string() }
    }

    /// `position` is a key, with its file and line if they are known.
    pub(super) fn new(level: Level, position: &str, what: impl fmt::Display) -> Self {
        Self { level, before: String::new(), text: format!("{position}: {what}") }
    }

    /// Is it about the setting at this position?
    pub(crate) fn is_at(&self, position: &str) -> bool {
        self.text.strip_prefix(position).is_some_and(|rest| rest.starts_with(": "))
    }

    /// Returns the text with its position. `Display` leaves out the position of a key without effect, as
    /// in the log.
    pub(crate) fn located(&self) -> String {
        format!("{}{}", self.before, self.text)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The time of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Made before the start, and by `check-config`.
    Always,
    /// Made only by `check-config`: the start does the action itself, and reports the same problem.
    Rehearsal,
}

type Check = fn(&Config) -> Vec<Finding>;

const CHECKS: [(When, Check); 11] = [
    (When::Always, reading),
    (When::Always, secrets::readable),
    (When::Always, nobody_gets_in),
    (When::Always, not_direct),
    (When::Always, others_kept_out),
    (When::Rehearsal, tls),
    (When::Rehearsal, user),
    (When::Rehearsal, pidfile_and_daemon),
    (When::Rehearsal, system),
    (When::Rehearsal, address::of_clusters),
    (When::Rehearsal, unit::drop_ins),
];

/// Returns the findings that the start must report before it begins.
pub(crate) fn before_start(config: &Config) -> Vec<Finding> {
    run(config, &[When::Always])
}

/// Returns all findings that are possible without a start, the most serious first.
pub(crate) fn all(config: &Config) -> Vec<Finding> {
    run(config, &[When::Always, When::Rehearsal])
}

fn run(config: &Config, when: &[When]) -> Vec<Finding> {
    let due = CHECKS.iter().filter(|(at, _)| when.contains(at));
    let mut found: Vec<_> = due.flat_map(|(_, check)| check(config)).collect();
    found.sort_by_key(|finding| finding.level);
    found
}

/// Returns mistakes and oddities that were found while the files were read.
fn reading(config: &Config) -> Vec<Finding> {
    let finding = |level, text| Finding { level, before: String::new(), text };
    let mistakes = config.errors.iter().map(|it| finding(Level::KeepsOut, it.to_string()));
    let oddities = config.warnings.iter().map(|it| finding(Level::Warns, it.to_string()));
    let idle = config.set_in_vain().into_iter().map(|text| {
        let key = text.split(' ').next().unwrap_or_default();
        Finding { before: config.positions.before_key(key), ..finding(Level::Warns, text) }
    });
    mistakes.chain(oddities).chain(idle).collect()
}

/// Returns the settings with which no client can log in, not even to the console.
fn nobody_gets_in(config: &Config) -> Vec<Finding> {
    let global = &config.global;
    if config.access != AccessPolicy::Configured {
        return Vec::new();
    }
    let databases = || config.databases.values().chain(&config.fallback);
    let looks_up = global.auth_user.is_some() || databases().any(|db| db.auth_user.is_some());
    let no_users = config.auth_file.users.is_empty() && !looks_up;
    let (key, what) = match global.auth_type {
        AuthType::Hba if config.hba.rules.is_empty() => {
            ("auth_hba_file", "auth_type is hba and there is no rule: every login is refused")
        }
        AuthType::Ldap if config.ldap.is_none() => {
            ("auth_ldap_options", "auth_type is ldap and there are no options that can be used")
        }
        AuthType::Trust | AuthType::Plain | AuthType::Md5 | AuthType::ScramSha256 if no_users => (
            "auth_file",
            "there are no users: auth_file has none, and there is no auth_user to look them up",
        ),
        AuthType::Any
        | AuthType::Trust
        | AuthType::Plain
        | AuthType::Md5
        | AuthType::ScramSha256
        | AuthType::Cert
        | AuthType::Hba
        | AuthType::Ldap
        | AuthType::Pam
        | AuthType::Server => return Vec::new(),
    };
    vec![Finding::new(Level::KeepsOut, &config.positions.of_key(key), what)]
}

/// Finds addresses at which all clients are refused, because their passwords would be readable on the
/// network.
fn others_kept_out(config: &Config) -> Vec<Finding> {
    let global = &config.global;
    let is_near = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost",
    };
    let has_tls = global.client_tls_sslmode != SslMode::Disable;
    let far = global.listen_addr.iter().find(|name| !is_near(name));
    let Some(far) = far.filter(|_| config.access == AccessPolicy::ProvenByServer && !has_tls)
    else {
        return Vec::new();
    };
    let what = format!(
        "at {far}, clients of other machines are refused: Weir asks for their passwords in clear \
         text to check them by PostgreSQL. Add TLS (client_tls_sslmode = require, \
         client_tls_cert_file, client_tls_key_file), or auth_file with auth_type = scram-sha-256"
    );
    vec![Finding::new(Level::KeepsOut, &config.positions.of_key("listen_addr"), what)]
}

/// Returns the databases that should be direct and cannot be.
fn not_direct(config: &Config) -> Vec<Finding> {
    let databases = config.databases.values().chain(&config.fallback);
    let found = databases.filter_map(|database| {
        let user = database.user.as_deref().unwrap_or_default();
        let is_meant = config.data_path(database, user) == DataPath::Direct;
        let why = config.proxied(database, user).filter(|_| is_meant)?;
        let hint = Proxied::advice(why);
        let hint = if hint.is_empty() { String::new() } else { format!("; {hint}") };
        let what = format!("the pools of {} are proxied: {why}{hint}", database.name);
        Some(Finding::new(Level::Warns, &config.positions.of_key("data_path"), what))
    });
    found.collect()
}

fn tls(config: &Config) -> Vec<Finding> {
    let Err(error) = TlsContexts::load(config) else { return Vec::new() };
    let position = match &error.database {
        Some(name) => format!("{}: {}", config.positions.of_database(name), error.key),
        None => config.positions.of_key(error.key),
    };
    vec![Finding::new(Level::Stops, &position, error.reason)]
}

/// Checks the user that the start switches to. Later checks run as that user.
fn user(config: &Config) -> Vec<Finding> {
    let name = config.global.user.as_deref();
    let (level, reason) = match privileges::switch_to(name) {
        Err(reason) => (Level::Stops, reason),
        Ok(()) => match privileges::refuse_root() {
            // The file does not say which user starts Weir, so another user may do so.
            Err(reason) => (Level::Warns, reason.context("checked as root")),
            Ok(()) => return Vec::new(),
        },
    };
    vec![Finding::new(level, &config.positions.of_key("user"), format!("{reason:#}"))]
}

fn pidfile_and_daemon(config: &Config) -> Vec<Finding> {
    let path = config.global.pidfile.as_str();
    let position = config.positions.of_key("pidfile");
    let finding = match pidfile::rehearse(Path::new(path)) {
        _ if path.is_empty() => None,
        Ok(None) => None,
        Ok(Some(running)) => Some(Finding::new(
            Level::Warns,
            &position,
            format!(
                "'{path}' names the running process {running}: end it before Weir starts, unless it \
                 is the Weir to be reloaded or taken over (-R)"
            ),
        )),
        Err(reason) => Some(Finding::new(Level::Stops, &position, format!("{reason:#}"))),
    };
    finding.into_iter().collect()
}

/// Checks addresses, folders and limits of this machine.
fn system(config: &Config) -> Vec<Finding> {
    let obstacles = proxy::obstacles(config).into_iter();
    let level = |stops| if stops { Level::Stops } else { Level::Warns };
    let position = |key| config.positions.of_key(key);
    obstacles.map(|it| Finding::new(level(it.stops), &position(it.key), it.reason)).collect()
}
