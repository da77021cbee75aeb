//! Black-box tests: the pooler's binary, a real PostgreSQL, real sockets. Each topic has a module.
//!
//! Tests of behaviour that PgBouncer has as well pass with `WEIR_BIN` set to Debian's `pgbouncer`.
//! Tests of Weir's own behaviour begin with [`support::only_weir`].

mod abuse;
mod auth;
mod auto;
mod backpressure;
mod bench;
mod builtin;
mod cancel;
mod cluster;
mod commands;
mod console;
mod control;
mod crosstalk;
mod differential;
mod direct;
mod dns;
mod drivers;
mod errors;
mod exhaustion;
mod faults;
mod flood;
mod incident;
mod kill_matrix;
mod limits;
mod logs;
mod metrics;
mod migration;
mod operations;
mod packaging;
mod password_command;
mod peers;
mod pipeline;
mod pool;
mod prepared;
mod programs;
mod protocol;
mod proxy_protocol;
mod query;
mod relay;
mod replication;
mod restart;
mod routing;
mod service;
mod showpool;
mod side_by_side;
mod signals;
mod sql;
mod startup;
mod storm;
mod support;
mod timings;
mod tls;
mod unreachable;
mod watched;
