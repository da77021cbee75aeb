//! Login: a client from its first byte to "logged in".
//!
//! It reads the client's messages, the credentials and the configuration. It may request a server
//! (`auth_query`, or a login that proves the password) and ask the shell (names, LDAP, PAM). It
//! ends with a client in a pool, or with an error. The machine is a [`door::Door`]: it returns a
//! [`door::Step`], which `engine/login.rs` carries out.

pub mod auth;
pub(crate) mod auth_answer;
pub(crate) mod auth_query;
mod certificate;
mod checks;
pub(crate) mod console;
mod decoy;
pub(crate) mod door;
pub(crate) mod greeting;
pub mod guesses;
pub(crate) mod issued;
pub(crate) mod patience;
pub(crate) mod prove;
pub(crate) mod question;
mod sasl;
pub(crate) mod server_login;
pub mod server_secret;
mod startup;
pub(crate) mod steps;

pub use patience::LOGIN_GRACE;
