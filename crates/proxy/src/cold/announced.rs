//! Clients of a trusted proxy. First the proxy's header with the client's address is read. This may
//! take time, so the cold thread does it. A worker then gets the client with its own address, and
//! the first byte after the header is still unread.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use config::Config;
use thiserror::Error;
use tokio::{
    net::TcpStream,
    time::{self, Instant},
};
use wire::{
    ErrorFields, backend,
    proxy_header::{self, Progress, ProxyHeaderError},
    sqlstate::PROTOCOL_VIOLATION,
};

use crate::{
    exchange::{mail::ShellMail, peer::Peer, reports::pointer, requests::Arrival, shared::Shared},
    log,
    log::About,
    warning,
};
use net::sys::Address;

/// Why there is no client.
#[derive(Debug, Error)]
enum Lost {
    /// A connection that only tests whether Weir is up, which is not logged.
    #[error("client unexpected eof")]
    Silent,
    #[error("connection ended within its PROXY protocol header")]
    Half,
    #[error("client_login_timeout: no PROXY protocol header")]
    Late,
    #[error(transparent)]
    Header(#[from] ProxyHeaderError),
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Reads the header and gives the client to a worker, or ends the connection.
pub(crate) async fn receive(arrival: Arrival, shared: Arc<Shared>, config: Arc<Config>) {
    let global = &config.global;
    let Arrival { fd, peer, worker, seat: _seat } = arrival;
    let (began, number) = (Instant::now(), pointer(fd.as_raw_fd()));
    let result = match TcpStream::from_std(fd.into()) {
        Ok(stream) => announced(stream, global.client_login_timeout).await,
        Err(error) => Err(error.into()),
    };
    match result {
        Ok((fd, client)) => {
            let peer = client.map_or(peer, |client| Peer::new(-1, &Address::Inet(client)));
            let worker = shared.place_client(worker);
            shared.hub.mailbox(worker).post(ShellMail::Client { fd, peer });
        }
        // PgBouncer does not log such a connection either.
        Err(Lost::Silent) => {}
        Err(reason) => {
            let label = About {
                side: 'C',
                number: Some(number),
                database: "(nodb)",
                user: "(nouser)",
                address: &peer,
            };
            if global.log_disconnections {
                log!(of label, "closing because: {reason} (age={}s)", began.elapsed().as_secs());
            }
            if global.log_pooler_errors {
                warning!(of label, "pooler error: {reason}");
            }
        }
    }
}

async fn announced(
    stream: TcpStream,
    limit: Duration,
) -> Result<(OwnedFd, Option<SocketAddr>), Lost> {
    let read = async {
        if limit.is_zero() {
            return read_header(&stream).await;
        }
        time::timeout(limit, read_header(&stream)).await.unwrap_or(Err(Lost::Late))
    };
    match read.await {
        Ok(client) => Ok((stream.into_std()?.into(), client)),
        Err(lost) => {
            say_why(&stream, &lost);
            Err(lost)
        }
    }
}

/// Reads the header, and no byte after it.
async fn read_header(stream: &TcpStream) -> Result<Option<SocketAddr>, Lost> {
    let mut header = Vec::new();
    loop {
        let needs = match proxy_header::read(&header)? {
            Progress::Whole { client, .. } => return Ok(client),
            Progress::Needs(needs) => needs,
        };
        let had = header.len();
        header.resize(needs, 0);
        stream.readable().await?;
        let count = match stream.try_read(&mut header[had..]) {
            Ok(0) if had == 0 => return Err(Lost::Silent),
            Ok(0) => return Err(Lost::Half),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && had == 0 => {
                return Err(Lost::Silent);
            }
            Err(error) => return Err(error.into()),
        };
        header.truncate(had + count);
    }
}

/// Sends an error message to a PostgreSQL client that connected without a proxy. Its unread bytes
/// are read first, or the kernel would reset the connection and drop the message.
fn say_why(stream: &TcpStream, lost: &Lost) {
    const UNREAD_MAX: usize = 4_096;
    let mut out = Vec::new();
    backend::error(&mut out, &ErrorFields::new("FATAL", PROTOCOL_VIOLATION, &lost.to_string()));
    let _ = stream.try_read(&mut [0; UNREAD_MAX]);
    let _ = stream.try_write(&out);
}
