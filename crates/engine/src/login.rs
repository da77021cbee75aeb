//! Login: a client from its first byte to "logged in".
//!
//! It reads the client's messages, the credentials and the configuration. It may ask for a server
//! (`auth_query`, a proof by the server itself) and ask the shell (names, LDAP, PAM). It ends with a
//! client in a pool, or with a refusal.

pub mod auth;
pub(crate) mod auth_answer;
mod auth_query;
mod certificate;
mod checks;
mod decoy;
pub mod guesses;
mod patience;
mod prove;
mod sasl;
pub mod server_secret;
mod startup;
pub(crate) mod steps;

pub use patience::LOGIN_GRACE;
