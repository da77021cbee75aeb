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
    /// Print one line every five seconds while the tables are filled
    #[arg(short, long)]
    pub quiet: bool,
    /// With -i: number of accounts divided by 100,000. Without: :scale in your own script
    #[arg(short, long, value_name = "NUM", value_parser = value_parser!(u32).range(1..=21474))]
    pub scale: Option<u32>,

    /// A built-in script: tpcb-like (the default), simple-update or select-only
    #[arg(short, long, value_name = "NAME", group = "script")]
    pub builtin: Option<String>,
    /// Your own script
    #[arg(short, long, value_name = "FILE", group = "script")]
    pub file: Option<String>,
    /// The same as -b simple-update
    #[arg(short = 'N', long, group = "script")]
    pub skip_some_updates: bool,
    /// The same as -b select-only
    #[arg(short = 'S', long, group = "script")]
    pub select_only: bool,

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
    /// Protocol of the statements
    #[arg(short = 'M', long, value_name = "MODE", value_enum, default_value_t = Mode::Simple)]
    pub protocol: Mode,
    /// Do not VACUUM before the run; with -i, not after the tables are filled
    #[arg(short, long)]
    pub no_vacuum: bool,
    /// Print the progress every so many seconds
    #[arg(short = 'P', long, value_name = "SECONDS",
          value_parser = value_parser!(u32).range(1..=86_400))]
    pub progress: Option<u32>,
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
    /// Random seed: the same number gives the same choices
    #[arg(long, value_name = "SEED")]
    pub random_seed: Option<u64>,
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
