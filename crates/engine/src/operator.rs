//! Operator: what an operator orders, and what an operator is shown.
//!
//! `control` carries out orders of the console. `inspect` copies the tables for SHOW and checks the
//! invariants of the engine; the copies are in `report`, the counters in `stats` and `averages`.

pub mod averages;
mod control;
pub(crate) mod inspect;
pub mod report;
pub mod stats;
