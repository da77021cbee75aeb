//! The messages of a logged-in client of the console, parsed from the received bytes.

use wire::messages::{Bind, Execute, Parse, StatementOrPortal};
use wire::{HEADER_LEN, Header, Reader, bad_header, frontend};

/// Longest accepted message, in bytes; PgBouncer's limit is the size of its `pkt_buf`, 4096.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The text of a simple query.
    Query(Vec<u8>),
    Terminate,
    Extended(Extended),
    /// Any other message a logged-in client may send to PostgreSQL.
    Other(u8),
}

/// A message of the extended query protocol. Unnamed statements and portals have empty names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    Parse {
        name: Vec<u8>,
        text: Vec<u8>,
        /// Does it declare types of parameters?
        has_parameters: bool,
    },
    Bind {
        portal: Vec<u8>,
        statement: Vec<u8>,
        /// The number of its parameters.
        parameters: u16,
        /// Format codes of the result's columns: 0 text, 1 binary.
        formats: Vec<u16>,
    },
    DescribeStatement(Vec<u8>),
    DescribePortal(Vec<u8>),
    Execute {
        portal: Vec<u8>,
        /// 0 = all.
        rows_max: u32,
    },
    CloseStatement(Vec<u8>),
    ClosePortal(Vec<u8>),
    Flush,
    Sync,
}

/// Why a connection with an invalid message ends.
pub(crate) const UNKNOWN: &str = "unknown pkt";

/// Removes the first message from `buffer`; `None` if it is incomplete.
///
/// # Errors
/// The text of the FATAL error that ends the connection.
pub(crate) fn take(buffer: &mut Vec<u8>) -> Result<Option<Message>, String> {
    let header = match Header::parse(buffer) {
        Ok(Some(header)) => header,
        Ok(None) => return Ok(None),
        Err(_) => return Err(bad_header(buffer)),
    };
    if !is_known(header.code) {
        return Err(UNKNOWN.to_owned());
    }
    if header.total > MESSAGE_BYTES_MAX {
        return Err("incomplete pkt".to_owned());
    }
    let Some(bytes) = buffer.get(HEADER_LEN..header.total) else { return Ok(None) };
    let message = match header.code {
        frontend::QUERY => Message::Query(query(bytes)?),
        frontend::TERMINATE => Message::Terminate,
        code => match extended(code, bytes) {
            Some(Ok(message)) => Message::Extended(message),
            Some(Err(())) => return Err("bad packet".to_owned()),
            None => Message::Other(code),
        },
    };
    buffer.drain(..header.total);
    Ok(Some(message))
}

/// Like PgBouncer, it ignores everything after the first NUL.
fn query(body: &[u8]) -> Result<Vec<u8>, String> {
    let text = Reader::new(body).cstr().ok_or("incomplete query")?;
    Ok(text.to_vec())
}

/// Parses a message of the extended query protocol. Returns `None` for another message, and an
/// error for a malformed one.
fn extended(code: u8, body: &[u8]) -> Option<Result<Extended, ()>> {
    let message = match code {
        frontend::PARSE => Parse::decode(body).map_err(drop).map(|parse| Extended::Parse {
            name: parse.name.to_vec(),
            text: parse.sql.to_vec(),
            has_parameters: parse.types_raw != frontend::NO_TYPES,
        }),
        frontend::BIND => Bind::decode(body).map_err(drop).and_then(|bind| {
            let (parameters, formats) = values_and_formats(bind.rest).ok_or(())?;
            let (portal, statement) = (bind.portal.to_vec(), bind.statement.to_vec());
            Ok(Extended::Bind { portal, statement, parameters, formats })
        }),
        frontend::EXECUTE => Execute::decode(body).map_err(drop).map(|execute| Extended::Execute {
            portal: execute.portal.to_vec(),
            rows_max: execute.rows_max,
        }),
        frontend::DESCRIBE => named(body, Extended::DescribeStatement, Extended::DescribePortal),
        frontend::CLOSE => named(body, Extended::CloseStatement, Extended::ClosePortal),
        frontend::FLUSH => Ok(Extended::Flush),
        frontend::SYNC => Ok(Extended::Sync),
        _ => return None,
    };
    Some(message)
}

fn named(
    body: &[u8],
    statement: fn(Vec<u8>) -> Extended,
    portal: fn(Vec<u8>) -> Extended,
) -> Result<Extended, ()> {
    let StatementOrPortal { kind, name } = StatementOrPortal::decode(body).map_err(drop)?;
    Ok(if kind == b'S' { statement(name.to_vec()) } else { portal(name.to_vec()) })
}

/// Reads the rest of a Bind after its names: the number of values, and the formats of the result.
fn values_and_formats(rest: &[u8]) -> Option<(u16, Vec<u16>)> {
    let mut reader = Reader::new(rest);
    let value_formats = reader.u16()?;
    reader.bytes(2 * usize::from(value_formats))?;
    let values = reader.u16()?;
    for _ in 0..values {
        // -1 is NULL.
        if let Ok(len) = usize::try_from(reader.i32()?) {
            reader.bytes(len)?;
        }
    }
    let formats = (0..reader.u16()?).map(|_| reader.u16()).collect::<Option<_>>()?;
    reader.is_empty().then_some((values, formats))
}

fn is_known(code: u8) -> bool {
    use frontend as f;
    let extended = [f::PARSE, f::BIND, f::EXECUTE, f::DESCRIBE, f::CLOSE, f::FLUSH, f::SYNC];
    let copy = [f::COPY_DATA, f::COPY_DONE, f::COPY_FAIL];
    [f::QUERY, f::TERMINATE, f::FUNCTION_CALL].contains(&code)
        || extended.contains(&code)
        || copy.contains(&code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_taken_one_by_one() {
        let mut buffer = Vec::new();
        frontend::query(&mut buffer, b"show pools");
        frontend::sync(&mut buffer);
        frontend::terminate(&mut buffer);
        assert_eq!(take(&mut buffer), Ok(Some(Message::Query(b"show pools".to_vec()))));
        assert_eq!(take(&mut buffer), Ok(Some(Message::Extended(Extended::Sync))));
        assert_eq!(take(&mut buffer), Ok(Some(Message::Terminate)));
        assert_eq!(take(&mut buffer), Ok(None));
    }

    #[test]
    fn part_of_a_message_stays_until_the_rest_comes() {
        let mut whole = Vec::new();
        frontend::query(&mut whole, b"show pools");
        for len in 0..whole.len() {
            let mut part = whole[..len].to_vec();
            assert_eq!(take(&mut part), Ok(None));
            assert_eq!(part.len(), len);
        }
    }

    #[test]
    fn malformed_messages_end_the_connection_with_the_text_of_pgbouncer() {
        let refused = |bytes: &[u8]| take(&mut bytes.to_vec()).unwrap_err();
        assert_eq!(refused(b"Q\0\0\0\0"), "bad packet header: '5100000000'");
        assert_eq!(refused(b"Q\xff\xff\xff\xff"), "bad packet header: '51ffffffff'");
        assert_eq!(refused(b"Q\x7f\xff\xff\xff"), "incomplete pkt");
        assert_eq!(refused(b"p\0\0\0\x04"), "unknown pkt");
        assert_eq!(refused(b"\0\0\0\0\x04"), "unknown pkt");
        assert_eq!(refused(b"Q\0\0\0\x08show"), "incomplete query");
        assert_eq!(refused(b"Q\0\0\0\x04"), "incomplete query");
    }

    #[test]
    fn the_longest_message_is_read_and_one_byte_more_is_refused() {
        let mut buffer = Vec::new();
        frontend::query(&mut buffer, &[b' '; MESSAGE_BYTES_MAX - 6]);
        assert_eq!(buffer.len(), MESSAGE_BYTES_MAX);
        assert!(matches!(take(&mut buffer), Ok(Some(Message::Query(_)))));
        frontend::query(&mut buffer, &[b' '; MESSAGE_BYTES_MAX - 5]);
        assert_eq!(take(&mut buffer), Err("incomplete pkt".to_owned()));
    }

    #[test]
    fn a_bind_is_read_to_its_end() {
        let rest = [0, 1, 0, 1, 0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255, 0, 2, 0, 1, 0, 0];
        assert_eq!(values_and_formats(&rest), Some((2, vec![1, 0])));
        for len in 0..rest.len() {
            assert_eq!(values_and_formats(&rest[..len]), None, "{len}");
        }
        assert_eq!(values_and_formats(&[&rest[..], &[0]].concat()), None);
        assert_eq!(take(&mut b"B\0\0\0\x05\0".to_vec()), Err("bad packet".to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(mut bytes: Vec<u8>) {
            while let Ok(Some(_)) = take(&mut bytes) {}
        }
    }
}
