//! Executes statements of a simple Query, and copies and sleeps, which outlast a message.

use wire::backend::{self, Column};
use wire::error_fields::ErrorFields;
use wire::frontend;

use super::reports::item;
use super::{Backend, Block, Busy, Error, Order, Prepared, Savepoint};
use crate::schema::Table;
use crate::settings::{BUFFERS, OBJECT, PRIVILEGED, ROLE, role_of};
use crate::sql::{Sql, Statement, Tag};

/// The progress of a statement.
pub(super) enum Progress {
    /// Complete, with this command tag.
    Done(String),
    /// It continues with later messages, or later in time.
    Goes(Busy),
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn aborted() -> Error {
    let why = "current transaction is aborted, commands ignored until end of transaction block";
    Error("25P02", why.into())
}

fn shown(tag: Option<&Tag>) -> String {
    tag.map_or_else(|| "nobody".into(), Tag::to_string)
}

impl Backend {
    pub(super) fn query(&mut self, body: &[u8]) {
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        let sql = body.strip_suffix(b"\0").unwrap_or(body);
        self.begin_work();
        let Some(parsed) = Sql::parse(sql) else {
            self.fail(&Error("42601", format!("syntax error in {}", text(sql))));
            return self.ready();
        };
        self.meet(parsed.tag.as_ref());
        // Weir prepares a client's statements on every server.
        if !parsed.statements.iter().all(|one| matches!(one, Statement::Prepare(..))) {
            self.check_place(parsed.tag.as_ref());
        }
        if parsed.statements.is_empty() {
            backend::empty_query(&mut self.buffered);
        }
        let several = parsed.statements.len() > 1;
        for statement in &parsed.statements {
            if self.returns_rows(statement) && self.block != Block::Failed {
                self.describe_rows(statement);
            }
            let tag = parsed.tag.as_ref();
            let run = self
                .check_refusal(statement, tag)
                .and_then(|()| self.run(statement, sql, tag, several, false));
            self.has_executed = true;
            match run {
                Ok(Progress::Done(tag)) => backend::command_complete(&mut self.buffered, &tag),
                Ok(Progress::Goes(busy)) => {
                    self.busy = Some(busy);
                    return;
                }
                Err(error) => {
                    self.fail(&error);
                    break;
                }
            }
            self.begin_work();
        }
        self.commit();
        self.ready();
    }

    /// Does the statement return rows in the present state?
    fn returns_rows(&self, statement: &Statement) -> bool {
        let prepared = match statement {
            Statement::Execute(name) => self.statement(name.as_bytes()).ok(),
            _ => return statement.returns_rows(),
        };
        prepared.and_then(Prepared::statement).is_some_and(Statement::returns_rows)
    }

    pub(super) fn describe_rows(&mut self, statement: &Statement) {
        let name = match statement.table() {
            Some(of) => format!("answer {}", self.schema.table(of).shape),
            None => "answer".to_owned(),
        };
        let column = Column { name: &name, type_oid: 25, type_len: -1 };
        backend::row_description(&mut self.buffered, &[column]);
    }

    fn show(&mut self, name: &str, tag: Option<&Tag>) -> String {
        let value = self.settings.get(name).unwrap_or_default();
        let answer = format!("{}|{},", shown(tag), self.shown(name, value));
        backend::data_row(&mut self.buffered, &[Some(answer.as_bytes())]);
        "SHOW".to_owned()
    }

    /// `several`: the statement is one of several in one string.
    pub(super) fn run(
        &mut self,
        statement: &Statement,
        sql: &[u8],
        tag: Option<&Tag>,
        several: bool,
        extended: bool,
    ) -> Result<Progress, Error> {
        if self.block == Block::Failed && !statement.ends_transaction() {
            self.copy_refused |= *statement == Statement::CopyIn;
            return Err(aborted());
        }
        self.begin_work();
        let done = match statement {
            Statement::Begin | Statement::Commit | Statement::Rollback => {
                self.transaction_statement(statement, tag)
            }
            Statement::Savepoint { made } => self.savepoint_statement(*made)?,
            Statement::Notify(order) => {
                self.ears.orders.push(order.clone());
                order.tag().to_owned()
            }
            Statement::Change { .. } | Statement::Read { .. } | Statement::Write { .. } => {
                self.on_table(statement, tag)
            }
            Statement::Set(_, value) if value == "bad" => {
                return Err(Error("22023", format!("bad value for {}", shown(tag))));
            }
            Statement::Set(..)
            | Statement::SetConfig(_)
            | Statement::Reset(_)
            | Statement::SetDefault(_)
            | Statement::Object { .. } => self.change_session(statement, tag)?,
            Statement::SetLocal(..)
            | Statement::Cursor { .. }
            | Statement::Lock { .. }
            | Statement::Call { .. }
            | Statement::Number { .. }
            | Statement::Fire(_)
            | Statement::Random
            | Statement::Prepare(..)
            | Statement::Execute(_)
            | Statement::Deallocate(_) => self.lasting(statement, sql, tag)?,
            Statement::Grant { to, granted } => {
                self.schema.grant(*to, *granted);
                if *granted { "GRANT ROLE" } else { "REVOKE ROLE" }.to_owned()
            }
            Statement::Meaning => self.tell_meaning(tag, &self.meaning()),
            Statement::Probe { settings, objects, lent } => {
                self.tell_what_is_left(*settings, *objects, lent)
            }
            Statement::Raise(code, text) => return Err(Error(code, text.clone())),
            Statement::Show(name) => self.show(name, tag),
            Statement::Select { rows, len } => {
                self.rows(sql, tag, 0..*rows, *len);
                format!("SELECT {rows}")
            }
            Statement::Insert => {
                let new = tag.filter(|tag| !self.inserting.contains(tag));
                self.inserting.extend(new.copied());
                format!("INSERT {}", shown(tag))
            }
            Statement::Fail => {
                self.failing = true;
                return Err(Error("22012", format!("failed for {}", shown(tag))));
            }
            Statement::Notice => {
                let hello = format!("hello {}", shown(tag));
                let notice = ErrorFields::new("NOTICE", "00000", &hello);
                backend::notice(&mut self.buffered, &notice);
                self.flush();
                "DO".to_owned()
            }
            Statement::CopyIn => {
                backend::copy_in_response(&mut self.buffered, 1);
                self.flush();
                return Ok(Progress::Goes(Busy::CopyIn { extended, tag: shown(tag), lines: 0 }));
            }
            Statement::CopyOut { rows, len } => self.copy_out(tag, *rows, *len),
            Statement::Sleep(millis) => {
                let (tag, millis) = (tag.copied(), *millis);
                return Ok(Progress::Goes(Busy::Sleep { extended, tag, millis }));
            }
            Statement::DiscardAll | Statement::DiscardSequences | Statement::DeallocateAll => {
                self.discard(statement, several, tag.is_none() && !extended)?
            }
        };
        Ok(Progress::Done(done))
    }

    fn copy_out(&mut self, tag: Option<&Tag>, rows: usize, len: usize) -> String {
        backend::copy_out_response(&mut self.buffered, 1);
        for at in 0..rows {
            let line = format!("{}|{at}|{}\n", shown(tag), "x".repeat(len));
            backend::copy_data(&mut self.buffered, line.as_bytes());
        }
        backend::copy_done(&mut self.buffered);
        format!("COPY {rows}")
    }

    /// `is_poolers`: the text names no client.
    fn discard(
        &mut self,
        statement: &Statement,
        several: bool,
        is_poolers: bool,
    ) -> Result<String, Error> {
        Ok(match statement {
            Statement::DiscardSequences => {
                self.drawn = None;
                self.note_event("discard");
                "DISCARD SEQUENCES".to_owned()
            }
            Statement::DeallocateAll => {
                self.forget_named();
                "DEALLOCATE ALL".to_owned()
            }
            _ if self.refuses_reset && is_poolers => {
                return Err(Error("55006", "the session cannot be reset".into()));
            }
            _ if self.skips_reset => "DISCARD ALL".to_owned(),
            _ => self.discard_all(several)?,
        })
    }

    /// `several`: the statement is one of several in one string.
    fn discard_all(&mut self, several: bool) -> Result<String, Error> {
        if several || self.block != Block::Idle {
            return Err(Error("25001", "DISCARD ALL cannot run inside a transaction block".into()));
        }
        self.portals.clear();
        self.forget_named();
        self.settings.reset_all();
        self.settings.drop_pins();
        self.settings.reset(ROLE);
        self.drawn = None;
        self.note_event("discard");
        self.ears.orders.push(Order::Unlisten(None));
        self.saved = None;
        self.owner = None;
        Ok("DISCARD ALL".to_owned())
    }

    fn change_session(
        &mut self,
        statement: &Statement,
        tag: Option<&Tag>,
    ) -> Result<String, Error> {
        let done = match statement {
            Statement::Set(name, value) => {
                self.may_set(name, value)?;
                self.settings.set(name, value);
                "SET"
            }
            Statement::SetConfig(all) => {
                for (name, value) in all {
                    self.may_change(name)?;
                    self.may_set(name, value)?;
                    self.settings.set(name, value);
                }
                "SELECT 1"
            }
            Statement::Object { made: true } => {
                self.had_objects = true;
                self.settings.set(OBJECT, &format!("of {}", tag.map_or(0, |tag| tag.client)));
                "CREATE TABLE"
            }
            Statement::Object { made: false } => {
                self.settings.reset(OBJECT);
                "DROP TABLE"
            }
            Statement::Reset(Some(name)) | Statement::SetDefault(name) => {
                self.may_change(name)?;
                self.may_set(name, "")?;
                self.settings.reset(name);
                match statement {
                    Statement::SetDefault(_) => "SET",
                    _ => "RESET",
                }
            }
            _ => {
                self.settings.reset_all();
                "RESET"
            }
        };
        Ok(done.to_owned())
    }

    fn may_set(&self, name: &str, value: &str) -> Result<(), Error> {
        let is_revoked = role_of(value).is_some_and(|of| self.schema.is_revoked(of));
        match name {
            ROLE if is_revoked => {
                Err(Error("42501", format!("permission denied to set role {value}")))
            }
            PRIVILEGED if self.settings.role_of().is_some() => {
                Err(Error("42501", format!("permission denied to set {name}")))
            }
            _ => Ok(()),
        }
    }

    /// Only Weir is refused here. Its clients need not know that other clients have had temporary
    /// tables on this server.
    fn may_change(&self, name: &str) -> Result<(), Error> {
        match name == BUFFERS && self.had_objects {
            true => Err(Error("22023", format!("{name} cannot be changed any more"))),
            false => Ok(()),
        }
    }

    /// The answer to Weir's probe.
    fn tell_what_is_left(&mut self, settings: bool, objects: bool, lent: &[String]) -> String {
        let lent = lent.iter().filter(|name| self.statements.contains_key(name.as_bytes()));
        let lent = lent.map(|name| item(b'n', name.as_bytes(), None));
        let items = self.state_items(settings, objects).into_iter().chain(lent).collect::<Vec<_>>();
        items.iter().for_each(|item| backend::data_row(&mut self.buffered, &[Some(&item[..])]));
        format!("SELECT {}", items.len())
    }

    /// Makes a savepoint, or goes back to it.
    fn savepoint_statement(&mut self, made: bool) -> Result<String, Error> {
        if self.block == Block::Idle {
            return Err(Error("25P01", "SAVEPOINT can only be used in transaction blocks".into()));
        }
        if made {
            let (orders, inserting) = (self.ears.orders.len(), self.inserting.len());
            let settings = self.settings.clone();
            self.savepoint = Some(Savepoint { settings, orders, inserting });
            return Ok("SAVEPOINT".to_owned());
        }
        let Some(at) = &self.savepoint else {
            return Err(Error("3B001", "savepoint \"s\" does not exist".into()));
        };
        self.ears.orders.truncate(at.orders);
        self.inserting.truncate(at.inserting);
        // A failed block restores the state from before it.
        let begun = self.saved.take().unwrap_or_else(|| self.settings.clone());
        self.saved = Some(begun);
        self.settings.restore(at.settings.clone());
        self.block = Block::Open;
        Ok("ROLLBACK".to_owned())
    }

    fn forget_named(&mut self) {
        self.statements.retain(|name, _| name.is_empty());
    }

    fn on_table(&mut self, statement: &Statement, tag: Option<&Tag>) -> String {
        match statement {
            Statement::Change { of, openly } => {
                self.schema.change(*of, *openly);
                if *openly { "ALTER TABLE" } else { "DO" }.to_owned()
            }
            Statement::Write { of } => self.written(tag, self.schema.table(*of)),
            _ => {
                let of = statement.table().unwrap_or_default();
                let row = format!("{}|columns {}", shown(tag), self.schema.table(of).shape);
                backend::data_row(&mut self.buffered, &[Some(row.as_bytes())]);
                "SELECT 1".to_owned()
            }
        }
    }

    /// The settings by which a text is parsed now.
    pub(super) fn meaning(&self) -> String {
        let value = |name| self.settings.get(name).unwrap_or_default();
        format!("read by {}, {}", value("search_path"), value("TimeZone"))
    }

    pub(super) fn tell_meaning(&mut self, tag: Option<&Tag>, meaning: &str) -> String {
        let row = format!("{}|{meaning}", shown(tag));
        backend::data_row(&mut self.buffered, &[Some(row.as_bytes())]);
        "SELECT 1".to_owned()
    }

    /// The sources of a value.
    pub(super) fn written(&self, tag: Option<&Tag>, table: Table) -> String {
        format!("WRITE {} as type {}", shown(tag), table.types)
    }

    fn transaction_statement(&mut self, statement: &Statement, tag: Option<&Tag>) -> String {
        let is_begin = *statement == Statement::Begin;
        let begun = tag.filter(|_| is_begin).map_or(0, |tag| self.schema.begin(*tag));
        if begun > 2 {
            self.complaints.push(format!("a BEGIN was sent for the {begun}rd time"));
        }
        let is_odd = is_begin != (self.block == Block::Idle);
        if is_odd {
            let warning =
                ErrorFields::new("WARNING", "25P01", "there is such a transaction, or no");
            backend::notice(&mut self.buffered, &warning);
            self.flush();
        }
        if is_begin {
            self.begins_lone = begun > 0;
            self.block = Block::Open;
            return "BEGIN".to_owned();
        }
        let undone = *statement == Statement::Rollback || self.block == Block::Failed;
        if undone {
            self.inserting.clear();
            self.ears.orders.clear();
            if let Some(saved) = self.saved.take() {
                self.settings.restore(saved);
            }
        }
        self.block = Block::Idle;
        self.end_work();
        if undone { "ROLLBACK" } else { "COMMIT" }.to_owned()
    }

    /// Each row names the client, its request and the session.
    pub(super) fn rows(
        &mut self,
        sql: &[u8],
        tag: Option<&Tag>,
        which: std::ops::Range<usize>,
        len: usize,
    ) {
        let session: Vec<String> =
            self.settings.all().map(|(name, value)| self.shown(name, value)).collect();
        let (session, asker, padding) = (session.join(","), shown(tag), "x".repeat(len));
        for at in which {
            let row = format!("{asker}|{}|{session}|{}|{at}|{padding}", text(sql), self.shown_pid);
            backend::data_row(&mut self.buffered, &[Some(row.as_bytes())]);
        }
    }

    pub(super) fn function_call(&mut self, body: &[u8]) {
        self.begin_work();
        // Object id, no formats, one argument: the client's tag.
        let name = body.get(12..body.len().saturating_sub(2)).map(text).unwrap_or_default();
        let tag = Tag::parse(&name);
        self.meet(tag.as_ref());
        if self.block == Block::Failed {
            self.fail(&aborted());
        } else if body.starts_with(&[0; 4]) {
            self.fail(&Error("42883", format!("no function for {name}")));
        } else {
            let value = format!("called by {name}");
            self.buffered.push(backend::FUNCTION_CALL_RESPONSE);
            self.buffered.extend_from_slice(&(value.len() as u32 + 8).to_be_bytes());
            self.buffered.extend_from_slice(&(value.len() as u32).to_be_bytes());
            self.buffered.extend_from_slice(value.as_bytes());
        }
        self.commit();
        self.ready();
    }

    pub(super) fn copy_message(&mut self, code: u8, body: &[u8]) {
        let Some(Busy::CopyIn { extended, tag, mut lines }) = self.busy.take() else { return };
        let end = match code {
            frontend::COPY_DATA if body.starts_with(b"BAD") => {
                Err(Error("22P04", format!("bad line {lines} from {tag}")))
            }
            frontend::COPY_DONE => Ok(format!("COPY {lines}")),
            frontend::COPY_FAIL => {
                let why = text(body.strip_suffix(b"\0").unwrap_or(body));
                Err(Error("57014", format!("COPY from stdin failed: {why}")))
            }
            frontend::COPY_DATA | frontend::SYNC | frontend::FLUSH => {
                lines += usize::from(code == frontend::COPY_DATA);
                self.busy = Some(Busy::CopyIn { extended, tag, lines });
                return;
            }
            other => {
                self.complaints.push(format!("message {:?} during a copy", char::from(other)));
                return self.die(Some(("08P01", "protocol synchronization was lost")));
            }
        };
        self.finish(extended, end);
    }

    /// Ends the work that has outlasted its message.
    fn finish(&mut self, extended: bool, end: Result<String, Error>) {
        match end {
            Ok(tag) => backend::command_complete(&mut self.buffered, &tag),
            Err(error) => {
                self.fail(&error);
                self.skipping = extended;
            }
        }
        if !extended {
            self.commit();
            self.ready();
        }
    }

    /// The sleep is over.
    pub(crate) fn wake(&mut self) {
        if let Some(Busy::Sleep { extended, tag, .. }) = self.busy.take() {
            self.finish(extended, Ok(format!("SLEEP {}", shown(tag.as_ref()))));
        }
    }

    /// A cancel request arrives. True if it hits something.
    pub(crate) fn cancel(&mut self) -> bool {
        if self.sleep().is_none() {
            return false;
        }
        if let Some(Busy::Sleep { extended, tag, .. }) = self.busy.take() {
            let why = format!("canceling statement of {}", shown(tag.as_ref()));
            self.finish(extended, Err(Error(CANCELED, why)));
        }
        true
    }
}

/// SQLSTATE of a canceled query.
pub(crate) const CANCELED: &str = "57014";
