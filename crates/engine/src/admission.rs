//! Admission: which client gets a server, and whether one may be opened.
//!
//! `pool` and `limits` are plain bookkeeping behind the exchange's locks: they know neither a socket
//! nor an `Engine`. Only `seat` is the worker's side of it.

pub mod limits;
pub mod pool;
mod seat;
pub mod shares;
pub mod switches;
