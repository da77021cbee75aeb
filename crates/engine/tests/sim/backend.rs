//! A PostgreSQL server process as a state machine over bytes. It has the message loop of the
//! protocol chapter and PostgreSQL 15's rules for errors, transactions, statements, portals and
//! copies. Its SQL is a toy (`sql.rs`), but every answer names the client that asked.
//!
//! It has two roles in the simulation: the servers behind Weir, and one *reference* per client,
//! which gives the answers of a direct connection.
//!
//! Its behaviour depends only on the bytes it reads and on the calls of `wake` and `cancel`, never
//! on chance.

mod ears;
mod exec;
mod extended;
mod lasting;
mod login;
mod reports;

use std::collections::HashMap;

use wire::error_fields::ErrorFields;
use wire::{HEADER_LEN, Header, backend, frontend};

pub(crate) use self::ears::{Ears, Order};
pub(crate) use self::exec::CANCELED;
pub(crate) use self::login::{Account, ServerAuth};
pub(crate) use self::reports::Library;
use crate::bus::Bus;
use crate::router::{is_for_readers, is_refused_by_readers};
use crate::schema::{Schema, Table};
use crate::settings::{STYLE, Settings};
use crate::sql::{Sql, Statement, Tag};

/// An error on its way to the client: SQLSTATE and text.
#[derive(Clone, Debug)]
pub(crate) struct Error(pub(crate) &'static str, pub(crate) String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Idle,
    Open,
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) sql: Vec<u8>,
    pub(crate) parsed: Sql,
    pub(crate) types: Vec<u8>,
    /// The state of its table when it was parsed.
    pub(crate) table: Table,
    /// The settings by which it was parsed.
    pub(crate) meaning: String,
    /// Prepared by SQL's PREPARE, and not by the protocol.
    pub(crate) from_sql: bool,
}

impl Prepared {
    fn statement(&self) -> Option<&Statement> {
        self.parsed.statements.first()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Portal {
    pub(crate) prepared: Prepared,
    pub(crate) tag: Option<Tag>,
    /// Number of rows already sent.
    pub(crate) at: usize,
}

/// Work that outlasts its message.
#[derive(Clone, Debug)]
pub(crate) enum Busy {
    CopyIn { extended: bool, tag: String, lines: usize },
    Sleep { extended: bool, tag: Option<Tag>, millis: u64 },
}

/// Marks of a setting's value in a row: it is the server's default, whatever that is; or the answer
/// was sent before the server's change of its default was known.
pub(crate) const FOLLOWS: &str = "^";
pub(crate) const NOTICED: &str = "~";

/// The library's refusal.
fn not_restored() -> Error {
    Error("55000", "the client's settings were not restored, so nothing runs here".into())
}

/// The number of bytes that PostgreSQL gathers before it writes.
const OUTPUT_BUFFER_LEN: usize = 8192;

#[derive(Debug)]
enum Phase {
    Login(Box<login::Login>),
    Running,
    Gone,
}

/// The state at a SAVEPOINT.
#[derive(Debug)]
struct Savepoint {
    settings: Settings,
    orders: usize,
    inserting: usize,
}

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) pid: u32,
    pub(crate) secret: [u8; 4],
    /// Shown in rows; 0 if the client may get any server.
    pub(crate) shown_pid: u32,
    phase: Phase,
    input: Vec<u8>,
    /// Output that was flushed.
    pub(crate) out: Vec<u8>,
    /// Output that was not flushed yet.
    buffered: Vec<u8>,
    /// Has the current message flushed anything?
    flushed: bool,
    pub(crate) settings: Settings,
    /// The settings when the transaction began.
    saved: Option<Settings>,
    savepoint: Option<Savepoint>,
    pub(crate) ears: Ears,
    block: Block,
    pub(crate) schema: Schema,
    /// Has there been a temporary table?
    had_objects: bool,
    statements: HashMap<Vec<u8>, Prepared>,
    portals: HashMap<Vec<u8>, Portal>,
    skipping: bool,
    busy: Option<Busy>,
    /// The client whose requests were seen since the session was last between transactions.
    asker: Option<usize>,
    /// The present transaction of its client has failed.
    failing: bool,
    /// The client whose last transaction has ended in an error.
    failed: Option<usize>,
    /// It may serve other clients after that (`reuse_after_error`).
    pub(crate) forgives: bool,
    /// In session mode: the client whose requests were seen since the last DISCARD ALL.
    owner: Option<usize>,
    /// The client whose request it saw last, and how often that was another one than before.
    turns: (Option<usize>, usize),
    /// The number of clients that may have it, one after the other.
    pub(crate) clients_max: usize,
    session_mode: bool,
    /// Was a COPY refused because its transaction had failed?
    pub(crate) copy_refused: bool,
    /// Inserted in the current transaction.
    pub(crate) inserting: Vec<Tag>,
    /// It has just begun a transaction, and no other message followed.
    pub(crate) begins_lone: bool,
    /// Committed, and not checked yet.
    pub(crate) inserted: Vec<Tag>,
    /// It may get only requests that the test router lets pass.
    pub(crate) is_reader: bool,
    /// Requests that it got as a reader and that are not counted yet.
    pub(crate) read: usize,
    /// It has executed a statement of the present request.
    has_executed: bool,
    /// It refuses Weir's resets.
    pub(crate) refuses_reset: bool,
    /// A sabotage: DISCARD ALL has no effect.
    pub(crate) skips_reset: bool,
    /// The number of reloads of the configuration that it has noticed.
    reloads: usize,
    /// Has it noticed a reload, after its client may have sent more?
    pub(crate) has_noticed: bool,
    /// It is a reference in a run with reloads: it tells whether its client has its own value.
    pub(crate) marks_defaults: bool,
    /// The number that was last drawn from a sequence.
    drawn: Option<String>,
    /// A number was drawn or asked for, so Weir may keep the server for that.
    pub(crate) has_numbers: bool,
    /// The series of random numbers that the client has begun: the client, and how many were drawn.
    seeded: Option<(usize, usize)>,
    reporter: reports::Reporter,
    /// Offences of Weir that this server has seen.
    pub(crate) complaints: Vec<String>,
}

impl Backend {
    fn new(pid: u32, settings: Settings, phase: Phase, session_mode: bool) -> Self {
        Self {
            schema: Schema::default(),
            pid,
            secret: pid.wrapping_mul(0x9e37_79b1).to_be_bytes(),
            shown_pid: if session_mode { pid } else { 0 },
            phase,
            input: Vec::new(),
            out: Vec::new(),
            buffered: Vec::new(),
            flushed: false,
            settings,
            had_objects: false,
            saved: None,
            savepoint: None,
            ears: Ears::default(),
            block: Block::Idle,
            statements: HashMap::new(),
            portals: HashMap::new(),
            skipping: false,
            busy: None,
            asker: None,
            failing: false,
            failed: None,
            forgives: true,
            owner: None,
            turns: (None, 0),
            clients_max: usize::MAX,
            session_mode,
            copy_refused: false,
            inserting: Vec::new(),
            begins_lone: false,
            inserted: Vec::new(),
            is_reader: false,
            read: 0,
            has_executed: false,
            refuses_reset: false,
            skips_reset: false,
            reloads: 0,
            has_noticed: false,
            marks_defaults: false,
            drawn: None,
            has_numbers: false,
            seeded: None,
            reporter: reports::Reporter::default(),
            complaints: Vec::new(),
        }
    }

    /// A server process that waits for a startup packet.
    pub(crate) fn server(
        pid: u32,
        account: Account,
        (schema, bus): (Schema, Bus),
        session_mode: bool,
    ) -> Self {
        let phase = Phase::Login(Box::new(login::Login::new(account)));
        let mut server = Self {
            schema,
            ears: Ears::new(bus),
            ..Self::new(pid, Settings::default(), phase, session_mode)
        };
        server.notice_reload();
        server.has_noticed = false;
        // The values at the start are not reported as changes.
        server.settings.changes();
        server
    }

    /// A session that is logged in, with a client's own settings.
    pub(crate) fn reference(settings: Settings) -> Self {
        Self::new(0, settings, Phase::Running, false)
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Is it between transactions, as far as it has read?
    pub(crate) fn is_in_login(&self) -> bool {
        matches!(self.phase, Phase::Login(_))
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        let read = self.input.is_empty() && !self.skipping && self.busy.is_none();
        read && self.block == Block::Idle && self.saved.is_none()
    }

    /// Are all its answers on their way?
    pub(crate) fn is_told(&self) -> bool {
        self.out.is_empty() && self.buffered.is_empty()
    }

    pub(crate) fn is_between_transactions(&self) -> bool {
        self.block == Block::Idle && self.saved.is_none()
    }

    /// The row that a session with these settings answers to this text, if nothing pins it.
    pub(crate) fn row_of(&mut self, settings: Settings, tag: Tag, sql: &str) -> Vec<u8> {
        (self.settings, self.buffered) = (settings, Vec::new());
        self.settings.drop_pins();
        self.rows(sql.as_bytes(), Some(&tag), 0..1, 1);
        std::mem::take(&mut self.buffered)
    }

    /// Does it have state that keeps it with its client?
    pub(crate) fn has_state(&self) -> bool {
        self.settings.has_pins()
            || self.has_numbers
            || self.is_seeded()
            || !self.ears.channels().is_empty()
    }

    /// Does it have a role that was revoked afterwards? It keeps the role, but cannot set it again.
    pub(crate) fn has_lost_role(&self) -> bool {
        self.settings.role_of().is_some_and(|of| self.schema.is_revoked(of))
    }

    /// Decides what stands in the library's place. Called before the login.
    pub(crate) fn load(&mut self, library: Library) {
        self.reporter.library = library;
    }

    /// May its client be kept because the last report could not tell the state?
    pub(crate) fn is_unsure(&self) -> bool {
        self.reporter.is_unsure()
    }

    /// Has it a series of random numbers, which only the end of the session ends?
    pub(crate) fn is_seeded(&self) -> bool {
        self.seeded.is_some()
    }

    /// Statements that the pooler keeps for its clients.
    pub(crate) fn named_statements(&self) -> usize {
        let mut statements = self.statements.iter();
        let is_named = |(name, _): &(&Vec<u8>, &Prepared)| name.starts_with(b"weir_");
        statements.by_ref().filter(is_named).count()
    }

    /// Is it in the middle of a COPY or a sleep?
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// The length of its sleep, if it sleeps.
    pub(crate) fn sleep(&self) -> Option<u64> {
        match self.busy {
            Some(Busy::Sleep { millis, .. }) => Some(millis),
            _ => None,
        }
    }

    /// The client whose request sleeps.
    pub(crate) fn sleeper(&self) -> Option<usize> {
        match &self.busy {
            Some(Busy::Sleep { tag: Some(tag), .. }) => Some(tag.client),
            _ => None,
        }
    }

    /// It ends, with or without an error message.
    pub(crate) fn die(&mut self, last_words: Option<(&str, &str)>) {
        if let Some((sqlstate, text)) = last_words {
            self.flush();
            backend::error(&mut self.out, &ErrorFields::new("FATAL", sqlstate, text));
        }
        self.phase = Phase::Gone;
    }

    /// Sends a message that belongs to no request, between two other messages.
    pub(crate) fn chatter(&mut self, notice: bool) {
        if notice {
            backend::notice(
                &mut self.buffered,
                &ErrorFields::new("NOTICE", crate::sql::CHATTER, "by the way"),
            );
        } else {
            let name = crate::settings::UNTRACKED.as_bytes();
            backend::parameter_status(&mut self.buffered, name, b"1");
        }
        self.flush();
    }

    /// All output, flushed or not.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.out);
        all.append(&mut self.buffered);
        all
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Handles one message, if there is one and no other work is pending. True if it was flushed.
    pub(crate) fn step(&mut self) -> Option<bool> {
        match self.phase {
            Phase::Login(_) => self.login_step(),
            Phase::Gone => None,
            Phase::Running if self.sleep().is_some() => None,
            Phase::Running => {
                let header = Header::parse(&self.input).expect("the pooler sent no such length")?;
                if self.input.len() < header.total {
                    return None;
                }
                let message: Vec<u8> = self.input.drain(..header.total).collect();
                self.flushed = false;
                self.message(header.code, &message[HEADER_LEN..]);
                if self.buffered.len() > OUTPUT_BUFFER_LEN {
                    self.out.append(&mut self.buffered);
                }
                Some(self.flushed)
            }
        }
    }

    /// The configuration may have been reloaded.
    fn notice_reload(&mut self) {
        let reloads = self.schema.reloads();
        if self.reloads == reloads {
            return;
        }
        (self.reloads, self.has_noticed) = (reloads, true);
        let value = format!("reloaded{reloads}");
        let savepoint = self.savepoint.as_mut().map(|at| &mut at.settings);
        let all = std::iter::once(&mut self.settings).chain(&mut self.saved).chain(savepoint);
        all.for_each(|settings| settings.reload(STYLE, &value));
    }

    fn message(&mut self, code: u8, body: &[u8]) {
        self.notice_reload();
        if let Some(Busy::CopyIn { .. }) = self.busy {
            return self.copy_message(code, body);
        }
        let is_known = matches!(
            code,
            frontend::QUERY
                | frontend::PARSE
                | frontend::BIND
                | frontend::DESCRIBE
                | frontend::EXECUTE
                | frontend::CLOSE
                | frontend::FUNCTION_CALL
                | frontend::FLUSH
                | frontend::SYNC
                | frontend::COPY_DATA
                | frontend::COPY_DONE
                | frontend::COPY_FAIL
                | frontend::TERMINATE
        );
        if !is_known {
            self.complaints.push(format!("message of unknown type {code:#x}"));
            return self.die(Some(("08P01", "invalid frontend message type")));
        }
        if self.refuses_message(code, body) && !self.skipping {
            match code {
                frontend::QUERY | frontend::FUNCTION_CALL => {
                    self.fail(&not_restored());
                    return self.ready();
                }
                frontend::PARSE
                | frontend::BIND
                | frontend::DESCRIBE
                | frontend::EXECUTE
                | frontend::CLOSE => {
                    self.fail(&not_restored());
                    self.skipping = true;
                    return;
                }
                _ => {}
            }
        }
        match code {
            frontend::TERMINATE => self.phase = Phase::Gone,
            frontend::SYNC => {
                self.skipping = false;
                self.commit();
                self.ready();
            }
            _ if self.skipping => {}
            frontend::QUERY => self.query(body),
            frontend::FUNCTION_CALL => self.function_call(body),
            frontend::FLUSH => self.flush(),
            // Left over from a copy that has failed.
            frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL => {}
            _ => {
                if let Err(error) = self.extended(code, body) {
                    self.fail(&error);
                    self.skipping = true;
                }
            }
        }
    }

    fn flush(&mut self) {
        self.flushed = true;
        self.out.append(&mut self.buffered);
    }

    /// Sends notifications of others, changed settings, and ReadyForQuery.
    fn ready(&mut self) {
        self.write_news();
        for (name, value) in self.settings.changes() {
            backend::parameter_status(&mut self.buffered, name.as_bytes(), value.as_bytes());
        }
        self.write_report();
        let status = match self.block {
            Block::Idle => b'I',
            Block::Open => b'T',
            Block::Failed => b'E',
        };
        backend::ready_for_query(&mut self.buffered, status);
        self.flush();
        self.has_executed = false;
        if self.block != Block::Failed {
            if self.block == Block::Idle
                && let Some(client) = self.asker.take()
            {
                self.failed = self.failing.then_some(client);
            }
            self.failing = false;
        }
    }

    fn fail(&mut self, error: &Error) {
        self.note_error();
        let mut fields = ErrorFields::new("ERROR", error.0, &error.1);
        fields.fields.insert(1, (b'V', b"ERROR".to_vec()));
        if error.0 == extended::CHANGED {
            fields.replace(b'R', b"RevalidateCachedQuery".as_slice());
        }
        backend::error(&mut self.buffered, &fields);
        self.flush();
        let (orders, inserting) =
            self.savepoint.as_ref().map_or((0, 0), |at| (at.orders, at.inserting));
        self.ears.orders.truncate(orders);
        self.inserting.truncate(inserting);
        if let Some(saved) = self.saved.take() {
            self.settings.restore(saved);
        }
        match self.block {
            Block::Idle => self.portals.clear(),
            Block::Open | Block::Failed => self.block = Block::Failed,
        }
    }

    /// Begins a transaction, if none is open.
    fn begin_work(&mut self) {
        if self.saved.is_none() && self.block != Block::Failed {
            self.saved = Some(self.settings.clone());
        }
    }

    /// Formats a setting for a row.
    fn shown(&self, name: &str, value: &str) -> String {
        let mark = match name == STYLE {
            true if self.marks_defaults && self.settings.follows_default(name) => FOLLOWS,
            true if self.has_noticed => NOTICED,
            _ => "",
        };
        format!("{name}={mark}{value}")
    }

    /// The end of a transaction that no BEGIN had begun.
    fn commit(&mut self) {
        if self.block == Block::Idle {
            self.end_work();
        }
    }

    /// The effects of the transaction become visible.
    fn end_work(&mut self) {
        (self.saved, self.savepoint) = (None, None);
        self.settings.end_local();
        self.inserted.append(&mut self.inserting);
        self.ears.commit(self.pid);
        self.portals.clear();
    }

    /// A request is executed outside a transaction. Checks whether a reader may get it.
    fn check_place(&mut self, tag: Option<&Tag>) {
        let Some(tag) = tag else { return };
        if self.is_reader && self.block == Block::Idle {
            self.read += 1;
            if !is_for_readers(*tag) {
                self.complaints.push(format!("{tag} was for the writer"));
            }
        }
    }

    /// A reader refuses some of the requests that it gets, before they have an effect.
    fn check_refusal(&self, statement: &Statement, tag: Option<&Tag>) -> Result<(), Error> {
        let refuses = self.is_reader
            && self.block == Block::Idle
            && !self.has_executed
            && matches!(statement, Statement::Select { .. })
            && tag.is_some_and(|tag| is_refused_by_readers(*tag));
        match refuses {
            true => Err(Error("25006", "cannot execute SELECT in a read-only transaction".into())),
            false => Ok(()),
        }
    }

    /// A request names its client. Checks whether the client should have this session.
    fn meet(&mut self, tag: Option<&Tag>) {
        let Some(tag) = tag else { return };
        let client = tag.client;
        if self.asker.is_some_and(|other| other != client) {
            let other = self.asker.unwrap_or_default();
            self.complaints.push(format!("{tag} came into a transaction of client {other}"));
        }
        if let Some(other) = self.failed.filter(|other| !self.forgives && *other != client) {
            self.complaints.push(format!("{tag} was served after an error of client {other}"));
        }
        if self.session_mode && self.owner.is_some_and(|other| other != client) {
            let other = self.owner.unwrap_or_default();
            self.complaints.push(format!("{tag} found the session of client {other} not reset"));
        }
        let (last, turns) = self.turns;
        self.turns = (Some(client), turns + usize::from(last != Some(client)));
        if self.turns.1 > self.clients_max {
            let (turns, most) = (self.turns.1, self.clients_max);
            self.complaints.push(format!("{turns} clients had it in turn, {most} are allowed"));
        }
        self.asker = Some(client);
        self.owner = Some(client);
        self.reporter.trust();
    }
}
