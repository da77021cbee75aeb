//! The other end of a console's connection: sends bytes, reads messages and prints them.

use std::fmt::Write;
use std::sync::Arc;

use admin::{Console, Login};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use wire::{ErrorFields, Reader, backend, frontend};

use crate::fixture;

/// A client of the console.
pub(crate) struct Peer {
    stream: DuplexStream,
    /// Returns why the connection ended.
    pub(crate) served: JoinHandle<Option<String>>,
}

/// One message, in a comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `name:type` of each column.
    Columns(Vec<String>),
    Row(Vec<Option<String>>),
    /// CommandComplete.
    Done(String),
    /// Severity, SQLSTATE, message and detail of an error or notice.
    Said(String),
    Ready,
    /// Any other message, by its code, with its body as text.
    Other(char, String),
}

pub(crate) fn login(id: u64, admin: bool) -> Login {
    Login {
        label: format!("C-{id:#x}: pgbouncer/operator@here"),
        admin,
        process_id: 77,
        secret: *b"abcd",
        connection: fixture::connection(id, "weir", "operator"),
        unread: Vec::new(),
    }
}

impl Peer {
    pub(crate) fn start(console: &Arc<Console>, login: Login) -> Self {
        let (stream, theirs) = tokio::io::duplex(64 * 1024);
        let console = Arc::clone(console);
        let served = tokio::spawn(async move { console.serve(theirs, login).await });
        Self { stream, served }
    }

    /// Returns a logged-in client that has read its welcome.
    pub(crate) async fn admin(console: &Arc<Console>) -> Self {
        let mut peer = Self::start(console, login(0x99, true));
        peer.until_ready().await;
        peer
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Returns the replies to a query.
    pub(crate) async fn query(&mut self, text: impl AsRef<[u8]>) -> Vec<Reply> {
        let mut bytes = Vec::new();
        frontend::query(&mut bytes, text.as_ref());
        self.send(&bytes).await;
        self.until_ready().await
    }

    /// Returns the replies up to ReadyForQuery or the end.
    pub(crate) async fn until_ready(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(reply) = self.receive().await {
            if reply == Reply::Ready {
                break;
            }
            replies.push(reply);
        }
        replies
    }

    /// Returns everything up to the end, and why the connection ended.
    pub(crate) async fn rest(mut self) -> (Vec<Reply>, String) {
        let mut replies = Vec::new();
        while let Some(reply) = self.receive().await {
            replies.push(reply);
        }
        (replies, self.served.await.unwrap().unwrap_or_default())
    }

    /// Drops the connection. Returns why it ended at the other end.
    pub(crate) async fn leave(self) -> String {
        drop(self.stream);
        self.served.await.unwrap().unwrap_or_default()
    }

    async fn receive(&mut self) -> Option<Reply> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).await.ok()?;
        let [code, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(match code {
            backend::ROW_DESCRIPTION => Reply::Columns(columns(&body)),
            backend::DATA_ROW => Reply::Row(row(&body)),
            backend::COMMAND_COMPLETE => Reply::Done(text(&body)),
            backend::ERROR | backend::NOTICE => Reply::Said(said(&body)),
            backend::READY_FOR_QUERY => Reply::Ready,
            code => Reply::Other(char::from(code), text(&body)),
        })
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace('\0', " ").trim_end().to_owned()
}

fn columns(body: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(body);
    let count = reader.u16().unwrap();
    let column = |_| {
        let name = String::from_utf8(reader.cstr().unwrap().to_vec()).unwrap();
        assert_eq!(reader.bytes(6).unwrap(), [0; 6], "table and column");
        let kind = match (reader.u32().unwrap(), reader.i16().unwrap()) {
            (25, -1) => "text",
            (23, 4) => "int4",
            (20, 8) => "int8",
            (1700, -1) => "numeric",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!((reader.i32(), reader.i16()), (Some(-1), Some(0)), "modifier and format");
        format!("{name}:{kind}")
    };
    (0..count).map(column).collect()
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let values = wire::messages::DataRow::decode(body).unwrap().values();
    values.map(|value| value.map(|value| String::from_utf8(value.to_vec()).unwrap())).collect()
}

fn said(body: &[u8]) -> String {
    let fields = ErrorFields::decode(body).unwrap();
    let field = |code| String::from_utf8_lossy(fields.get(code).unwrap_or_default()).into_owned();
    let mut said = format!("{} {}: {}", field(b'S'), field(b'C'), field(b'M'));
    if fields.get(b'D').is_some() {
        let _ = write!(said, " ({})", field(b'D'));
    }
    said
}
