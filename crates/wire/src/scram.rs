//! SCRAM-SHA-256 (RFC 5802 and 7677) as PostgreSQL speaks it, both sides of the exchange.
//!
//! The client's user name is ignored, since the startup packet has named the user already. With
//! channel binding (SCRAM-SHA-256-PLUS) both sides sign the connection's certificate, so no
//! attacker in between can use another one. Nonces and salts come from the caller.
//!
//! ```text
//!   client                                     server
//!   n,,n=,r=NONCE                         ->
//!                                         <-   r=NONCE+MORE,s=SALT,i=ITERATIONS
//!   c=biws,r=NONCE+MORE,p=PROOF           ->
//!                                         <-   v=SIGNATURE
//! ```
//!
//! A pooler is the server for its clients and a client of PostgreSQL. A client's proof reveals its
//! `ClientKey` to the owner of the verifier. That key suffices to log in to PostgreSQL with the
//! same verifier, so no password is needed.

mod attributes;
mod client;
mod exchange;
mod keys;
mod saslprep;
mod server;
mod verifier;

pub use self::client::{ChannelEnd, ScramClient, ScramSecret};
pub use self::exchange::{
    ITERATIONS_DEFAULT, ITERATIONS_MAX, MECHANISM, MECHANISM_PLUS, NONCE_LEN, ScramError,
};
pub use self::keys::ScramKeys;
pub(crate) use self::keys::hmac;
pub use self::server::{ScramServer, ServerFinished};
pub use self::verifier::ScramVerifier;

#[cfg(test)]
mod tests;
