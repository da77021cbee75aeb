//! Messages towards PostgreSQL: their codes, and builders that append one whole message to `out`.
//!
//! The packets that open a connection have no code. They are here because they have the same
//! direction.

use crate::frame::Header;
use crate::startup;
use crate::writer::{count, cstr, length, message, packet, value};

pub const BIND: u8 = b'B';
pub const CLOSE: u8 = b'C';
pub const COPY_DATA: u8 = b'd';
pub const COPY_DONE: u8 = b'c';
pub const COPY_FAIL: u8 = b'f';
pub const DESCRIBE: u8 = b'D';
pub const EXECUTE: u8 = b'E';
pub const FLUSH: u8 = b'H';
pub const FUNCTION_CALL: u8 = b'F';
pub const PARSE: u8 = b'P';
/// A password, or another reply in an authentication exchange (SASL has the same code).
pub const PASSWORD: u8 = b'p';
pub const QUERY: u8 = b'Q';
pub const SYNC: u8 = b'S';
pub const TERMINATE: u8 = b'X';

/// The limit of small messages without their code, as in PostgreSQL (`PQ_SMALL_MESSAGE_LIMIT`).
const SMALL_LEN_MAX: usize = 10_000;

/// Can a client send a message with this header after its login? PostgreSQL ends the connection if
/// not.
pub fn is_possible(header: Header) -> bool {
    match header.code {
        QUERY | PARSE | BIND | FUNCTION_CALL | COPY_DATA => true,
        CLOSE | DESCRIBE | EXECUTE | FLUSH | SYNC | COPY_DONE | COPY_FAIL | TERMINATE => {
            header.total - 1 <= SMALL_LEN_MAX
        }
        _ => false,
    }
}

/// The `types_raw` of a [`parse`] that leaves every parameter's type to the server.
pub const NO_TYPES: &[u8] = &[0, 0];

/// Appends the first packet of a session, protocol 3.`minor`, with its parameters in this order.
pub fn startup<V: AsRef<[u8]>>(out: &mut Vec<u8>, minor: u16, parameters: &[(&str, V)]) {
    packet(out, |out| {
        let version = startup::PROTOCOL_3_0 | u32::from(minor);
        out.extend_from_slice(&version.to_be_bytes());
        for (name, value) in parameters {
            cstr(out, name.as_bytes());
            cstr(out, value.as_ref());
        }
        out.push(0);
    });
}

pub fn ssl_request(out: &mut Vec<u8>) {
    packet(out, |out| out.extend_from_slice(&startup::SSL_REQUEST.to_be_bytes()));
}

pub fn gssenc_request(out: &mut Vec<u8>) {
    packet(out, |out| out.extend_from_slice(&startup::GSSENC_REQUEST.to_be_bytes()));
}

/// Appends a request to cancel the query of the backend process `pid`; sent on its own connection.
pub fn cancel_request(out: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    packet(out, |out| {
        out.extend_from_slice(&startup::CANCEL_REQUEST.to_be_bytes());
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

pub fn query(out: &mut Vec<u8>, sql: &[u8]) {
    message(out, QUERY, |out| cstr(out, sql));
}

/// `types_raw` is the number of parameter types and the types as in the message, or [`NO_TYPES`].
pub fn parse(out: &mut Vec<u8>, name: &[u8], sql: &[u8], types_raw: &[u8]) {
    message(out, PARSE, |out| {
        cstr(out, name);
        cstr(out, sql);
        out.extend_from_slice(types_raw);
    });
}

/// `rest` is everything after the two names: formats, values and result formats.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: &[u8]) {
    bind_header(out, portal, statement, rest.len());
    out.extend_from_slice(rest);
}

/// Appends the beginning of a [`bind`] up to the end of its names; the caller sends the remaining
/// `rest_len` bytes. So a Bind can be renamed before its values have arrived.
pub fn bind_header(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest_len: usize) {
    let start = out.len();
    message(out, BIND, |out| {
        cstr(out, portal);
        cstr(out, statement);
    });
    let total = length(out.len() - start - 1 + rest_len);
    if let Some(slot) = out.get_mut(start + 1..).and_then(<[u8]>::first_chunk_mut) {
        *slot = total;
    }
}

/// Appends a bind to the unnamed portal with all values and results as text.
pub fn bind_text(out: &mut Vec<u8>, statement: &[u8], values: &[Option<&[u8]>]) {
    bind(out, b"", statement, &text_values(values));
}

/// Returns the `rest` of a [`bind`] with all values and results as text.
#[must_use]
pub fn text_values(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut rest = Vec::new();
    rest.extend_from_slice(&count(0));
    rest.extend_from_slice(&count(values.len()));
    for one in values {
        value(&mut rest, *one);
    }
    rest.extend_from_slice(&count(0));
    rest
}

pub fn describe_statement(out: &mut Vec<u8>, name: &[u8]) {
    statement_or_portal(out, DESCRIBE, b'S', name);
}

pub fn describe_portal(out: &mut Vec<u8>, name: &[u8]) {
    statement_or_portal(out, DESCRIBE, b'P', name);
}

pub fn close_statement(out: &mut Vec<u8>, name: &[u8]) {
    statement_or_portal(out, CLOSE, b'S', name);
}

pub fn close_portal(out: &mut Vec<u8>, name: &[u8]) {
    statement_or_portal(out, CLOSE, b'P', name);
}

/// `rows_max` of 0 means all rows.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], rows_max: u32) {
    message(out, EXECUTE, |out| {
        cstr(out, portal);
        out.extend_from_slice(&rows_max.to_be_bytes());
    });
}

pub fn sync(out: &mut Vec<u8>) {
    message(out, SYNC, |_| ());
}

pub fn flush(out: &mut Vec<u8>) {
    message(out, FLUSH, |_| ());
}

pub fn terminate(out: &mut Vec<u8>) {
    message(out, TERMINATE, |_| ());
}

/// Appends a cleartext password, or the MD5 hash that answers the salt.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, PASSWORD, |out| cstr(out, password));
}

pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    message(out, PASSWORD, |out| {
        cstr(out, mechanism.as_bytes());
        value(out, Some(data));
    });
}

pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, PASSWORD, |out| out.extend_from_slice(data));
}

pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, COPY_DATA, |out| out.extend_from_slice(data));
}

pub fn copy_done(out: &mut Vec<u8>) {
    message(out, COPY_DONE, |_| ());
}

pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    message(out, COPY_FAIL, |out| cstr(out, reason));
}

fn statement_or_portal(out: &mut Vec<u8>, code: u8, kind: u8, name: &[u8]) {
    message(out, code, |out| {
        out.push(kind);
        cstr(out, name);
    });
}

#[cfg(test)]
mod tests;
