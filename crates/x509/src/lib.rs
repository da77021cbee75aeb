//! Judges X.509 certificates as OpenSSL 3 does for libpq and PgBouncer.
//!
//! [`Certificate`] is a parsed certificate. [`Anchors`] are the certificates of a CA file, and
//! [`Anchors::verify`] checks whether a peer's certificate leads to one of them. OpenSSL's result
//! is the specification: purpose `sslclient` or `sslserver`, security level 2, no partial chains,
//! no revocation lists. The test `verdicts` compares each of its chains with the `openssl` command.
//!
//! * `certificate`, `extensions`: what is read
//! * `name`, `host`, `constraints`: names of subjects, of hosts, and which names a CA may certify
//! * `chain`: from the peer's certificate to one that signs itself
//! * `verify`: purposes, path lengths, signatures, dates
//! * `signature`: keys and signatures, also those of TLS handshakes
//!
//! # Differences from OpenSSL
//!
//! Keys are RSA of 2,048 to 8,192 bits, P-256, P-384, P-521 and Ed25519. Signatures by RSA need
//! SHA-256, SHA-384 or SHA-512; PSS also needs a salt of the digest's length. A certificate with
//! any other key or signature is refused.
//!
//! # Cost
//!
//! A peer's certificates fit into one TLS message of 64 KiB. A chain has at most [`MAX_DEPTH`] + 2
//! certificates. Each link costs one search through the peer's certificates and one signature
//! check.
//!
//! Invariant: no byte can make it panic. It reads no clock and no file.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod certificate;
mod chain;
mod constraints;
mod extensions;
mod host;
mod name;
mod signature;
mod verify;

pub use self::{
    certificate::{Certificate, Malformed},
    chain::Anchors,
    host::Host,
    signature::{Curve, Hash, Key, Scheme},
    verify::Refusal,
};

/// The number of CA certificates between a peer's certificate and the trusted one, as in PgBouncer.
pub const MAX_DEPTH: usize = 6;

/// The purpose of a peer's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The peer is a TLS client.
    Client,
    /// The peer is a TLS server.
    Server,
}
