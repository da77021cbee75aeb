//! Short functions that build messages, and a readable form of messages for comparisons.

use wire::backend::{self, Column};
use wire::error_fields::ErrorFields;
use wire::{HEADER_LEN, Header, frontend};

pub(crate) type Message = Vec<u8>;

pub(crate) fn built(build: impl FnOnce(&mut Vec<u8>)) -> Message {
    let mut out = Vec::new();
    build(&mut out);
    out
}

// Messages of clients.

pub(crate) fn startup(parameters: &[(&str, &str)]) -> Message {
    built(|out| frontend::startup(out, 0, parameters))
}

/// The startup packet with which a server is opened.
pub(crate) fn server_startup(parameters: &[(&str, &str)]) -> Message {
    built(|out| frontend::startup(out, 2, parameters))
}

pub(crate) fn password(text: &str) -> Message {
    built(|out| frontend::password(out, text.as_bytes()))
}

pub(crate) fn query(sql: &str) -> Message {
    built(|out| frontend::query(out, sql.as_bytes()))
}

pub(crate) fn parse(name: &str, sql: &str) -> Message {
    built(|out| frontend::parse(out, name.as_bytes(), sql.as_bytes(), frontend::NO_TYPES))
}

pub(crate) fn bind(statement: &str) -> Message {
    built(|out| frontend::bind_text(out, statement.as_bytes(), &[Some(b"1")]))
}

pub(crate) fn describe(statement: &str) -> Message {
    built(|out| frontend::describe_statement(out, statement.as_bytes()))
}

pub(crate) fn describe_portal() -> Message {
    built(|out| frontend::describe_portal(out, b""))
}

pub(crate) fn execute() -> Message {
    built(|out| frontend::execute(out, b"", 0))
}

pub(crate) fn close(statement: &str) -> Message {
    built(|out| frontend::close_statement(out, statement.as_bytes()))
}

pub(crate) fn close_portal(portal: &str) -> Message {
    built(|out| frontend::close_portal(out, portal.as_bytes()))
}

pub(crate) fn sync() -> Message {
    built(frontend::sync)
}

pub(crate) fn flush() -> Message {
    built(frontend::flush)
}

pub(crate) fn terminate() -> Message {
    built(frontend::terminate)
}

pub(crate) fn function_call() -> Message {
    b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0".to_vec()
}

pub(crate) fn copy_fail(reason: &str) -> Message {
    built(|out| frontend::copy_fail(out, reason.as_bytes()))
}

pub(crate) fn cancel_request(pid: u32, secret: &[u8]) -> Message {
    built(|out| frontend::cancel_request(out, pid, secret))
}

// Messages of both sides.

pub(crate) fn copy_data(data: &str) -> Message {
    built(|out| frontend::copy_data(out, data.as_bytes()))
}

pub(crate) fn copy_done() -> Message {
    built(frontend::copy_done)
}

// Messages of servers.

pub(crate) fn authentication_ok() -> Message {
    built(backend::authentication_ok)
}

pub(crate) fn parsed() -> Message {
    built(backend::parse_complete)
}

pub(crate) fn bound() -> Message {
    built(backend::bind_complete)
}

pub(crate) fn closed() -> Message {
    built(backend::close_complete)
}

/// ParameterDescription of a statement without parameters.
pub(crate) fn parameters() -> Message {
    b"t\0\0\0\x06\0\0".to_vec()
}

pub(crate) fn no_data() -> Message {
    built(backend::no_data)
}

pub(crate) fn columns(name: &str) -> Message {
    built(|out| backend::row_description(out, &[Column { name, type_oid: 25, type_len: -1 }]))
}

pub(crate) fn row(value: &str) -> Message {
    built(|out| backend::data_row(out, &[Some(value.as_bytes())]))
}

/// A DataRow with several values.
pub(crate) fn row_of(values: &[Option<&str>]) -> Message {
    let values: Vec<_> = values.iter().map(|value| value.map(str::as_bytes)).collect();
    built(|out| backend::data_row(out, &values))
}

/// An item of the answer to the probe: a name with its value. ASCII only.
pub(crate) fn item_of(letter: char, name: &str, value: &str) -> Message {
    let written = |text: &str| {
        let text = text.replace('\\', r"\134");
        text.replace(';', r"\073").replace('=', r"\075")
    };
    row(&format!("{letter}:{}={}", written(name), written(value)))
}

pub(crate) fn complete(tag: &str) -> Message {
    built(|out| backend::command_complete(out, tag))
}

/// ReadyForQuery with this transaction status.
pub(crate) fn ready(status: char) -> Message {
    built(|out| backend::ready_for_query(out, status as u8))
}

pub(crate) fn error(sqlstate: &str, text: &str) -> Message {
    built(|out| backend::error(out, &ErrorFields::new("ERROR", sqlstate, text)))
}

/// An error that names the function of PostgreSQL that raised it.
pub(crate) fn error_of(sqlstate: &str, text: &str, routine: &str) -> Message {
    let mut fields = ErrorFields::new("ERROR", sqlstate, text);
    fields.replace(b'R', routine.as_bytes());
    built(|out| backend::error(out, &fields))
}

pub(crate) fn fatal(sqlstate: &str, text: &str) -> Message {
    built(|out| backend::error(out, &ErrorFields::new("FATAL", sqlstate, text)))
}

pub(crate) fn notice(text: &str) -> Message {
    built(|out| backend::notice(out, &ErrorFields::new("NOTICE", "00000", text)))
}

pub(crate) fn warning(sqlstate: &str, text: &str) -> Message {
    built(|out| backend::notice(out, &ErrorFields::new("WARNING", sqlstate, text)))
}

/// PostgreSQL's warning when a library that has just been loaded reserves the prefix of the setting.
pub(crate) fn removal(name: &str) -> Message {
    let text = format!("invalid configuration parameter name \"{name}\", removing it");
    let mut warning = ErrorFields::new("WARNING", "42602", &text);
    warning.replace(b'D', *b"\"plpgsql\" is now a reserved prefix.");
    warning.replace(b'R', *b"MarkGUCPrefixReserved");
    built(|out| backend::notice(out, &warning))
}

/// A notification from the server process with that id.
pub(crate) fn told(pid: u32, channel: &str, payload: &str) -> Message {
    built(|out| backend::notification(out, pid, channel.as_bytes(), payload.as_bytes()))
}

pub(crate) fn notification(channel: &str) -> Message {
    built(|out| backend::notification(out, 9, channel.as_bytes(), b""))
}

pub(crate) fn status(name: &str, value: &str) -> Message {
    built(|out| backend::parameter_status(out, name.as_bytes(), value.as_bytes()))
}

pub(crate) fn copy_in() -> Message {
    built(|out| backend::copy_in_response(out, 1))
}

pub(crate) fn copy_out() -> Message {
    built(|out| backend::copy_out_response(out, 1))
}

pub(crate) fn negotiate(minor: u16, unknown: &[&[u8]]) -> Message {
    built(|out| backend::negotiate_protocol_version(out, minor, unknown))
}

pub(crate) fn key_data(pid: u32, secret: &[u8]) -> Message {
    built(|out| backend::backend_key_data(out, pid, secret))
}

/// The whole answer to a simple Query.
pub(crate) fn done(tag: &str) -> Message {
    [complete(tag), ready('I')].concat()
}

/// Formats each message as a line. Equal lines are equal bytes.
pub(crate) fn show(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let whole = match Header::parse(rest) {
            Ok(Some(header)) if header.total <= rest.len() => header.total,
            _ => {
                lines.push(format!("part of a message: {}", rest.escape_ascii()));
                break;
            }
        };
        let (message, behind) = rest.split_at(whole);
        let body = message[HEADER_LEN..].escape_ascii();
        lines.push(format!("{} {body}", char::from(message[0])));
        rest = behind;
    }
    lines
}
