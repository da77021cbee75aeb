//! The extended query protocol of the model: statements and portals.

use wire::messages::{Bind, Parse, StatementOrPortal};
use wire::{Reader, backend, frontend};

use super::sql::{Fault, Outcome, Sql, split};
use super::{Copy, Postgres, describe_rows};

#[derive(Clone, Debug)]
pub(super) struct Portal {
    statement: Sql,
    /// Rows returned so far.
    at: u32,
    done: bool,
}

impl Postgres {
    pub(super) fn extended(
        &mut self,
        code: u8,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match code {
            frontend::PARSE => self.parse(body, out),
            frontend::BIND => self.bind(body, out),
            frontend::DESCRIBE => self.describe(body, out),
            frontend::EXECUTE => self.execute(body, out),
            _ => self.close(body, out),
        }
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        // PostgreSQL keeps it if the message is malformed, which no driver's message is.
        if body.first() == Some(&0) {
            self.statements.remove(&b""[..]);
        }
        let parse = Parse::decode(body).map_err(|_| Fault::malformed())?;
        let mut statements = split(parse.sql)?;
        let statement = statements.pop().unwrap_or(Sql::Empty);
        if !statements.is_empty() {
            return Err(Fault("42601", "cannot insert multiple commands".into()));
        }
        self.refuse_if_aborted(&statement)?;
        if self.statements.contains_key(parse.name) {
            let text = [b"prepared statement \"", parse.name, b"\" already exists"].concat();
            return Err(Fault("42P05", text));
        }
        self.statements.insert(parse.name.to_vec(), statement);
        backend::parse_complete(out);
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let bind = Bind::decode(body).map_err(|_| Fault::malformed())?;
        let statement = self.statement(bind.statement)?;
        self.refuse_if_aborted(&statement)?;
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            return Err(Fault("42P03", "cursor already exists".into()));
        }
        self.portals.insert(bind.portal.to_vec(), Portal { statement, at: 0, done: false });
        backend::bind_complete(out);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let named = StatementOrPortal::decode(body).map_err(|_| Fault::malformed())?;
        let rows = if named.kind == b'S' {
            let statement = self.statement(named.name)?;
            if self.status == b'E' && statement.returns_rows() {
                return Err(Fault::aborted());
            }
            // A ParameterDescription of no parameters.
            out.extend_from_slice(b"t\0\0\0\x06\0\0");
            statement.returns_rows()
        } else {
            self.portals.get(named.name).ok_or_else(no_portal)?.statement.returns_rows()
        };
        if rows {
            describe_rows(out);
        } else {
            backend::no_data(out);
        }
        Ok(())
    }

    fn execute(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut reader = Reader::new(body);
        let (Some(name), Some(rows_max), true) = (reader.cstr(), reader.u32(), reader.is_empty())
        else {
            return Err(Fault::malformed());
        };
        let mut portal = self.portals.get(name).cloned().ok_or_else(no_portal)?;
        self.refuse_if_aborted(&portal.statement)?;
        if portal.done {
            return Err(Fault("55000", "portal cannot be run".into()));
        }
        let outcome = self.run(&portal.statement, &mut portal.at, rows_max, out)?;
        portal.done = outcome != Outcome::Suspended;
        if outcome == Outcome::CopyIn {
            self.copy = Some(Copy::Extended);
        }
        // The end of the transaction has closed it.
        if let Some(open) = self.portals.get_mut(name) {
            *open = portal;
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let named = StatementOrPortal::decode(body).map_err(|_| Fault::malformed())?;
        if named.kind == b'S' {
            self.statements.remove(named.name);
        } else {
            self.portals.remove(named.name);
        }
        backend::close_complete(out);
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<Sql, Fault> {
        self.statements.get(name).cloned().ok_or_else(|| {
            Fault(
                "26000",
                match name {
                    b"" => b"unnamed prepared statement does not exist".to_vec(),
                    name => [b"prepared statement \"", name, b"\" does not exist"].concat(),
                },
            )
        })
    }

    fn refuse_if_aborted(&self, statement: &Sql) -> Result<(), Fault> {
        match self.status == b'E' && !statement.ends_transaction() {
            true => Err(Fault::aborted()),
            false => Ok(()),
        }
    }
}

fn no_portal() -> Fault {
    Fault("34000", "portal does not exist".into())
}
