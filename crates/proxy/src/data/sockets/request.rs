//! A cancel request under way, as plain data.

use engine::{ids::Micros, settings::Target, shell::CancelEnd};

use net::sys::Address;

/// A request that waits because too many to its peer are under way.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) cancel: Cancel,
    pub(super) peer: u32,
    pub(super) target: Target,
}

/// A cancel request under way.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) id: u64,
    pub(super) packet: Vec<u8>,
    pub(super) sent: bool,
    /// The peer that it is for; None for a server.
    pub(super) peer: Option<u32>,
    /// When it is given up; `None` = never.
    pub(super) until: Option<Micros>,
    pub(super) began: Micros,
    /// Database and user of the server, for the log.
    pub(super) name: Option<(String, String)>,
    pub(super) address: Address,
}

/// A log line about the connection of a cancel request.
pub(super) enum CancelLine {
    Opened,
    Closed(CancelEnd),
}
