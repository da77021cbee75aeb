//! Admission: which client gets a server, and whether one may be opened.
//!
//! `pool` and `limits` are plain bookkeeping behind the exchange's locks: they know neither a
//! socket nor an `Engine`. A worker uses a pool as a `OnePool`. `seat` and
//! `lobby_seats` decide about seats for it, and `view` is the worker's cache of it.

pub mod limits;
pub(crate) mod lobby_seats;
pub(crate) mod membership;
pub(crate) mod one_pool;
pub mod pool;
pub(crate) mod seat;
pub mod shares;
pub mod switches;
pub(crate) mod view;
