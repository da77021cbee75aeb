//! The common parts of both sides of the exchange: names, limits and errors.

use thiserror::Error;

/// The mechanism's name in the SASL negotiation.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// The mechanism with channel binding.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The beginnings of a client's first message (RFC 5802, section 7: gs2-header): without channel
/// binding; without it because the server has not offered it; with it.
pub(super) const GS2_UNBOUND: &[u8] = b"n,,";
pub(super) const GS2_BELIEVES_WE_CANNOT: &[u8] = b"y,,";
pub(super) const GS2_BOUND: &[u8] = b"p=tls-server-end-point,,";

/// PostgreSQL's default number of iterations.
pub const ITERATIONS_DEFAULT: u32 = 4096;

/// The most iterations that a server can demand for a password, about a third of a second. Without
/// a limit a hostile server could keep Weir busy for hours.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Random bytes in our nonce, as many as in PostgreSQL and libpq.
pub const NONCE_LEN: usize = 18;

/// Why an exchange failed. It cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScramError {
    /// The client wants to act as another user than its login user.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// The client requires channel binding, which was not offered.
    #[error("client requires SCRAM channel binding, but it is not supported")]
    ChannelBinding,
    /// The client supports channel binding and believes that Weir does not: an attacker has changed
    /// the offer.
    #[error("SCRAM channel binding negotiation error")]
    ChannelBindingDowngrade,
    /// The client is bound to another channel, or contradicts itself about it.
    #[error("SCRAM channel binding check failed")]
    ChannelBindingMismatch,
    #[error("SCRAM server demands {0} iterations, more than {ITERATIONS_MAX}")]
    Iterations(u32),
    /// The client has chosen a mechanism that was not offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    #[error("malformed SCRAM message: expected {expected}")]
    Malformed { expected: &'static str },
    /// A mandatory extension is unknown.
    #[error("peer requires an unsupported SCRAM extension")]
    MandatoryExtension,
    /// The server offers channel binding, its certificate allows none, and nobody vouches for it.
    #[error(
        "the signature of the server's certificate has no digest for SCRAM channel binding, so \
         only server_tls_sslmode = verify-full shows who the server is"
    )]
    NoDigest,
    #[error("SCRAM nonce does not match")]
    Nonce,
    /// A message came after the exchange's end, or out of order.
    #[error("SCRAM message out of order")]
    OutOfOrder,
    /// The client does not know the password.
    #[error("SCRAM proof is wrong")]
    Proof,
    /// The server sent this error in place of its signature.
    #[error("SCRAM server refused: {0}")]
    Refused(String),
    /// The server does not know the verifier: it may be an impostor.
    #[error("incorrect SCRAM server signature")]
    ServerSignature,
}
