//! Starts and ends a pooler, in PgBouncer's order: load the configuration, switch the user, refuse
//! root, take over from a running process if requested, check the pidfile, go to the background,
//! write the pidfile, start, wait.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{self, Path},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use config::{Config, ConfigError, Global};
use proxy::{Handover, Pooler, Service, StartOptions, TlsContexts, error, fatal, log, warning};

use crate::{
    args::RunOptions,
    checks::{self, Finding, Level},
    console,
    daemon::Background,
    metrics, pcp, pidfile,
    pidfile::Pidfile,
    privileges, report, serve,
    supervised::Supervisor,
    sys,
};

/// Runs `weir CONFIG`. Failures are logged; the exit status is 1.
pub(crate) fn run(options: &RunOptions, config_path: &Path) -> ExitCode {
    log::init(!options.quiet, options.verbose);
    match Config::load(config_path) {
        Ok(config) => {
            let global = config.global.clone();
            let ended = start_and_wait(options, config, || ());
            let has_failed = ended.is_err();
            let code = exit_code(ended);
            if has_failed {
                log_to_file(options, &global);
            }
            code
        }
        Err(mistakes) => {
            for mistake in &mistakes.mistakes {
                error!("{mistake}");
            }
            match misspelt_command(config_path) {
                Some(word) => fatal!(
                    "cannot load config file, and \"{word}\" is no command (\"weir --help\" has a list)"
                ),
                None => fatal!("cannot load config file"),
            }
            if let Some(rest) = &mistakes.rest {
                log_to_file(options, &rest.global);
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the name of a configuration that does not exist, if it looks like a command.
fn misspelt_command(config: &Path) -> Option<&str> {
    let word = config.to_str()?;
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_word && !config.exists()).then_some(word)
}

/// Paths at which a container's configuration is mounted.
const MOUNTED: [&str; 3] =
    ["/etc/weir/weir.toml", "/etc/weir/weir.ini", "/etc/pgbouncer/pgbouncer.ini"];

/// Runs `weir serve [URL]`. Without a URL the environment names the server, or a file is mounted.
pub(crate) fn serve(options: &RunOptions, url: Option<&str>) -> ExitCode {
    log::init(true, options.verbose);
    let mounted = MOUNTED.iter().map(Path::new).find(|file| file.exists());
    let config = match url {
        Some(url) => Config::from_url_in(url, &variables(), read_secret),
        None => match (from_environment(), mounted) {
            (Some(config), None) => config,
            (Some(config), Some(file)) => {
                let file = file.display();
                warning!(
                    "the environment names the server, so {file} is not read (\"weir {file}\" reads it)"
                );
                config
            }
            (None, Some(file)) => {
                log!("serving what {} says", file.display());
                return run(options, file);
            }
            (None, None) => {
                fatal!(
                    "no server: give a URL (weir serve postgresql://HOST/DATABASE), set DATABASE_URL, \
                     or mount one of {}",
                    MOUNTED.join(", ")
                );
                return ExitCode::FAILURE;
            }
        },
    };
    exit_code(config.map_err(anyhow::Error::from).and_then(|config| {
        let shown = config.clone();
        start_and_wait(options, config, || serve::introduce(shown, options.quiet))
    }))
}

fn from_environment() -> Option<Result<Config, ConfigError>> {
    Config::from_environment(&variables(), read_secret)
}

/// Reads a file with a password. As in libpq, nobody else may read the one with many passwords.
fn read_secret(file: &str) -> io::Result<String> {
    if env::var_os(config::PASSFILE).is_some_and(|name| name == file) {
        let mode = fs::metadata(file)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            let why = format!("others can read it (mode {mode:04o}, expected 0600)");
            return Err(io::Error::other(why));
        }
    }
    fs::read_to_string(file)
}

fn variables() -> Vec<(String, String)> {
    // A variable that is not UTF-8 is none of ours.
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    env::vars_os().filter_map(text).collect()
}

/// Writes the messages of a failed start to the log file as well, unless it is open already. Root
/// creates no log file, since the pooler's user could not open it later.
fn log_to_file(options: &RunOptions, global: &Global) {
    let user = options.user.as_deref().or(global.user.as_deref());
    let is_root = privileges::switch_to(user).and_then(|()| privileges::refuse_root()).is_err();
    if !is_root || Path::new(&global.logfile).exists() {
        // If this fails, the messages are only on stderr.
        let _ = log::configure(global);
    }
}

fn exit_code(ended: anyhow::Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            fatal!("{reason:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the pooler and waits for its end. `started` is called when clients can connect.
fn start_and_wait(
    options: &RunOptions,
    config: Config,
    started: impl FnOnce(),
) -> anyhow::Result<()> {
    log::set_format(config.global.log_format);
    log::init(!options.quiet, options.verbose);
    checks::before_start(&config).iter().for_each(report);
    let global = &config.global;
    // Done as the user that started the process, since only that user may be able to read the keys.
    let tls = TlsContexts::load(&config).or_else(|error| {
        error!("{error}");
        bail!("TLS setup failed")
    })?;
    privileges::switch_to(options.user.as_deref().or(global.user.as_deref()))?;
    privileges::refuse_root()?;
    if !global.core_dumps {
        // The memory contains passwords and keys. Done after the change of user, which would undo
        // it.
        sys::hide_memory().context("cannot forbid core dumps")?;
    }
    // Done as the user that will write the log.
    log::configure(&config.global)?;

    // Made absolute now, since the working directory may differ when the file is removed.
    let pidfile = match global.pidfile.as_str() {
        "" => None,
        path => Some(path::absolute(path).context("pidfile")?),
    };
    // In the background the process has another number, and the sockets are not for it.
    let gets_sockets = !options.daemon && Service::passes_sockets();
    let handover = match options.reboot {
        true => take_over(options, global, gets_sockets)?,
        false => None,
    };
    if handover.is_none() && !gets_sockets {
        // Done before the check of the pidfile, which reports a running process in other words.
        proxy::refuse_second_process(global)?;
    }
    if let Some(path) = &pidfile
        && handover.is_none()
    {
        pidfile::check(path)?;
    }
    let background = match options.daemon {
        true => Some(go_to_background(options, pidfile.is_some())?),
        false => None,
    };
    // The pidfile is removed when this value is dropped.
    let mut own_pidfile = match &handover {
        None => pidfile.as_deref().map(Pidfile::create).transpose()?,
        Some(_) => None,
    };
    let takes_over = handover.is_some();

    let config_path = config.path.clone();
    let console = Some(console::handler());
    let service = Service::from_environment()?;
    let supervisor = options.supervised.map(Supervisor::adopt).transpose()?;
    let (holder, held_clients) = supervisor.as_ref().map_or((None, None), Supervisor::hold_clients);
    // If this process ends by itself, nothing is held for another one.
    let (holder, held) = holder.unzip();
    let handover = handover.or(held_clients);
    let options = StartOptions {
        config_path,
        console,
        metrics: Some(metrics::page()),
        pcp: Some(pcp::handler()),
        tls: Some(tls),
        service,
        handover,
        held,
        ..StartOptions::default()
    };
    let global = config.global.clone();
    let pooler = Pooler::start(config, options)?;
    report::write_at_panic(pooler.controller(), &global);
    if takes_over && let Some(path) = &pidfile {
        // Done only now: until the other process has ended, it might have had to continue.
        match Pidfile::replace(path) {
            Ok(replaced) => own_pidfile = Some(replaced),
            Err(reason) => warning!("{reason:#}"),
        }
    }
    started();
    if let Some(background) = background {
        background.release();
    }
    if let Some(supervisor) = supervisor {
        supervisor.follow(pooler.controller())?;
    }
    pooler.wait();
    drop(holder);
    drop(own_pidfile);
    Ok(())
}

/// Takes the connections of the running process, if there is one. With the sockets of a service
/// manager, there is none.
fn take_over(
    options: &RunOptions,
    global: &Global,
    gets_sockets: bool,
) -> anyhow::Result<Option<Handover>> {
    let handover = if gets_sockets { None } else { proxy::take_over(global)? };
    if handover.is_none() {
        // The unit has a main process, which listens elsewhere.
        if options.daemon && Service::is_managed() {
            bail!(
                "there is no process to take over from: unix_socket_dir and listen_port must be those \
                 of the running process, and a change of them needs a restart of the unit"
            );
        }
        log!("old process not found, try to continue normally");
    }
    Ok(handover)
}

/// A service manager knows its processes without a pidfile.
fn go_to_background(options: &RunOptions, has_pidfile: bool) -> anyhow::Result<Background> {
    if !has_pidfile && !Service::is_managed() {
        bail!("daemon needs pidfile configured");
    }
    let background = Background::enter()?;
    log::init(!options.quiet && log::stderr_is_journal(), options.verbose);
    Ok(background)
}

fn report(finding: &Finding) {
    match finding.level {
        Level::Stops | Level::Fails | Level::KeepsOut => error!("{finding}"),
        Level::Warns => warning!("{finding}"),
    }
}
