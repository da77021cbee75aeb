//! A client's text: the one in a Parse message, and the fingerprint that an operator sees.

use wire::HEADER_LEN;
use wire::messages::Parse;

use crate::session::scanning::HEAD_LEN_MAX;

/// Returns the text of a Parse message; empty if the message was not kept.
pub(crate) fn text_of(parse: &[u8]) -> &[u8] {
    let parse = Parse::decode(parse.get(HEADER_LEN..).unwrap_or_default());
    parse.map_or(b"", |parse| parse.sql)
}

/// The fingerprint by which an operator can identify a text; 0 if the text is unknown.
pub(crate) fn fingerprint(text: &[u8]) -> u64 {
    match text {
        [] => 0,
        _ => wire::md5::fingerprint(&text[..text.len().min(HEAD_LEN_MAX)]),
    }
}
