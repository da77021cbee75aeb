//! The three ways a configuration is said. They have the same keys, and of a few keys each has a
//! default of its own; the table of the keys tells which.

/// The source of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A `pgbouncer.ini`: what it leaves unsaid means what it means to PgBouncer.
    #[default]
    Ini,
    /// A `weir.toml`.
    Toml,
    /// The URL of `weir serve`.
    Url,
}

impl Source {
    /// As the reference calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ini => "pgbouncer.ini",
            Self::Toml => "weir.toml",
            Self::Url => "weir serve",
        }
    }
}
