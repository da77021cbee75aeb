//! TLS handshakes, on their own threads. Each thread has many in progress and works on one at a
//! time.
//!
//! ```text
//!  worker ── Job::Client (fd) ──► handshake ──► mail: the client with its keys ──► worker
//!  worker ── Job::Server (fd) ──► SSLRequest, handshake ──► mail: the server ──► worker
//!  worker ── Job::Cancel ──► connect, SSLRequest, handshake, packet ──► mail: done ──► worker
//! ```

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use engine::{LOGIN_GRACE, auth::Secured, ids::Micros, shell::CancelEnd};
use rustls::pki_types::{ServerName, UnixTime};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
    time,
};

use crate::{
    exchange::{
        handshakes::{CONNECT_TIMEOUT, Far, Job, SecuredClient, SecuredServer, TlsArrival},
        mail::ShellMail,
        shared::Shared,
    },
    log,
    log::About,
};
use net::sys::Address;
use net::tls::{ForClients, ForServers, PROTOCOL, PeerNames, Progress, Standing, Tls, reason};

const CANCEL_WAIT_TIMEOUT: &str = "cancel_wait_timeout";

const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";
/// Bytes read at a time; a handshake is shorter than that.
const READ_LEN: usize = 16 * 1024;

/// Returns the result of `work`, or the error `late` if it takes longer than `limit`. A silent peer
/// must not hold a socket forever.
async fn within<T>(
    limit: Duration,
    late: &str,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    if limit.is_zero() {
        return work.await;
    }
    time::timeout(limit, work).await.unwrap_or_else(|_| Err(late.to_owned()))
}

/// Serves one queue until the pooler ends.
pub(crate) fn start(
    at: usize,
    mut jobs: mpsc::UnboundedReceiver<Job>,
    shared: Arc<Shared>,
    mut ended: tokio::sync::watch::Receiver<bool>,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name(format!("weir-tls-{at}")).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    Some(job) = jobs.recv() => drop(tokio::spawn(serve(job, Arc::clone(&shared)))),
                    _ = ended.wait_for(|ended| *ended) => return,
                }
            }
        });
    })
}

async fn serve(job: Job, shared: Arc<Shared>) {
    match job {
        Job::Client { arrival, limit } => {
            let (peer, worker) = (arrival.peer.clone(), arrival.worker);
            let connected_at = arrival.connected_at;
            let handshake = within(limit, "client_login_timeout", secure_client(arrival, &shared));
            let result = tokio::select! {
                biased;
                result = handshake => result,
                () = crowded_out(connected_at, &shared) => Err(CROWDED_OUT.to_owned()),
            };
            match result {
                Ok(client) => {
                    let worker = shared.place_secured(worker);
                    shared.hub.mailbox(worker).post(ShellMail::SecuredClient {
                        client,
                        peer,
                        connected_at,
                    });
                }
                Err(reason) => {
                    let about = About {
                        side: 'C',
                        number: None,
                        database: "(nodb)",
                        user: "(nouser)",
                        address: &peer,
                    };
                    log!(of about, "closing because: {reason}");
                }
            }
        }
        Job::Server { fd, to, worker, server, ticket, limit } => {
            let handshake = secure_server(fd, &to);
            let result = within(limit, CONNECT_TIMEOUT, handshake).await;
            let mail = ShellMail::SecuredServer { server, ticket, result };
            shared.hub.mailbox(worker).post(mail);
        }
        Job::Cancel { address, to, packet, worker, cancel, limit, sent } => {
            let delivery = send_cancel(address, &to, &packet, &sent);
            let end = match within(limit, CANCEL_WAIT_TIMEOUT, delivery).await {
                Ok(()) => CancelEnd::Taken,
                Err(reason) if reason == CANCEL_WAIT_TIMEOUT => {
                    CancelEnd::Late { sent: sent.load(Ordering::Relaxed) }
                }
                Err(_) => CancelEnd::Unsent,
            };
            shared.hub.mailbox(worker).post(ShellMail::CancelSent { cancel, end });
        }
    }
}

fn stream(fd: OwnedFd) -> Result<TcpStream, String> {
    TcpStream::from_std(std::net::TcpStream::from(fd)).map_err(|error| error.to_string())
}

fn into_fd(stream: TcpStream) -> Result<OwnedFd, String> {
    stream.into_std().map(OwnedFd::from).map_err(|error| error.to_string())
}

/// Returns when the handshake has taken too long, while too many clients are logging in.
async fn crowded_out(connected_at: Micros, shared: &Shared) {
    loop {
        shared.handshakes.crowded().await;
        if shared.clock.now().saturating_sub(connected_at) >= LOGIN_GRACE {
            return;
        }
    }
}

async fn secure_client(arrival: TlsArrival, shared: &Shared) -> Result<SecuredClient, String> {
    let TlsArrival { fd, said, is_direct, seat, .. } = arrival;
    let Some(ForClients { config, end_point, .. }) = shared.tls().clients.clone() else {
        return Err("TLS was switched off".into());
    };
    let mut stream = stream(fd)?;
    let mut tls = Tls::accept(config).map_err(|error| error.to_string())?;
    let said = shake_hands(&mut stream, &mut tls, said)
        .await
        .map_err(|why| format!("TLS handshake failed: {why}"))?;
    if is_direct && tls.protocol() != Some(PROTOCOL) {
        return Err("direct TLS without the ALPN protocol \"postgresql\"".into());
    }
    let now = UnixTime::now().as_secs().cast_signed();
    let PeerNames { common_name, dns_names } = tls.peer_names(now)?;
    let secured = Arc::new(Secured { common_name, dns_names, end_point });
    Ok(SecuredClient { fd: into_fd(stream)?, tls: Box::new(tls), secured, said, seat })
}

async fn secure_server(fd: OwnedFd, to: &Far) -> Result<SecuredServer, String> {
    let mut stream = stream(fd)?;
    let tls = negotiate(&mut stream, &to.host, &to.tls).await?;
    Ok(SecuredServer { fd: into_fd(stream)?, tls: tls.map(Box::new) })
}

/// Why there is no TLS with a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The connection was lost before the server has answered the request.
    #[error("{0}")]
    Lost(io::Error),
    /// The server's answer, or the handshake, is not as it must be.
    #[error("{0}")]
    Answer(String),
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        trouble.to_string()
    }
}

/// Asks the server for TLS (protocol chapter 55.2.10). Returns `None` if it has none and need not.
pub(crate) async fn negotiate(
    stream: &mut TcpStream,
    host: &str,
    context: &ForServers,
) -> Result<Option<Tls>, Trouble> {
    let mut request = Vec::new();
    wire::frontend::ssl_request(&mut request);
    stream.write_all(&request).await.map_err(Trouble::Lost)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(Trouble::Lost)?;
    match answer[0] {
        b'S' => {}
        b'N' if context.is_optional => return Ok(None),
        b'N' => return Err(Trouble::Answer("server does not support TLS".into())),
        other => {
            let other = char::from(other);
            return Err(Trouble::Answer(format!("server answered the SSL request with {other:?}")));
        }
    }
    secure(stream, host, context).await.map(Some).map_err(Trouble::Answer)
}

/// Begins TLS as the client of a server that expects it.
pub(crate) async fn secure(
    stream: &mut TcpStream,
    host: &str,
    context: &ForServers,
) -> Result<Tls, String> {
    let name = match ServerName::try_from(host.to_owned()) {
        Ok(name) => name,
        Err(_) if context.checks_name => {
            return Err(format!("{host:?} is not a name that a certificate can have"));
        }
        Err(_) => ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into()),
    };
    let tls = Tls::connect(context.config.clone(), name);
    let mut tls = tls.map_err(|error| error.to_string())?;
    shake_hands(stream, &mut tls, Vec::new()).await?;
    Ok(tls)
}

/// Continues until the connection is open. Returns the bytes that the peer has sent after the
/// handshake.
///
/// The read buffer is on the stack. On the heap, the buffers of simultaneous handshakes would leave
/// holes between allocations that live as long as their connections.
async fn shake_hands(
    stream: &mut TcpStream,
    tls: &mut Tls,
    mut said: Vec<u8>,
) -> Result<Vec<u8>, String> {
    let mut progress = Progress::default();
    loop {
        let standing = tls.receive(&mut said, &mut progress);
        if !progress.reply.is_empty() {
            let sent = stream.write_all(&progress.reply).await;
            progress.reply.clear();
            if standing.is_ok() {
                sent.map_err(|error| error.to_string())?;
            }
        }
        match standing.map_err(|error| reason(&error))? {
            Standing::Open => return Ok(progress.plain),
            Standing::PeerClosed => return Err("peer closed the connection".into()),
            Standing::Handshaking => {}
        }
        said.resize(READ_LEN, 0);
        let count = stream.read(&mut said).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("peer closed the connection".into());
        }
        said.truncate(count);
    }
}

async fn send_cancel(
    address: Address,
    to: &Far,
    packet: &[u8],
    sent: &AtomicBool,
) -> Result<(), String> {
    let Address::Inet(address) = address else { return Err("no TLS".to_owned()) };
    let failed = |error: io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let mut records = packet.to_vec();
    if let Some(mut tls) = negotiate(&mut stream, &to.host, &to.tls).await? {
        records.clear();
        tls.send(packet, &mut records).map_err(|error| error.to_string())?;
    }
    // If only part of it is written, PostgreSQL may still get everything.
    sent.store(true, Ordering::Relaxed);
    stream.write_all(&records).await.map_err(failed)?;
    // PostgreSQL closes the connection after acting.
    let mut rest = [0; 256];
    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
    Ok(())
}
