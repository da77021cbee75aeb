//! A model of PostgreSQL as a pooler sees it: its message loop with prepared statements, portals,
//! transactions, COPY and the skipping after an error. The statements are those of a [`Dialect`]: the
//! fuzz targets have one, and the canned server of the benchmark another.
//!
//! It answers every message at once, and its replies depend on the bytes only, not on cuts.
//!
//! ```text
//!            ┌ error in the extended protocol ► skipping ─ Sync ┐
//!  ready ────┤                                                  ├──► ready
//!            ├ copy in ► CopyData … ─ CopyDone, CopyFail ───────┤
//!            └ large result ► refill … ─────────────────────────┘
//! ```

mod extended;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use wire::error_fields::ErrorFields;
use wire::messages::Query;
use wire::startup::{self, StartupPacket, StartupRequest};
use wire::{HEADER_LEN, Header, backend, frontend};

pub use self::extended::Portal;

/// The statements of a server, and what belongs to its sessions besides the message loop.
pub trait Dialect: Debug + Sized {
    /// A parsed statement. The default is the empty one.
    type Statement: Clone + Debug + Default;

    /// Appends the answer to a startup packet, up to the last message before ReadyForQuery.
    fn welcome(&mut self, packet: &StartupPacket<'_>, out: &mut Vec<u8>);

    /// Returns the statements of a text.
    ///
    /// # Errors
    /// PostgreSQL's, if the text is none.
    fn split(text: &[u8]) -> Result<Vec<Self::Statement>, Fault>;

    fn ends_transaction(statement: &Self::Statement) -> bool;

    /// Appends the RowDescription. Returns false if the statement returns no rows.
    fn describe_rows(statement: &Self::Statement, out: &mut Vec<u8>) -> bool;

    /// Returns the type of each parameter.
    fn parameters(_statement: &Self::Statement) -> &'static [u32] {
        &[]
    }

    /// Executes a statement and appends what follows its row description.
    ///
    /// # Errors
    /// PostgreSQL's.
    fn run(
        &mut self,
        session: &mut Session<Self::Statement>,
        portal: &mut Portal<Self::Statement>,
        rows_max: u32,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault>;

    /// Answers a FunctionCall.
    ///
    /// # Errors
    /// PostgreSQL's.
    fn call_function(&mut self, out: &mut Vec<u8>) -> Result<(), Fault>;

    /// Appends messages that come before a ReadyForQuery.
    fn before_ready(&mut self, _status: u8, _out: &mut Vec<u8>) {}

    /// Appends the next piece of a large result. Returns true if it was the last one.
    fn refill(&mut self, _out: &mut Vec<u8>) -> bool {
        true
    }
}

/// SQLSTATE and text of an ERROR.
#[derive(Debug)]
pub struct Fault(pub &'static str, pub Vec<u8>);

impl Fault {
    #[must_use]
    pub fn malformed() -> Self {
        Self("08P01", "invalid message format".into())
    }

    #[must_use]
    pub fn aborted() -> Self {
        Self("25P02", "current transaction is aborted".into())
    }
}

/// The end of a statement's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The portal has more rows than requested.
    Suspended,
    CopyIn,
    /// The rest of the result comes by [`Dialect::refill`]. In a simple Query only.
    Large,
}

/// The part of a session that statements may change.
#[derive(Debug)]
pub struct Session<S> {
    /// The transaction status in ReadyForQuery: `I`, `T` or `E`.
    pub status: u8,
    /// Statements by name. The unnamed one has an empty name.
    pub statements: BTreeMap<Vec<u8>, S>,
    pub portals: BTreeMap<Vec<u8>, Portal<S>>,
    /// The remaining statements of a simple Query.
    pub queue: VecDeque<S>,
}

/// The protocol of the statement whose copy data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Simple,
    Extended,
}

/// One connection to the server.
#[derive(Debug)]
pub struct Postgres<D: Dialect> {
    pub dialect: D,
    session: Session<D::Statement>,
    started: bool,
    input: Vec<u8>,
    skipping: bool,
    copy: Option<Copy>,
    /// A large result is being sent, and no message is handled.
    is_large: bool,
    closed: bool,
    /// The length of the output that PostgreSQL would not delay until a Sync or Flush.
    due: usize,
}

impl<D: Dialect> Postgres<D> {
    /// Returns a server that waits for a startup packet.
    pub fn fresh(dialect: D) -> Self {
        Self { started: false, ..Self::logged_in(dialect) }
    }

    pub fn logged_in(dialect: D) -> Self {
        let (statements, portals) = (BTreeMap::new(), BTreeMap::new());
        Self {
            dialect,
            session: Session { status: b'I', statements, portals, queue: VecDeque::new() },
            started: true,
            input: Vec::new(),
            skipping: false,
            copy: None,
            is_large: false,
            closed: false,
            due: 0,
        }
    }

    /// Returns whether the server has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether it has received part of a message.
    pub fn is_mid_message(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns whether it has got a request in the middle of a copy. That ends the connection,
    /// unless a pooler has answered the request itself.
    pub fn is_out_of_step(&self) -> bool {
        self.closed && self.copy.is_some()
    }

    /// Returns the length of `out` that must have arrived by now, if `out` was always the same.
    pub fn due(&self) -> usize {
        self.due
    }

    /// Handles bytes and appends the replies to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.input.is_empty() {
            let used = self.handle(bytes, out);
            return self.input.extend_from_slice(&bytes[used..]);
        }
        self.input.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut self.input);
        let used = self.handle(&input, out);
        input.drain(..used);
        self.input = input;
    }

    /// Called when everything in `out` has been sent: appends the next piece of a large result, and
    /// after the last one the answers to what followed the request.
    pub fn refill(&mut self, out: &mut Vec<u8>) {
        if self.is_large && self.dialect.refill(out) {
            self.is_large = false;
            self.go_on(out);
            self.feed(&[], out);
        }
    }

    /// Handles the whole messages at the beginning of `input` and returns their length.
    fn handle(&mut self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while !self.closed && !self.is_large {
            let rest = &input[at..];
            if !self.started {
                let Ok(Some(len)) = startup::packet_len(rest) else { break };
                let Some(packet) = rest.get(..len) else { break };
                at += len;
                self.start(packet, out);
                continue;
            }
            let header = match Header::parse(rest) {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(_) => {
                    self.end("invalid message length", out);
                    break;
                }
            };
            if !is_known(header.code) {
                self.end("invalid frontend message type", out);
                break;
            }
            if header.code == frontend::TERMINATE {
                self.closed = true;
                break;
            }
            let Some(message) = rest.get(..header.total) else { break };
            at += header.total;
            if self.message(header.code, &message[HEADER_LEN..], out) {
                self.due = out.len();
            }
        }
        at
    }

    /// Declines encryption, logs the client in, or ends the connection of a cancel request.
    fn start(&mut self, packet: &[u8], out: &mut Vec<u8>) {
        match startup::parse(packet) {
            Ok(StartupRequest::Ssl | StartupRequest::GssEnc) => out.push(b'N'),
            Ok(StartupRequest::Startup(packet)) => {
                self.started = true;
                self.dialect.welcome(&packet, out);
                self.be_ready(out);
            }
            Ok(StartupRequest::Cancel(_)) | Err(_) => self.closed = true,
        }
    }

    /// Handles a message. Returns whether its replies are sent at once.
    fn message(&mut self, code: u8, body: &[u8], out: &mut Vec<u8>) -> bool {
        use frontend::{
            BIND, CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL, DESCRIBE, EXECUTE, FLUSH, FUNCTION_CALL,
            PARSE, QUERY, SYNC,
        };
        if let Some(copy) = self.copy {
            self.copy_message(copy, code, body, out);
            return copy == Copy::Simple || self.skipping;
        }
        match code {
            SYNC => self.sync(body, out),
            QUERY | PARSE | BIND | DESCRIBE | EXECUTE | CLOSE | FUNCTION_CALL | COPY_DATA
            | COPY_DONE | COPY_FAIL | FLUSH
                if self.skipping =>
            {
                return false;
            }
            QUERY => self.query(body, out),
            FUNCTION_CALL => self.function_call(out),
            PARSE | BIND | DESCRIBE | EXECUTE | CLOSE => {
                if let Err(fault) = self.extended(code, body, out) {
                    self.fail(&fault, out);
                    self.skipping = true;
                }
                return self.skipping || self.copy.is_some();
            }
            FLUSH if body.is_empty() => {}
            FLUSH => {
                self.fail(&Fault::malformed(), out);
                self.skipping = true;
            }
            // Ignored outside of a copy.
            _ => return false,
        }
        true
    }

    fn copy_message(&mut self, copy: Copy, code: u8, body: &[u8], out: &mut Vec<u8>) {
        let fault = match code {
            frontend::COPY_DATA if !body.contains(&b'!') => return,
            frontend::COPY_DATA => Fault("22P04", "bad line".into()),
            frontend::COPY_FAIL => Fault("57014", "COPY from stdin failed".into()),
            frontend::FLUSH | frontend::SYNC => return,
            frontend::COPY_DONE => {
                self.copy = None;
                backend::command_complete(out, "COPY 0");
                if copy == Copy::Simple {
                    self.go_on(out);
                }
                return;
            }
            _ => return self.end("protocol synchronization was lost", out),
        };
        self.copy = None;
        self.fail(&fault, out);
        match copy {
            Copy::Simple => self.end_query(out),
            Copy::Extended => self.skipping = true,
        }
    }

    fn query(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.session.statements.remove(&b""[..]);
        self.session.portals.remove(&b""[..]);
        let statements = Query::decode(body).map_err(|_| Fault::malformed());
        match statements.and_then(|query| D::split(query.sql)) {
            Ok(statements) if statements.is_empty() => {
                backend::empty_query(out);
                self.end_query(out);
            }
            Ok(statements) => {
                self.session.queue = statements.into();
                self.go_on(out);
            }
            Err(fault) => {
                self.fail(&fault, out);
                self.end_query(out);
            }
        }
    }

    /// Executes the remaining statements of a simple Query.
    fn go_on(&mut self, out: &mut Vec<u8>) {
        while let Some(statement) = self.session.queue.pop_front() {
            D::describe_rows(&statement, out);
            match self.run(&mut Portal::new(statement, Vec::new()), 0, out) {
                Ok(Outcome::CopyIn) => {
                    self.copy = Some(Copy::Simple);
                    return;
                }
                Ok(Outcome::Large) => {
                    self.is_large = true;
                    return;
                }
                Ok(Outcome::Done | Outcome::Suspended) => {}
                Err(fault) => {
                    self.fail(&fault, out);
                    break;
                }
            }
        }
        self.end_query(out);
    }

    fn run(
        &mut self,
        portal: &mut Portal<D::Statement>,
        rows_max: u32,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        self.refuse_if_aborted(&portal.statement)?;
        self.dialect.run(&mut self.session, portal, rows_max, out)
    }

    fn refuse_if_aborted(&self, statement: &D::Statement) -> Result<(), Fault> {
        match self.session.status == b'E' && !D::ends_transaction(statement) {
            true => Err(Fault::aborted()),
            false => Ok(()),
        }
    }

    fn end_query(&mut self, out: &mut Vec<u8>) {
        self.session.queue.clear();
        self.be_ready(out);
    }

    fn be_ready(&mut self, out: &mut Vec<u8>) {
        if self.session.status == b'I' {
            self.session.portals.clear();
        }
        self.dialect.before_ready(self.session.status, out);
        backend::ready_for_query(out, self.session.status);
    }

    fn sync(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.skipping = false;
        if !body.is_empty() {
            self.fail(&Fault::malformed(), out);
        }
        self.be_ready(out);
    }

    fn function_call(&mut self, out: &mut Vec<u8>) {
        let done = match self.session.status {
            b'E' => Err(Fault::aborted()),
            _ => self.dialect.call_function(out),
        };
        if let Err(fault) = done {
            self.fail(&fault, out);
        }
        self.be_ready(out);
    }

    /// Reports an error. An open transaction fails.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        let mut fields = ErrorFields::new("ERROR", fault.0, "");
        fields.replace(b'M', fault.1.clone());
        backend::error(out, &fields);
        if self.session.status == b'T' {
            self.session.status = b'E';
        }
        if self.session.status == b'I' {
            self.session.portals.clear();
        }
    }

    fn end(&mut self, why: &str, out: &mut Vec<u8>) {
        backend::error(out, &ErrorFields::new("FATAL", "08P01", why));
        self.closed = true;
    }
}

fn is_known(code: u8) -> bool {
    b"QPBDECFSHXdcf".contains(&code)
}
