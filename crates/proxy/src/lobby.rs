//! The lobbies of direct pools (docs/direct.md): PostgreSQL's backends serve the sockets of clients
//! that wait in one. Weir hands clients in, takes them out, and handles nothing in between.
//!
//! One thread has all lobbies. It is no part of the data path: it sleeps while clients are served.
//!
//! * `control`: messages between Weir and a backend
//! * `guests`: the clients of a lobby
//! * `places`: the places of clients, which all lobbies share
//! * `seatings`: the order in which they came, to give their descriptors to backends
//! * `limits`: their time limits
//! * `held`: the list for the next process, if this one is killed
//! * `stranded`: the end of a lobby that no process can take over
//! * `arrival`: a lobby that comes from another process
//! * `service`: the thread
//!
//! Invariant: the state word of a place says which process may use its client's socket. An event of
//! the epoll set is only a hint. `extension/test/model` checks these rules for `lobby.c`, which the
//! crate `room` calls.

mod arrival;
mod control;
mod guests;
mod held;
mod limits;
mod places;
mod seatings;
mod service;
mod stranded;

pub(crate) use arrival::{Arrival, Arrived, Reserved};
pub(crate) use control::{Unnamed, listen_for_streams};
pub(crate) use held::{Entry, HeldList, Key};
pub(crate) use service::{Predecessor, Service, Succession, open};
pub(crate) use stranded::disconnect;
