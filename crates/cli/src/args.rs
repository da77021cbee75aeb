//! Parses the command line. PgBouncer's calling convention, `[OPTION]... CONFIG`,
//! works as it does there; Weir's own commands stand beside it. Nothing is carried out here.

mod completion;
#[cfg(test)]
mod tests;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum,
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
        /// None for the server that the environment names.
        url: Option<String>,
    },
    Health(HealthOptions),
    Demo(DemoOptions),
    Bench(Box<load::Options>),
    CheckConfig {
        file: PathBuf,
        how: CheckOptions,
    },
    Advise(AdviseOptions),
    Ctl(CtlOptions),
    Report(ReportOptions),
    Timings(TimingsOptions),
    Showpool(ShowpoolOptions),
    Convert(ConvertOptions),
    /// Explain a key or a command of the console.
    Help {
        topic: String,
    },
}

/// The flags of `weir check-config`.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckOptions {
    /// Log in to each database, as its pool would; exit with status 1 if one cannot be used
    #[arg(long)]
    pub(crate) connect: bool,
    /// Exit with status 1 for warnings, too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print only errors, and warnings about users that cannot log in
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The flags of `weir health`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthOptions {
    /// Its address, or the folder of its socket
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Its port
    #[arg(short, long, default_value_t = 6432)]
    pub(crate) port: u16,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The file formats of `weir convert`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Pgbouncer,
    Pgpool,
}

/// The options of `weir convert`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConvertOptions {
    /// A pgbouncer.ini, whose passwords are printed as well; or a pgpool.conf
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format of FILE. By default, its text tells
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<Format>,
    /// Pgpool-II's rules. By default, the pool_hba.conf beside FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) pool_hba: Option<PathBuf>,
    /// Pgpool-II's users. By default, the file that FILE names
    #[arg(long, value_name = "FILE")]
    pub(crate) pool_passwd: Option<PathBuf>,
    /// Users of Pgpool-II's tools. By default, the pcp.conf beside FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) pcp_conf: Option<PathBuf>,
    /// The key of encrypted passwords. By default, that of PGPOOLKEYFILE, or .pgpoolkey in the home
    /// folder or beside FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) pgpoolkey: Option<PathBuf>,
    /// Write the files with passwords, weir-users.txt and weir-monitor.txt, into this folder. By
    /// default, into the working folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) secrets: Option<PathBuf>,
}

/// The flags of `weir advise`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdviseOptions {
    /// The configuration of the running Weir, for the address of its console
    #[arg(value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// How long to watch the clients
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) seconds: u32,
    /// Address of Weir, or the folder of its socket, in place of the configuration's
    #[arg(long)]
    pub(crate) host: Option<String>,
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// User of the console; needs to be in admin_users. The password is taken from PGPASSWORD, or
    /// from auth_file
    #[arg(long)]
    pub(crate) user: Option<String>,
}

/// The address of a console, and the login.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsoleOptions {
    /// Take address, user and password from this configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A host's name or address, or the folder of a unix socket
    #[arg(short = 'h', long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    #[arg(short, long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    #[arg(short = 'U', long, alias = "username", value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// The options of `weir report`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) console: ConsoleOptions,
    /// Write to this file, and not to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `weir timings`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimingsOptions {
    #[command(flatten)]
    pub(crate) console: ConsoleOptions,
    /// Print the connections, as comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Print the connections, as an array of objects
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the share of connections by time, into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Read the connections from this file, which --csv has written, and ask no pooler
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Another run for the tables and the drawing, which --csv has written; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Vec<PathBuf>,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options of `weir showpool`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShowpoolOptions {
    #[command(flatten)]
    pub(crate) console: ConsoleOptions,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// The options and the command of `weir ctl`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CtlOptions {
    #[command(flatten)]
    pub(crate) console: ConsoleOptions,
    /// Print an array of objects, one for each row
    #[arg(long)]
    pub(crate) json: bool,
    /// A command of the console, such as SHOW POOLS or PAUSE app; or: health [live | ready | primary]
    #[arg(value_name = "COMMAND", required = true)]
    pub(crate) words: Vec<String>,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub(crate) help: Option<bool>,
}

/// PgBouncer's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunOptions {
    pub(crate) daemon: bool,
    pub(crate) quiet: bool,
    pub(crate) reboot: bool,
    pub(crate) user: Option<String>,
    /// The number of times that `-v` was given.
    pub(crate) verbose: u8,
    /// The descriptor that connects Weir to its supervisor in PostgreSQL.
    pub(crate) supervised: Option<i32>,
}

/// Options of the demo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DemoOptions {
    /// The lab, with so many seconds a row.
    pub(crate) bench_seconds: Option<u32>,
    /// The library `weir`, which the server loads.
    pub(crate) library: Option<PathBuf>,
    /// Three nodes instead of one server.
    pub(crate) cluster: Option<ClusterDemo>,
}

/// Options of the demo with three nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterDemo {
    /// A drill with so many rounds.
    pub(crate) drill: Option<u32>,
    /// Asynchronous standbys, and the bytes of WAL that one may lack and still be promoted.
    pub(crate) max_loss: Option<u64>,
}

const FORMS: &str = "\
weir [OPTION]... CONFIG
       weir [OPTION]... serve [URL]
       weir demo [--bench SECONDS] [--library[=FILE]]
       weir demo --cluster [--drill ROUNDS [--max-loss BYTES]]
       weir bench [OPTION]... [DBNAME]
       weir ctl [-c FILE | -h HOST -p PORT -U USER] [--json] COMMAND...
       weir report [-c FILE | -h HOST -p PORT -U USER] [-o FILE]
       weir timings [-c FILE | -h HOST -p PORT -U USER] [--csv | --json] [--svg FILE]
       weir showpool [-c FILE | -h HOST -p PORT -U USER]
       weir check-config [--connect] [--strict] FILE
       weir advise [OPTION]... [CONFIG]
       weir health [-h HOST] [-p PORT]
       weir convert PGBOUNCER.INI | PGPOOL.CONF [OPTION]...
       weir help [KEY | COMMAND]
       weir completion bash|zsh|fish";

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
    /// Started by the library in PostgreSQL, which passes descriptors; this is the first one behind
    /// the listening sockets
    #[arg(long, value_name = "FD", hide = true, value_parser = clap::value_parser!(i32).range(3..))]
    supervised: Option<i32>,
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
    #[command(override_usage = "weir [OPTION]... serve [URL]")]
    Serve {
        /// postgresql://[user[:password]@]host:port/[db]; else DATABASE_URL or DB_HOST and the like
        url: Option<String>,
    },
    /// Ask whether a pooler accepts connections, as pg_isready does, but without a login
    #[command(override_usage = "weir health [-h HOST] [-p PORT]", disable_help_flag = true)]
    Health(HealthOptions),
    /// Start a throw-away PostgreSQL with Weir in front of it
    #[command(override_usage = "weir demo [--bench SECONDS] [--library[=FILE]]\n       \
                          weir demo --cluster [--drill ROUNDS [--max-loss BYTES]]")]
    Demo {
        /// Measure instead: pgbench directly and through each pool mode, for this time each
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
        bench: Option<u32>,
        /// The server loads the library weir, and a client holds a lock that only the library shows
        #[arg(
            long,
            value_name = "FILE",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "extension/weir.so"
        )]
        library: Option<PathBuf>,
        /// A primary and two standbys, a live table, and keys to break things
        #[arg(long, conflicts_with_all = ["bench", "library"])]
        cluster: bool,
        /// Change the primary so many times, by plan and by kill -9 in turn, and print a table
        #[arg(long, value_name = "ROUNDS", requires = "cluster",
            value_parser = clap::value_parser!(u32).range(1..=10_000))]
        drill: Option<u32>,
        /// Commits wait for no standby; a standby is promoted if it lacks at most so many bytes
        #[arg(long, value_name = "BYTES", requires = "drill")]
        max_loss: Option<u64>,
    },
    /// Put load on a PostgreSQL or a pooler, as pgbench does, with any number of clients
    #[command(
        override_usage = "weir bench [OPTION]... [DBNAME]\n       weir bench -i [OPTION]... [DBNAME]",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Bench(Box<load::Options>),
    /// Carry out a command of a running pooler's console
    #[command(
        override_usage = "weir ctl [-c FILE | -h HOST -p PORT -U USER] [--json] COMMAND...",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Ctl(CtlOptions),
    /// Print the last hour of a running pooler as a page of HTML
    #[command(
        override_usage = "weir report [-c FILE | -h HOST -p PORT -U USER] [-o FILE]",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Report(ReportOptions),
    /// Print how long each part of a client's connection took, for connections that have ended
    #[command(
        override_usage = "weir timings [-c FILE | -h HOST -p PORT -U USER | --input FILE] \
                          [--csv | --json]\n                    [--svg FILE] [--compare FILE]...",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Timings(TimingsOptions),
    /// List the processes of PostgreSQL that a running pooler has, and count them by user
    #[command(
        override_usage = "weir showpool [-c FILE | -h HOST -p PORT -U USER]",
        disable_help_flag = true,
        infer_long_args = true
    )]
    Showpool(ShowpoolOptions),
    /// Check a configuration file as a start would, and print what was understood
    #[command(override_usage = "weir check-config [--connect] [--strict] FILE")]
    CheckConfig {
        #[command(flatten)]
        how: CheckOptions,
        file: PathBuf,
    },
    /// Watch the clients of a running Weir, and say what pool_mode = auto would do with them
    #[command(override_usage = "weir advise [--seconds SECONDS] [--host HOST] [--port PORT] \
        [--user USER] [CONFIG]")]
    Advise(AdviseOptions),
    /// Print the configuration of PgBouncer or Pgpool-II as a weir.toml
    #[command(override_usage = "weir convert FILE\n       weir convert PGPOOL.CONF [OPTION]...")]
    Convert(ConvertOptions),
    /// Explain a configuration key, a command, or a command of the console
    #[command(override_usage = "weir help [KEY | COMMAND]\n       weir help --manual")]
    Help {
        topic: Vec<String>,
        /// Print weir.ini(5), the manual page of all keys
        #[arg(long, conflicts_with = "topic")]
        manual: bool,
    },
    /// Print a script that completes commands, flags and keys in a shell
    #[command(override_usage = "weir completion bash|zsh|fish")]
    Completion { shell: completion::Shell },
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
    if args.len() == 1 {
        let what = format!(
            "no configuration file specified\n\nUsage: {FORMS}\n\n\"weir demo\" shows Weir at work, \
             with a PostgreSQL of its own, and leaves nothing behind."
        );
        return Err(misused(&what));
    }
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
        return Ok(Invocation::Print(config::version_lines()));
    }
    let options = RunOptions {
        daemon: typed.daemon,
        quiet: typed.quiet,
        reboot: typed.reboot,
        user: typed.user,
        verbose: typed.verbose,
        supervised: typed.supervised,
    };
    let Some(command) = typed.command else {
        // PgBouncer says the same of too many files as of none.
        let [config] = <[PathBuf; 1]>::try_from(typed.config)
            .map_err(|_| "no configuration file specified")?;
        if options.supervised.is_some() && (options.daemon || options.reboot) {
            return Err("--supervised excludes -d and -R");
        }
        return Ok(Invocation::Run { options, config });
    };
    if options.daemon || options.reboot {
        return Err("-d and -R need a configuration file");
    }
    if options.supervised.is_some() {
        return Err("--supervised needs a configuration file");
    }
    Ok(match command {
        Command::Serve { url } => Invocation::Serve { options, url },
        Command::Health(options) => Invocation::Health(options),
        Command::Demo { bench, library, cluster, drill, max_loss } => {
            Invocation::Demo(DemoOptions {
                bench_seconds: bench,
                library,
                cluster: cluster.then_some(ClusterDemo { drill, max_loss }),
            })
        }
        Command::Bench(options) => Invocation::Bench(options),
        Command::CheckConfig { file, how } => Invocation::CheckConfig { file, how },
        Command::Advise(options) => Invocation::Advise(options),
        Command::Ctl(options) => Invocation::Ctl(options),
        Command::Report(options) => Invocation::Report(options),
        Command::Timings(options) => Invocation::Timings(options),
        Command::Showpool(options) => Invocation::Showpool(options),
        Command::Convert(options) => Invocation::Convert(options),
        Command::Help { manual: true, .. } => Invocation::Print(config::manual()),
        Command::Help { topic, .. } => match topic.as_slice() {
            [] => Invocation::Print(help()),
            [name] if let Some(text) = help_of(name) => Invocation::Print(text),
            words => Invocation::Help { topic: words.join(" ") },
        },
        Command::Completion { shell } => {
            let mut command = <Typed as CommandFactory>::command();
            command.build();
            Invocation::Print(completion::script(shell, &command))
        }
    })
}

fn help() -> String {
    <Typed as CommandFactory>::command().render_help().to_string()
}

/// The help of a command.
fn help_of(name: &str) -> Option<String> {
    let mut command = <Typed as CommandFactory>::command();
    Some(command.find_subcommand_mut(name)?.render_help().to_string())
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
