//! The command line: the whole benchmark, or one of its peers by hand.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser};
use net::sys::Address;
use serde_json::json;

use crate::bulk;
use crate::guard::{self, GuardOptions};
use crate::load::{Load, Stop};
use crate::reactor::Reactor;
use crate::real::{self, RealOptions};
use crate::relay::{self, RelayOptions};
use crate::run::{self, FlameOptions, RunOptions};
use crate::socket;
use crate::steps;
use crate::traffic::{Credentials, Protocol, Sessions, Traffic, Work};

/// Measure what a connection pooler costs.
#[derive(Debug, Parser)]
#[command(name = "weir-bench")]
pub(crate) enum Command {
    /// Run the benchmark: PgBouncer and Weir in turn, row by row
    Run(RunOptions),
    /// Measure a real PostgreSQL: directly, through PgBouncer and through Weir in turn
    Real(RealOptions),
    /// Draw where the poolers' CPU time goes under the load of a row
    Flame(FlameOptions),
    /// Serve as a canned PostgreSQL until killed
    Server(ServerOptions),
    /// Put load on a pooler and print the figures as JSON
    Client(ClientOptions),
    /// Relay between clients and a server until killed, as the least that a pooler can do
    Relay(RelayOptions),
    /// Count Weir's instructions per unit of work and compare them with the record
    Guard(GuardOptions),
    /// Run one row of `guard` without counting, for a profiler
    Steps {
        #[arg(value_name = "ROW")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address to listen on: 127.0.0.1:PORT or a path; may be given more than once
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = socket::parse)]
    listen: Vec<Address>,
}

#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// The pooler: 127.0.0.1:PORT or a path
    #[arg(long, value_name = "ADDRESS", value_parser = socket::parse)]
    connect: Address,
    #[arg(long, default_value_t = 10)]
    clients: usize,
    /// Length of the measured interval, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Time before the measured interval, in seconds
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// End after this number of transactions or logins instead
    #[arg(long, value_name = "COUNT")]
    transactions: Option<u64>,
    #[arg(long, value_enum, default_value_t = Protocol::Simple)]
    protocol: Protocol,
    /// Number of groups: each client first sets three settings to the values of its group
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    groups: usize,
    /// Number of clients that send queries at a time, chosen at random; 0 means all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    at_work: usize,
    /// Connect, log in and leave, over and over
    #[arg(long, conflicts_with_all = ["bulk", "idle"])]
    login_only: bool,
    /// Read large results with rows of this many bytes
    #[arg(long, value_name = "ROW_BYTES")]
    bulk: Option<usize>,
    /// Only log in, print the number of clients, and hold them until standard input ends
    #[arg(long)]
    idle: bool,
    #[arg(long, default_value = "bench")]
    user: String,
    #[arg(long, default_value = "bench")]
    database: String,
    #[arg(long, default_value = "")]
    password: String,
    /// The pooler's process id, to read its CPU time
    #[arg(long, value_name = "PID")]
    watch: Option<u32>,
}

impl Command {
    pub(crate) fn execute(self) -> Result<()> {
        net::raise_open_files().context("cannot raise the limit of open files")?;
        match self {
            Self::Run(options) => run::run(&options),
            Self::Real(options) => real::run(&options),
            Self::Flame(options) => run::flames(&options),
            Self::Server(options) => serve(&options),
            Self::Client(options) => generate(options),
            Self::Relay(options) => relay::run(&options),
            Self::Guard(options) => guard::guard(&options),
            Self::Steps { name } => steps::named(&name)?.run(),
        }
    }
}

fn serve(options: &ServerOptions) -> Result<()> {
    let mut reactor = Reactor::new(Traffic::new(Work::Login, Credentials::usual()))?;
    for address in &options.listen {
        println!("{}", socket::text(&reactor.listen(address)?));
    }
    loop {
        reactor.turn(Duration::from_secs(1))?;
    }
}

fn generate(options: ClientOptions) -> Result<()> {
    let work = match options.bulk {
        Some(row_bytes) => Work::Bulk { row_bytes, total_bytes: bulk::TOTAL_BYTES },
        None if options.login_only => Work::Login,
        None => Work::Query(options.protocol),
    };
    let credentials = Credentials::new(&options.user, &options.database, &options.password);
    let mut reactor = Reactor::new(Traffic::new(work, credentials))?;
    reactor.traffic.sessions = Sessions { groups: options.groups, at_work: options.at_work };
    let load = Load {
        pooler: options.connect,
        clients: options.clients,
        warm_up: Duration::from_secs_f64(options.warm_up),
        stop: match options.transactions {
            Some(count) => Stop::AtCount(count),
            None => Stop::After(Duration::from_secs_f64(options.seconds)),
        },
        watch: options.watch,
    };
    if options.idle {
        load.log_in(&mut reactor, load.clients)?;
        println!("{}", json!({ "clients": load.clients }));
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    println!("{}", load.measure(&mut reactor)?.to_json());
    Ok(())
}
