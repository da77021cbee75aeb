//! The extended query protocol: statements, portals, and PostgreSQL's order of checks.

use wire::messages::{Bind, Parse, StatementOrPortal};
use wire::{Reader, backend, frontend};

use super::exec::{Progress, aborted, text};
use super::{Backend, Block, Error, Portal, Prepared};
use crate::sql::{Sql, Statement, Tag};

/// SQLSTATE of a statement whose table has changed its columns.
pub(super) const CHANGED: &str = "0A000";

impl Backend {
    pub(super) fn extended(&mut self, code: u8, body: &[u8]) -> Result<(), Error> {
        self.begin_work();
        match code {
            frontend::PARSE => self.parse(body),
            frontend::BIND => self.bind(body),
            frontend::DESCRIBE => self.describe(body),
            frontend::EXECUTE => self.execute(body),
            _ => self.close(body),
        }
    }

    fn parse(&mut self, body: &[u8]) -> Result<(), Error> {
        let parse = Parse::decode(body).map_err(malformed)?;
        if parse.name.is_empty() {
            self.statements.remove(&b""[..]);
        }
        let parsed = Sql::parse(parse.sql).filter(|sql| sql.statements.len() <= 1);
        let first = parsed.as_ref().and_then(|sql| sql.statements.first());
        // PostgreSQL checks the syntax first; see `bind`.
        if self.block == Block::Failed && !first.is_some_and(Statement::ends_transaction) {
            self.copy_refused |= first == Some(&Statement::CopyIn);
            return Err(aborted());
        }
        let Some(parsed) = parsed else {
            return Err(Error("42601", format!("syntax error in {}", text(parse.sql))));
        };
        if self.statements.contains_key(parse.name) {
            let name = text(parse.name);
            return Err(Error("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let types = parse.types_raw.to_vec();
        let of = parsed.statements.first().and_then(Statement::table);
        let table = of.map(|of| self.schema.table(of)).unwrap_or_default();
        let (sql, meaning) = (parse.sql.to_vec(), self.meaning());
        let prepared = Prepared { sql, parsed, types, table, meaning, from_sql: false };
        self.statements.insert(parse.name.to_vec(), prepared);
        backend::parse_complete(&mut self.buffered);
        Ok(())
    }

    pub(super) fn statement(&self, name: &[u8]) -> Result<&Prepared, Error> {
        self.statements.get(name).ok_or_else(|| {
            let why = match name {
                b"" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{}\" does not exist", text(name)),
            };
            Error("26000", why)
        })
    }

    fn portal(&self, name: &[u8]) -> Result<&Portal, Error> {
        let missing = || Error("34000", format!("portal \"{}\" does not exist", text(name)));
        self.portals.get(name).ok_or_else(missing)
    }

    fn bind(&mut self, body: &[u8]) -> Result<(), Error> {
        let bind = Bind::decode(body).map_err(malformed)?;
        let prepared = self.statement(bind.statement)?.clone();
        let values = values(bind.rest).ok_or(Error("08P01", "malformed Bind".into()))?;
        // PostgreSQL counts the values first. But Weir cannot prepare the statement in a failed
        // transaction, so both orders are allowed.
        let exits = prepared.parsed.statements.first().is_some_and(Statement::ends_transaction);
        if self.block == Block::Failed && !exits {
            return Err(aborted());
        }
        let wanted = usize::from(prepared.parsed.has_parameter);
        if values.len() != wanted {
            let why = format!("bind message supplies {}, requires {wanted}", values.len());
            return Err(Error("08P01", why));
        }
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            let name = text(bind.portal);
            return Err(Error("42P03", format!("cursor \"{name}\" already exists")));
        }
        let tag = values.first().and_then(|value| Tag::parse(value)).or(prepared.parsed.tag);
        self.meet(tag.as_ref());
        let current = self.revalidate(&prepared);
        if let (Some(tag), Some(Statement::Read { told: true, .. })) = (tag, prepared.statement()) {
            if current.is_err() {
                self.schema.refuse(tag);
            } else if self.schema.was_refused(tag) {
                self.complaints.push(format!("{tag} was refused and then done"));
            }
        }
        current?;
        self.portals.insert(bind.portal.to_vec(), Portal { prepared, tag, at: 0 });
        backend::bind_complete(&mut self.buffered);
        Ok(())
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), Error> {
        let named = StatementOrPortal::decode(body).map_err(malformed)?;
        let is_statement = named.kind == b'S';
        let prepared = match is_statement {
            true => self.statement(named.name)?,
            false => &self.portal(named.name)?.prepared,
        };
        let prepared = prepared.clone();
        let has_rows = prepared.parsed.statements.first().is_some_and(Statement::returns_rows);
        let exits = prepared.parsed.statements.first().is_some_and(Statement::ends_transaction);
        // PostgreSQL describes a statement without rows; see `bind`.
        if self.block == Block::Failed && (has_rows || !exits) {
            return Err(aborted());
        }
        if is_statement {
            let mut types = prepared.types.clone();
            if prepared.parsed.has_parameter && types == frontend::NO_TYPES {
                types = vec![0, 1, 0, 0, 0, 25];
            }
            self.buffered.push(backend::PARAMETER_DESCRIPTION);
            self.buffered.extend_from_slice(&(types.len() as u32 + 4).to_be_bytes());
            self.buffered.extend_from_slice(&types);
        }
        match prepared.statement().filter(|_| has_rows) {
            Some(statement) => {
                self.revalidate(&prepared)?;
                self.describe_rows(&statement.clone());
            }
            None => backend::no_data(&mut self.buffered),
        }
        Ok(())
    }

    /// Does the statement still return the same columns as when it was parsed?
    fn revalidate(&self, prepared: &Prepared) -> Result<(), Error> {
        let Some(Statement::Read { of, .. }) = prepared.statement() else { return Ok(()) };
        match self.schema.table(*of).shape == prepared.table.shape {
            true => Ok(()),
            false => Err(Error(CHANGED, "cached plan must not change result type".into())),
        }
    }

    fn execute(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(body);
        let (name, limit) = reader
            .cstr()
            .zip(reader.u32())
            .ok_or_else(|| Error("08P01", "malformed Execute".into()))?;
        let portal = self.portal(name)?.clone();
        self.meet(portal.tag.as_ref());
        self.check_place(portal.tag.as_ref());
        let Some(statement) = portal.prepared.parsed.statements.first() else {
            backend::empty_query(&mut self.buffered);
            return Ok(());
        };
        let (sql, tag) = (&portal.prepared.sql, portal.tag.as_ref());
        self.check_refusal(statement, tag)?;
        self.has_executed = true;
        if tag.is_none() {
            // Only clients send an Execute. This client's last transaction is this one now.
            self.failed = None;
        }
        if let (Statement::Select { rows, len }, true) = (statement, self.block != Block::Failed) {
            let end = match limit {
                0 => *rows,
                limit => (portal.at + limit as usize).min(*rows),
            };
            self.rows(sql, tag, portal.at..end, *len);
            // PostgreSQL only knows that a result is complete after it has looked for one more row.
            let suspended = limit > 0 && end - portal.at == limit as usize;
            match suspended {
                true => self.buffered.extend_from_slice(&[backend::PORTAL_SUSPENDED, 0, 0, 0, 4]),
                false => {
                    let done = format!("SELECT {}", end - portal.at);
                    backend::command_complete(&mut self.buffered, &done);
                }
            }
            if let Some(kept) = self.portals.get_mut(name) {
                kept.at = end;
            }
            return Ok(());
        }
        if portal.at > 0 {
            return Err(Error("55000", format!("portal \"{}\" cannot be run", text(name))));
        }
        let progress = match statement {
            Statement::Write { .. } if self.block != Block::Failed => {
                Progress::Done(self.written(tag, portal.prepared.table))
            }
            Statement::Meaning if self.block != Block::Failed => {
                Progress::Done(self.tell_meaning(tag, &portal.prepared.meaning))
            }
            _ => self.run(statement, sql, tag, false, true)?,
        };
        if let Some(kept) = self.portals.get_mut(name) {
            kept.at = 1;
        }
        match progress {
            Progress::Done(done) => backend::command_complete(&mut self.buffered, &done),
            Progress::Goes(busy) => self.busy = Some(busy),
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8]) -> Result<(), Error> {
        let named = StatementOrPortal::decode(body).map_err(malformed)?;
        if named.kind == b'S' {
            self.statements.remove(named.name);
        } else {
            self.portals.remove(named.name);
        }
        backend::close_complete(&mut self.buffered);
        Ok(())
    }
}

fn malformed(error: wire::MessageError) -> Error {
    Error("08P01", error.to_string())
}

/// The values of a Bind, all of them texts.
fn values(rest: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(rest);
    for _ in 0..reader.u16()? {
        reader.u16()?;
    }
    let mut values = Vec::new();
    for _ in 0..reader.u16()? {
        let len = reader.u32()?;
        values.push(text(reader.bytes(len as usize)?));
    }
    Some(values)
}
