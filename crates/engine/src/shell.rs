//! What the engine asks of the world round it. The proxy implements these with sockets, locks and
//! threads; the simulator with queues.

use std::sync::Arc;

use wire::error_fields::ErrorFields;
use wire::startup::CancelKey;

use crate::admission::limits::Limits;
use crate::admission::pool::{Parked, Pool};
pub use crate::cancel::outcome::{CancelEnd, CancelOutcome};
use crate::cancel::signaling::Found;
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId, Waiter, WorkerId};
use crate::lifecycle::replication::ReplicationKind;
use crate::login::auth::{Judge, Password};
use crate::notify::listener::{Subscriber, Subscription};
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::Statement;
use crate::settings::{PoolKey, Target};

/// Another process of an online restart that still serves clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherProcess {
    /// The process that this one has taken over from.
    Predecessor,
    /// The process that has taken over from this one.
    Successor,
}

/// The sockets of one worker.
///
/// Sending never fails and never blocks from the engine's point of view: what the kernel does not
/// take at once the shell keeps, and stops reading the other side of the link until it is gone.
/// A broken socket is reported later through `client_closed` or `server_closed`, never from
/// inside one of these calls.
pub trait Io<X: Exchange> {
    fn send_client(&mut self, client: ClientId, bytes: &[u8]);
    /// False if it is certain that the server has not got one byte of them, nor ever will: its
    /// socket was found broken.
    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool;

    /// Is nothing kept back of what was sent to this server?
    fn server_flushed(&self, server: ServerId) -> bool;

    /// Bytes that were sent to this client and that it has not read so far, as far as it is known.
    fn client_unsent(&self, client: ClientId) -> usize;

    /// Copies what this client has sent and nobody has read yet, and leaves it where it is. Returns the
    /// number of bytes; 0 if it cannot be known.
    fn peek_client(&mut self, _client: ClientId, _buffer: &mut [u8]) -> usize {
        0
    }

    /// The slot is free from now on. Bytes not yet taken by the kernel are still delivered if the
    /// peer takes them in reasonable time.
    fn close_client(&mut self, client: ClientId);
    fn close_server(&mut self, server: ServerId);

    /// Open a socket for this server. Ends in `server_connected` or `server_closed`.
    fn connect(&mut self, server: ServerId, target: &Target);

    /// Open a socket to where `server` is connected to, send `packet`, wait for the other end to
    /// close, then call `cancel_finished(cancel, end)`. That call also comes if anything fails.
    fn send_cancel(&mut self, cancel: u64, server: ServerId, packet: &[u8]);

    /// Open a socket to that peer and send `packet`; the rest is as for `send_cancel`.
    fn forward_cancel(&mut self, cancel: u64, peer: u32, target: &Target, packet: &[u8]);

    /// Passes a client's cancel request on to that process, if there is one and the request has not
    /// come from it; the rest is as for `send_cancel`. Returns false if nothing was sent.
    fn forward_to_process(
        &mut self,
        _cancel: u64,
        _to: OtherProcess,
        _requester: ClientId,
        _packet: &[u8],
    ) -> bool {
        false
    }

    /// The client may be read (again): call `client_readable` soon if it has bytes, not from here.
    fn resume_client(&mut self, client: ClientId);

    /// The server leaves this worker's table, and its connection goes with it.
    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> X::Transport;
    /// The server with that connection now has a slot here. Whatever happened on its socket meanwhile
    /// is reported soon, not from here.
    fn attach_server(&mut self, server: ServerId, transport: X::Transport);

    /// Has this server just come from another worker, with something unread on its socket? True once;
    /// it is reported soon, as what the server says, or its end, or `server_quiet`.
    fn take_news(&mut self, server: ServerId) -> bool;

    /// The client goes on with TLS: its socket leaves with what it has said of it so far, comes
    /// back as a new client that is here since `connected_at`, or never. The slot is free from now
    /// on.
    fn start_tls(&mut self, client: ClientId, start: TlsStart, connected_at: Micros);

    /// The client talks to the console from now on: its socket leaves the data plane with the
    /// bytes already read. The slot is free from now on.
    fn hand_to_console(&mut self, client: ClientId, login: ConsoleLogin);

    /// Somebody asks to cancel what the owner of this key does, who may be a client of the console.
    fn cancel_console(&mut self, key: &CancelKey);

    /// Find something out about this client where it may take time. Ends in `checked`, with the
    /// serial number; if it does not, the client waits for its login to time out.
    fn check(&mut self, client: ClientId, serial: u64, check: Check);

    /// `tls-server-end-point` of the certificate this server has shown (RFC 5929); empty without TLS
    /// or where the certificate has none.
    fn server_end_point(&self, server: ServerId) -> Arc<[u8]>;

    /// Bytes nobody can guess.
    fn random(&mut self, bytes: &mut [u8]);

    /// Where the client comes from, for people to read: `host:port`, and for a unix socket the process
    /// and machine as well.
    fn client_origin(&self, client: ClientId) -> String;

    /// For the log and for nothing else.
    fn event(&mut self, event: Event<'_>);
}

/// How a client begins with TLS (protocol chapter 55.2.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsStart {
    /// It has asked, and been told to begin.
    Asked,
    /// It has begun without asking, with these bytes.
    Direct(Vec<u8>),
}

/// What is shared by all workers. A small door: pools and counts under their locks, and mail.
pub trait Exchange {
    /// The connection of a server that is in no worker's table, see [`Parked`].
    type Transport;

    fn worker_count(&self) -> u16;

    /// Run `f` on the pool under its lock. Never nested.
    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<Self::Transport>) -> R) -> R;

    /// The pool of that key, made by `make` when there is none.
    fn find_pool(
        &mut self,
        key: &PoolKey,
        make: impl FnOnce(PoolId) -> Pool<Self::Transport>,
    ) -> PoolId;

    /// Every pool there is now. Each of them may be asked for until the present event is over.
    fn pool_ids(&mut self) -> Vec<PoolId>;

    /// There are pools fewer: whatever is kept of them, to find them sooner, is void.
    fn pools_forgotten(&mut self) {}

    /// Deliver to another worker's `handle_mail`, in order, soon.
    fn post(&mut self, worker: WorkerId, mail: Mail<Self::Transport>);

    /// The one shared copy of this statement, of those prepared since the schema changed last.
    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement>;

    /// A server has said that it has changed the schema.
    fn schema_changed(&mut self);

    /// How often any has said so, to whichever worker.
    fn schema(&mut self) -> u64;

    /// Has the schema changed since that statement was first prepared?
    fn is_outdated(&mut self, statement: &Statement) -> bool;

    /// A number for a new connection, of a client or a server. No other connection of the process has
    /// or will have it.
    fn next_connection(&mut self) -> u64;

    /// Run `f` on the counts of all connections under their lock. Never nested with another.
    fn limits<R>(&mut self, f: impl FnOnce(&mut Limits) -> R) -> R;
}

/// What is to be found out about a client that logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The name of the operating system's user with that number.
    PeerName(u32),
    /// Whether this is that user's password.
    Password { judge: Judge, user: String, password: Password },
}

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// None if nobody has that number.
    PeerName(Option<String>),
    /// Is it right?
    Password(bool),
}

/// What one worker tells another.
#[derive(Debug)]
pub enum Mail<T> {
    /// A server for your waiting client.
    Server {
        waiter: Waiter,
        server: Parked<T>,
    },
    /// Your waiting client cannot be served.
    Refuse {
        waiter: Waiter,
        pool: PoolId,
        error: Arc<ErrorFields>,
    },
    /// There may be room for your client that is to prove its password.
    Prove {
        pool: PoolId,
    },
    /// Whose key is this? Answer with `CancelDone`, at once or when the request was delivered.
    Cancel {
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
    },
    CancelDone {
        requester: ClientId,
        serial: u64,
        outcome: CancelOutcome,
    },
    /// Was one of your clients told this process id? Answer with `ProcessFound`.
    FindProcess {
        process_id: u32,
        requester: (WorkerId, ClientId, u64),
    },
    ProcessFound {
        requester: ClientId,
        serial: u64,
        found: Found,
    },
    /// Cancel what your client with that serial number does, or terminate it. Answer with
    /// `CancelDone`, at once or when the request was delivered.
    Signal {
        client: ClientId,
        serial: u64,
        terminates: bool,
        requester: (WorkerId, ClientId, u64),
    },
    /// Your pool's listener is to tell a client of channels. Answer with `Listening` when it listens.
    Listen {
        pool: PoolId,
        subscription: Subscription,
    },
    /// It need not any more; None: of none.
    Unlisten {
        pool: PoolId,
        who: Subscriber,
        channels: Option<Vec<Box<[u8]>>>,
    },
    /// `again`: it had been listening before, and was lost.
    Listening {
        client: ClientId,
        serial: u64,
        request: u64,
        mark: Arc<[u8]>,
        again: bool,
    },
    /// The body of a NotificationResponse for your clients.
    Notified {
        to: Vec<(ClientId, u64)>,
        body: Arc<[u8]>,
    },
    /// That pool's listener is lost, and knows of nobody.
    Unheard {
        pool: PoolId,
    },
    /// Your clients' listener is lost, and there is none in its place.
    Deaf {
        to: Vec<(ClientId, u64)>,
    },
    /// Somebody was turned away who may be let in when those have gone who never log in.
    FreePlaces,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Log,
    Warning,
    Error,
}

/// A client that logged in to the console database.
#[derive(Debug)]
pub struct ConsoleLogin {
    pub database: String,
    pub user: String,
    /// May it change things, or only SHOW them?
    pub admin: bool,
    /// As whom it counts in [`Limits`] until it ends.
    pub counted: Option<Arc<Identity>>,
    /// The connection's number, see [`Exchange::next_connection`].
    pub serial: u64,
    pub connected_at: Micros,
    /// For cancel requests.
    pub process_id: u32,
    pub secret: [u8; 4],
    /// Bytes that came behind the login.
    pub unread: Vec<u8>,
}

/// What an operator may want to read in the log.
#[derive(Debug)]
pub enum Event<'a> {
    LoginAttempt {
        client: ClientId,
        name: (&'a str, &'a str),
        replication: Option<ReplicationKind>,
    },
    LoginFailed {
        client: ClientId,
        database: &'a str,
        user: &'a str,
    },
    /// The client is being closed; `error` if it was told why, as the pooler's own decision.
    ClientClosing {
        client: ClientId,
        name: (&'a str, &'a str),
        reason: &'a str,
        age: u64,
        error: bool,
    },
    /// What a client did that it may not do, or why it is not let in, where it is told less.
    ClientRemark {
        client: ClientId,
        name: (&'a str, &'a str),
        weight: Weight,
        message: &'a str,
    },
    /// What a server did not like that was said to it.
    ServerComplaint {
        message: &'a str,
    },
    ServerOpening {
        server: ServerId,
        name: (&'a str, &'a str),
    },
    ServerClosing {
        server: ServerId,
        name: (&'a str, &'a str),
        reason: &'a str,
        age: u64,
    },
    /// A cancel request is about to be sent to where a server of this name is.
    CancelOpening {
        name: (&'a str, &'a str),
    },
    /// A pool goes beyond its size; for this client of the worker's, if it has the first in line.
    ReserveTaken {
        client: Option<ClientId>,
        name: (&'a str, &'a str),
    },
    /// `connect_query` was answered with an error, which changes nothing.
    ConnectQueryFailed {
        message: &'a str,
    },
    ServerLoginFailed {
        message: &'a str,
    },
}
