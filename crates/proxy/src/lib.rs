//! The shell round the engine: worker threads with their sockets, the exchange between them, the
//! listeners, and the one thread for everything that may block.
//!
//! * `data`: the workers, a hand-written loop over edge-triggered epoll. It decides nothing about
//!   the protocol; the engine does.
//! * `exchange`: the pools and mailboxes that workers share. `exchange/model.rs` checks them.
//! * `cold`: everything that may block, on tokio: names, TLS handshakes, passwords, the console,
//!   reload, online restart. It reaches the workers by mail only.
//! * `log`: log lines in PgBouncer's format

#![cfg_attr(
    test,
    expect(clippy::duplicate_mod, reason = "the model check compiles two files a second time")
)]

mod cold;
mod data;
mod exchange;
pub mod log;

#[cfg(feature = "stepped")]
pub use crate::data::stepped::Stepped;
pub use net::{
    Address, Tls, TlsContexts, TlsError, TlsStream,
    sys::process::{User, user_by_name},
};

pub use crate::{
    cold::{
        controller::{
            ClientInfo, Controller, ForwardInfo, Order, OrderError, PoolInfo, ServerInfo, Snapshot,
            Totals,
        },
        pooler::{
            ConsoleConnection, ConsoleHandler, ConsoleRequest, Exit, Pooler, ReloadError, Shutdown,
            StartError, StartOptions,
        },
        resolve::{HostInfo, NamesInfo, ZoneInfo},
        service::Service,
        takeover::{Handover, TakeOverError, receive as take_over},
    },
    data::{
        listener::{ListenError, refuse_second_process},
        peer::Peer,
    },
};
