//! The three sources of a configuration. They have the same keys. A few keys have different
//! defaults by source; the table of the keys has them.

/// The source of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A `pgbouncer.ini`. Keys that it does not set have PgBouncer's defaults.
    #[default]
    Ini,
    /// A `weir.toml`.
    Toml,
    /// The URL of `weir serve`.
    Url,
}

impl Source {
    /// Returns the name in the reference.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ini => "pgbouncer.ini",
            Self::Toml => "weir.toml",
            Self::Url => "weir serve",
        }
    }
}
