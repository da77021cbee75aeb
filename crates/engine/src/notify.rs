//! Notify: LISTEN for many clients of a pool by one connection (auto mode).
//!
//! `listen` is the client's side, with its data in `listening`. `connection` is the side of the
//! listener, with its data in `listener`. The two sides only exchange mail, since they may belong
//! to different workers. `engine/listeners.rs` carries out what follows.

pub(crate) mod connection;
pub(crate) mod interruption;
pub(crate) mod listen;
pub(crate) mod listener;
pub(crate) mod listening;
