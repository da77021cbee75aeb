//! Admission: which client gets a server, and whether one may be opened.
//!
//! `pool` and `limits` are plain bookkeeping behind the exchange's locks: they know neither a
//! socket nor an `Engine`. `seat` and `lobby_seats` call them from the
//! worker. `view` is what a worker caches of a pool.

pub mod limits;
pub(crate) mod lobby_seats;
pub(crate) mod one_pool;
pub mod pool;
pub(crate) mod seat;
pub mod shares;
pub mod switches;
pub(crate) mod view;
