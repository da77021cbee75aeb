//! Why a server connection ends. The texts are PgBouncer's where it has one: its users look for them in
//! the log, and drivers show them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason<'a> {
    /// The connection to PostgreSQL is gone, or PostgreSQL has ended it.
    Lost,
    /// It was opened for a client that has left.
    LeftDuringLogin,
    /// Its client has left while it was busy.
    NotReady,
    ReplicationEnded,
    /// It sent something that nobody had asked for.
    GotDirty,
    /// Its prepared statements are not those that Weir believes it has.
    OutOfStep,
    /// Its client has begun a transaction in statement mode.
    TransactionBlock,
    /// A cancel request for it was sent, and nobody knows when it arrives.
    CancelMayCome,
    /// Another pool needs its seat.
    Evicted,
    /// It is older than what the operator has ordered, and idle.
    Obsolete,
    /// The same, and it was in use.
    CloseNeeded,
    /// The same, and it is in the middle of its client's session.
    ConfigurationChanged,
    /// The database's entry leads elsewhere, or the operator wants new servers.
    ConnectStringChanged,
    DatabaseRemoved,
    ShuttingDown,
    Paused,
    LifetimeOver,
    IdleTimeout,
    TooMany,
    ConnectFailed,
    ConnectTimeout,
    QueryTimeout,
    IdleTransactionTimeout,
    TransactionTimeout,
    SuspendTimeout,
    CheckFailed,
    ResetFailed,
    SettingsRefused,
    SettingsNotUndone,
    InvalidParameter,
    StateCannotBeDiscarded,
    /// A function was called with more parameters than are looked through for names of settings.
    SettingsUnknown,
    NobodyListens,
    ListenRefused,
    UnlistenRefused,
    /// The client's password cannot be proven by a server that asks for none.
    NothingProven,
    NoHost,
    BadPacket,
    /// In the words of PostgreSQL, of the system, or of a decoder.
    Said(&'a str),
}

impl<'a> CloseReason<'a> {
    pub fn text(self) -> &'a str {
        match self {
            Self::Lost => "server conn crashed?",
            Self::LeftDuringLogin => "client disconnected during login",
            Self::NotReady => "client disconnect while server was not ready",
            Self::ReplicationEnded => "replication client was closed",
            Self::GotDirty => "idle server got dirty",
            Self::OutOfStep => "statement names out of step",
            Self::TransactionBlock => "transaction blocks not allowed in statement pooling mode",
            Self::CancelMayCome => "cancel request may still come",
            Self::Evicted => "evicted",
            Self::Obsolete => "obsolete connection",
            Self::CloseNeeded => "close_needed",
            Self::ConfigurationChanged => "database configuration changed",
            Self::ConnectStringChanged => "connect string changed",
            Self::DatabaseRemoved => "database removed",
            Self::ShuttingDown => "server shutting down",
            Self::Paused => "pause mode",
            Self::LifetimeOver => "server lifetime over",
            Self::IdleTimeout => "server idle timeout",
            Self::TooMany => "too many servers in the pool",
            Self::ConnectFailed => "connect failed",
            Self::ConnectTimeout => "connect timeout",
            Self::QueryTimeout => "query timeout",
            Self::IdleTransactionTimeout => "idle transaction timeout",
            Self::TransactionTimeout => "transaction timeout",
            Self::SuspendTimeout => "suspend_timeout",
            Self::CheckFailed => "test query failed",
            Self::ResetFailed => "reset query failed",
            Self::SettingsRefused => "settings were refused",
            Self::SettingsNotUndone => "settings could not be undone",
            Self::InvalidParameter => "invalid server parameter",
            Self::StateCannotBeDiscarded => "session state cannot be discarded",
            Self::SettingsUnknown => "a function may have left settings",
            Self::NobodyListens => "nobody listens",
            Self::ListenRefused => "listener was refused",
            Self::UnlistenRefused => "server does not stop listening",
            Self::NothingProven => "login proved nothing",
            Self::NoHost => "database has no host",
            Self::BadPacket => "bad packet from server",
            Self::Said(text) => text,
        }
    }
}
