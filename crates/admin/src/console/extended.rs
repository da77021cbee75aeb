//! The extended query protocol on the console, with PostgreSQL's statements and portals. Their
//! texts are commands of the console, without parameters. PgBouncer's console refuses this
//! protocol; the errors are PostgreSQL's.

use std::collections::HashMap;
use std::mem;

use tokio::io::{AsyncRead, AsyncWrite};
use wire::{Header, backend};

use super::session::{Session, Stop};
use crate::command::{self, Command};
use crate::message::Extended;
use crate::reply::{self, Formats};

/// Maximal number of prepared statements of a client, and of portals.
const NAMES_MAX: usize = 1000;

/// A statement that a client has prepared.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    statements: HashMap<Vec<u8>, Statement>,
    portals: HashMap<Vec<u8>, Portal>,
    /// After an error, messages are ignored up to Sync.
    pub(super) skips: bool,
}

/// `None` is the empty query.
type Statement = Option<Command>;

#[derive(Debug)]
struct Portal {
    statement: Statement,
    formats: Formats,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    Bound,
    /// It has run, and this part of the reply was not requested yet.
    Suspended(Vec<u8>),
    Done,
}

impl Prepared {
    /// Closes the portals: they end with their transaction, and each Sync ends one.
    pub(super) fn sync(&mut self) {
        self.portals.clear();
        self.skips = false;
    }

    /// A simple query closes the unnamed statement and portal.
    pub(super) fn simple_query(&mut self) {
        self.portals.clear();
        self.statements.remove(&b""[..]);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<'_, S> {
    pub(super) async fn extended(&mut self, message: Extended) -> Result<(), Stop> {
        match message {
            Extended::Parse { name, text, has_parameters } => {
                self.parse(name, &text, has_parameters)?;
            }
            Extended::Bind { portal, statement, parameters, formats } => {
                self.bind(portal, &statement, parameters, Formats(formats))?;
            }
            Extended::DescribeStatement(name) => {
                let statement = self.statement(&name)?;
                backend::parameter_description(&mut self.out);
                describe(&mut self.out, &statement, &Formats::default());
            }
            Extended::DescribePortal(name) => match self.prepared.portals.get(&name) {
                Some(portal) => describe(&mut self.out, &portal.statement, &portal.formats),
                None => return Err(self.no_portal(&name)),
            },
            Extended::Execute { portal, rows_max } => self.run_portal(&portal, rows_max).await?,
            // Closing an unknown statement is no error.
            Extended::CloseStatement(name) => {
                self.prepared.statements.remove(&name);
                backend::close_complete(&mut self.out);
            }
            Extended::ClosePortal(name) => {
                self.prepared.portals.remove(&name);
                backend::close_complete(&mut self.out);
            }
            // Replies are sent after each message.
            Extended::Flush | Extended::Sync => {}
        }
        Ok(())
    }

    fn parse(&mut self, name: Vec<u8>, text: &[u8], has_parameters: bool) -> Result<(), Stop> {
        if name.is_empty() {
            // As in PostgreSQL, an invalid new statement removes the old one, too.
            self.prepared.statements.remove(&name);
        }
        if has_parameters || (!command::is_empty(text) && names_parameters(text)) {
            return Err(self.refuse("commands of the admin console have no parameters"));
        }
        let statement = self.command(text)?;
        let statements = &self.prepared.statements;
        if statements.contains_key(&name) {
            return Err(self.refuse_as("42P05", "prepared statement", &name, "already exists"));
        }
        if statements.len() >= NAMES_MAX {
            return Err(self.refuse("too many prepared statements on the admin console"));
        }
        self.prepared.statements.insert(name, statement);
        backend::parse_complete(&mut self.out);
        Ok(())
    }

    fn bind(
        &mut self,
        name: Vec<u8>,
        statement_name: &[u8],
        parameters: u16,
        formats: Formats,
    ) -> Result<(), Stop> {
        let statement = self.statement(statement_name)?;
        if parameters != 0 {
            let shown = String::from_utf8_lossy(statement_name);
            return Err(self.refuse(format!(
                "bind message supplies {parameters} parameters, \
                 but prepared statement \"{shown}\" requires 0"
            )));
        }
        let columns = statement.as_ref().and_then(Command::heads).map_or(0, |heads| heads.len());
        let (given, wrong) = (formats.0.len(), formats.0.iter().find(|format| **format > 1));
        if let Some(wrong) = wrong {
            let message = format!("unsupported format code: {wrong}");
            reply::error_of(&mut self.out, "22023", message);
            return Err(Stop::Refused);
        }
        if given > 1 && given != columns {
            return Err(self.refuse(format!(
                "bind message has {given} result formats but query has {columns} columns"
            )));
        }
        if !name.is_empty() && self.prepared.portals.contains_key(&name) {
            return Err(self.refuse_as("42P03", "cursor", &name, "already exists"));
        }
        if self.prepared.portals.len() >= NAMES_MAX {
            return Err(self.refuse("too many portals on the admin console"));
        }
        let portal = Portal { statement, formats, progress: Progress::Bound };
        self.prepared.portals.insert(name, portal);
        backend::bind_complete(&mut self.out);
        Ok(())
    }

    async fn run_portal(&mut self, name: &[u8], rows_max: u32) -> Result<(), Stop> {
        let Some(portal) = self.prepared.portals.get_mut(name) else {
            return Err(self.no_portal(name));
        };
        let Some(command) = portal.statement.clone() else {
            backend::empty_query(&mut self.out);
            return Ok(());
        };
        let reply = match mem::replace(&mut portal.progress, Progress::Done) {
            Progress::Bound => {
                let formats = portal.formats.clone();
                self.console.note_request(self.id);
                self.execute(command, &formats).await?;
                mem::take(&mut self.out)
            }
            Progress::Suspended(reply) => reply,
            Progress::Done => {
                return Err(self.refuse_as("55000", "portal", name, "cannot be run"));
            }
        };
        let len = rows_len(&reply, rows_max);
        let (part, rest) = reply.split_at_checked(len).unwrap_or((&reply, &[]));
        self.out.extend_from_slice(part);
        if !rest.is_empty() {
            backend::portal_suspended(&mut self.out);
            if let Some(portal) = self.prepared.portals.get_mut(name) {
                portal.progress = Progress::Suspended(rest.to_vec());
            }
        }
        Ok(())
    }

    fn statement(&mut self, name: &[u8]) -> Result<Statement, Stop> {
        if let Some(statement) = self.prepared.statements.get(name) {
            return Ok(statement.clone());
        }
        if name.is_empty() {
            let message = "unnamed prepared statement does not exist";
            reply::error_of(&mut self.out, "26000", message);
            return Err(Stop::Refused);
        }
        Err(self.refuse_as("26000", "prepared statement", name, "does not exist"))
    }

    fn no_portal(&mut self, name: &[u8]) -> Stop {
        self.refuse_as("34000", "portal", name, "does not exist")
    }

    fn refuse_as(&mut self, code: &str, noun: &str, name: &[u8], what: &str) -> Stop {
        let message = [noun.as_bytes(), b" \"", name, b"\" ", what.as_bytes()].concat();
        reply::error_of(&mut self.out, code, message);
        Stop::Refused
    }
}

fn describe(out: &mut Vec<u8>, statement: &Statement, formats: &Formats) {
    match statement.as_ref().and_then(Command::heads) {
        Some(heads) => reply::columns(out, &heads, formats),
        None => backend::no_data(out),
    }
}

/// Is there a parameter such as `$1`? No command has a dollar sign outside quotes.
fn names_parameters(text: &[u8]) -> bool {
    let is_parameter = |two: &[u8]| two[0] == b'$' && two[1].is_ascii_digit();
    text.windows(2).any(is_parameter) && !text.contains(&b'\'') && !text.contains(&b'"')
}

/// Returns the length of a reply up to this many rows, in bytes; 0 rows means all. As in
/// PostgreSQL, a client that requests exactly as many rows as there are learns of the end only with
/// its next request.
fn rows_len(reply: &[u8], rows_max: u32) -> usize {
    let (mut at, mut rows) = (0, 0);
    while let Ok(Some(Header { code, total, .. })) = Header::parse(&reply[at..]) {
        at += total;
        if code == backend::DATA_ROW {
            rows += 1;
            if rows == rows_max {
                return at;
            }
        }
    }
    debug_assert!(at == reply.len(), "whole messages");
    at
}
