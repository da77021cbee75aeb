//! PostgreSQL for the fuzz targets: as the server behind the engine, and as the reference for the
//! client's view without a pooler. These are its statements:
//!
//! * `begin`, `commit`, `rollback`, `discard all`, `deallocate all`
//! * `3 anything`: three rows that repeat the text; `3! anything` fails behind the third
//! * `copy in`, `copy out`, `notice`, `notify`
//! * `set application_name = 'x'`, `reset application_name`, `show`: the value is stored with the
//!   connection
//! * `?…` is a syntax error; all else is done in silence

use model::{Fault, Outcome, Portal, Session};
use wire::backend;
use wire::error_fields::ErrorFields;
use wire::startup::StartupPacket;

/// The parameters that a server reports at login.
const PARAMETERS: [(&[u8], &[u8]); 6] = [
    (b"server_version", b"15.0"),
    (b"client_encoding", b"UTF8"),
    (b"DateStyle", b"ISO, MDY"),
    (b"TimeZone", b"UTC"),
    (b"standard_conforming_strings", b"on"),
    (b"application_name", b""),
];

pub(crate) type Postgres = model::Postgres<Dialect>;

#[derive(Debug, Default)]
pub(crate) struct Dialect {
    process_id: u32,
    application_name: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sql {
    #[default]
    Empty,
    Begin,
    End {
        commits: bool,
    },
    Discard {
        all: bool,
    },
    Rows {
        count: u8,
        fails: bool,
        text: Vec<u8>,
    },
    CopyIn,
    CopyOut,
    Notice,
    Notify,
    Set(Vec<u8>),
    Reset,
    Show,
    Other,
}

impl Sql {
    fn read(text: &[u8]) -> Result<Self, Fault> {
        let lower = text.to_ascii_lowercase();
        Ok(match &lower[..] {
            [] => Self::Empty,
            [b'?', ..] => return Err(Fault("42601", "syntax error".into())),
            b"begin" => Self::Begin,
            b"commit" => Self::End { commits: true },
            b"rollback" => Self::End { commits: false },
            b"discard all" => Self::Discard { all: true },
            b"deallocate all" => Self::Discard { all: false },
            b"copy in" => Self::CopyIn,
            b"copy out" => Self::CopyOut,
            b"notice" => Self::Notice,
            b"notify" => Self::Notify,
            b"reset application_name" => Self::Reset,
            b"show" => Self::Show,
            [digit @ b'0'..=b'9', rest @ ..] => {
                let fails = rest.first() == Some(&b'!');
                Self::Rows { count: digit - b'0', fails, text: text.to_vec() }
            }
            [b's', b'e', b't', b' ', ..] => Self::read_set(&lower)?,
            _ => Self::Other,
        })
    }

    /// Parses a SET. Values have one spelling only, so no two differ only in case.
    fn read_set(lower: &[u8]) -> Result<Self, Fault> {
        let value = lower
            .strip_prefix(b"set application_name = '")
            .and_then(|rest| rest.strip_suffix(b"'"))
            .filter(|value| value.len() < 9 && value.iter().all(u8::is_ascii_alphanumeric));
        let invalid = || Fault("22023", "invalid value for parameter".into());
        value.map(|value| Self::Set(value.to_vec())).ok_or_else(invalid)
    }
}

impl model::Dialect for Dialect {
    type Statement = Sql;

    fn welcome(&mut self, _: &StartupPacket<'_>, out: &mut Vec<u8>) {
        backend::authentication_ok(out);
        for (name, value) in PARAMETERS {
            backend::parameter_status(out, name, value);
        }
        backend::backend_key_data(out, self.process_id, &self.process_id.to_be_bytes());
    }

    fn split(text: &[u8]) -> Result<Vec<Sql>, Fault> {
        let parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        parts.filter(|part| !part.is_empty()).map(Sql::read).collect()
    }

    fn ends_transaction(statement: &Sql) -> bool {
        matches!(statement, Sql::End { .. })
    }

    fn describe_rows(statement: &Sql, out: &mut Vec<u8>) -> bool {
        let has_rows = matches!(statement, Sql::Rows { .. } | Sql::Show);
        if has_rows {
            let column = backend::Column { name: "it", type_oid: 25, type_len: -1 };
            backend::row_description(out, &[column]);
        }
        has_rows
    }

    fn run(
        &mut self,
        session: &mut Session<Sql>,
        portal: &mut Portal<Sql>,
        rows_max: u32,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        let tag = match &portal.statement {
            Sql::Empty => {
                backend::empty_query(out);
                return Ok(Outcome::Done);
            }
            Sql::Begin => {
                session.status = b'T';
                "BEGIN"
            }
            Sql::End { commits } => {
                let failed = session.status == b'E';
                session.status = b'I';
                session.portals.clear();
                if *commits && !failed { "COMMIT" } else { "ROLLBACK" }
            }
            Sql::Discard { all } => self.discard(*all, session, out)?,
            Sql::Rows { count, fails, text } => {
                let end = u32::from(*count);
                let stop =
                    if rows_max == 0 { end } else { end.min(portal.at.saturating_add(rows_max)) };
                while portal.at < stop {
                    backend::data_row(out, &[Some(text)]);
                    portal.at += 1;
                }
                if stop < end {
                    backend::portal_suspended(out);
                    return Ok(Outcome::Suspended);
                }
                if *fails {
                    return Err(Fault("22012", "division by zero".into()));
                }
                "SELECT"
            }
            Sql::CopyIn => {
                backend::copy_in_response(out, 1);
                return Ok(Outcome::CopyIn);
            }
            Sql::CopyOut => {
                backend::copy_out_response(out, 1);
                backend::copy_data(out, b"line");
                backend::copy_done(out);
                "COPY 1"
            }
            Sql::Notice => {
                backend::notice(out, &ErrorFields::new("NOTICE", "00000", "note"));
                "DO"
            }
            Sql::Notify => {
                backend::notification(out, 9, b"channel", b"");
                "NOTIFY"
            }
            Sql::Set(value) => {
                self.set_application_name(value, out);
                "SET"
            }
            Sql::Reset => {
                self.set_application_name(b"", out);
                "RESET"
            }
            Sql::Show => {
                backend::data_row(out, &[Some(&self.application_name)]);
                "SHOW"
            }
            Sql::Other => "OK",
        };
        backend::command_complete(out, tag);
        Ok(Outcome::Done)
    }

    fn call_function(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        // A FunctionCallResponse with the result NULL.
        out.extend_from_slice(b"V\0\0\0\x08\xff\xff\xff\xff");
        Ok(())
    }
}

impl Dialect {
    pub(crate) fn new(process_id: u32) -> Self {
        Self { process_id, ..Self::default() }
    }

    fn discard(
        &mut self,
        all: bool,
        session: &mut Session<Sql>,
        out: &mut Vec<u8>,
    ) -> Result<&'static str, Fault> {
        if all && (session.status != b'I' || !session.queue.is_empty()) {
            return Err(Fault("25001", "DISCARD ALL cannot run inside a transaction block".into()));
        }
        session.statements.retain(|name, _| name.is_empty());
        if !all {
            return Ok("DEALLOCATE ALL");
        }
        self.set_application_name(b"", out);
        Ok("DISCARD ALL")
    }

    /// Sets the value. PostgreSQL reports it only if it has changed.
    fn set_application_name(&mut self, value: &[u8], out: &mut Vec<u8>) {
        if self.application_name != value {
            self.application_name = value.to_vec();
            backend::parameter_status(out, b"application_name", value);
        }
    }
}
