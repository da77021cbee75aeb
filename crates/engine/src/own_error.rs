//! Weir's own errors: why Weir refuses or disconnects a client. The texts are PgBouncer's; the
//! cause decides the SQLSTATE and the advice.
//!
//! With `error_codes = pgbouncer` an error has PgBouncer's SQLSTATE, with `error_codes = weir` that of
//! its cause. DETAIL and HINT, which PgBouncer does not have, are added to both.

use std::borrow::Cow;

use config::ErrorCodes;
use wire::ErrorFields;
use wire::sqlstate::{
    ADMIN_SHUTDOWN, CANNOT_CONNECT_NOW, CONNECTION_FAILURE, DATABASE_DROPPED,
    FEATURE_NOT_SUPPORTED, IDLE_IN_TRANSACTION_TIMEOUT, IDLE_SESSION_TIMEOUT,
    INSUFFICIENT_PRIVILEGE, INVALID_AUTHORIZATION, INVALID_CATALOG_NAME, INVALID_PASSWORD,
    NOT_IN_PREREQUISITE_STATE, PROTOCOL_VIOLATION, QUERY_CANCELED, TOO_MANY_CONNECTIONS,
    TRANSACTION_TIMEOUT,
};

use crate::lifecycle::close_reason::CloseReason;

/// The text for a client that is refused, if only the log has the reason.
pub(crate) const CONFIG_ERROR: &str = "bouncer config error";

/// The text of a refusal when no server was free within the time.
pub(crate) const QUERY_WAIT_TIMEOUT: &str = "query_wait_timeout";

/// The kinds of errors that clients get from Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The client does not keep to the protocol, or nothing better is known.
    Protocol,
    /// The password is wrong, or the user is unknown.
    Password,
    /// Another proof than a password failed.
    Proof,
    /// A rule of auth_hba_file refuses the login.
    Rule,
    /// PostgreSQL would not let this user connect to the database.
    Privilege,
    UnknownDatabase,
    DisabledDatabase,
    RemovedDatabase,
    /// A limit on clients is reached.
    TooManyClients,
    /// No server was free within query_wait_timeout.
    QueryWaitTimeout,
    /// PostgreSQL's own error is passed on; it has its own code.
    ServerRefusal,
    /// No server can be connected or logged in to.
    ServerUnreachable,
    ServerLost,
    /// The database's cluster had no primary within failover_wait.
    NoPrimary,
    ShuttingDown,
    /// The operator has closed the connection.
    Operator,
    QueryTimeout,
    IdleTransactionTimeout,
    TransactionTimeout,
    /// client_idle_timeout or pin_timeout
    IdleTimeout,
    /// The client has begun a transaction in statement mode.
    StatementMode,
}

const RETRIES: &str = "Weir tries again by itself; SHOW EVENTS and the log name the cause.";

impl Cause {
    pub const ALL: [Self; 21] = [
        Self::Protocol,
        Self::Password,
        Self::Proof,
        Self::Rule,
        Self::Privilege,
        Self::UnknownDatabase,
        Self::DisabledDatabase,
        Self::RemovedDatabase,
        Self::TooManyClients,
        Self::QueryWaitTimeout,
        Self::ServerRefusal,
        Self::ServerUnreachable,
        Self::ServerLost,
        Self::NoPrimary,
        Self::ShuttingDown,
        Self::Operator,
        Self::QueryTimeout,
        Self::IdleTransactionTimeout,
        Self::TransactionTimeout,
        Self::IdleTimeout,
        Self::StatementMode,
    ];

    /// Returns the name in the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Password => "password",
            Self::Proof => "proof",
            Self::Rule => "rule",
            Self::Privilege => "privilege",
            Self::UnknownDatabase => "unknown_database",
            Self::DisabledDatabase => "disabled_database",
            Self::RemovedDatabase => "removed_database",
            Self::TooManyClients => "too_many_clients",
            Self::QueryWaitTimeout => "query_wait_timeout",
            Self::ServerRefusal => "server_refusal",
            Self::ServerUnreachable => "server_unreachable",
            Self::ServerLost => "server_lost",
            Self::NoPrimary => "no_primary",
            Self::ShuttingDown => "shutting_down",
            Self::Operator => "operator",
            Self::QueryTimeout => "query_timeout",
            Self::IdleTransactionTimeout => "idle_transaction_timeout",
            Self::TransactionTimeout => "transaction_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::StatementMode => "statement_mode",
        }
    }

    fn sqlstate(self) -> &'static str {
        match self {
            Self::Protocol => PROTOCOL_VIOLATION,
            Self::Password => INVALID_PASSWORD,
            Self::Proof | Self::Rule => INVALID_AUTHORIZATION,
            Self::Privilege => INSUFFICIENT_PRIVILEGE,
            Self::UnknownDatabase => INVALID_CATALOG_NAME,
            Self::DisabledDatabase => NOT_IN_PREREQUISITE_STATE,
            Self::RemovedDatabase => DATABASE_DROPPED,
            Self::TooManyClients | Self::QueryWaitTimeout => TOO_MANY_CONNECTIONS,
            Self::ServerRefusal | Self::ServerUnreachable | Self::ServerLost => CONNECTION_FAILURE,
            Self::NoPrimary => CANNOT_CONNECT_NOW,
            Self::ShuttingDown | Self::Operator => ADMIN_SHUTDOWN,
            Self::QueryTimeout => QUERY_CANCELED,
            Self::IdleTransactionTimeout => IDLE_IN_TRANSACTION_TIMEOUT,
            Self::TransactionTimeout => TRANSACTION_TIMEOUT,
            Self::IdleTimeout => IDLE_SESSION_TIMEOUT,
            Self::StatementMode => FEATURE_NOT_SUPPORTED,
        }
    }

    fn hint(self) -> Option<&'static str> {
        match self {
            Self::Rule => Some("A rule of auth_hba_file refuses this login."),
            Self::UnknownDatabase => {
                Some("SHOW DATABASES on the console lists the databases that Weir serves.")
            }
            Self::DisabledDatabase => Some("ENABLE on the console enables it."),
            Self::TooManyClients => {
                Some("Raise the key in parentheses and reload, or close connections.")
            }
            Self::QueryWaitTimeout => {
                Some("SHOW WAITS on the console names the clients that hold the servers.")
            }
            Self::ServerUnreachable => Some(RETRIES),
            Self::NoPrimary => Some("SHOW NODES on the console has the state of each node."),
            Self::ServerLost => Some("The log names the server's last message."),
            Self::StatementMode => Some("Use another pool_mode."),
            Self::Protocol
            | Self::Password
            | Self::Proof
            | Self::Privilege
            | Self::RemovedDatabase
            | Self::ServerRefusal
            | Self::ShuttingDown
            | Self::Operator
            | Self::QueryTimeout
            | Self::IdleTransactionTimeout
            | Self::TransactionTimeout
            | Self::IdleTimeout => None,
        }
    }

    /// PgBouncer has one code for all its errors but a lost server's. It knows no clusters.
    fn pgbouncers_sqlstate(self) -> &'static str {
        match self {
            Self::ServerLost => CONNECTION_FAILURE,
            Self::NoPrimary => CANNOT_CONNECT_NOW,
            Self::Protocol
            | Self::Password
            | Self::Proof
            | Self::Rule
            | Self::Privilege
            | Self::UnknownDatabase
            | Self::DisabledDatabase
            | Self::RemovedDatabase
            | Self::TooManyClients
            | Self::QueryWaitTimeout
            | Self::ServerRefusal
            | Self::ServerUnreachable
            | Self::ShuttingDown
            | Self::Operator
            | Self::QueryTimeout
            | Self::IdleTransactionTimeout
            | Self::TransactionTimeout
            | Self::IdleTimeout
            | Self::StatementMode => PROTOCOL_VIOLATION,
        }
    }
}

/// An error for a client: its cause, and the text that the client and the log get.
#[derive(Clone, Debug)]
pub struct OwnError<'a> {
    pub(crate) cause: Cause,
    pub(crate) text: Cow<'a, str>,
    detail: Option<Box<str>>,
}

impl<'a> OwnError<'a> {
    pub fn new(cause: Cause, text: impl Into<Cow<'a, str>>) -> Self {
        Self { cause, text: text.into(), detail: None }
    }

    /// Adds a DETAIL.
    pub(crate) fn detail(self, detail: impl Into<Box<str>>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Returns the fields of the message. They are in PostgreSQL's order, with DETAIL before HINT.
    pub fn fields(&self, codes: ErrorCodes, detail: Option<&str>) -> ErrorFields {
        let sqlstate = match codes {
            ErrorCodes::Pgbouncer => self.cause.pgbouncers_sqlstate(),
            ErrorCodes::Weir => self.cause.sqlstate(),
        };
        let mut error = ErrorFields::new("FATAL", sqlstate, &self.text);
        let detail = detail.or(self.detail.as_deref());
        for (code, text) in [(b'D', detail), (b'H', self.cause.hint())] {
            if let Some(text) = text {
                error.replace(code, text);
            }
        }
        error
    }
}

/// A text alone is about the client's messages.
impl<'a> From<&'a str> for OwnError<'a> {
    fn from(text: &'a str) -> Self {
        Self::new(Cause::Protocol, text)
    }
}

/// A text alone is about the client's messages.
impl From<String> for OwnError<'_> {
    fn from(text: String) -> Self {
        Self::new(Cause::Protocol, text)
    }
}

impl<'a> From<CloseReason<'a>> for OwnError<'a> {
    fn from(reason: CloseReason<'a>) -> Self {
        Self::new(reason.cause(), reason.text())
    }
}

/// Returns the error for clients of a pool whose servers cannot be logged in to. The code is the
/// server's own if it has answered, unless that would blame the client's user. DETAIL and HINT are those
/// of the first client.
pub(crate) fn login_failing(
    codes: ErrorCodes,
    text: &str,
    refusal: Option<&ErrorFields>,
) -> ErrorFields {
    let field = |code| refusal?.get(code).map(String::from_utf8_lossy);
    let own = OwnError::new(Cause::ServerUnreachable, text);
    let mut error = own.fields(codes, field(b'D').as_deref());
    let said = refusal.map(ErrorFields::sqlstate).filter(|code| !code.starts_with(b"28"));
    if let (ErrorCodes::Weir, Some(code)) = (codes, said) {
        error.replace(b'C', code);
    }
    if let Some(hint) = field(b'H') {
        error.replace(b'H', hint.into_owned());
    }
    error
}

/// Does PostgreSQL's error say that it does not accept the user or the password? That is class 28 of the
/// SQLSTATEs.
pub(crate) fn judges_user(error: &ErrorFields) -> bool {
    error.sqlstate().starts_with(b"28")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_pgbouncers_codes_only_the_code_is_another_one() {
        for cause in Cause::ALL {
            let code = match cause {
                Cause::ServerLost => "08006",
                Cause::NoPrimary => "57P03",
                _ => "08P01",
            };
            let why = OwnError::new(cause, "why");
            let mut expected = why.fields(ErrorCodes::Weir, Some("detail"));
            expected.replace(b'C', code);
            let error = why.fields(ErrorCodes::Pgbouncer, Some("detail"));
            assert_eq!(error, expected, "{cause:?}");
        }
    }

    #[test]
    fn with_weirs_codes_drivers_know_what_happened() {
        for (cause, code) in [
            (Cause::Protocol, "08P01"),
            (Cause::Password, "28P01"),
            (Cause::Privilege, "42501"),
            (Cause::UnknownDatabase, "3D000"),
            (Cause::QueryWaitTimeout, "53300"),
            (Cause::ServerUnreachable, "08006"),
            (CloseReason::ShuttingDown.cause(), "57P01"),
            (CloseReason::Lost.cause(), "08006"),
            (CloseReason::IdleTransactionTimeout.cause(), "25P03"),
            (CloseReason::TransactionTimeout.cause(), "25P04"),
            (CloseReason::QueryTimeout.cause(), "57014"),
            (CloseReason::Text("eof").cause(), "08P01"),
        ] {
            let error = OwnError::new(cause, "why").fields(ErrorCodes::Weir, None);
            assert_eq!(error.sqlstate(), code.as_bytes(), "{cause:?}");
            assert_eq!(error.message(), "why");
        }
    }

    #[test]
    fn the_detail_comes_before_the_hint() {
        let error = OwnError::new(Cause::QueryWaitTimeout, QUERY_WAIT_TIMEOUT);
        let fields = error.fields(ErrorCodes::Weir, Some("2 of 2 servers busy")).fields;
        let codes: Vec<u8> = fields.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, b"SCMDH");
    }

    #[test]
    fn a_refusal_keeps_its_code_unless_it_blames_the_user() {
        let text = "server login has been failing, cached error: no";
        for (said, code) in [("53300", "53300"), ("3D000", "3D000"), ("28P01", "08006")] {
            let refusal = ErrorFields::new("FATAL", said, "no");
            let error = login_failing(ErrorCodes::Weir, text, Some(&refusal));
            assert_eq!(error.sqlstate(), code.as_bytes());
            let error = login_failing(ErrorCodes::Pgbouncer, text, Some(&refusal));
            assert_eq!(error.sqlstate(), PROTOCOL_VIOLATION.as_bytes());
        }
    }
}
