//! Operator: the orders of an operator, and the data that is shown to one.
//!
//! `engine/orders.rs` carries out orders of the console, and `engine/look.rs` reads the tables for
//! SHOW and the metrics. This folder has the rules for one connection or one pool:
//!
//! `standing` says which servers an order concerns. `inspect` makes the rows of a `report`,
//! `figures` counts connections. Counters are in `stats`, `averages` and `failures`. `stages`
//! follows a transaction through a server, `transactions` remembers the last and the slowest, and
//! `timings` the checkpoints of whole connections.
//! `pulse` samples the pools for `recorder`, and `journal` has the events of the last hour. `waits`
//! says which clients hold the servers that others wait for. `remarks` writes to the log about one
//! client.

pub mod averages;
pub mod facts;
pub mod failures;
pub mod figures;
pub mod histogram;
pub(crate) mod inspect;
pub mod journal;
pub mod pulse;
pub mod recorder;
pub(crate) mod remarks;
pub mod report;
pub(crate) mod stages;
pub(crate) mod standing;
pub mod stats;
pub mod timings;
pub mod transactions;
pub(crate) mod waits;
