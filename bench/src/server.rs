//! The canned PostgreSQL: a model of PostgreSQL's message loop with statements of its own. It holds no
//! data and plans nothing. It answers the queries of the load generator and of poolers with the
//! messages that PostgreSQL 15 would send.

mod statement;

use std::collections::BTreeMap;

use model::{Fault, Outcome, Portal, Postgres};
use wire::backend;
use wire::startup::StartupPacket;

use crate::bulk::Rows;
use crate::frame::put;
use statement::Statement;
pub(crate) use statement::{ABALANCE_ROW, BULK_ROW};

/// The approximate size of the pieces of a large result.
const BULK_CHUNK_BYTES: usize = 64 * 1024;

/// The name of the database whose sessions report their state, as with the library `weir`, if the
/// startup packet asks for that. The format is that of `extension/README.md`.
pub(crate) const REPORTING: &str = "reporting";
/// The startup parameter that asks for reports.
const REPORT_ASK: &str = "weir.report";
const REPORT_NAME: &[u8] = b"weir.state\0";

/// The parameters that PostgreSQL 15 reports at login, except `application_name`, which the client
/// sets.
const PARAMETERS: [(&str, &str); 12] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "off"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.18 (Debian 15.18-0+deb12u1)"),
    ("session_authorization", "bench"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "Etc/UTC"),
];

/// One connection to the canned PostgreSQL.
pub(crate) type Session = Postgres<Canned>;

/// The part of a session that the model does not know.
#[derive(Debug, Default)]
pub(crate) struct Canned {
    process_id: u32,
    /// The settings of the session that PostgreSQL does not report. Every row of a select shows
    /// their values.
    settings: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A large result that is being sent, and its command tag.
    bulk: Option<(Rows, String)>,
    /// The last reported state, if the session reports its state.
    reported: Option<Vec<u8>>,
}

/// Returns a session that waits for its startup packet.
pub(crate) fn session(process_id: u32) -> Session {
    Postgres::fresh(Canned { process_id, ..Canned::default() })
}

impl model::Dialect for Canned {
    type Statement = Statement;

    fn welcome(&mut self, packet: &StartupPacket<'_>, out: &mut Vec<u8>) {
        let can_report = packet.get("database") == Some(REPORTING.as_bytes());
        let reports = can_report && packet.get(REPORT_ASK).is_some();
        self.reported = reports.then(Vec::new);
        backend::authentication_ok(out);
        let application_name = packet.get("application_name").unwrap_or_default();
        backend::parameter_status(out, b"application_name", application_name);
        for (name, value) in PARAMETERS {
            backend::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
        backend::backend_key_data(out, self.process_id, &self.process_id.to_be_bytes());
    }

    fn split(text: &[u8]) -> Result<Vec<Statement>, Fault> {
        Ok(statement::split(text))
    }

    fn ends_transaction(statement: &Statement) -> bool {
        matches!(statement, Statement::Plain { status: Some(b'I'), .. })
    }

    fn describe_rows(statement: &Statement, out: &mut Vec<u8>) -> bool {
        let columns = statement.row_description();
        columns.inspect(|columns| put(out, b'T', &[columns])).is_some()
    }

    fn parameters(statement: &Statement) -> &'static [u32] {
        let is_asking = matches!(statement, Statement::Select { has_parameter: true, .. });
        if is_asking { &[23] } else { &[] }
    }

    fn run(
        &mut self,
        session: &mut model::Session<Statement>,
        portal: &mut Portal<Statement>,
        _: u32,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        match &portal.statement {
            Statement::Empty => backend::empty_query(out),
            Statement::Select { number, .. } => {
                let number = if portal.argument.is_empty() { number } else { &portal.argument };
                let values = self.settings.values().flat_map(|value| [b" ", &**value]);
                let text = [&[&number[..]][..], &values.collect::<Vec<_>>()].concat().concat();
                backend::data_row(out, &[Some(&text)]);
                backend::command_complete(out, "SELECT 1");
            }
            Statement::Set { name, value } => {
                backend::command_complete(out, "SET");
                if let Some(reported) = statement::reported(name) {
                    backend::parameter_status(out, reported.as_bytes(), value);
                } else {
                    self.settings.insert(name.clone(), value.clone());
                }
            }
            Statement::Reset { name } => {
                self.settings.remove(name);
                backend::command_complete(out, "RESET");
            }
            Statement::SetConfig { settings } => {
                backend::data_row(out, &vec![Some(&b"f"[..]); settings.len()]);
                self.settings.extend(settings.iter().cloned());
                backend::command_complete(out, "SELECT 1");
            }
            Statement::Failure => {
                return Err(Fault("26000", "what it names does not exist".into()));
            }
            Statement::Probe => {
                for (name, value) in &self.settings {
                    backend::data_row(out, &[Some(&item(name, value))]);
                }
                backend::command_complete(out, &format!("SELECT {}", self.settings.len()));
            }
            Statement::Plain { tag, status } => {
                session.status = status.unwrap_or(session.status);
                if *tag == "DISCARD ALL" {
                    session.statements.clear();
                    self.settings.clear();
                }
                backend::command_complete(out, tag);
            }
            Statement::Bulk { row_bytes, total_bytes } => {
                let tag = format!("SELECT {}", Rows::count(*row_bytes, *total_bytes));
                self.bulk = Some((Rows::new(*row_bytes, *total_bytes), tag));
                return Ok(Outcome::Large);
            }
        }
        Ok(Outcome::Done)
    }

    fn call_function(&mut self, _: &mut Vec<u8>) -> Result<(), Fault> {
        Err(Fault("42883", "function does not exist".into()))
    }

    /// Reports the state if it has changed. Names and values contain nothing that would need
    /// escaping.
    fn before_ready(&mut self, status: u8, out: &mut Vec<u8>) {
        let Some(last) = self.reported.as_mut().filter(|_| status == b'I') else { return };
        let mut state = b"v1".to_vec();
        for (name, value) in &self.settings {
            state.push(b';');
            state.extend(item(name, value));
        }
        if *last != state {
            let version: &[u8] = if last.is_empty() { b";w:1.1" } else { b"" };
            put(out, b'S', &[REPORT_NAME, &state, version, b"\0"]);
            *last = state;
        }
    }

    fn refill(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some((rows, tag)) = &mut self.bulk {
            rows.produce(out, BULK_CHUNK_BYTES);
            if !rows.is_done() {
                return false;
            }
            backend::command_complete(out, tag);
            self.bulk = None;
        }
        true
    }
}

/// Returns the item of a setting in a report of the state and in the answer to Weir's probe.
fn item(name: &[u8], value: &[u8]) -> Vec<u8> {
    [b"s:", name, b"=", value].concat()
}

#[cfg(test)]
mod tests;
