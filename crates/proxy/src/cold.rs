//! Everything that may block. It runs on its own threads and sends mail to the workers.

pub(crate) mod announced;
pub(crate) mod backend_memory;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod controller;
pub(crate) mod dns;
pub(crate) mod doors;
pub(crate) mod files;
pub(crate) mod handshake;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod listen;
pub(crate) mod measures;
pub(crate) mod passwords;
pub(crate) mod pcp;
pub(crate) mod pooler;
pub(crate) mod program;
pub(crate) mod recorder;
pub(crate) mod rehearse;
pub(crate) mod reload;
pub(crate) mod resolve;
pub(crate) mod service;
pub(crate) mod takeover;
