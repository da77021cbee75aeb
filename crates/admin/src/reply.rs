//! The console's replies as bytes of the protocol, each including its end.

use wire::{
    ErrorFields, backend,
    sqlstate::{PROTOCOL_VIOLATION, QUERY_CANCELED},
};

use crate::show::{Head, Kind, Selected, View};
use crate::snapshot::Judgement;
use config::PGBOUNCER_VERSION;

/// The reply to a login: what there is before the first ReadyForQuery.
pub(crate) fn welcome(out: &mut Vec<u8>, application_name: &str, pid: u32, secret: [u8; 4]) {
    backend::authentication_ok(out);
    let server_version = format!("{PGBOUNCER_VERSION}/bouncer");
    let parameters = [
        ("server_version", server_version.as_str()),
        ("client_encoding", "UTF8"),
        ("server_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", "GMT"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
        ("application_name", application_name),
        // As after other logins, since PgBouncer 1.26.
        ("pgbouncer.version", PGBOUNCER_VERSION),
        ("pgbouncer.pool_mode", "statement"),
        ("pgbouncer.max_prepared_statements", "0"),
    ];
    for (name, value) in parameters {
        if !value.is_empty() {
            backend::parameter_status(out, name.as_bytes(), value.as_bytes());
        }
    }
    backend::backend_key_data(out, pid, &secret);
    ready(out);
}

pub(crate) fn ready(out: &mut Vec<u8>) {
    backend::ready_for_query(out, b'I');
}

pub(crate) fn done(out: &mut Vec<u8>, tag: &str) {
    backend::command_complete(out, tag);
}

/// The formats of a result's columns: none means text, and a single one applies to all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formats(pub(crate) Vec<u16>);

impl Formats {
    fn is_binary(&self, column: usize) -> bool {
        match self.0.as_slice() {
            [one] => *one == 1,
            all => all.get(column) == Some(&1),
        }
    }
}

/// Appends the columns of a result.
pub(crate) fn columns(out: &mut Vec<u8>, heads: &[Head], formats: &Formats) {
    let column = |head: &Head| {
        let (type_oid, type_len) = (head.kind.oid(), head.kind.len());
        backend::Column { name: head.name, type_oid, type_len }
    };
    let columns: Vec<_> = heads.iter().map(column).collect();
    backend::row_description_in(out, &columns, |at| formats.is_binary(at));
}

/// Appends a SHOW's reply without its columns.
pub(crate) fn show(out: &mut Vec<u8>, show: &Selected, view: View, formats: &Formats) {
    let kinds: Vec<Kind> = show.heads().iter().map(|head| head.kind).collect();
    show.rows(view, &mut |cells| {
        let values: Vec<_> = cells
            .iter()
            .enumerate()
            .map(|(at, cell)| match formats.is_binary(at) {
                true => cell.to_binary(kinds[at]),
                false => cell.to_text_bytes(kinds[at]),
            })
            .collect();
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        backend::data_row(out, &values);
    });
    done(out, "SHOW");
}

/// Appends the value of a PostgreSQL parameter, whose bytes are the same in both formats.
pub(crate) fn parameter(out: &mut Vec<u8>, value: &str) {
    backend::data_row(out, &[Some(value.as_bytes())]);
    done(out, "SHOW");
}

/// Appends the rows of EXPLAIN ROUTE, whose bytes are the same in both formats.
pub(crate) fn judgements(out: &mut Vec<u8>, all: &[Judgement]) {
    for one in all {
        let cells = [&*one.database, &*one.judge, one.place, one.reason, one.description];
        backend::data_row(out, &cells.map(|cell| Some(cell.as_bytes())));
    }
    done(out, "EXPLAIN");
}

pub(crate) fn notice(out: &mut Vec<u8>, message: &str, detail: Option<&str>) {
    let mut fields = ErrorFields::new("NOTICE", "00000", message);
    if let Some(detail) = detail {
        fields.replace(b'D', detail);
    }
    backend::notice(out, &fields);
}

/// Appends an error that does not end the connection. The SQLSTATE is PostgreSQL's if PgBouncer has
/// no such error.
pub(crate) fn error_of(out: &mut Vec<u8>, code: &str, message: impl Into<Vec<u8>>) {
    error_with(out, code, message, (b'D', None));
}

/// Appends an error like [`error_of`], with a DETAIL or a HINT (`D`, `H`) if there is one.
pub(crate) fn error_with(
    out: &mut Vec<u8>,
    code: &str,
    message: impl Into<Vec<u8>>,
    (field, text): (u8, Option<String>),
) {
    let mut fields = ErrorFields::new("ERROR", code, "");
    fields.replace(b'M', message);
    if let Some(text) = text {
        fields.replace(field, text);
    }
    backend::error(out, &fields);
}

/// Appends PostgreSQL's error for a cancelled command.
pub(crate) fn canceled(out: &mut Vec<u8>) {
    let text = "canceling statement due to user request";
    error_of(out, QUERY_CANCELED, text);
}

/// Appends an error that ends the connection.
pub(crate) fn fatal(out: &mut Vec<u8>, message: &str) {
    backend::error(out, &ErrorFields::new("FATAL", PROTOCOL_VIOLATION, message));
}
