//! The parts that both sides of the exchange share: its names and limits, and how it fails.

use thiserror::Error;

/// The mechanism's name in the SASL negotiation.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// How a client's first message begins (RFC 5802, section 7: gs2-header): without channel binding,
/// without since the server has not offered it, and with it.
pub(super) const GS2_UNBOUND: &[u8] = b"n,,";
pub(super) const GS2_BELIEVES_WE_CANNOT: &[u8] = b"y,,";
pub(super) const GS2_BOUND: &[u8] = b"p=tls-server-end-point,,";

/// The iterations PostgreSQL uses unless told otherwise.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// The most iterations a password is hashed with at a server's demand, a third of a second or so.
/// Without a limit a hostile server could keep us busy for hours.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Random bytes in a nonce of ours, as many as PostgreSQL and libpq use.
pub const NONCE_LEN: usize = 18;

/// Why an exchange failed. After any of them the exchange is over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScramError {
    /// The client wants to act as another user than the one it logs in as.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// The client insists on channel binding, which was not offered.
    #[error("client requires SCRAM channel binding, but it is not supported")]
    ChannelBinding,
    /// The client could bind to the channel, and was not told that we can: the offer was tampered
    /// with on its way.
    #[error("SCRAM channel binding negotiation error")]
    ChannelBindingDowngrade,
    /// The client is bound to another channel, or contradicts itself about that.
    #[error("SCRAM channel binding check failed")]
    ChannelBindingMismatch,
    #[error("SCRAM server demands {0} iterations, more than {ITERATIONS_MAX}")]
    Iterations(u32),
    /// The client has chosen what was not offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    #[error("malformed SCRAM message: expected {expected}")]
    Malformed { expected: &'static str },
    /// An extension that must be understood, and is not.
    #[error("peer requires an unsupported SCRAM extension")]
    MandatoryExtension,
    #[error("SCRAM nonce does not match")]
    Nonce,
    /// A message came after the exchange's end, or before its turn.
    #[error("SCRAM message out of order")]
    OutOfOrder,
    /// The client does not know the password.
    #[error("SCRAM proof is wrong")]
    Proof,
    /// The server reported this error in place of its signature.
    #[error("SCRAM server refused: {0}")]
    Refused(String),
    /// The server does not know the verifier: it may be an impostor.
    #[error("incorrect SCRAM server signature")]
    ServerSignature,
}
