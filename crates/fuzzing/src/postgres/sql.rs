//! The statements that the model understands, and their effects.
//!
//! * `begin`, `commit`, `rollback`, `discard all`, `deallocate all`
//! * `3 anything`: three rows that repeat the text; `3! anything` fails behind the third
//! * `copy in`, `copy out`, `notice`, `notify`
//! * `set application_name = 'x'`, `reset application_name`, `show`: the value is stored with the
//!   connection
//! * `?…` is a syntax error; all else is done in silence

use wire::backend;
use wire::error_fields::ErrorFields;

use super::Postgres;

/// SQLSTATE and text of an ERROR.
#[derive(Debug)]
pub(super) struct Fault(pub(super) &'static str, pub(super) Vec<u8>);

impl Fault {
    pub(super) fn malformed() -> Self {
        Self("08P01", "invalid message format".into())
    }

    pub(super) fn aborted() -> Self {
        Self("25P02", "current transaction is aborted".into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The portal has more rows than requested.
    Suspended,
    CopyIn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sql {
    Empty,
    Begin,
    End { commits: bool },
    Discard { all: bool },
    Rows { count: u8, fails: bool, text: Vec<u8> },
    CopyIn,
    CopyOut,
    Notice,
    Notify,
    Set(Vec<u8>),
    Reset,
    Show,
    Other,
}

/// Returns the statements of a simple Query.
pub(super) fn split(text: &[u8]) -> Result<Vec<Sql>, Fault> {
    let parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    parts.filter(|part| !part.is_empty()).map(Sql::read).collect()
}

impl Sql {
    pub(super) fn read(text: &[u8]) -> Result<Self, Fault> {
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

    pub(super) fn returns_rows(&self) -> bool {
        matches!(self, Self::Rows { .. } | Self::Show)
    }

    pub(super) fn ends_transaction(&self) -> bool {
        matches!(self, Self::End { .. })
    }
}

impl Postgres {
    /// Executes a statement from row `at` on, with at most `rows_max` rows (0: all).
    pub(super) fn run(
        &mut self,
        statement: &Sql,
        at: &mut u32,
        rows_max: u32,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Fault> {
        if self.status == b'E' && !statement.ends_transaction() {
            return Err(Fault::aborted());
        }
        let tag = match statement {
            Sql::Empty => {
                backend::empty_query(out);
                return Ok(Outcome::Done);
            }
            Sql::Begin => {
                self.status = b'T';
                "BEGIN"
            }
            Sql::End { commits } => {
                let failed = self.status == b'E';
                self.status = b'I';
                self.portals.clear();
                if *commits && !failed { "COMMIT" } else { "ROLLBACK" }
            }
            Sql::Discard { all } => self.discard(*all, out)?,
            Sql::Rows { count, fails, text } => {
                let end = u32::from(*count);
                let stop = if rows_max == 0 { end } else { end.min(at.saturating_add(rows_max)) };
                while *at < stop {
                    backend::data_row(out, &[Some(text)]);
                    *at += 1;
                }
                if stop < end {
                    backend_suspended(out);
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

    fn discard(&mut self, all: bool, out: &mut Vec<u8>) -> Result<&'static str, Fault> {
        if all && (self.status != b'I' || !self.queue.is_empty()) {
            return Err(Fault("25001", "DISCARD ALL cannot run inside a transaction block".into()));
        }
        self.statements.retain(|name, _| name.is_empty());
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

fn backend_suspended(out: &mut Vec<u8>) {
    out.extend_from_slice(&[backend::PORTAL_SUSPENDED, 0, 0, 0, 4]);
}
