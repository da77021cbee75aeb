//! Messages from PostgreSQL: their codes, and builders that append one whole message to `out`.
//!
//! A pooler sends them to its clients in place of PostgreSQL: during login, on its console, and for
//! its own replies.

use crate::error_fields::ErrorFields;
use crate::writer::{count, cstr, message, value};

pub const AUTHENTICATION: u8 = b'R';
pub const BACKEND_KEY_DATA: u8 = b'K';
pub const BIND_COMPLETE: u8 = b'2';
pub const CLOSE_COMPLETE: u8 = b'3';
pub const COMMAND_COMPLETE: u8 = b'C';
pub const COPY_BOTH: u8 = b'W';
pub const COPY_DATA: u8 = b'd';
pub const COPY_DONE: u8 = b'c';
pub const COPY_IN: u8 = b'G';
pub const COPY_OUT: u8 = b'H';
pub const DATA_ROW: u8 = b'D';
pub const EMPTY_QUERY: u8 = b'I';
pub const ERROR: u8 = b'E';
pub const FUNCTION_CALL_RESPONSE: u8 = b'V';
pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
pub const NO_DATA: u8 = b'n';
pub const NOTICE: u8 = b'N';
pub const NOTIFICATION: u8 = b'A';
pub const PARAMETER_DESCRIPTION: u8 = b't';
pub const PARAMETER_STATUS: u8 = b'S';
pub const PARSE_COMPLETE: u8 = b'1';
pub const PORTAL_SUSPENDED: u8 = b's';
pub const READY_FOR_QUERY: u8 = b'Z';
pub const ROW_DESCRIPTION: u8 = b'T';

/// The kinds of [`AUTHENTICATION`] that this crate knows.
pub(crate) mod authentication {
    pub(crate) const OK: u32 = 0;
    pub(crate) const CLEARTEXT: u32 = 3;
    pub(crate) const MD5: u32 = 5;
    pub(crate) const SASL: u32 = 10;
    pub(crate) const SASL_CONTINUE: u32 = 11;
    pub(crate) const SASL_FINAL: u32 = 12;
}

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    pub name: &'a str,
    /// The type's OID, such as 25 for `text`.
    pub type_oid: u32,
    /// The type's size in bytes; negative where it varies (`pg_type.typlen`).
    pub type_len: i16,
}

pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication_request(out, authentication::OK, |_| ());
}

pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication_request(out, authentication::CLEARTEXT, |_| ());
}

pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication_request(out, authentication::MD5, |out| out.extend_from_slice(&salt));
}

/// Offers SASL mechanisms, the preferred one first.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    authentication_request(out, authentication::SASL, |out| {
        for mechanism in mechanisms {
            cstr(out, mechanism.as_bytes());
        }
        out.push(0);
    });
}

pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication_request(out, authentication::SASL_CONTINUE, |out| out.extend_from_slice(data));
}

pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication_request(out, authentication::SASL_FINAL, |out| out.extend_from_slice(data));
}

fn authentication_request(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    message(out, AUTHENTICATION, |out| {
        out.extend_from_slice(&kind.to_be_bytes());
        body(out);
    });
}

/// Announces the newest protocol spoken here, 3.`newest_minor`, and the unknown `_pq_.` options of
/// the startup packet.
///
/// The manual documents the field as the minor number alone. PostgreSQL sends, and libpq expects,
/// the whole version with the major number in the upper half; so does this function.
pub fn negotiate_protocol_version(out: &mut Vec<u8>, newest_minor: u16, unknown: &[&[u8]]) {
    message(out, NEGOTIATE_PROTOCOL_VERSION, |out| {
        let version = crate::startup::PROTOCOL_3_0 | u32::from(newest_minor);
        out.extend_from_slice(&version.to_be_bytes());
        out.extend_from_slice(&crate::writer::length(unknown.len()));
        for option in unknown {
            cstr(out, option);
        }
    });
}

pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    message(out, PARAMETER_STATUS, |out| {
        cstr(out, name);
        cstr(out, value);
    });
}

/// `secret` is 4 bytes in protocol 3.0.
pub fn backend_key_data(out: &mut Vec<u8>, pid: u32, secret: &[u8]) {
    message(out, BACKEND_KEY_DATA, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        out.extend_from_slice(secret);
    });
}

/// `status`: `I` idle, `T` in a transaction, `E` in a failed one.
pub fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    message(out, READY_FOR_QUERY, |out| out.push(status));
}

pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, COMMAND_COMPLETE, |out| cstr(out, tag.as_bytes()));
}

pub fn parse_complete(out: &mut Vec<u8>) {
    message(out, PARSE_COMPLETE, |_| ());
}

pub fn bind_complete(out: &mut Vec<u8>) {
    message(out, BIND_COMPLETE, |_| ());
}

/// Describes a statement without parameters.
pub fn parameter_description(out: &mut Vec<u8>) {
    message(out, PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&count(0)));
}

pub fn portal_suspended(out: &mut Vec<u8>) {
    message(out, PORTAL_SUSPENDED, |_| ());
}

pub fn close_complete(out: &mut Vec<u8>) {
    message(out, CLOSE_COMPLETE, |_| ());
}

pub fn no_data(out: &mut Vec<u8>) {
    message(out, NO_DATA, |_| ());
}

pub fn empty_query(out: &mut Vec<u8>) {
    message(out, EMPTY_QUERY, |_| ());
}

/// Describes columns that belong to no table, in text format.
pub fn row_description(out: &mut Vec<u8>, columns: &[Column<'_>]) {
    row_description_in(out, columns, |_| false);
}

/// Describes columns that belong to no table. `is_binary` selects the binary ones by number.
pub fn row_description_in(
    out: &mut Vec<u8>,
    columns: &[Column<'_>],
    is_binary: impl Fn(usize) -> bool,
) {
    message(out, ROW_DESCRIPTION, |out| {
        out.extend_from_slice(&count(columns.len()));
        for (at, column) in columns.iter().enumerate() {
            cstr(out, column.name.as_bytes());
            out.extend_from_slice(&[0; 6]); // the table's OID and the column's number in it
            out.extend_from_slice(&column.type_oid.to_be_bytes());
            out.extend_from_slice(&column.type_len.to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes()); // no type modifier
            out.extend_from_slice(&u16::from(is_binary(at)).to_be_bytes());
        }
    });
}

/// `None` is the SQL null.
pub fn data_row(out: &mut Vec<u8>, values: &[Option<&[u8]>]) {
    message(out, DATA_ROW, |out| {
        out.extend_from_slice(&count(values.len()));
        for one in values {
            value(out, *one);
        }
    });
}

pub fn error(out: &mut Vec<u8>, fields: &ErrorFields) {
    message(out, ERROR, |out| fields.encode(out));
}

pub fn notice(out: &mut Vec<u8>, fields: &ErrorFields) {
    message(out, NOTICE, |out| fields.encode(out));
}

pub fn notification(out: &mut Vec<u8>, pid: u32, channel: &[u8], payload: &[u8]) {
    message(out, NOTIFICATION, |out| {
        out.extend_from_slice(&pid.to_be_bytes());
        cstr(out, channel);
        cstr(out, payload);
    });
}

/// Asks for text data of `columns` columns.
pub fn copy_in_response(out: &mut Vec<u8>, columns: usize) {
    copy_response(out, COPY_IN, columns);
}

/// Announces text data of `columns` columns.
pub fn copy_out_response(out: &mut Vec<u8>, columns: usize) {
    copy_response(out, COPY_OUT, columns);
}

fn copy_response(out: &mut Vec<u8>, code: u8, columns: usize) {
    message(out, code, |out| {
        out.push(0);
        out.extend_from_slice(&count(columns));
        out.extend(std::iter::repeat_n([0; 2], columns).flatten());
    });
}

pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, COPY_DATA, |out| out.extend_from_slice(data));
}

pub fn copy_done(out: &mut Vec<u8>) {
    message(out, COPY_DONE, |_| ());
}

#[cfg(test)]
mod tests;
