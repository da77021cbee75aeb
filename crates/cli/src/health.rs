//! `weir health`: does a pooler accept connections? It sends an SSLRequest, whose answer needs no
//! login and is not logged (protocol chapter "SSL Session Encryption").

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::args::HealthOptions;

/// For the connection, and for the answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Exit status 0 if it accepts connections.
pub(crate) fn run(options: &HealthOptions) -> anyhow::Result<ExitCode> {
    let HealthOptions { host, port, .. } = options;
    let at = format!("{host}, port {port}");
    let answer = match host.starts_with('/') {
        true => {
            let stream = UnixStream::connect(format!("{host}/.s.PGSQL.{port}"));
            let stream = stream.with_context(|| format!("{at}: cannot connect"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            answer(stream)
        }
        false => answer(connect(host, *port).with_context(|| format!("{at}: cannot connect"))?),
    };
    match answer.with_context(|| format!("{at}: no answer"))? {
        b'S' | b'N' => crate::explain::print(&format!("{at}: accepts connections\n")),
        other => bail!("{at}: the answer {:?} is not PostgreSQL's protocol", char::from(other)),
    }
}

fn connect(host: &str, port: u16) -> anyhow::Result<TcpStream> {
    let mut failed = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.map_or_else(|| anyhow::anyhow!("the name has no address"), anyhow::Error::from))
}

fn answer(mut stream: impl Read + Write) -> anyhow::Result<u8> {
    let mut request = Vec::new();
    wire::frontend::ssl_request(&mut request);
    stream.write_all(&request)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}
