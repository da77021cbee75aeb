//! The extended query protocol of the model: statements and portals.

use wire::messages::{Bind, Parse, StatementOrPortal, bind_values};
use wire::{Reader, backend, frontend};

use super::{Copy, Dialect, Fault, Outcome, Postgres};

/// A bound statement.
#[derive(Clone, Debug)]
pub struct Portal<S> {
    pub statement: S,
    /// The first argument. No dialect needs others.
    pub argument: Vec<u8>,
    /// Rows returned so far.
    pub at: u32,
    is_done: bool,
}

impl<S> Portal<S> {
    pub(super) fn new(statement: S, argument: Vec<u8>) -> Self {
        Self { statement, argument, at: 0, is_done: false }
    }
}

impl<D: Dialect> Postgres<D> {
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
            self.session.statements.remove(&b""[..]);
        }
        let parse = Parse::decode(body).map_err(|_| Fault::malformed())?;
        let mut statements = D::split(parse.sql)?;
        let statement = statements.pop().unwrap_or_default();
        if !statements.is_empty() {
            return Err(Fault("42601", "cannot insert multiple commands".into()));
        }
        self.refuse_if_aborted(&statement)?;
        if self.session.statements.contains_key(parse.name) {
            let text = [b"prepared statement \"", parse.name, b"\" already exists"].concat();
            return Err(Fault("42P05", text));
        }
        self.session.statements.insert(parse.name.to_vec(), statement);
        backend::parse_complete(out);
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let bind = Bind::decode(body).map_err(|_| Fault::malformed())?;
        let statement = self.statement(bind.statement)?;
        self.refuse_if_aborted(&statement)?;
        if !bind.portal.is_empty() && self.session.portals.contains_key(bind.portal) {
            return Err(Fault("42P03", "cursor already exists".into()));
        }
        let argument = bind_values(body).next().unwrap_or_default().to_vec();
        self.session.portals.insert(bind.portal.to_vec(), Portal::new(statement, argument));
        backend::bind_complete(out);
        Ok(())
    }

    fn describe(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let named = StatementOrPortal::decode(body).map_err(|_| Fault::malformed())?;
        let statement = if named.kind == b'S' {
            self.statement(named.name)?
        } else {
            self.session.portals.get(named.name).ok_or_else(no_portal)?.statement.clone()
        };
        let mut rows = Vec::new();
        if !D::describe_rows(&statement, &mut rows) {
            backend::no_data(&mut rows);
        } else if named.kind == b'S' && self.session.status == b'E' {
            return Err(Fault::aborted());
        }
        if named.kind == b'S' {
            let types = D::parameters(&statement);
            out.push(backend::PARAMETER_DESCRIPTION);
            out.extend_from_slice(&(6 + 4 * types.len() as u32).to_be_bytes());
            out.extend_from_slice(&(types.len() as u16).to_be_bytes());
            out.extend(types.iter().flat_map(|oid| oid.to_be_bytes()));
        }
        out.append(&mut rows);
        Ok(())
    }

    fn execute(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut reader = Reader::new(body);
        let (Some(name), Some(rows_max), true) = (reader.cstr(), reader.u32(), reader.is_empty())
        else {
            return Err(Fault::malformed());
        };
        let mut portal = self.session.portals.get(name).cloned().ok_or_else(no_portal)?;
        self.refuse_if_aborted(&portal.statement)?;
        if portal.is_done {
            return Err(Fault("55000", "portal cannot be run".into()));
        }
        let outcome = self.run(&mut portal, rows_max, out)?;
        portal.is_done = outcome != Outcome::Suspended;
        if outcome == Outcome::CopyIn {
            self.copy = Some(Copy::Extended);
        }
        // The end of the transaction has closed it.
        if let Some(open) = self.session.portals.get_mut(name) {
            *open = portal;
        }
        Ok(())
    }

    fn close(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let named = StatementOrPortal::decode(body).map_err(|_| Fault::malformed())?;
        if named.kind == b'S' {
            self.session.statements.remove(named.name);
        } else {
            self.session.portals.remove(named.name);
        }
        backend::close_complete(out);
        Ok(())
    }

    fn statement(&self, name: &[u8]) -> Result<D::Statement, Fault> {
        self.session.statements.get(name).cloned().ok_or_else(|| {
            Fault(
                "26000",
                match name {
                    b"" => b"unnamed prepared statement does not exist".to_vec(),
                    name => [b"prepared statement \"", name, b"\" does not exist"].concat(),
                },
            )
        })
    }
}

fn no_portal() -> Fault {
    Fault("34000", "portal does not exist".into())
}
