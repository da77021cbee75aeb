//! The severity of a log line.

/// The severity of a line, in the order of verbosity. The default shows everything up to `Log`, one
/// `-v` adds `Debug`, two add `Noise`.
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
    /// Returns the word in the line, which log readers for PgBouncer expect.
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

    /// Returns the priority in syslog(3) and in the journal.
    pub(super) fn priority(self) -> u8 {
        match self {
            Self::Fatal => 2,
            Self::Error => 3,
            Self::Warning => 4,
            Self::Log => 6,
            Self::Debug | Self::Noise => 7,
        }
    }

    /// Returns the last level shown at a verbosity of 0, 1, 2 or more.
    pub(super) fn from_verbosity(verbose: u8) -> Self {
        match verbose {
            0 => Self::Log,
            1 => Self::Debug,
            _ => Self::Noise,
        }
    }
}
