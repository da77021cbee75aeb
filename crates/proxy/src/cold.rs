//! Everything that may block. It runs on threads of its own and sends mail to the workers.

pub(crate) mod announced;
pub(crate) mod check;
pub(crate) mod controller;
pub(crate) mod dns;
pub(crate) mod handshake;
pub(crate) mod listen;
pub(crate) mod pooler;
pub(crate) mod reload;
pub(crate) mod resolve;
pub(crate) mod service;
pub(crate) mod takeover;
