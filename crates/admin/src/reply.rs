//! The console's replies in the bytes of the protocol, each up to what ends it.

use wire::{ErrorFields, backend};

use crate::show::{Kind, Show, View};
use config::PGBOUNCER_VERSION;

/// SQLSTATE of nearly everything PgBouncer says.
const PROTOCOL_VIOLATION: &str = "08P01";
const CONFIG_FILE_ERROR: &str = "F0000";

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

/// A whole SHOW.
pub(crate) fn show(out: &mut Vec<u8>, show: &dyn Show, view: View) {
    let heads = show.heads();
    let columns: Vec<_> = heads.iter().map(|head| column(head.name, head.kind)).collect();
    backend::row_description(out, &columns);
    show.rows(view, &mut |cells| {
        let texts: Vec<_> =
            heads.iter().zip(cells).map(|(head, cell)| cell.to_text(head.kind)).collect();
        let values: Vec<_> = texts.iter().map(|text| text.as_deref().map(str::as_bytes)).collect();
        backend::data_row(out, &values);
    });
    done(out, "SHOW");
}

/// SHOW of a parameter of PostgreSQL's.
pub(crate) fn parameter(out: &mut Vec<u8>, name: &str, value: &str) {
    backend::row_description(out, &[column(name, Kind::Text)]);
    backend::data_row(out, &[Some(value.as_bytes())]);
    done(out, "SHOW");
}

fn column(name: &str, kind: Kind) -> backend::Column<'_> {
    backend::Column { name, type_oid: kind.oid(), type_len: kind.len() }
}

pub(crate) fn notice(out: &mut Vec<u8>, message: &str, detail: Option<&str>) {
    let mut fields = ErrorFields::new("NOTICE", "00000", message);
    if let Some(detail) = detail {
        fields.replace(b'D', detail);
    }
    backend::notice(out, &fields);
}

/// An error after which the console goes on.
pub(crate) fn error(out: &mut Vec<u8>, message: impl Into<Vec<u8>>) {
    let mut fields = ErrorFields::new("ERROR", PROTOCOL_VIOLATION, "");
    fields.replace(b'M', message);
    backend::error(out, &fields);
}

/// The answer to a command that its client did not want to wait for: PostgreSQL's.
pub(crate) fn canceled(out: &mut Vec<u8>) {
    let message = "canceling statement due to user request";
    backend::error(out, &ErrorFields::new("ERROR", "57014", message));
}

pub(crate) fn reload_failed(out: &mut Vec<u8>, reason: &str) {
    let message = "RELOAD failed, see logs for additional details";
    let mut fields = ErrorFields::new("ERROR", CONFIG_FILE_ERROR, message);
    fields.replace(b'D', reason);
    backend::error(out, &fields);
}

/// An error that ends the connection.
pub(crate) fn fatal(out: &mut Vec<u8>, message: &str) {
    backend::error(out, &ErrorFields::new("FATAL", PROTOCOL_VIOLATION, message));
}
