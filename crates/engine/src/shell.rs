//! The interfaces that the engine needs. The proxy implements them with sockets, locks and threads,
//! the simulator with queues.

use std::sync::Arc;

use config::{ErrorCodes, Proxied, ServerTls};
use wire::error_fields::ErrorFields;
use wire::scram::ChannelEnd;
use wire::startup::CancelKey;

use crate::admission::limits::Limits;
use crate::admission::pool::{Parked, Pool};
pub use crate::cancel::outcome::{CancelEnd, CancelOutcome};
use crate::cancel::signaling::Found;
pub use crate::context::Drain;
use crate::ids::{ClientId, Identity, Micros, PoolId, ServerId, Waiter, WorkerId};
pub use crate::lifecycle::own_query::OwnQuery;
use crate::lifecycle::replication::ReplicationKind;
use crate::login::auth::{Judge, Password};
pub use crate::login::issued::{Issued, RUN_PAUSE, Wanted, run_max};
use crate::notify::interruption::Interruption;
use crate::notify::listener::{Subscriber, Subscription};
use crate::operator::timings::Connection;
use crate::relay::parse_context::ParseContext;
use crate::relay::prepared::Statement;
use crate::routing::Place;
use crate::settings::{PoolKey, Target};

/// Another process of an online restart that still serves clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherProcess {
    /// The process that this one has taken over from.
    Predecessor,
    /// The process that has taken over from this one.
    Successor,
}

/// The clock and the sockets of one worker.
///
/// Sending never fails and never blocks for the engine. Bytes that the kernel does not accept are
/// kept by the shell, which stops reading the other side of the link meanwhile. A broken socket is
/// reported later through `client_closed` or `server_closed`, never during one of these calls.
pub trait Io<X: Exchange> {
    /// Returns the time on this worker's clock. It stays the same during one event.
    fn now(&self) -> Micros;

    /// Reads the clock again.
    fn clock(&self) -> Micros {
        self.now()
    }

    fn send_client(&mut self, client: ClientId, bytes: &[u8]);
    /// Returns false if the server certainly gets none of the bytes, because its socket is broken.
    fn send_server(&mut self, server: ServerId, bytes: &[u8]) -> bool;

    /// Has the kernel accepted everything that was sent to this server?
    fn server_flushed(&self, server: ServerId) -> bool;

    /// Returns how many bytes sent to this client it has not read, as far as known.
    fn client_unsent(&self, client: ClientId) -> usize;

    /// Returns the address of this client for texts: an IP address, or `unix`.
    fn client_address(&self, _client: ClientId) -> String {
        "unknown address".to_owned()
    }

    /// Copies what this client has sent and nobody has read yet, and leaves it where it is. Returns the
    /// number of bytes; 0 if it cannot be known.
    fn peek_client(&mut self, _client: ClientId, _buffer: &mut [u8]) -> usize {
        0
    }

    /// Closes the client; its slot is free from now on. The kernel still gets the remaining bytes
    /// if the client reads them in reasonable time.
    fn close_client(&mut self, client: ClientId);
    fn close_server(&mut self, server: ServerId);

    /// Closes a server that was told to end. Its backend exists until it closes its own end, so a
    /// connection to the same address begins after that, or a second later.
    fn see_server_off(&mut self, server: ServerId) {
        self.close_server(server);
    }

    /// Opens a socket for this server, with TLS by these settings if the target is remote. Ends in
    /// `server_connected` or `server_closed`. `writer_of`: the cluster for whose primary it is.
    fn connect(
        &mut self,
        server: ServerId,
        target: &Target,
        tls: &Arc<ServerTls>,
        writer_of: Option<&str>,
    );

    /// Asks for the password of the login of this server, which has this serial number. Ends in
    /// [`Mail::Password`].
    fn ask_password(&mut self, server: ServerId, serial: u64, wanted: Wanted);

    /// Opens a socket to the address of `server`, sends `packet` and waits for the other end to
    /// close. Then, or after a failure, it calls `cancel_finished(cancel, end)`.
    fn send_cancel(&mut self, cancel: u64, server: ServerId, packet: &[u8]);

    /// Opens a socket to this peer and sends `packet`; the rest is as for `send_cancel`.
    fn forward_cancel(&mut self, cancel: u64, peer: u32, target: &Target, packet: &[u8]);

    /// Forwards a client's cancel request to another process, if there is one and the request did
    /// not come from it. The rest is as for `send_cancel`. Returns false if nothing was sent.
    fn forward_to_process(
        &mut self,
        _cancel: u64,
        _to: OtherProcess,
        _requester: ClientId,
        _packet: &[u8],
    ) -> bool {
        false
    }

    /// Allows reading the client. If it has bytes, `client_readable` is called soon, but not from
    /// here.
    fn resume_client(&mut self, client: ClientId);

    /// Removes the server from this worker. Returns its connection.
    fn detach_server(&mut self, server: ServerId, pool: PoolId) -> X::Transport;
    /// Adds a server with this connection to this worker. Events on its socket are reported soon,
    /// not from here.
    fn attach_server(&mut self, server: ServerId, transport: X::Transport);

    /// Has this server just come from another worker, with unread bytes on its socket? Returns true
    /// once. Its bytes, its end or `server_quiet` are reported soon.
    fn take_news(&mut self, server: ServerId) -> bool;

    /// Starts TLS for a client. Its socket leaves with the TLS bytes received so far. It comes back
    /// as a new client with this `connected_at`, or never. The slot is free from now on.
    fn start_tls(&mut self, client: ClientId, start: TlsStart, connected_at: Micros);

    /// Hands a client to the console. Its socket leaves the data plane with the bytes already read.
    /// The slot is free from now on.
    fn hand_to_console(&mut self, client: ClientId, login: ConsoleLogin);

    /// Forwards a cancel request to the console, whose client may have this key.
    fn cancel_console(&mut self, key: &CancelKey);

    /// Announces the backend of this server, which will come to the pool's lobby (docs/direct.md).
    /// Ends in [`Mail::BackendCame`], or never.
    fn expect_backend(&mut self, _backend: Attending) {}

    /// Asks the backend of the server with this serial number to leave its lobby as soon as it has no
    /// client. Ends in [`Mail::LeftLobby`].
    fn ask_to_leave(&mut self, _serial: u64) {}

    /// Tells that the server of this pool with this serial number is closed.
    fn backend_closed(&mut self, _pool: PoolId, _serial: u64) {}

    /// Is this process of PostgreSQL known to be another system user's? It may be on another machine.
    fn runs_as_another_user(&self, _process: u32) -> bool {
        false
    }

    /// Hands a client to its pool's lobby. Its slot is free from now on. Returns false if that is
    /// not possible; then nothing has changed.
    fn hand_to_lobby(&mut self, _client: ClientId, _guest: Guest) -> bool {
        false
    }

    /// Disconnects all clients in the lobby of this pool, for this reason.
    fn close_lobby(&mut self, _pool: PoolId, _when: Closing, _why: &str) {}

    /// Disconnects the clients in the lobby of this pool that wait for a backend, with this error of
    /// PostgreSQL's.
    fn refuse_lobby(&mut self, _pool: PoolId, _error: &ErrorFields) {}

    /// Cancels the query of the client with this key, if it is in a lobby. Returns whether it is
    /// going to be answered with [`Mail::CancelDone`].
    fn cancel_in_lobby(&mut self, _key: &CancelKey, _requester: (WorkerId, ClientId, u64)) -> bool {
        false
    }

    /// Checks something about this client that may take time. Ends in `checked`, with the serial
    /// number. If it never ends, the client's login times out.
    fn check(&mut self, client: ClientId, serial: u64, check: Check);

    /// Returns what a login to the server can be bound to.
    fn server_end(&self, server: ServerId) -> ChannelEnd;

    /// Fills `bytes` with unpredictable random bytes.
    fn random(&mut self, bytes: &mut [u8]);

    /// Returns the client's address for people to read: `host:port`. For a unix socket it contains
    /// the process and the machine.
    fn client_origin(&self, client: ClientId) -> String;

    /// Returns the client's address and port with a space between them, or `unix`.
    fn client_place(&self, client: ClientId) -> String;

    /// A client has left whose checkpoints were recorded (`connection_timings`).
    fn connection_ended(&mut self, _connection: Connection) {}

    /// Passes an event to the log.
    fn event(&mut self, event: Event<'_>);
}

/// The beginning of TLS by a client (protocol chapter 55.2.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsStart {
    /// It has sent SSLRequest, and Weir has accepted.
    Asked,
    /// It has begun without asking, with these bytes.
    Direct(Vec<u8>),
}

/// The data that all workers share: pools and counts under their locks, and mail.
pub trait Exchange {
    /// The connection of a server that is in no worker's table, see [`Parked`].
    type Transport;

    fn worker_count(&self) -> u16;

    /// Runs `f` on the pool under its lock. Never nested.
    fn pool<R>(&mut self, id: PoolId, f: impl FnOnce(&mut Pool<Self::Transport>) -> R) -> R;

    /// Returns the pool of this key, and creates it with `make` if there is none.
    fn find_pool(
        &mut self,
        key: &PoolKey,
        make: impl FnOnce(PoolId) -> Pool<Self::Transport>,
    ) -> PoolId;

    /// Returns all present pools. Each stays valid until the end of the present event.
    fn pool_ids(&mut self) -> Vec<PoolId>;

    /// Tells that pools were removed: caches of pools must be cleared.
    fn pools_forgotten(&mut self) {}

    /// Sends mail to another worker's `handle_mail`, in order, soon.
    fn post(&mut self, worker: WorkerId, mail: Mail<Self::Transport>);

    /// Sends mail to all workers but `own`.
    fn post_to_others(&mut self, own: WorkerId, mail: impl Fn() -> Mail<Self::Transport>) {
        for worker in (0..self.worker_count()).map(WorkerId) {
            if worker != own {
                self.post(worker, mail());
            }
        }
    }

    /// Returns the shared copy of this statement, of those prepared since the last change of the
    /// schema.
    fn intern(&mut self, sql: &[u8], types: &[u8], context: ParseContext) -> Arc<Statement>;

    /// Notes that a server has changed the schema.
    fn schema_changed(&mut self);

    /// Returns the number of schema changes that any worker has noted.
    fn schema(&mut self) -> u64;

    /// Has the schema changed since this statement was first prepared?
    fn is_outdated(&mut self, statement: &Statement) -> bool;

    /// Chooses the place for a request of a client of this pool, instead of the pool's rules
    /// ([`PoolSettings::routing`](crate::settings::PoolSettings::routing)). For tests.
    fn route(&mut self, _pool: PoolId, _request: &[u8]) -> Option<Place> {
        None
    }

    /// Returns a number for a new connection, of a client or a server. It is unique in the process.
    fn next_connection(&mut self) -> u64;

    /// Runs `f` on the counts of all connections under their lock. Never nested with another lock.
    fn limits<R>(&mut self, f: impl FnOnce(&mut Limits) -> R) -> R;
}

/// A check of the shell about a client that logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The name of the operating system's user with this number.
    PeerName(u32),
    /// Checks whether this is the user's password.
    Password { judge: Judge, user: String, password: Password },
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// None if no user has this number.
    PeerName(Option<String>),
    /// Is the password right? None if no service could check it.
    Password(Option<bool>),
}

/// A message from one worker to another.
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
    /// There may be room for the login of your client that is to prove its password.
    Prove {
        pool: PoolId,
    },
    /// Cancel the query of the client with this key. Answer with `CancelDone`, at once or when the
    /// request was delivered.
    Cancel {
        key: CancelKey,
        requester: (WorkerId, ClientId, u64),
    },
    CancelDone {
        requester: ClientId,
        serial: u64,
        outcome: CancelOutcome,
    },
    /// Find the client with this process id. Answer with `ProcessFound`.
    FindProcess {
        process_id: u32,
        requester: (WorkerId, ClientId, u64),
    },
    ProcessFound {
        requester: ClientId,
        serial: u64,
        found: Found,
    },
    /// Cancel the query of your client with this serial number, or terminate the client. Answer
    /// with `CancelDone`, at once or when the request was delivered.
    Signal {
        client: ClientId,
        serial: u64,
        terminates: bool,
        requester: (WorkerId, ClientId, u64),
    },
    /// Forward notifications of channels to a client, from your pool's listener. Answer with
    /// `Listening` when it listens.
    Listen {
        pool: PoolId,
        subscription: Subscription,
    },
    /// Stop forwarding these channels.
    Unlisten {
        pool: PoolId,
        who: Subscriber,
        channels: Vec<Box<[u8]>>,
    },
    /// `again`: another listener had been there before.
    Listening {
        client: ClientId,
        serial: u64,
        request: u64,
        mark: Arc<[u8]>,
        again: Option<Interruption>,
    },
    /// The body of a NotificationResponse for your clients.
    Notified {
        to: Vec<(ClientId, u64)>,
        body: Arc<[u8]>,
    },
    /// The listener of this pool has ended, with all its clients' channels.
    Unheard {
        pool: PoolId,
        how: Interruption,
    },
    /// The listener of your clients is lost and not replaced.
    Deaf {
        to: Vec<(ClientId, u64)>,
    },
    /// The lobby of this pool needs another server.
    Attend {
        pool: PoolId,
    },
    /// The backend of your server is in the lobby.
    BackendCame {
        server: ServerId,
        serial: u64,
    },
    /// It is known whether the pool is direct.
    LobbyTried {
        pool: PoolId,
    },
    /// Apply changes of the pool: all its servers are replaced, or no server can be reached.
    Review {
        pool: PoolId,
    },
    /// The backend of your server has left the lobby. `why`: it cannot serve there.
    LeftLobby {
        server: ServerId,
        serial: u64,
        why: Option<Proxied>,
    },
    /// The backend of your server has been idle in the lobby for `server_idle_timeout`.
    IdledInLobby {
        server: ServerId,
        serial: u64,
    },
    /// A client was refused because of a limit: disconnect stalled logins.
    FreePlaces,
    /// The password for the login of your server, or why there is none.
    Password {
        server: ServerId,
        serial: u64,
        issued: Result<Issued, String>,
    },
}

/// A server whose backend comes to a lobby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attending {
    /// It is valid once.
    pub ticket: String,
    /// The process id of the backend, as PostgreSQL has told it.
    pub process: u32,
    pub pool: PoolId,
    pub server: ServerId,
    pub serial: u64,
    pub worker: WorkerId,
}

/// The time at which a client in a lobby is disconnected. One that is idle is at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    AtOnce,
    AfterTransaction,
}

/// A client that is handed to a lobby.
#[derive(Clone, Debug)]
pub struct Guest {
    pub pool: PoolId,
    pub serial: u64,
    pub identity: Arc<Identity>,
    /// Does it count in the limits on clients, under its identity?
    pub is_counted: bool,
    /// Process id (upper half) and secret (lower half) for cancel requests.
    pub key: u64,
    /// The rest of the secret; empty for a short one.
    pub tag: Vec<u8>,
    /// The values of its startup packet, in the library's form.
    pub settings: Vec<u8>,
    /// Digest of the parameters that its welcome has told it.
    pub told: u64,
    pub application_name: Vec<u8>,
    pub connected_at: Micros,
    /// `client_idle_timeout` and `query_wait_timeout`; 0 = no limit.
    pub idle_limit: Micros,
    pub wait_limit: Micros,
    pub codes: ErrorCodes,
    /// Its checkpoints so far; None if they are not recorded.
    pub timing: Option<Box<Connection>>,
}

/// The severity of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Log,
    Warning,
    Error,
}

/// A client that has logged in to the console.
#[derive(Debug)]
pub struct ConsoleLogin {
    pub database: String,
    pub user: String,
    /// May it change things, or only SHOW them?
    pub admin: bool,
    /// The identity under which it counts in [`Limits`] until it ends.
    pub counted: Option<Arc<Identity>>,
    /// The connection's number, see [`Exchange::next_connection`].
    pub serial: u64,
    pub connected_at: Micros,
    /// The process id of the key for cancel requests.
    pub process_id: u32,
    pub secret: [u8; 4],
    /// Bytes that followed the login.
    pub unread: Vec<u8>,
}

/// An event for the log.
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
    /// The client is being closed. `error`: Weir decided it, and sent the client the reason.
    ClientClosing {
        client: ClientId,
        name: (&'a str, &'a str),
        reason: &'a str,
        age: u64,
        error: bool,
    },
    /// A mistake of a client, or the reason for refusing it, of which it is told less.
    ClientRemark {
        client: ClientId,
        name: (&'a str, &'a str),
        weight: Weight,
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
        /// The server was lost, or had to be closed.
        failed: bool,
        /// Its login was refused for the same reason as the one before.
        repeats: bool,
    },
    /// A cancel request is about to be sent to a server of this name.
    CancelOpening {
        name: (&'a str, &'a str),
    },
    /// A pool uses its reserve; for this client, if it is first in the worker's queue.
    ReserveTaken {
        client: Option<ClientId>,
        name: (&'a str, &'a str),
    },
    /// PostgreSQL has refused a query of Weir's own, such as that of a key.
    OwnQueryFailed {
        name: (&'a str, &'a str),
        query: OwnQuery,
        message: &'a str,
        /// The pool's servers have refused it for the same reason since the last reload.
        repeats: bool,
    },
    ServerLoginFailed {
        name: (&'a str, &'a str),
        message: &'a str,
        /// The pool's login before was refused for the same reason.
        repeats: bool,
    },
    /// The first login of a pool that succeeds after refused ones.
    ServerLoginWorks {
        name: (&'a str, &'a str),
        /// The refused logins, and the time since the first of them in microseconds.
        refused: u64,
        after: u64,
    },
    /// The library `weir` reports a session's state in a form that Weir does not know.
    BadReport {
        name: (&'a str, &'a str),
    },
    /// New servers of this database and user are not what the present ones are, which are replaced.
    PrincipalChanged {
        name: (&'a str, &'a str),
    },
    /// A client keeps its server from now on, for this reason.
    Pinned {
        name: (&'a str, &'a str),
        reason: &'a str,
    },
}
