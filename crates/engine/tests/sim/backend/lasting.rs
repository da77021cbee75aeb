//! State that is not a setting: cursors WITH HOLD, advisory locks, statements of SQL's PREPARE.
//! Also SET LOCAL, and functions that set something.

use wire::{backend, frontend};

use super::{Backend, Error, Prepared};
use crate::schema::Table;
use crate::settings::CURSOR;
use crate::sql::{Sql, Statement, Tag, Trigger};

impl Backend {
    /// `sql` is the whole text.
    pub(super) fn lasting(
        &mut self,
        statement: &Statement,
        sql: &[u8],
        tag: Option<&Tag>,
    ) -> Result<String, Error> {
        let done = match statement {
            Statement::SetLocal(name, value) => {
                self.settings.set_local(name, value);
                "SET"
            }
            Statement::Cursor { made: true } => {
                self.settings.set(CURSOR, &format!("of {}", tag.map_or(0, |tag| tag.client)));
                "DECLARE CURSOR"
            }
            Statement::Cursor { made: false } => {
                self.settings.reset(CURSOR);
                "CLOSE CURSOR"
            }
            Statement::Lock { taken } => {
                let held = self.settings.locks();
                self.settings.set_locks(if *taken { held + 1 } else { held.saturating_sub(1) });
                self.one_row(if *taken || held > 0 { "t" } else { "f" })
            }
            Statement::Call { sets } => {
                if let Some(value) = sets {
                    self.settings.set("work_mem", value);
                }
                self.one_row("called")
            }
            Statement::Number { drawn } => self.number(*drawn, tag)?,
            Statement::Fire(trigger) => self.fire(trigger, tag)?,
            Statement::Random => self.random(),
            Statement::Prepare(name, prepared) => {
                self.prepare(name, prepared, sql, tag)?;
                "PREPARE"
            }
            Statement::Execute(name) => return self.execute_prepared(name, tag),
            Statement::Deallocate(name) => {
                self.statement(name.as_bytes())?;
                self.statements.remove(name.as_bytes());
                "DEALLOCATE"
            }
            _ => "",
        };
        Ok(done.to_owned())
    }

    /// Draws from the client's own sequence. The session knows the last number.
    fn number(&mut self, drawn: bool, tag: Option<&Tag>) -> Result<&'static str, Error> {
        self.has_numbers = true;
        if drawn {
            let client = tag.map_or(0, |tag| tag.client);
            self.drawn = Some(format!("number {} of {client}", self.schema.draw(client)));
        } else {
            self.note_event("lastval");
        }
        let missing = || "lastval and currval are not yet defined in this session".to_owned();
        let last = self.drawn.clone().ok_or_else(|| Error("55000", missing()))?;
        Ok(self.one_row(&last))
    }

    fn fire(&mut self, trigger: &Trigger, tag: Option<&Tag>) -> Result<&'static str, Error> {
        match trigger {
            Trigger::Sets(value) => self.settings.set("work_mem", value),
            Trigger::Locks => self.settings.set_locks(self.settings.locks() + 1),
            Trigger::Unlocks => self.settings.set_locks(self.settings.locks().saturating_sub(1)),
            Trigger::AsksNumber => return self.number(false, tag),
            Trigger::Seeds => {
                self.note_event("setseed");
                self.seeded = Some((tag.map_or(0, |tag| tag.client), 0));
            }
        }
        Ok("UPDATE 1")
    }

    /// Neither the end of a transaction nor DISCARD ALL changes the series.
    fn random(&mut self) -> &'static str {
        let Some((client, count)) = &mut self.seeded else { return self.one_row("any") };
        *count += 1;
        let value = format!("random number {count} of {client}");
        self.one_row(&value)
    }

    fn one_row(&mut self, value: &str) -> &'static str {
        backend::data_row(&mut self.buffered, &[Some(value.as_bytes())]);
        "SELECT 1"
    }

    /// The statement outlasts the transaction, however that ends. pg_prepared_statements shows its
    /// text.
    fn prepare(
        &mut self,
        name: &str,
        prepared: &Statement,
        sql: &[u8],
        tag: Option<&Tag>,
    ) -> Result<(), Error> {
        if self.statements.contains_key(name.as_bytes()) {
            let why = format!("prepared statement \"{name}\" already exists");
            return Err(Error("42P05", why));
        }
        let statements = vec![prepared.clone()];
        let parsed = Sql { tag: tag.copied(), statements, has_parameter: false };
        let (types, table) = (frontend::NO_TYPES.to_vec(), Table::default());
        let (sql, meaning) = (sql.to_vec(), self.meaning());
        let one = Prepared { sql, parsed, types, table, meaning, from_sql: true };
        self.statements.insert(name.as_bytes().to_vec(), one);
        Ok(())
    }

    fn execute_prepared(&mut self, name: &str, tag: Option<&Tag>) -> Result<String, Error> {
        let prepared = self.statement(name.as_bytes())?.clone();
        let Some(Statement::Select { rows, len }) = prepared.statement() else {
            return Err(Error("0A000", "only a SELECT is prepared here".into()));
        };
        self.rows(&prepared.sql, tag, 0..*rows, *len);
        Ok(format!("SELECT {rows}"))
    }
}
