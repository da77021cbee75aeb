//! The shell around the engine: worker threads with their sockets, the exchange between them, the
//! listening sockets, and the cold thread for everything that may block.
//!
//! * `data`: the workers, a hand-written loop over edge-triggered epoll. It decides nothing about
//!   the protocol; the engine does.
//! * `exchange`: the pools, mailboxes and messages that threads share. `exchange/model.rs` checks them.
//! * `cold`: everything that may block, on tokio: names, TLS handshakes, passwords, the console,
//!   reload, online restart. It reaches the workers by mail only.
//! * `lobby`: the clients whose sockets PostgreSQL's backends serve (docs/direct.md)
//! * `holder`: a second process with these clients, if this one is killed
//! * `frame`: how one process hands connections to the next
//! * `log`: log lines in PgBouncer's format

#![cfg_attr(
    test,
    expect(clippy::duplicate_mod, reason = "the model check compiles two files a second time")
)]

mod cold;
mod data;
mod exchange;
mod frame;
mod holder;
mod lobby;
pub mod log;
#[cfg(feature = "stepped")]
mod stepped;

#[cfg(feature = "stepped")]
pub use crate::stepped::Stepped;
pub use ::cluster::Failover;
pub use net::{
    Address, CallerTls, Tls, TlsContexts, TlsError, TlsStream,
    sys::process::{User, may_create_in, user_by_name},
};

pub use crate::{
    cold::{
        cluster::{
            Checks, ClusterInfo, FleetInfo, Judgement, MemberInfo, NodeInfo,
            discovery::{addresses_of, find_nodes},
            risk::{NODE_QUESTION, risk_of},
        },
        controller::{
            Controller, PoolInfo, ReloadResult, Shutdown, Snapshot, WorkerInfo,
            orders::{Order, OrderError},
        },
        dns::names::{HostInfo, NamesInfo, ZoneInfo},
        health::HealthCheck,
        http::{Exposition, MetricsPage},
        listen::{ListenError, refuse_second_process},
        measures::{Measures, PoolMeasures},
        passwords::PasswordInfo,
        pcp::{PcpConnection, PcpHandler},
        pooler::{ConsoleHandler, Exit, Pooler, StartError, StartOptions},
        recorder::Recording,
        rehearse::{Obstacle, obstacles},
        reload::ReloadError,
        service::Service,
        takeover::{
            receive::{Handover, receive as take_over, receive_held as take_over_held},
            state::TakeOverError,
        },
    },
    exchange::{
        peer::Peer,
        reports::{CancelInfo, ClientInfo, ServerInfo},
        requests::{ConsoleConnection, ConsoleRequest},
    },
    holder::{Held, Holder},
};
