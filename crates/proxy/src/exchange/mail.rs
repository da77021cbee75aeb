//! Mail to a worker, from another worker or from the cold side, and the exchange that carries it.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    sync::Arc,
};

use config::Config;
use engine::{
    Drain,
    ids::{ClientId, Micros, PoolId, ServerId},
    shell::{CancelEnd, Checked, Mail},
};
use tokio::sync::mpsc;

use super::{
    handshakes::{SecuredClient, SecuredServer},
    hub::{Hub, WorkerExchange},
    inheritance::{Inheritance, Share},
    mailbox::Wake,
    peer::Peer,
    reports::{Rest, WorkerExport, WorkerReport},
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
    /// By another worker's engine.
    Engine(Mail<Transport>),
    /// A client that another worker accepted.
    Client {
        fd: OwnedFd,
        peer: Peer,
    },
    /// A client whose handshake is made.
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
    /// A cancel request to a secured server has been dealt with.
    CancelSent {
        cancel: u64,
        end: CancelEnd,
    },
    /// The addresses of a name that somebody is to connect to; none if it has none. The ticket is
    /// that of the question.
    Resolved {
        ticket: u64,
        addresses: Vec<SocketAddr>,
    },
    /// A host name has left these addresses.
    Moved {
        host: Arc<str>,
        gone: Arc<[IpAddr]>,
    },
    /// The answer to a question about a client that logs in.
    Checked {
        client: ClientId,
        serial: u64,
        checked: Checked,
    },
    /// Too many are logging in: drop those that have kept us waiting.
    CrowdOut,
    /// Tell about yourself.
    Report(mpsc::UnboundedSender<WorkerReport>),
    /// Tell that everything before this has been dealt with, by dropping the other end.
    Heard(mpsc::UnboundedSender<()>),
    /// The configuration was replaced; the pools have its settings already.
    Config(Arc<Config>),
    Drain(Drain),
    /// Pools were closed, opened or renewed.
    Review,
    /// Drop everything of these databases.
    Kill(Arc<[String]>),
    /// Drop this client, if it still is the one with that serial number.
    KillClient {
        client: ClientId,
        serial: u64,
    },
    /// Read nothing and accept nobody from now on, but what is half read.
    Suspend,
    /// Drop whoever has something half read or half sent.
    EndSuspense,
    /// Go on reading.
    Resume,
    /// Come to rest.
    Freeze,
    /// Another process has taken over: clients that come to rest wait for it.
    Leave,
    /// Tell what could be given away now.
    Rest(mpsc::UnboundedSender<Rest>),
    /// These are to come from the process before this one.
    Expect(Arc<Inheritance>),
    /// They have come.
    Adopt(Box<Share>),
    /// Keep still, and tell what can be given away.
    Export(mpsc::UnboundedSender<WorkerExport>),
    /// The other process has what was exported. The sender is dropped when it is forgotten.
    Cede(mpsc::UnboundedSender<()>),
    /// The take-over is over, one way or the other.
    Thaw,
    /// These pools are no more. The sender is dropped when they are forgotten.
    ForgetPools(Arc<[PoolId]>, mpsc::UnboundedSender<()>),
    /// Close everything and end.
    Stop,
}

impl ShellMail {
    /// Does it tell what becomes of what was exported? All else is left for later, in its order.
    pub(crate) fn ends_stillness(&self) -> bool {
        matches!(self, Self::Cede(_) | Self::Thaw | Self::Stop)
    }
}

impl From<Mail<Transport>> for ShellMail {
    fn from(mail: Mail<Transport>) -> Self {
        Self::Engine(mail)
    }
}
