//! Chooses the place of an idle client's request: the writer, or a reader of a node. In a pool with
//! routing ([`PoolSettings::routing`](crate::settings::PoolSettings::routing)) the first whole
//! request of an idle client is read before a pool is chosen. All other pools link before they read
//! (decision 018).
//!
//! `first_request` finds the end of a request in a client's bytes. `wish` judges its texts, and
//! `rules` draws one of the standbys that are fresh enough: `freshness` knows which commits a standby
//! has, `readers` is what the workers read of it, `sessions` knows who has written, and `stays`
//! counts the sessions of each standby. The `Router` of `choose` puts these together, and
//! `engine/routing.rs` links the client.
//! `hold` decides which reads wait for a fresher standby. `why` counts the reasons. `refusal` reads the
//! first words of a reader. `refused` takes the client from a reader that refuses, and the writer gets
//! the request. `begun` keeps the texts with which the writer begins the transaction of such a request.
//!
//! A client with a server is not routed: a transaction or a pinned session stays on its server. On
//! a reader, the next request waits for the replies to the one before, because it may need another
//! place. On the writer it follows at once.
//!
//! Requests while the cluster has no primary. Its standbys are those of the last primary, and nobody
//! may be promoted for a while.
//!
//! | request | runs on a standby |
//! |---|---|
//! | a read | while the standby is fresh enough: with `max_staleness = 0`, for ever |
//! | a request that asks for a standby | whatever the age of its data |
//! | a SET or RESET alone | always: it shows no data |
//! | `auth_query` | always |
//!
//! The standby must have the session's writes, and what the session has read, as ever. All other
//! requests wait for the next primary.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;

pub(crate) mod begun;
pub(crate) mod choose;
mod first_request;
pub mod freshness;
mod hold;
pub mod readers;
mod refusal;
pub(crate) mod refused;
pub mod rules;
mod sessions;
pub(crate) mod stays;
pub mod why;
mod wish;

pub(crate) use first_request::{FirstRequest, first_request};
pub(crate) use refused::Judged;
pub(crate) use sessions::{Session, Sessions};

/// The servers that a pool has.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Place {
    /// Servers that may write. Without a cluster there are no others.
    #[default]
    Writer,
    /// Servers of one node that can be read.
    Reader(NodeId),
}
