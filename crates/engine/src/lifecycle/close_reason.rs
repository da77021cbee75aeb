//! Why a server connection is closed. Where PgBouncer has a text for the reason, Weir uses it:
//! users search the log for it, and drivers show it.

use std::ops::Deref;

use crate::own_error::Cause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason<'a> {
    /// The connection to PostgreSQL is lost, or PostgreSQL has ended it.
    Lost,
    /// The server was opened for a client that has left.
    LeftDuringLogin,
    /// The client left while its server was busy.
    NotReady,
    ReplicationEnded,
    /// The server sent a message that no request had asked for.
    GotDirty,
    /// The server's prepared statements differ from those that Weir has recorded.
    OutOfStep,
    /// The client has begun a transaction in statement mode.
    TransactionBlock,
    /// A cancel request for the server was sent, and may still arrive.
    CancelMayCome,
    /// Another pool needs the server's seat.
    Evicted,
    /// The server has served clients directly, and no longer does so.
    LeftLobby,
    /// The server is idle, and its pool gets new servers or its address has changed.
    Obsolete,
    /// The server was in use, and its pool gets new servers or its address has changed.
    CloseNeeded,
    /// The server is at rest within a session or replicates, and its pool gets new servers or its
    /// address has changed.
    ConfigurationChanged,
    /// A login or a listener of an earlier epoch: the connect string has changed, or the operator
    /// ran RECONNECT.
    ConnectStringChanged,
    DatabaseRemoved,
    /// The client has logged in as a role that its pool no longer logs in as.
    RoleChanged,
    ShuttingDown,
    Paused,
    /// The server is idle, and its cluster has no primary.
    PrimaryLost,
    /// The cluster has another primary.
    PrimaryChanged,
    /// The server is idle, and its node is no standby of the primary any more.
    NotReadable,
    /// The server is in use, and its node does not answer Weir's own questions.
    NodeSilent,
    LifetimeOver,
    /// `server_max_uses` is reached.
    MaxUses,
    /// The server's process has more private memory than `server_max_memory`.
    MaxMemory,
    IdleTimeout,
    TooMany,
    /// The pool has more idle servers than `max_spare_servers`.
    TooManySpare,
    ConnectFailed,
    ConnectTimeout,
    /// `password_command` has not named the password in time.
    NoPassword,
    QueryTimeout,
    IdleTransactionTimeout,
    TransactionTimeout,
    SuspendTimeout,
    CheckFailed,
    ResetFailed,
    /// The last transaction of its client has failed (`reuse_after_error`).
    TransactionFailed,
    SettingsRefused,
    SettingsNotUndone,
    InvalidParameter,
    StateCannotBeDiscarded,
    /// A function was called with too many parameters to search them for names of settings.
    SettingsUnknown,
    NobodyListens,
    ListenRefused,
    UnlistenRefused,
    /// The server asked for no password, so it could not check the client's.
    NothingProven,
    NoHost,
    BadPacket,
    /// A text of PostgreSQL, of the operating system or of a decoder.
    Text(&'a str),
}

/// The reason to close a server as soon as it is free, if there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doomed(Option<CloseReason<'static>>);

impl Deref for Doomed {
    type Target = Option<CloseReason<'static>>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Doomed {
    /// The server is no longer wanted. An earlier reason remains.
    pub(crate) fn retire(&mut self, reason: CloseReason<'static>) {
        self.0.get_or_insert(reason);
    }

    /// The server cannot be used for another client. An earlier reason is replaced.
    pub(crate) fn condemn(&mut self, reason: CloseReason<'static>) {
        self.0 = Some(reason);
    }
}

impl<'a> CloseReason<'a> {
    /// Is it a failure of the server or of its client, and not a part of normal operation?
    pub fn is_failure(self) -> bool {
        match self {
            Self::Lost
            | Self::GotDirty
            | Self::OutOfStep
            | Self::ConnectFailed
            | Self::ConnectTimeout
            | Self::NoPassword
            | Self::QueryTimeout
            | Self::IdleTransactionTimeout
            | Self::TransactionTimeout
            | Self::CheckFailed
            | Self::ResetFailed
            | Self::SettingsRefused
            | Self::SettingsNotUndone
            | Self::InvalidParameter
            | Self::StateCannotBeDiscarded
            | Self::ListenRefused
            | Self::UnlistenRefused
            | Self::NoHost
            | Self::BadPacket
            | Self::PrimaryChanged
            | Self::NodeSilent
            | Self::Text(_) => true,
            Self::LeftDuringLogin
            | Self::NotReady
            | Self::ReplicationEnded
            | Self::TransactionBlock
            | Self::CancelMayCome
            | Self::Evicted
            | Self::LeftLobby
            | Self::Obsolete
            | Self::CloseNeeded
            | Self::ConfigurationChanged
            | Self::ConnectStringChanged
            | Self::DatabaseRemoved
            | Self::RoleChanged
            | Self::ShuttingDown
            | Self::Paused
            | Self::PrimaryLost
            | Self::NotReadable
            | Self::LifetimeOver
            | Self::MaxUses
            | Self::MaxMemory
            | Self::IdleTimeout
            | Self::TooMany
            | Self::TooManySpare
            | Self::SuspendTimeout
            | Self::TransactionFailed
            | Self::SettingsUnknown
            | Self::NobodyListens
            | Self::NothingProven => false,
        }
    }

    /// Returns the kind of the error that the client of such a server gets.
    pub fn cause(self) -> Cause {
        match self {
            Self::Lost
            | Self::PrimaryLost
            | Self::PrimaryChanged
            | Self::NotReadable
            | Self::NodeSilent => Cause::ServerLost,
            Self::ConnectFailed | Self::ConnectTimeout | Self::NoPassword | Self::NoHost => {
                Cause::ServerUnreachable
            }
            Self::ShuttingDown
            | Self::SuspendTimeout
            | Self::Paused
            | Self::ConfigurationChanged
            | Self::ConnectStringChanged => Cause::ShuttingDown,
            Self::DatabaseRemoved => Cause::RemovedDatabase,
            Self::RoleChanged => Cause::Operator,
            Self::QueryTimeout => Cause::QueryTimeout,
            Self::IdleTransactionTimeout => Cause::IdleTransactionTimeout,
            Self::TransactionTimeout => Cause::TransactionTimeout,
            Self::TransactionBlock => Cause::StatementMode,
            Self::LeftDuringLogin
            | Self::NotReady
            | Self::ReplicationEnded
            | Self::GotDirty
            | Self::OutOfStep
            | Self::CancelMayCome
            | Self::Evicted
            | Self::LeftLobby
            | Self::Obsolete
            | Self::CloseNeeded
            | Self::LifetimeOver
            | Self::MaxUses
            | Self::MaxMemory
            | Self::IdleTimeout
            | Self::TooMany
            | Self::TooManySpare
            | Self::CheckFailed
            | Self::ResetFailed
            | Self::TransactionFailed
            | Self::SettingsRefused
            | Self::SettingsNotUndone
            | Self::InvalidParameter
            | Self::StateCannotBeDiscarded
            | Self::SettingsUnknown
            | Self::NobodyListens
            | Self::ListenRefused
            | Self::UnlistenRefused
            | Self::NothingProven
            | Self::BadPacket
            | Self::Text(_) => Cause::Protocol,
        }
    }

    pub fn text(self) -> &'a str {
        match self {
            Self::Lost => "server conn crashed?",
            Self::LeftDuringLogin => "client disconnected during login",
            Self::NotReady => "client disconnect while server was not ready",
            Self::ReplicationEnded => "replication client was closed",
            Self::GotDirty => "idle server got dirty",
            Self::OutOfStep => "wrong record of prepared statements",
            Self::TransactionBlock => "transaction blocks not allowed in statement pooling mode",
            Self::CancelMayCome => "a late cancel request may arrive",
            Self::Evicted => "evicted",
            Self::LeftLobby => "left the lobby",
            Self::Obsolete => "obsolete connection",
            Self::CloseNeeded => "close_needed",
            Self::ConfigurationChanged => "database configuration changed",
            Self::ConnectStringChanged => "connect string changed",
            Self::DatabaseRemoved => "database removed",
            Self::RoleChanged => "the role has been renamed or dropped",
            Self::ShuttingDown => "server shutting down",
            Self::Paused => "pause mode",
            Self::PrimaryLost => "the cluster has no primary",
            Self::PrimaryChanged => "the cluster has another primary",
            Self::NotReadable => "the node is no standby of the primary",
            Self::NodeSilent => "the node does not answer",
            Self::LifetimeOver => "server lifetime over",
            Self::MaxUses => "server_max_uses reached",
            Self::MaxMemory => "server_max_memory exceeded",
            Self::IdleTimeout => "server idle timeout",
            Self::TooMany => "too many servers in the pool",
            Self::TooManySpare => "max_spare_servers exceeded",
            Self::ConnectFailed => "connect failed",
            Self::ConnectTimeout => "connect timeout",
            Self::NoPassword => "password_command takes too long",
            Self::QueryTimeout => "query timeout",
            Self::IdleTransactionTimeout => "idle transaction timeout",
            Self::TransactionTimeout => "transaction timeout",
            Self::SuspendTimeout => "suspend_timeout",
            Self::CheckFailed => "test query failed",
            Self::TransactionFailed => "client's last transaction failed (reuse_after_error)",
            Self::ResetFailed => "reset query failed",
            Self::SettingsRefused => "server refused the client's settings",
            Self::SettingsNotUndone => "server refused to reset settings",
            Self::InvalidParameter => "invalid server parameter",
            Self::StateCannotBeDiscarded => "session state cannot be discarded",
            Self::SettingsUnknown => "a function may have left settings",
            Self::NobodyListens => "no client listens",
            Self::ListenRefused => "server refused LISTEN",
            Self::UnlistenRefused => "server refused UNLISTEN",
            Self::NothingProven => "login did not check the password",
            Self::NoHost => "database has no host",
            Self::BadPacket => "bad packet from server",
            Self::Text(text) => text,
        }
    }
}
