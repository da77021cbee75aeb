//! One node of a cluster: a connection that is kept open, and the question that is asked on it.
//!
//! The connection is open before it is needed: a node whose connections are all in use can still be
//! asked. When PostgreSQL ends it, the node is asked again at once, on a new one.

use std::{future, io, net::IpAddr, sync::Arc, sync::atomic::Ordering, time::Duration};

use ::cluster::{Fact, NodeId, Obstacle, Role};
use engine::settings::Target;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, config::SslMode, error::SqlState};
use wire::secret::Secret;

use super::{
    Answer, Watched, rival,
    state::{QUESTION, State},
};
use crate::{
    cold::{
        controller::Controller,
        handshake::{self, Trouble},
    },
    exchange::{hub::lock, outages::is_shortage},
};
use config::in_words;
use net::tls::TlsStream;

/// The class of SQLSTATEs for logins that are refused.
const INVALID_AUTHORIZATION: &str = "28";

/// The shortest time between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// An open connection; dropping it closes it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) client: Arc<Client>,
    /// The address, if the host is a name.
    ip: Option<IpAddr>,
    /// Ends when PostgreSQL closes the connection.
    task: JoinHandle<()>,
    lock: rival::Lock,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks the node again and again, forever.
pub(super) async fn keep(
    controller: Controller,
    watched: Arc<Watched>,
    at: usize,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let patience = watched.configured.health_timeout;
    let (mut kept, mut failures) = (None, 0);
    loop {
        let asked_at = controller.now();
        adopt_next(&controller, &watched, at, &mut kept);
        let question = ask(&controller, &watched, at, (&mut kept, failures));
        let answer = timeout(patience, question).await;
        let state = answer.as_ref().ok().and_then(|answer| answer.as_ref().ok());
        lock(&watched.records[at]).note(state, asked_at, controller.now());
        let (fact, replication) = match answer {
            Ok(Ok(State { sample, replication, .. })) => (Fact::Seen(sample), Some(replication)),
            Ok(Err(fact)) => (fact, None),
            Err(_) => {
                lose(&watched, at, &mut kept);
                (Fact::Silent, None)
            }
        };
        let is_seen = matches!(fact, Fact::Seen(_));
        let ip = kept.as_ref().filter(|_| is_seen).and_then(|kept| kept.ip);
        let has_moved = ip.is_some_and(|ip| watched.use_address(&controller, at, ip));
        failures = if kept.is_some() { 0 } else { failures.wrapping_add(1) };
        let is_primary = matches!(&fact, Fact::Seen(sample) if sample.role == Role::Primary);
        *lock(&watched.clients[at]) = kept.as_ref().map(|kept| Arc::clone(&kept.client));
        let is_denied = matches!(fact, Fact::Unasked(Obstacle::Denied(_)));
        let answer = Answer { node: NodeId(at as u16), fact, replication, asked_at, has_moved };
        if answers.send(answer).is_err() {
            return;
        }
        if let Some(kept) = kept.as_mut().filter(|_| is_primary) {
            let asked = kept.lock.keep(&controller, &watched, &kept.client);
            let _ = timeout(patience, asked).await;
        }
        if is_denied {
            // Repeated failures may lock the user.
            sleep(controller.config().global.server_login_retry.max(PAUSE_MIN)).await;
            continue;
        }
        sleep(PAUSE_MIN).await;
        let pause = Duration::from_micros(watched.pauses[at].load(Ordering::Relaxed));
        tokio::select! {
            () = sleep(pause.saturating_sub(PAUSE_MIN)) => {}
            () = watched.wakes[at].notified() => {}
            () = ended(&mut kept) => lose(&watched, at, &mut kept),
        }
    }
}

fn lose(watched: &Watched, at: usize, kept: &mut Option<Kept>) {
    *kept = None;
    watched.lose_client(at);
}

/// Takes the connection to another address, if the node shall move there. A connection that is not at
/// the address in use is given up: another cluster may have the same node.
fn adopt_next(controller: &Controller, watched: &Watched, at: usize, kept: &mut Option<Kept>) {
    if let Some(next) = watched.take_next(at) {
        lose(watched, at, kept);
        *kept = Some(next);
        return;
    }
    let in_use = watched.address(controller, at);
    let is_elsewhere = |kept: &Kept| kept.ip.is_some() && in_use.is_some() && kept.ip != in_use;
    if kept.as_ref().is_some_and(is_elsewhere) {
        lose(watched, at, kept);
    }
}

/// Returns when PostgreSQL has closed the kept connection; never, if there is none.
async fn ended(kept: &mut Option<Kept>) {
    match kept {
        // However the task ends, the connection is closed.
        Some(kept) => drop((&mut kept.task).await),
        None => future::pending().await,
    }
}

async fn ask(
    controller: &Controller,
    watched: &Watched,
    at: usize,
    (kept, failures): (&mut Option<Kept>, usize),
) -> Result<State, Fact> {
    if let Some(own) = kept {
        match question(&own.client).await {
            Ok(state) => return Ok(state),
            // An error that says nothing about the connection is an answer.
            Err(Failure::Postgres(error)) if error.code().is_some() && !own.client.is_closed() => {
                return Err(fact_of(&error));
            }
            Err(Failure::Unexpected(what)) => {
                return Err(Fact::Unasked(Obstacle::Error(what)));
            }
            Err(Failure::Postgres(_) | Failure::Io(_)) => lose(watched, at, kept),
        }
    }
    let ip = watched.next_address(controller, at, failures);
    let opened = open_at(controller, watched, at, &watched.configured.dbname, ip).await;
    let opened = opened.map_err(Failure::fact)?;
    let state = question(&opened.client).await.map_err(Failure::fact)?;
    *kept = Some(opened);
    Ok(state)
}

/// Why a node was not asked.
pub(super) enum Failure {
    Io(io::Error),
    Postgres(tokio_postgres::Error),
    Unexpected(String),
}

impl Failure {
    /// Returns PostgreSQL's error, or what else has happened.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Io(error) => in_words(error),
            Self::Postgres(error) => said(error),
            Self::Unexpected(what) => what.clone(),
        }
    }

    fn fact(self) -> Fact {
        match self {
            Self::Io(error) => fact_of_io(&error),
            Self::Postgres(error) => fact_of(&error),
            Self::Unexpected(what) => Fact::Unasked(Obstacle::Error(what)),
        }
    }
}

fn fact_of_io(error: &io::Error) -> Fact {
    if is_shortage(error) {
        // It tells nothing about the node.
        return Fact::Unasked(Obstacle::Error(in_words(error)));
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::NotFound => Fact::Refused,
        // No route, or a full backlog: the network or the machine does not answer.
        _ => Fact::Silent,
    }
}

fn fact_of(error: &tokio_postgres::Error) -> Fact {
    let Some(code) = error.code() else {
        let source = std::error::Error::source(error);
        return match source.and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(error) => fact_of_io(error),
            None if error.is_closed() => Fact::Refused,
            None => Fact::Unasked(Obstacle::Error(error.to_string())),
        };
    };
    if *code == SqlState::CANNOT_CONNECT_NOW {
        return Fact::Unready;
    }
    Fact::Unasked(if *code == SqlState::TOO_MANY_CONNECTIONS {
        Obstacle::Full
    } else if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN {
        Obstacle::SessionEnded
    } else if code.code().starts_with(INVALID_AUTHORIZATION) {
        Obstacle::Denied(said(error))
    } else {
        Obstacle::Error(said(error))
    })
}

/// Opens another connection to the node, for an order.
///
/// # Errors
/// Why there is none, in words.
pub(super) async fn connect(
    controller: &Controller,
    watched: &Watched,
    at: usize,
) -> Result<Kept, String> {
    let opened = open(controller, watched, at, &watched.configured.dbname).await;
    opened.map_err(|failure| failure.text())
}

/// Returns PostgreSQL's words for an error, if it has said something.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Connects to a database of a node, at the address in use.
pub(super) async fn open(
    controller: &Controller,
    watched: &Watched,
    at: usize,
    dbname: &str,
) -> Result<Kept, Failure> {
    open_at(controller, watched, at, dbname, watched.address(controller, at)).await
}

/// Connects to a database of a node at this address, or at any one of its name.
pub(super) async fn open_at(
    controller: &Controller,
    watched: &Watched,
    at: usize,
    dbname: &str,
    ip: Option<IpAddr>,
) -> Result<Kept, Failure> {
    let node = &watched.configured.nodes[at];
    match Target::new(&node.host, node.port) {
        Target::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(Failure::Io)?;
            log_in(controller, watched, dbname, stream).await
        }
        Target::Abstract(name) => {
            let stream = connect_abstract(&name).await.map_err(Failure::Io)?;
            log_in(controller, watched, dbname, stream).await
        }
        Target::Tcp(host, port) | Target::Node(host, port) => {
            let ip = match ip {
                Some(ip) => ip,
                None => controller.0.dns.address(&host).await.map_err(Failure::Unexpected)?,
            };
            let named = node.is_named().then_some(ip);
            let mut stream = TcpStream::connect((ip, port)).await.map_err(Failure::Io)?;
            stream.set_nodelay(true).map_err(Failure::Io)?;
            let usual = controller.config().global.server_tls();
            let contexts = controller.0.shared.tls();
            let context = contexts.servers(&usual);
            let tls =
                match context.map_err(|why| Failure::Unexpected(why.to_string()))? {
                    Some(context) => handshake::negotiate(&mut stream, &host, context)
                        .await
                        .map_err(|trouble| match trouble {
                            Trouble::Lost(error) => Failure::Io(error),
                            Trouble::Answer(what) => Failure::Unexpected(what),
                        })?,
                    None => None,
                };
            let mut kept = match tls {
                Some(tls) => {
                    let stream = TlsStream::new(stream, Box::new(tls), Vec::new());
                    log_in(controller, watched, dbname, stream).await
                }
                None => log_in(controller, watched, dbname, stream).await,
            }?;
            kept.ip = named;
            Ok(kept)
        }
    }
}

/// Connects to a name in Linux's abstract name space. A full backlog is an error at once.
async fn connect_abstract(name: &str) -> io::Result<UnixStream> {
    // Tokio takes a path for such a name if it begins with a zero byte.
    UnixStream::connect(format!("\0{name}")).await
}

async fn log_in<S>(
    controller: &Controller,
    watched: &Watched,
    dbname: &str,
    stream: S,
) -> Result<Kept, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let configured = &watched.configured;
    let mut settings = tokio_postgres::Config::new();
    settings.user(&*configured.user).dbname(dbname).application_name("weir");
    // The stream has TLS already, if it is to have it.
    settings.ssl_mode(SslMode::Disable);
    let stored = || match Secret::parse(controller.config().auth_file.users.get(&configured.user)?)
    {
        Secret::Plain(password) => Some(password),
        Secret::Md5(_) | Secret::Scram(_) => None,
    };
    if let Some(password) = configured.password.clone().or_else(stored) {
        settings.password(password);
    }
    let (client, connection) =
        settings.connect_raw(stream, NoTls).await.map_err(Failure::Postgres)?;
    // The next question finds out why it has ended.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Kept { client: Arc::new(client), ip: None, task, lock: rival::Lock::default() })
}

pub(super) async fn question(client: &Client) -> Result<State, Failure> {
    let messages = client.simple_query(QUESTION).await.map_err(Failure::Postgres)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let state = row.and_then(|row| State::of(|at| row.get(at)));
    state.ok_or_else(|| Failure::Unexpected("it did not tell its state".to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::{net::UnixSocket, runtime::Builder};

    use super::*;

    #[test]
    fn a_full_backlog_of_an_abstract_socket_is_an_error_at_once() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let name = format!("weir-backlog-{}", std::process::id());
        let connect = async || {
            let socket = UnixSocket::new_stream().unwrap();
            socket.bind(format!("\0{name}")).unwrap();
            let _listener = socket.listen(0).unwrap();
            let mut open = Vec::new();
            loop {
                match connect_abstract(&name).await {
                    Ok(stream) => open.push(stream),
                    Err(error) => return (open.len(), error.kind()),
                }
            }
        };
        assert_eq!(runtime.block_on(connect()), (1, io::ErrorKind::WouldBlock));
    }
}
