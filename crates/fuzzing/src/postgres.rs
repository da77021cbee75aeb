//! A model of PostgreSQL as a pooler sees it: its message loop with prepared statements, portals,
//! transactions, COPY and the skipping after an error, and a few statements.
//!
//! It answers every message at once, and its replies depend on the bytes only, not on cuts. So it
//! has two uses: as the server behind the engine, and as the reference for the client's view
//! without a pooler.
//!
//! ```text
//!            ┌ error in the extended protocol ► skipping ─ Sync ┐
//!  ready ────┤                                                  ├──► ready
//!            └ copy in ► CopyData … ─ CopyDone, CopyFail ───────┘
//! ```

mod extended;
mod sql;

use std::collections::{BTreeMap, VecDeque};

use wire::error_fields::ErrorFields;
use wire::messages::Query;
use wire::{HEADER_LEN, Header, backend, frontend};

use self::extended::Portal;
use self::sql::{Fault, Outcome, Sql};

/// The parameters that a server reports at login.
const PARAMETERS: [(&[u8], &[u8]); 6] = [
    (b"server_version", b"15.0"),
    (b"client_encoding", b"UTF8"),
    (b"DateStyle", b"ISO, MDY"),
    (b"TimeZone", b"UTC"),
    (b"standard_conforming_strings", b"on"),
    (b"application_name", b""),
];

/// The protocol of the statement whose copy data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Simple,
    Extended,
}

#[derive(Debug)]
pub(crate) struct Postgres {
    /// The process id for the answer to the startup packet. `None` if the client is logged in
    /// already.
    greets: Option<u32>,
    input: Vec<u8>,
    /// Statements by name. The unnamed one has an empty name.
    statements: BTreeMap<Vec<u8>, Sql>,
    portals: BTreeMap<Vec<u8>, Portal>,
    application_name: Vec<u8>,
    status: u8,
    skipping: bool,
    copy: Option<Copy>,
    /// The remaining statements of a simple Query.
    queue: VecDeque<Sql>,
    closed: bool,
    /// The length of the output that PostgreSQL would not delay until a Sync or Flush.
    due: usize,
}

impl Postgres {
    /// Returns a server that waits for a startup packet.
    pub(crate) fn fresh(process_id: u32) -> Self {
        Self { greets: Some(process_id), ..Self::logged_in() }
    }

    pub(crate) fn logged_in() -> Self {
        Self {
            greets: None,
            input: Vec::new(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            application_name: Vec::new(),
            status: b'I',
            skipping: false,
            copy: None,
            queue: VecDeque::new(),
            closed: false,
            due: 0,
        }
    }

    /// Returns whether the server has ended the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether it has received part of a message.
    pub(crate) fn is_mid_message(&self) -> bool {
        !self.input.is_empty()
    }

    /// Returns whether it has got a request in the middle of a copy. That ends the connection,
    /// unless a pooler has answered the request itself.
    pub(crate) fn is_out_of_step(&self) -> bool {
        self.closed && self.copy.is_some()
    }

    /// Returns the length of `out` that must have arrived by now, if `out` was always the same.
    pub(crate) fn due(&self) -> usize {
        self.due
    }

    /// Handles bytes and appends the replies to `out`.
    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        while !self.closed {
            let rest = &input[at..];
            if let Some(process_id) = self.greets {
                match wire::startup::packet_len(rest) {
                    Ok(Some(len)) if len <= rest.len() => at += len,
                    _ => break,
                }
                self.greets = None;
                welcome(process_id, out);
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
            if rest.len() < header.total {
                break;
            }
            at += header.total;
            let is_prompt = self.message(header.code, &rest[HEADER_LEN..header.total], out);
            if is_prompt {
                self.due = out.len();
            }
        }
        self.input = input[at..].to_vec();
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
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        let Ok(query) = Query::decode(body) else {
            self.fail(&Fault::malformed(), out);
            return self.end_query(out);
        };
        match sql::split(query.sql) {
            Ok(statements) if statements.is_empty() => {
                backend::empty_query(out);
                self.end_query(out);
            }
            Ok(statements) => {
                self.queue = statements.into();
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
        while let Some(statement) = self.queue.pop_front() {
            if statement.returns_rows() {
                describe_rows(out);
            }
            match self.run(&statement, &mut 0, 0, out) {
                Ok(Outcome::CopyIn) => {
                    self.copy = Some(Copy::Simple);
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

    fn end_query(&mut self, out: &mut Vec<u8>) {
        self.queue.clear();
        self.be_ready(out);
    }

    fn be_ready(&mut self, out: &mut Vec<u8>) {
        if self.status == b'I' {
            self.portals.clear();
        }
        backend::ready_for_query(out, self.status);
    }

    fn sync(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.skipping = false;
        if !body.is_empty() {
            self.fail(&Fault::malformed(), out);
        }
        self.be_ready(out);
    }

    fn function_call(&mut self, out: &mut Vec<u8>) {
        if self.status == b'E' {
            self.fail(&Fault::aborted(), out);
        } else {
            // A FunctionCallResponse with the result NULL.
            out.extend_from_slice(b"V\0\0\0\x08\xff\xff\xff\xff");
        }
        self.be_ready(out);
    }

    /// Reports an error. An open transaction fails.
    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        let mut fields = ErrorFields::new("ERROR", fault.0, "");
        fields.replace(b'M', fault.1.clone());
        backend::error(out, &fields);
        if self.status == b'T' {
            self.status = b'E';
        }
        if self.status == b'I' {
            self.portals.clear();
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

fn welcome(process_id: u32, out: &mut Vec<u8>) {
    backend::authentication_ok(out);
    for (name, value) in PARAMETERS {
        backend::parameter_status(out, name, value);
    }
    backend::backend_key_data(out, process_id, &process_id.to_be_bytes());
    backend::ready_for_query(out, b'I');
}

fn describe_rows(out: &mut Vec<u8>) {
    backend::row_description(out, &[backend::Column { name: "it", type_oid: 25, type_len: -1 }]);
}
