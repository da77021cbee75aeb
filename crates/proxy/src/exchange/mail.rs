//! Mail to a worker, from another worker or from the cold side, and the exchange that carries it.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use config::Config;
use engine::{
    Drain,
    ids::{ClientId, Micros, PoolId, ServerId},
    pulse::Pulse,
    shell::{CancelEnd, Checked, Mail},
    transactions::Transaction,
};
use tokio::sync::mpsc;

use super::{
    handshakes::{SecuredClient, SecuredServer},
    hub::{Hub, WorkerExchange},
    late_arrivals::{PredecessorState, WorkerArrivals},
    lobby_door::Departing,
    mailbox::Wake,
    peer::Peer,
    reports::{LimitedServer, Rest, WorkerExport, WorkerFigures, WorkerReport},
    transport::Transport,
};
use net::sys::EventFd;

pub(crate) type ShellHub = Hub<ShellMail, EventFd, Transport>;
pub(crate) type ShellExchange = WorkerExchange<ShellMail, EventFd, Transport>;

impl Wake for EventFd {
    fn wake(&self) {
        self.notify();
    }
}

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum ShellMail {
    /// Mail of another worker's engine.
    Engine(Mail<Transport>),
    /// A client that another worker has accepted.
    Client {
        fd: OwnedFd,
        peer: Peer,
    },
    /// A client whose handshake is complete.
    SecuredClient {
        client: SecuredClient,
        peer: Peer,
        connected_at: Micros,
    },
    /// The result of a handshake with a server.
    SecuredServer {
        server: ServerId,
        ticket: u64,
        result: Result<SecuredServer, String>,
    },
    /// A cancel request to a server with TLS has ended.
    CancelSent {
        cancel: u64,
        end: CancelEnd,
    },
    /// The addresses of a name that was looked up; empty if it has none. The ticket is that of the
    /// question.
    Resolved {
        ticket: u64,
        addresses: Vec<SocketAddr>,
    },
    /// A host name no longer has these addresses.
    Moved {
        host: Arc<str>,
        gone: Arc<[IpAddr]>,
    },
    /// The result of a check about a client that logs in.
    Checked {
        client: ClientId,
        serial: u64,
        checked: Checked,
    },
    /// Too many clients are logging in: disconnect those that delay their login.
    CrowdOut,
    /// Send a report.
    Report(mpsc::UnboundedSender<WorkerReport>),
    /// Send the figures of the pools, for the metrics.
    Figures(mpsc::UnboundedSender<WorkerFigures>),
    /// Send the pulses of the pools, for the flight recorder.
    Pulse(mpsc::UnboundedSender<Vec<(PoolId, Pulse)>>),
    /// Send the transactions that are remembered.
    Transactions(mpsc::UnboundedSender<Vec<Transaction>>),
    /// Send the servers in use whose memory is limited.
    LimitedServers(mpsc::UnboundedSender<Vec<LimitedServer>>),
    /// The process of the server with this serial number has too much memory.
    ServerIsLarge(u64),
    /// Confirm that all earlier mail is processed, by dropping the sender.
    Barrier(mpsc::UnboundedSender<()>),
    /// The configuration was replaced; the pools have its settings already.
    Config(Arc<Config>),
    Drain(Drain),
    /// Pools were closed, opened or given new servers.
    Review,
    /// Standbys may be fresher than before, and reads wait for that.
    Fresher,
    /// Drop all clients and servers of these databases.
    Kill(Arc<[String]>),
    /// Drop this client, if it still has this serial number.
    KillClient {
        client: ClientId,
        serial: u64,
    },
    /// Read and accept nothing from now on, except the rest of incomplete messages.
    Suspend,
    /// Drop connections with incomplete messages or unsent output.
    EndSuspense,
    /// Continue reading.
    Resume,
    /// Come to rest.
    Freeze,
    /// Another process has taken over: clients that come to rest wait for it.
    Leave,
    /// Tell what could be handed over now.
    Rest(mpsc::UnboundedSender<Rest>),
    /// These connections will come from the predecessor.
    Expect(Arc<PredecessorState>),
    /// They have come.
    Adopt(Box<WorkerArrivals>),
    /// Tell the lobbies the records of this server, if it has logged in.
    TellHome {
        server: ServerId,
        serial: u64,
    },
    /// This client leaves its lobby, with a server of yours.
    LeavesLobby(Box<Departing>),
    /// Keep still, and tell what can be handed over.
    Export(mpsc::UnboundedSender<WorkerExport>),
    /// The other process has the exported connections; of the servers of direct pools, those with
    /// these serial numbers. Drop the sender after forgetting them.
    Cede(Arc<HashSet<u64>>, mpsc::UnboundedSender<()>),
    /// The take-over has ended, in success or failure.
    Thaw,
    /// These pools were removed. Drop the sender after forgetting them.
    ForgetPools(Arc<[PoolId]>, mpsc::UnboundedSender<()>),
    /// Close everything and end.
    Stop,
}

impl ShellMail {
    /// Does this mail decide about the exported connections? All other mail is postponed, in order.
    pub(crate) fn ends_stillness(&self) -> bool {
        matches!(self, Self::Cede(..) | Self::Thaw | Self::Stop)
    }
}

impl From<Mail<Transport>> for ShellMail {
    fn from(mail: Mail<Transport>) -> Self {
        Self::Engine(mail)
    }
}
