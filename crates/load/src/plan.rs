//! The plan of a run, fixed before it begins and shared by all its threads.

use std::{
    fs,
    io::Read as _,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    names::Names,
    options::Options,
    script::{self, Builtin, Script},
    target::Target,
};

/// The protocol for statements; the names are pgbench's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// One Query message with the values in its text.
    Simple,
    /// Parsed each time, unnamed, with values as parameters.
    Extended,
    /// Parsed once per connection, with a name, together with its first execution.
    Prepared,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: Arc<Target>,
    pub(crate) script: Script,
    pub(crate) names: Names,
    /// The initial values of every client's variables.
    pub(crate) variables: Vec<Option<i64>>,
    pub(crate) mode: Mode,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    /// Per client; None is without a limit.
    pub(crate) transactions: Option<u64>,
    pub(crate) duration_us: Option<u64>,
    /// The average time between two transactions of a thread, in microseconds.
    pub(crate) pause_us: Option<f64>,
    pub(crate) reconnects: bool,
    pub(crate) seed: u64,
}

/// A parsed script and its variables.
pub(crate) struct Parsed {
    script: Script,
    names: Names,
    /// A built-in script needs the tables.
    pub(crate) is_builtin: bool,
}

/// # Errors
/// When the script cannot be read or has a mistake.
pub(crate) fn parse(options: &Options) -> Result<Parsed, String> {
    let mut names = Names::default();
    let mut parse = |name: &str, text: &str| {
        script::parse(name, text, &mut names).map_err(|error| error.to_string())
    };
    let script = match &options.file {
        Some(file) => parse(file, &text_of(file)?)?,
        None => {
            let builtin = Builtin::find(match &options.builtin {
                Some(name) => name,
                None if options.select_only => "select-only",
                None if options.skip_some_updates => "simple-update",
                None => "tpcb-like",
            })?;
            parse(builtin.title, builtin.text)?
        }
    };
    Ok(Parsed { script, names, is_builtin: options.file.is_none() })
}

fn text_of(file: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(|_| text),
        _ => fs::read_to_string(file),
    };
    read.map_err(|error| format!("could not read file \"{file}\": {error}"))
}

impl Plan {
    pub(crate) fn new(options: &Options, target: &Arc<Target>, parsed: Parsed, scale: u32) -> Self {
        let Parsed { script, mut names, .. } = parsed;
        let clients = options.clients as usize;
        // More threads than clients would have no work.
        let threads = (options.jobs as usize).min(clients);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let scale_slot = names.slot("scale");
        let mut variables = vec![None; names.len()];
        variables[scale_slot] = Some(scale.into());
        Self {
            target: target.clone(),
            script,
            names,
            variables,
            mode: options.protocol,
            clients,
            threads,
            transactions: match (options.transactions, options.time) {
                (None, None) => Some(10),
                (transactions, _) => transactions,
            },
            duration_us: options.time.map(|seconds| u64::from(seconds) * 1_000_000),
            pause_us: options.rate.map(|rate| 1e6 * threads as f64 / rate),
            reconnects: options.connect,
            seed: options.random_seed.unwrap_or(now.as_nanos() as u64),
        }
    }

    /// Returns the clients of a thread: the same number for each, one more for the first ones.
    pub(crate) fn share(&self, thread: usize) -> std::ops::Range<usize> {
        let (each, more) = (self.clients / self.threads, self.clients % self.threads);
        let first = thread * each + thread.min(more);
        first..first + each + usize::from(thread < more)
    }
}
