//! How much a log line matters.

/// How much a line matters. The order is the order of verbosity: the default shows everything up
/// to `Log`, one `-v` adds `Debug`, two add `Noise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fatal,
    Error,
    Warning,
    Log,
    Debug,
    Noise,
}

impl Level {
    /// The word in the line, which log readers written for PgBouncer look for.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Log => "LOG",
            Self::Debug => "DEBUG",
            Self::Noise => "NOISE",
        }
    }

    /// The most talkative level shown at a verbosity of 0, 1, 2 or more.
    pub(super) fn from_verbosity(verbose: u8) -> Self {
        match verbose {
            0 => Self::Log,
            1 => Self::Debug,
            _ => Self::Noise,
        }
    }
}
