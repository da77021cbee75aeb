//! One HTTP request to Patroni's REST API, on a connection of its own, and the whole answer.
//!
//! Everything that the other side can make grow has a limit. A redirection is not followed: Patroni
//! sends none.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use config::{Api, Cluster, in_words};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use net::tls::{ForServers, TlsStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task,
    time::timeout,
};

use crate::cold::{dns::Dns, handshake};

/// The longest body of an answer.
const BODY_MAX: usize = 1 << 20;
/// The longest head of an answer.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// The part of an unexpected answer that an error repeats.
const WORDS_MAX: usize = 200;

/// A request, before it is known to which API it goes.
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) body: String,
}

/// An answer of any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Answer {
    /// Returns the status and the beginning of the text.
    pub(super) fn in_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect();
        match line.is_empty() {
            true => format!("HTTP status {}", self.status),
            false => format!("HTTP status {}: {line}", self.status),
        }
    }
}

/// Why there is no answer.
pub(super) enum Trouble {
    /// The request was not sent, so it has no effect.
    Unsent(String),
    /// It may have arrived.
    Lost(String),
}

impl Trouble {
    pub(super) fn text(self) -> String {
        match self {
            Self::Unsent(why) | Self::Lost(why) => why,
        }
    }
}

/// Sends a request and waits for the answer. The connection must be open within `health_timeout`.
pub(super) async fn ask(
    dns: &Dns,
    cluster: &Cluster,
    api: &Api,
    question: &Question,
) -> Result<Answer, Trouble> {
    let request = request(cluster, api, question).map_err(Trouble::Unsent)?;
    let limit = cluster.health_timeout;
    let opened = timeout(limit, open(dns, cluster, api)).await;
    let late = || Err(format!("no connection within {} s", limit.as_secs_f64()));
    match opened.unwrap_or_else(|_| late()).map_err(Trouble::Unsent)? {
        Stream::Plain(stream) => exchange(stream, request).await,
        Stream::Tls(stream) => exchange(stream, request).await,
    }
}

fn request(
    cluster: &Cluster,
    api: &Api,
    question: &Question,
) -> Result<Request<Full<Bytes>>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the request cannot be made: {error}");
    let body = Full::new(Bytes::from(question.body.clone()));
    let mut request = Request::builder()
        .method(question.method.clone())
        .uri(question.path)
        .header(HOST, api.endpoint.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| failed(&error))?;
    // Patroni wants no password for questions.
    if let (Some(user), &Method::POST) = (&cluster.patroni_user, &question.method) {
        let password = cluster.patroni_password.as_deref().unwrap_or_default();
        let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let mut value = HeaderValue::from_str(&text).map_err(|error| failed(&error))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    Ok(request)
}

enum Stream {
    Plain(TcpStream),
    Tls(TlsStream<TcpStream>),
}

async fn open(dns: &Dns, cluster: &Cluster, api: &Api) -> Result<Stream, String> {
    let (host, port) = (&api.endpoint.host, api.endpoint.port);
    let ip = dns.address(host).await?;
    let mut stream = TcpStream::connect((ip, port)).await.map_err(|error| in_words(&error))?;
    if !api.is_tls {
        return Ok(Stream::Plain(stream));
    }
    let files = (
        cluster.patroni_ca_file.clone(),
        cluster.patroni_cert_file.clone(),
        cluster.patroni_key_file.clone(),
    );
    // Read each time, so a replaced certificate is used at once.
    let context = task::spawn_blocking(move || ForServers::for_https(&files.0, &files.1, &files.2));
    let context = context.await.map_err(|error| error.to_string())?;
    let context = context.map_err(|error| format!("TLS: {}", error.reason))?;
    let tls = handshake::secure(&mut stream, host, &context).await;
    let tls = tls.map_err(|why| format!("TLS handshake failed: {why}"))?;
    Ok(Stream::Tls(TlsStream::new(stream, Box::new(tls), Vec::new())))
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let begun = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|error| Trouble::Unsent(error.to_string()))?;
    let lost = |error: &dyn std::fmt::Display| Trouble::Lost(format!("no valid answer: {error}"));
    let answered = async {
        let answer = sender.send_request(request).await.map_err(|error| lost(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        let body = body.map_err(|error| lost(&error))?.to_bytes();
        Ok(Answer { status, body })
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        // The connection has ended; the answer may be complete.
        _ = connection => answered.await,
    }
}
