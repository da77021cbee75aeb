//! `weir ctl COMMAND`: a command of a running pooler's console, from the shell.
//!
//! The exit status is 0; 1 for an error of the console; 2 if there is no connection.
//!
//! * `health.rs`: `weir ctl health`, whose status is 1 if a check fails

mod health;
pub(crate) mod print;

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::ExitCode,
};

use anyhow::anyhow;
use config::Config;
use load::{
    Outcome,
    console::{Console, Failure},
};
use wire::secret::Secret;

use crate::{
    args::{ConsoleOptions, CtlOptions},
    explain, sys,
};

const REFUSED: u8 = 1;
const NO_CONNECTION: u8 = 2;

/// The keys with the address and the user of the console.
const NEEDED: [&str; 4] = ["listen_addr", "listen_port", "unix_socket_dir", "admin_users"];

pub(crate) fn run(options: &CtlOptions) -> ExitCode {
    let place = match console(&options.console) {
        Ok(console) => console,
        Err(why) => return fail(NO_CONNECTION, &why),
    };
    let check = health::check(&options.words);
    let command = options.words.join(" ");
    match place.ask(if check.is_some() { health::COMMAND } else { &command }) {
        Ok(outcomes) => answer(&outcomes, check, options.json),
        // The process has ended without an answer, as requested.
        Err(Failure::Lost(_)) if options.words[0].eq_ignore_ascii_case("SHUTDOWN") => {
            ExitCode::SUCCESS
        }
        Err(Failure::NoConnection(why)) => {
            fail(NO_CONNECTION, &format!("{why}{}", login(&place, &options.console)))
        }
        Err(Failure::Lost(why)) => fail(NO_CONNECTION, &why),
        Err(Failure::Refused(why)) => fail(REFUSED, &why),
    }
}

/// Prints what the console has said. `check`: the one that makes the exit status.
fn answer(outcomes: &[Outcome], check: Option<&str>, is_json: bool) -> ExitCode {
    let health = match check.map(|check| health::judge(outcomes, check)).transpose() {
        Ok(health) => health,
        Err(unknown) => return fail(REFUSED, &unknown),
    };
    let text = match &health {
        _ if is_json => print::json(outcomes),
        Some(health) => health.line.clone(),
        None => print::tables(outcomes),
    };
    match explain::print(&text) {
        Ok(_) if health.is_some_and(|health| !health.is_passed) => REFUSED.into(),
        Ok(status) => status,
        Err(error) => fail(REFUSED, &format!("{error:#}")),
    }
}

/// Returns who has tried to log in, for an error of the login.
fn login(place: &Console, options: &ConsoleOptions) -> String {
    let Some(user) = place.user.clone().or_else(|| variable("PGUSER")) else {
        return String::new();
    };
    let password = match (&options.config, variable("PGPASSWORD")) {
        (Some(file), Some(_)) => {
            format!(", with PGPASSWORD, not the password in {}", file.display())
        }
        (None, Some(_)) => ", with PGPASSWORD".to_owned(),
        (_, None) => String::new(),
    };
    format!(" (as user {user}{password})")
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn fail(status: u8, why: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "weir ctl: {why}");
    status.into()
}

/// Executes one command for another program. Returns its first result.
///
/// # Errors
/// When there is no console, or it refuses.
pub(crate) fn ask(place: &Console, command: &str) -> anyhow::Result<Outcome> {
    match place.ask(command) {
        Ok(outcomes) => Ok(outcomes.into_iter().next().unwrap_or_default()),
        Err(Failure::NoConnection(why) | Failure::Lost(why)) => Err(anyhow!(why)),
        Err(Failure::Refused(why)) => Err(anyhow!("{command}: {why}")),
    }
}

/// Returns the address and the login: from the command line first, then, for the user, from the
/// environment, then from the configuration file.
pub(crate) fn console(options: &ConsoleOptions) -> Result<Console, String> {
    let mut found = Console {
        host: options.host.clone(),
        port: options.port.clone(),
        user: options.user.clone(),
        password: None,
    };
    let Some(file) = &options.config else { return Ok(found) };
    // The service's passwords are not needed, and this process may not be able to read them.
    let config = Config::load(file).or_else(|mistakes| mistakes.without_secrets(&NEEDED));
    let config = config.map_err(|mistakes| mistakes.to_string())?;
    let host = match found.host.take() {
        Some(host) => host,
        None => host(&config).ok_or("the configuration names no address to listen on")?,
    };
    found.port.get_or_insert_with(|| config.global.listen_port.to_string());
    let port = found.port.as_deref().unwrap_or_default();
    found.user = found.user.or_else(|| variable("PGUSER")).or_else(|| {
        let is_ours = is_ours(&host, port);
        let own = is_ours.then(|| config::CONSOLE_USER.to_owned());
        own.or_else(|| config.global.admin_users.first().cloned())
    });
    if variable("PGPASSWORD").is_none() {
        found.password = found.user.as_deref().and_then(|user| password(&config, user));
    }
    found.host = Some(host);
    Ok(found)
}

/// Returns the address that the pooler listens on: its unix socket if it has one.
fn host(config: &Config) -> Option<String> {
    let global = &config.global;
    if !global.unix_socket_dir.is_empty() {
        return Some(global.unix_socket_dir.clone());
    }
    Some(match global.listen_addr.first()?.as_str() {
        "*" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "::1".to_owned(),
        other => other.to_owned(),
    })
}

/// Does this process's user run the pooler, or is it root? Then the console needs no password on the
/// unix socket.
fn is_ours(host: &str, port: &str) -> bool {
    let socket = Path::new(host).join(format!(".s.PGSQL.{port}"));
    let user = sys::effective_uid();
    host.starts_with('/')
        && fs::metadata(socket).is_ok_and(|socket| user == 0 || socket.uid() == user)
}

fn password(config: &Config, user: &str) -> Option<String> {
    match Secret::parse(config.auth_file.users.get(user)?) {
        Secret::Plain(password) if !password.is_empty() => Some(password),
        Secret::Plain(_) | Secret::Md5(_) | Secret::Scram(_) => None,
    }
}
