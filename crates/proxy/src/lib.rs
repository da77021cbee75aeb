//! The shell round the engine: worker threads with their sockets, the exchange between them, the
//! listeners, and the one thread for everything that may block.
//!
//! The data plane (`worker.rs`, `sockets.rs`, `conn.rs`, `table.rs`) is a hand-written loop over
//! edge-triggered epoll; it decides nothing about the protocol, which is the engine's. What the
//! workers share is in `exchange.rs` and `mailbox.rs`, checked by `model.rs`. The cold side
//! (`pooler.rs`, `resolve.rs`, `announced.rs`, the handshakes of `tls.rs`) runs on tokio and reaches
//! the workers by mail only.

#![cfg_attr(
    test,
    expect(clippy::duplicate_mod, reason = "the model check compiles two files a second time")
)]

mod announced;
mod caller;
mod check;
mod conn;
mod controller;
mod exchange;
mod listener;
pub mod log;
mod mailbox;
#[cfg(test)]
mod model;
mod peer;
mod pooler;
mod random;
mod resolve;
mod schedule;
mod service;
mod shared;
mod sockets;
#[cfg(feature = "stepped")]
mod stepped;
mod sync;
mod sys;
mod table;
mod takeover;
mod tls;
mod worker;

#[cfg(feature = "stepped")]
pub use crate::stepped::Stepped;
pub use crate::{
    caller::{Caller, CallerTls, Event, Poller, Received, Room, own_user, raise_open_files},
    controller::{
        ClientInfo, Controller, ForwardInfo, Order, OrderError, PoolInfo, ServerInfo, Snapshot,
        Totals,
    },
    listener::{ListenError, refuse_second_process},
    peer::Peer,
    pooler::{
        ConsoleConnection, ConsoleHandler, ConsoleRequest, Exit, Pooler, ReloadError, Shutdown,
        StartError, StartOptions,
    },
    resolve::{HostInfo, NamesInfo, ZoneInfo},
    service::Service,
    sys::{
        Address,
        process::{User, user_by_name},
    },
    takeover::{Handover, TakeOverError, receive as take_over},
    tls::{Tls, TlsContexts, TlsError, TlsStream},
};
