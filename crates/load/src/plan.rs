//! The plan of a run, fixed before it begins and shared by all its threads.

use std::sync::Arc;

use crate::{names::Names, random::Random, script::Script, target::Target, value::Value};

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
    pub(crate) scripts: Vec<Script>,
    pub(crate) names: Names,
    /// The initial values of every client's variables.
    pub(crate) variables: Vec<Option<Value>>,
    /// The number of SQL statements in all scripts.
    pub(crate) statements: usize,
    pub(crate) mode: Mode,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    /// Per client; None is without a limit.
    pub(crate) transactions: Option<u64>,
    pub(crate) duration_us: Option<u64>,
    /// The average time between two transactions of a thread, in microseconds.
    pub(crate) pause_us: Option<f64>,
    pub(crate) latency_limit_us: Option<u64>,
    /// 0 is without a limit.
    pub(crate) tries_max: u32,
    pub(crate) reconnects: bool,
    /// Measure each command.
    pub(crate) by_command: bool,
    pub(crate) verbose_errors: bool,
    pub(crate) seed: u64,
}

impl Plan {
    /// Returns the clients of a thread: the same number for each, one more for the first ones.
    pub(crate) fn share(&self, thread: usize) -> std::ops::Range<usize> {
        let (each, more) = (self.clients / self.threads, self.clients % self.threads);
        let first = thread * each + thread.min(more);
        first..first + each + usize::from(thread < more)
    }

    /// Chooses a script at random, by weight.
    pub(crate) fn choose(&self, random: &mut Random) -> usize {
        if self.scripts.len() == 1 {
            return 0;
        }
        let total: u64 = self.scripts.iter().map(|script| u64::from(script.weight)).sum();
        let mut at = ((u128::from(random.next()) * u128::from(total)) >> 64) as u64;
        for (index, script) in self.scripts.iter().enumerate() {
            match at.checked_sub(u64::from(script.weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        self.scripts.len() - 1
    }
}
