//! Parses the command line. PgBouncer's calling convention, `[OPTION]... CONFIG`,
//! works as it does there; Weir's own commands stand beside it. Nothing is carried out here.

#[cfg(test)]
mod tests;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// The command, independent of how the arguments express it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Invocation {
    /// Print this text to standard output and exit with status 0.
    Print(String),
    Run {
        options: RunOptions,
        config: PathBuf,
    },
    Serve {
        options: RunOptions,
        url: String,
    },
    /// With `bench_seconds`, the lab instead of the live demo.
    Demo {
        bench_seconds: Option<u32>,
    },
    Bench(Box<load::Options>),
    CheckConfig {
        file: PathBuf,
    },
    Convert {
        file: PathBuf,
    },
    Help {
        key: String,
    },
}

/// PgBouncer's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunOptions {
    pub(crate) daemon: bool,
    pub(crate) quiet: bool,
    pub(crate) reboot: bool,
    pub(crate) user: Option<String>,
    /// How many times `-v` was given.
    pub(crate) verbose: u8,
}

const FORMS: &str = "\
weir [OPTION]... CONFIG
       weir [OPTION]... serve URL
       weir demo [--bench SECONDS]
       weir bench [OPTION]... [DBNAME]
       weir check-config FILE
       weir convert FILE
       weir help KEY";

/// A connection pooler for PostgreSQL, in PgBouncer's place.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    override_usage = FORMS,
    disable_version_flag = true,
    disable_help_subcommand = true,
    infer_long_args = true,
    args_override_self = true
)]
struct Typed {
    /// Run in the background (needs a pidfile)
    #[arg(short, long)]
    daemon: bool,
    /// Do not log to stderr
    #[arg(short, long)]
    quiet: bool,
    /// Take over from the running pooler, clients and servers included
    #[arg(short = 'R', long)]
    reboot: bool,
    /// Become this user, when started as root
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// Log more; may be repeated
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Show the version
    #[arg(short = 'V', long)]
    version: bool,
    /// A pgbouncer.ini or a weir.toml
    #[arg(value_name = "CONFIG")]
    config: Vec<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pool one server with no configuration file, on 127.0.0.1:6432
    #[command(override_usage = "weir [OPTION]... serve URL")]
    Serve {
        /// postgresql://[user[:password]@]host:port/[db]
        url: String,
    },
    /// Start a throw-away PostgreSQL with Weir before it
    #[command(override_usage = "weir demo [--bench SECONDS]")]
    Demo {
        /// Measure instead: pgbench direct and through each pool mode, so long for each
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
        bench: Option<u32>,
    },
    /// Put load on a PostgreSQL or a pooler, as pgbench does, with any number of clients
    #[command(
        override_usage = "weir bench [OPTION]... [DBNAME]\n       weir bench -i [OPTION]... [DBNAME]",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Bench(Box<load::Options>),
    /// Read a configuration file and print what was understood
    #[command(override_usage = "weir check-config FILE")]
    CheckConfig { file: PathBuf },
    /// Print a pgbouncer.ini as a weir.toml, passwords included
    #[command(override_usage = "weir convert FILE")]
    Convert { file: PathBuf },
    /// Explain a configuration key
    #[command(override_usage = "weir help KEY")]
    Help { key: Option<String> },
}

/// The output of `-V`: the text of SHOW VERSION. Monitoring parses it for PgBouncer's version.
pub(crate) fn version() -> String {
    format!("{}\n", config::version())
}

/// Reads the command line, the program's name first.
///
/// # Errors
/// The text to print to stderr before exiting with status 1.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, String> {
    let args: Vec<OsString> = args.into_iter().collect();
    let last = args.last().map_or_else(String::new, |arg| arg.to_string_lossy().into_owned());
    let name = args.first().map_or("weir".into(), |name| name.to_string_lossy().into_owned());
    let misused =
        |what: &str| format!("{name}: {what}\nTry \"{name} --help\" for more information.\n");
    let typed = match Typed::try_parse_from(args) {
        Ok(typed) => typed,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Ok(Invocation::Print(error.to_string()));
        }
        Err(error) => return Err(misused(&complaint(&error, &last))),
    };
    mean(typed).map_err(misused)
}

fn mean(typed: Typed) -> Result<Invocation, &'static str> {
    if typed.version {
        return Ok(Invocation::Print(version()));
    }
    let options = RunOptions {
        daemon: typed.daemon,
        quiet: typed.quiet,
        reboot: typed.reboot,
        user: typed.user,
        verbose: typed.verbose,
    };
    let Some(command) = typed.command else {
        // PgBouncer says the same of too many files as of none.
        let [config] = <[PathBuf; 1]>::try_from(typed.config)
            .map_err(|_| "no configuration file specified")?;
        return Ok(Invocation::Run { options, config });
    };
    if options.daemon || options.reboot {
        return Err("-d and -R need a configuration file");
    }
    Ok(match command {
        Command::Serve { url } => Invocation::Serve { options, url },
        Command::Demo { bench } => Invocation::Demo { bench_seconds: bench },
        Command::Bench(options) => Invocation::Bench(options),
        Command::CheckConfig { file } => Invocation::CheckConfig { file },
        Command::Convert { file } => Invocation::Convert { file },
        Command::Help { key: Some(key) } => Invocation::Help { key },
        Command::Help { key: None } => Invocation::Print(help()),
    })
}

fn help() -> String {
    <Typed as clap::CommandFactory>::command().render_help().to_string()
}

/// The error message, in the words of getopt where it has any, which scripts know from PgBouncer.
fn complaint(error: &clap::Error, last: &str) -> String {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    match error.kind() {
        ErrorKind::UnknownArgument => match argument.strip_prefix('-') {
            Some(letter) if !letter.starts_with('-') => format!("invalid option -- '{letter}'"),
            _ => format!("unrecognized option '{argument}'"),
        },
        // The value is missing, so the option is the last that was typed.
        ErrorKind::InvalidValue if last.starts_with("--") => {
            format!("option '{last}' requires an argument")
        }
        ErrorKind::InvalidValue if last.starts_with('-') => {
            let letter = last.chars().next_back().unwrap_or('-');
            format!("option requires an argument -- '{letter}'")
        }
        ErrorKind::TooManyValues => {
            format!("option '{argument}' doesn't allow an argument")
        }
        _ => first_sentence(&error.to_string()),
    }
}

/// The complaint alone, without the usage that follows it.
fn first_sentence(error: &str) -> String {
    let complaint = error.split("\n\n").next().unwrap_or(error);
    let joined: Vec<&str> = complaint.lines().map(str::trim).collect();
    joined.join(" ").trim_start_matches("error: ").to_owned()
}
