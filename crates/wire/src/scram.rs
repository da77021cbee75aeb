//! SCRAM-SHA-256 (RFC 5802 and 7677) as PostgreSQL speaks it, both sides of the exchange.
//!
//! The client's user name is ignored, since the startup packet has named the user already. With
//! channel binding (SCRAM-SHA-256-PLUS) both sides sign which certificate the connection has, so that
//! nobody can stand in between with another one. Nonces and salts come from the caller.
//!
//! ```text
//!   client                                     server
//!   n,,n=,r=NONCE                         ->
//!                                         <-   r=NONCE+MORE,s=SALT,i=ITERATIONS
//!   c=biws,r=NONCE+MORE,p=PROOF           ->
//!                                         <-   v=SIGNATURE
//! ```
//!
//! A pooler stands in the middle: it is the server to its clients and the client of PostgreSQL. The
//! proof a client gives us reveals its `ClientKey` to whoever holds the verifier, and that key is
//! all it takes to log in to PostgreSQL under the same verifier. So no password is needed anywhere.

mod attributes;
mod client;
mod exchange;
mod keys;
mod saslprep;
mod server;
mod verifier;

pub use self::client::{ScramClient, ScramSecret};
pub use self::exchange::{
    ITERATIONS_DEFAULT, ITERATIONS_MAX, MECHANISM, MECHANISM_PLUS, NONCE_LEN, ScramError,
};
pub use self::keys::ScramKeys;
pub(crate) use self::keys::hmac;
pub use self::server::{ScramServer, ServerFinished};
pub use self::verifier::ScramVerifier;

#[cfg(test)]
mod tests;
