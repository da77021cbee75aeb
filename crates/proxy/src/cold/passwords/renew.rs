//! Runs the programs that print passwords for logins to servers (`password_command`). A task for each
//! program runs it at the start, and again before the password ends. So one run serves many logins,
//! and a login waits only for the first password.
//!
//! ```text
//!  run ─┬─ printed a password ─► after 2/3 of password_lifetime ─► run
//!       │                        at the end of the one before: its servers are replaced
//!       └─ failed ─► logins go on with the last password ─► after a pause ─► run
//! ```
//!
//! A password never is in the log, nor is any other output of the program.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    process::Command,
    sync::Arc,
    time::Duration,
};

use config::{Config, PasswordCommand};
use engine::{
    auth::Password,
    journal::EventKind,
    pool::Pool,
    shell::{Issued, Mail, RUN_PAUSE, run_max},
};
use tokio::{
    join,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{PasswordInfo, Source};
use crate::{
    cold::{
        controller::Controller,
        program::{self, Output},
    },
    error,
    exchange::{hub::lock, requests::PasswordRequest, transport::Transport},
    log,
};

/// The longest time from one run to the next after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest password: tokens of cloud providers have some thousand bytes.
const PASSWORD_BYTES_MAX: usize = 16_384;
/// The folders in which a program finds others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Answers a login's question for its password, at once if there is one. A login waits for the first
/// run, and for the one after PostgreSQL has refused the password. It does not wait for a program that
/// fails.
pub(crate) fn ask(controller: &Controller, request: PasswordRequest) {
    let command = &request.wanted.command;
    let passwords = &controller.0.passwords;
    let is_configured = || commands(&controller.config()).contains_key(&**command);
    // The task of a new program may not have begun.
    let known = passwords.known(command);
    let Some(source) = known.or_else(|| is_configured().then(|| passwords.source(command))) else {
        return answer(controller, request, Err("its configuration has changed".to_owned()));
    };
    let mut state = lock(&source.state);
    let current = state.current.as_ref().map(|(issued, _)| issued.clone());
    let is_later =
        |issued: &Issued| request.wanted.refused.is_none_or(|refused| issued.number > refused);
    if state.failing.is_some() || current.as_ref().is_some_and(is_later) {
        return answer(controller, request, current.ok_or_else(no_password));
    }
    state.waiting.push(request);
    source.wake.notify_one();
}

fn no_password() -> String {
    "password_command failed".to_owned()
}

fn answer(controller: &Controller, request: PasswordRequest, issued: Result<Issued, String>) {
    let PasswordRequest { worker, server, serial, wanted: _ } = request;
    let mail = Mail::Password { server, serial, issued };
    controller.0.shared.hub.mailbox(worker).post(mail.into());
}

/// Returns the programs of the configuration, with the databases that have them.
fn commands(config: &Config) -> BTreeMap<Arc<PasswordCommand>, Vec<String>> {
    let mut found: BTreeMap<Arc<PasswordCommand>, Vec<String>> = BTreeMap::new();
    for database in config.databases.values().chain(&config.fallback) {
        if let Some(command) = database.password_command() {
            found.entry(Arc::new(command)).or_default().push(database.name.clone());
        }
    }
    found
}

/// Runs the programs of the configuration for ever.
pub(crate) async fn keep(controller: Controller) {
    let passwords = &controller.0.passwords;
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Arc<PasswordCommand>, AbortHandle> = HashMap::new();
    loop {
        let configured = commands(&controller.config());
        running.retain(|command, task| {
            let stays = configured.contains_key(command);
            if !stays {
                task.abort();
                forget(&controller, command);
            }
            stays
        });
        for command in configured.into_keys() {
            running.entry(command).or_insert_with_key(|command| {
                tasks.spawn(tend(controller.clone(), Arc::clone(command)))
            });
        }
        passwords.changed.notified().await;
    }
}

/// No database has this program any more.
fn forget(controller: &Controller, command: &PasswordCommand) {
    let source = lock(&controller.0.passwords.sources).remove(command);
    let waiting = source.map(|source| std::mem::take(&mut lock(&source.state).waiting));
    for request in waiting.into_iter().flatten() {
        answer(controller, request, Err("its configuration has changed".to_owned()));
    }
}

/// Looks after one program and its passwords for ever.
async fn tend(controller: Controller, command: Arc<PasswordCommand>) {
    let source = controller.0.passwords.source(&command);
    join!(renew(&controller, &command, &source), tell_ends(&controller, &command, &source));
}

/// Runs the program for ever.
async fn renew(controller: &Controller, command: &Arc<PasswordCommand>, source: &Source) {
    let mut pause = RUN_PAUSE;
    loop {
        let began = Instant::now();
        let next = match print(command).await {
            Ok(password) => {
                pause = RUN_PAUSE;
                took(controller, command, source, password, began);
                began + RUN_PAUSE.max(command.lifetime * 2 / 3)
            }
            Err(why) => {
                failed(controller, command, source, &why);
                let next = Instant::now() + pause;
                pause = (pause * 2).min(PAUSE_MAX);
                next
            }
        };
        tokio::select! {
            () = sleep_until(next) => {}
            () = until_wanted(source) => sleep_until(next.min(began + RUN_PAUSE)).await,
        }
    }
}

/// Tells the pools the ends of earlier passwords. The workers then replace the servers that have logged
/// in with them, as soon as a later password is known to be right.
async fn tell_ends(controller: &Controller, command: &PasswordCommand, source: &Source) {
    loop {
        let next = lock(&source.state).superseded.front().copied();
        let Some((number, end)) = next else {
            source.superseded.notified().await;
            continue;
        };
        sleep_until(end).await;
        for_each_pool(controller, command, |pool| pool.passwords.end(number));
        lock(&source.state).superseded.pop_front();
    }
}

/// Returns when a login waits for another password than the present one.
async fn until_wanted(source: &Source) {
    while lock(&source.state).waiting.is_empty() {
        source.wake.notified().await;
    }
}

/// Runs the program in a clean environment.
async fn print(command: &PasswordCommand) -> Result<String, String> {
    let mut program = Command::new(command.program.path());
    program.args(command.program.arguments()).current_dir("/").env_clear().env("PATH", PATH);
    if let Some(home) = env::var_os("HOME") {
        program.env("HOME", home);
    }
    let output =
        program::run(program, run_max(command), Output::IsResult(PASSWORD_BYTES_MAX)).await?;
    password_of(output)
}

/// Returns the only line of the output.
fn password_of(output: Vec<u8>) -> Result<String, String> {
    let mut text = String::from_utf8(output).map_err(|_| "its output is not in UTF-8")?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    match () {
        () if text.is_empty() => Err("it has printed no password".to_owned()),
        () if text.contains(char::is_control) => {
            Err("it has printed more than one line, or a control character".to_owned())
        }
        () => Ok(text),
    }
}

/// A run has printed a password.
fn took(
    controller: &Controller,
    command: &Arc<PasswordCommand>,
    source: &Source,
    text: String,
    began: Instant,
) {
    let mut state = lock(&source.state);
    let before = state.current.take();
    let is_new = before.as_ref().is_none_or(|(before, _)| before.password.0 != text);
    let last = before.as_ref().map_or(0, |(before, _)| before.number);
    let issued = Issued { number: last + u64::from(is_new), password: Password(text) };
    state.current = Some((issued.clone(), began + command.lifetime));
    state.superseded.extend(before.filter(|_| is_new).map(|(before, end)| (before.number, end)));
    state.end_is_known = false;
    let has_failed = state.failing.take().is_some();
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    source.superseded.notify_one();
    if has_failed {
        log!("password_command of {} works again", databases(controller, command));
    }
    // It is tried at once, although logins may have failed just now. But if PostgreSQL refuses each
    // password, the runs for one pool must not make the other pools try again.
    let is_renewal = waiting.iter().all(|request| request.wanted.refused.is_none());
    if is_new && is_renewal {
        for_each_pool(controller, command, |pool| pool.failure = None);
    }
    for request in waiting {
        answer(controller, request, Ok(issued.clone()));
    }
}

fn for_each_pool(
    controller: &Controller,
    command: &PasswordCommand,
    change: impl Fn(&mut Pool<Transport>),
) {
    for pool in controller.0.shared.hub.pools() {
        let mut pool = lock(&pool);
        if pool.settings.password_command.as_deref() == Some(command) {
            change(&mut pool);
        }
    }
}

/// A run has failed. It is logged when the reason is a new one, and when the last password has ended.
fn failed(controller: &Controller, command: &PasswordCommand, source: &Source, why: &str) {
    let mut state = lock(&source.state);
    state.failures += 1;
    let current = state.current.clone();
    let has_ended = current.as_ref().is_some_and(|(_, end)| *end <= Instant::now());
    let is_known = state.failing.as_deref() == Some(why) && state.end_is_known == has_ended;
    state.failing = Some(why.to_owned());
    state.end_is_known = has_ended;
    let waiting = std::mem::take(&mut state.waiting);
    drop(state);
    for request in waiting {
        let issued = current.as_ref().map(|(issued, _)| issued.clone());
        answer(controller, request, issued.ok_or_else(no_password));
    }
    if is_known {
        return;
    }
    let names = databases(controller, command);
    let consequence = match &current {
        None => "no server can be opened until it works".to_owned(),
        Some(_) if has_ended => "servers log in with the last password, which has ended".to_owned(),
        Some((_, end)) => {
            let left = end.saturating_duration_since(Instant::now()).as_secs();
            format!("servers log in with the last password, which ends in {left} s")
        }
    };
    error!("password_command of {names} failed: {why}; {consequence}");
    controller.note(EventKind::ServerLoginFailed, &format!("password_command of {names}: {why}"));
}

fn databases(controller: &Controller, command: &PasswordCommand) -> String {
    commands(&controller.config()).get(command).map(|names| names.join(", ")).unwrap_or_default()
}

impl Controller {
    /// Returns the passwords of databases that have a `password_command`.
    pub(crate) fn passwords(&self) -> Vec<PasswordInfo> {
        let mut found = Vec::new();
        for (command, databases) in commands(&self.config()) {
            let source = self.0.passwords.source(&command);
            let state = lock(&source.state);
            let remaining = state
                .current
                .as_ref()
                .map_or(Duration::ZERO, |(_, end)| end.saturating_duration_since(Instant::now()));
            let info = |database| PasswordInfo { database, failures: state.failures, remaining };
            found.extend(databases.into_iter().map(info));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        let of = |output: &[u8]| password_of(output.to_vec());
        assert_eq!(of(b"se cret"), Ok("se cret".to_owned()));
        assert_eq!(of(b"secret\r\n"), Ok("secret".to_owned()));
        for bad in [&b""[..], b"\n", b"one\ntwo\n", b"a\0b", b"\xff"] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
