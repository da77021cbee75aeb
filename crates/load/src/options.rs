//! The command line of `weir bench`. The options are pgbench's, by letter and by name; what is new has
//! long names only.

use std::path::PathBuf;

use clap::{ArgAction, Args, value_parser};

use crate::plan::Mode;

/// Put load on a PostgreSQL or a pooler, as pgbench does, with any number of clients
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Options {
    /// Create the tables of the built-in scripts, and run nothing
    #[arg(short, long)]
    pub initialize: bool,
    /// The steps of --initialize: d(rop), t(ables), g(enerate) or G (on the server), v(acuum),
    /// p(rimary keys), f(oreign keys)
    #[arg(short = 'I', long, value_name = "STEPS", default_value = "dtgvp")]
    pub init_steps: String,
    /// Create foreign keys between the tables
    #[arg(long)]
    pub foreign_keys: bool,
    /// Fill factor of the tables, in per cent
    #[arg(short = 'F', long, value_name = "NUM", default_value_t = 100,
          value_parser = value_parser!(u32).range(10..=100))]
    pub fillfactor: u32,
    /// Create unlogged tables, which are empty after a crash
    #[arg(long)]
    pub unlogged_tables: bool,
    /// Print one line every five seconds while the tables are filled
    #[arg(short, long)]
    pub quiet: bool,
    /// With -i: number of accounts divided by 100,000. Without: :scale in your own scripts
    #[arg(short, long, value_name = "NUM", value_parser = value_parser!(u32).range(1..=21474))]
    pub scale: Option<u32>,

    /// A built-in script: tpcb-like (the default), simple-update or select-only; chosen with
    /// weight W (1)
    #[arg(short, long, value_name = "NAME[@W]")]
    pub builtin: Vec<String>,
    /// Your own script, chosen with weight W (1)
    #[arg(short, long, value_name = "FILE[@W]")]
    pub file: Vec<String>,
    /// The same as -b simple-update
    #[arg(short = 'N', long)]
    pub skip_some_updates: bool,
    /// The same as -b select-only
    #[arg(short = 'S', long)]
    pub select_only: bool,
    /// Print a built-in script and exit
    #[arg(long, value_name = "NAME")]
    pub show_script: Option<String>,

    /// Number of clients
    #[arg(short, long = "client", visible_alias = "clients", value_name = "NUM",
          default_value_t = 1, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub clients: u32,
    /// Number of threads; each serves thousands of clients
    #[arg(short, long, value_name = "NUM", default_value_t = 1,
          value_parser = value_parser!(u32).range(1..=1024))]
    pub jobs: u32,
    /// Open a new connection for each transaction
    #[arg(short = 'C', long)]
    pub connect: bool,
    /// Set a variable for your own scripts
    #[arg(short = 'D', long, value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Count transactions that take longer, in ms; with -R, skip those that would start too late
    #[arg(short = 'L', long, value_name = "MS", value_parser = positive)]
    pub latency_limit: Option<f64>,
    /// Protocol of the statements
    #[arg(short = 'M', long, value_name = "MODE", value_enum, default_value_t = Mode::Simple)]
    pub protocol: Mode,
    /// Do not VACUUM before the run; with -i, not after the tables are filled
    #[arg(short, long)]
    pub no_vacuum: bool,
    /// VACUUM all four tables before the run, not only the small ones
    #[arg(short, long)]
    pub vacuum_all: bool,
    /// Print the progress every so many seconds
    #[arg(short = 'P', long, value_name = "SECONDS",
          value_parser = value_parser!(u32).range(1..=86_400))]
    pub progress: Option<u32>,
    /// In the progress, print the time since 1970, not since the start
    #[arg(long)]
    pub progress_timestamp: bool,
    /// Also measure each command of the scripts
    #[arg(short, long)]
    pub report_per_command: bool,
    /// Begin so many transactions a second, over all clients, whether answers come or not;
    /// latency counts from the planned start
    #[arg(short = 'R', long, value_name = "NUM", value_parser = positive)]
    pub rate: Option<f64>,
    /// Number of transactions of each client (10)
    #[arg(short, long, value_name = "NUM", conflicts_with = "time",
          value_parser = value_parser!(u64).range(1..))]
    pub transactions: Option<u64>,
    /// Run for so many seconds
    #[arg(short = 'T', long, value_name = "SECONDS",
          value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub time: Option<u32>,
    /// Report failures by kind
    #[arg(long)]
    pub failures_detailed: bool,
    /// Attempts of a transaction after serialization errors and deadlocks (1); 0: until -L or -T
    #[arg(long, value_name = "NUM")]
    pub max_tries: Option<u32>,
    /// Random seed: a number, "time" or "rand"; the same number gives the same choices
    #[arg(long, value_name = "SEED")]
    pub random_seed: Option<String>,
    /// Print each error after which the transaction is tried again
    #[arg(long)]
    pub verbose_errors: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// A host's name or address, or the folder of a unix socket
    #[arg(short = 'h', long, value_name = "HOST")]
    pub host: Option<String>,
    #[arg(short, long, value_name = "PORT")]
    pub port: Option<String>,
    #[arg(short = 'U', long, value_name = "USER")]
    pub username: Option<String>,
    #[arg(short, long, value_name = "DBNAME")]
    pub dbname: Option<String>,
    /// A database's name, a postgresql:// URL or a connection string; or -d
    #[arg(value_name = "DBNAME", conflicts_with = "dbname")]
    pub database: Option<String>,
    /// Show this help
    #[arg(short = '?', long, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("a number above zero is expected".to_owned()),
    }
}
