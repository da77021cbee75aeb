//! The keys whose value is one of a few words.

use std::fmt;

use crate::value::{Kind, Value, ValueError};

/// Defines an enum with a word for each variant.
macro_rules! choices {
    ($(
        $(#[$outer:meta])*
        pub enum $Enum:ident {
            $( $(#[$inner:meta])* $Variant:ident = $word:literal, )+
        }
    )+) => {$(
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $Enum {
            $( $(#[$inner])* $Variant, )+
        }

        impl $Enum {
            /// Every valid word of this key, in the order of the documentation.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Returns the word in the configuration file.
            pub fn word(self) -> &'static str {
                match self { $( Self::$Variant => $word, )+ }
            }

            /// Returns the variant of a word; case does not matter.
            pub fn of_word(word: &str) -> Option<Self> {
                $( if word.eq_ignore_ascii_case($word) { return Some(Self::$Variant); } )+
                None
            }
        }

        impl fmt::Display for $Enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl Value for $Enum {
            const KIND: Kind = Kind::Choice(Self::WORDS);

            fn parse(text: &str) -> Result<Self, ValueError> {
                Self::of_word(text).ok_or(ValueError::OneOf(Self::WORDS))
            }

            fn show(&self) -> Option<String> {
                Some(self.word().to_owned())
            }
        }
    )+};
}

choices! {
    /// When a server goes back to its pool.
    pub enum PoolMode {
        /// When the client disconnects.
        #[default]
        Session = "session",
        /// When the transaction ends.
        Transaction = "transaction",
        /// When the query ends; transactions of several statements are refused.
        Statement = "statement",
        /// When the transaction ends, and the session's state goes with the client: its settings
        /// are carried from server to server, and it keeps a server on which it has what cannot
        /// be carried. Weir's own.
        Auto = "auto",
    }

    /// Names of the metrics.
    pub enum MetricsNames {
        /// Weir's own.
        #[default]
        Weir = "weir",
        /// The names of PgBouncer's exporter.
        PgbouncerExporter = "pgbouncer_exporter",
        Both = "both",
    }

    /// The histograms on the page of metrics.
    pub enum MetricsHistograms {
        /// One of each kind for each pool.
        #[default]
        Pool = "pool",
        /// All pools added up.
        Total = "total",
        None = "none",
    }

    /// The policy for assigning new clients to workers.
    pub enum SessionSchedule {
        /// Each in turn.
        RoundRobin = "round-robin",
        /// A random worker.
        Random = "random",
        /// The worker with the fewest clients; clients with TLS count four times.
        #[default]
        LoadBalancing = "load-balancing",
    }

    /// The treatment of a statement that needs a session of its own (`pool_mode = auto`).
    pub enum Unsupported {
        /// The client keeps its server from then on.
        #[default]
        Pin = "pin",
        /// It is refused.
        Error = "error",
        /// It is carried out, and the client is warned.
        Warn = "warn",
    }

    /// The treatment of a server whose client's last transaction has failed.
    pub enum ReuseAfterError {
        /// The server is reset as the pool mode says, and used again.
        #[default]
        Reset = "reset",
        /// The server is closed.
        Never = "never",
    }

    /// The way of a pool's data.
    pub enum DataPath {
        /// Through Weir.
        #[default]
        Proxy = "proxy",
        /// PostgreSQL's backends serve the clients' sockets, if the pool can do so. Weir warns of a
        /// pool that cannot.
        Direct = "direct",
        /// As `direct`, without a warning.
        Auto = "auto",
    }

    /// The form of log lines.
    pub enum LogFormat {
        /// PgBouncer's.
        #[default]
        Pgbouncer = "pgbouncer",
        /// One JSON object for each line.
        Json = "json",
    }

    /// The SQLSTATEs of the pooler's own errors.
    pub enum ErrorCodes {
        /// PgBouncer's: 08P01 for nearly all.
        #[default]
        Pgbouncer = "pgbouncer",
        /// PostgreSQL's for what has happened, with a detail and a hint.
        Weir = "weir",
    }

    /// The columns of the console's SHOW commands.
    pub enum ConsoleColumns {
        /// PgBouncer's.
        #[default]
        Pgbouncer = "pgbouncer",
        /// PgBouncer's and Weir's own.
        Weir = "weir",
    }

    /// The party that promotes a standby when the primary of a cluster is lost.
    pub enum FailoverKind {
        /// A cluster manager, a managed service or a person. Weir follows.
        #[default]
        Follow = "follow",
        /// Weir, after `fence_command` has ended the old primary.
        Own = "own",
    }

    /// The action on server connections that are still in use when `switchover_drain` is over.
    pub enum SwitchoverOvertime {
        /// The switchover is given up.
        #[default]
        Refuse = "refuse",
        /// The connections are closed.
        Close = "close",
    }

    /// The servers of a cluster on which reads run.
    pub enum ReadsGo {
        /// The primary alone.
        #[default]
        Primary = "primary",
        /// Standbys where that is safe, else the primary.
        Standby = "standby",
    }

    /// The writes that a read on a standby must see (`read_after_write`).
    pub enum ReadAfterWrite {
        /// The writes of its own session.
        #[default]
        Session = "session",
        /// The writes of all sessions of its database and user.
        User = "user",
        /// All writes that were committed before the read arrived.
        Strict = "strict",
        /// No writes.
        Off = "off",
    }

    /// The way of a read for which no standby is fresh enough (`when_stale`).
    pub enum WhenStale {
        /// The primary runs it at once.
        #[default]
        Primary = "primary",
        /// It waits for a standby, at most `stale_wait`.
        Wait = "wait",
    }

    /// The time for which a session stays with a standby (`balance`).
    pub enum Balance {
        /// While it is fresh enough, so that a session's reads do not go back in time.
        #[default]
        Session = "session",
        /// Until the next statement.
        Statement = "statement",
    }

    /// The authentication method of clients.
    pub enum AuthType {
        /// No authentication; the user name is ignored.
        Any = "any",
        /// No authentication, but the user must exist.
        Trust = "trust",
        /// By its password in clear text.
        Plain = "plain",
        /// By an MD5 challenge, or by SCRAM if the stored secret is a SCRAM verifier.
        #[default]
        Md5 = "md5",
        /// By SCRAM-SHA-256.
        ScramSha256 = "scram-sha-256",
        /// By its TLS certificate.
        Cert = "cert",
        /// By the first matching rule of `auth_hba_file`.
        Hba = "hba",
        /// By a password that an LDAP server checks.
        Ldap = "ldap",
        /// By a password that PAM checks.
        Pam = "pam",
        /// By its password in clear text, with which Weir logs in to PostgreSQL. Weir's own.
        Server = "server",
    }

    /// The required level of TLS, in libpq's words.
    pub enum SslMode {
        /// No TLS.
        #[default]
        Disable = "disable",
        /// TLS if the other side wants it.
        Allow = "allow",
        /// TLS where both sides can.
        Prefer = "prefer",
        /// TLS or nothing.
        Require = "require",
        /// TLS with a certificate from a known authority.
        VerifyCa = "verify-ca",
        /// TLS with a certificate from a known authority, for the right name.
        VerifyFull = "verify-full",
    }

    /// The versions of Pgpool-II's tools, by the layout of a node's facts.
    pub enum PcpCompat {
        /// 4.3.
        Before = "4.3",
        /// From 4.4 on.
        #[default]
        Since = "4.4",
    }

    /// The choice among several hosts of a database.
    pub enum LoadBalanceHosts {
        /// Each new server goes to the next host.
        #[default]
        RoundRobin = "round-robin",
        /// Stay with one host until connecting to it fails.
        Disable = "disable",
    }
}

impl PcpCompat {
    /// Returns the version of Pgpool-II that Weir answers as.
    pub fn version(self) -> &'static str {
        match self {
            Self::Before => "4.3.5",
            Self::Since => "4.4.13",
        }
    }
}

impl SslMode {
    /// Is a connection without TLS refused?
    pub fn is_required(self) -> bool {
        match self {
            Self::Disable | Self::Allow | Self::Prefer => false,
            Self::Require | Self::VerifyCa | Self::VerifyFull => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_any_case() {
        assert_eq!(PoolMode::parse("Transaction"), Ok(PoolMode::Transaction));
        assert_eq!(SslMode::parse("PREFER"), Ok(SslMode::Prefer));
        assert_eq!(PoolMode::parse("auto"), Ok(PoolMode::Auto));
        assert!(matches!(PoolMode::parse("automatic"), Err(ValueError::OneOf(_))));
    }
}
