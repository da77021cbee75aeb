//! A client's text: the one in a Parse message, and the beginning that is kept to identify it.

use wire::HEADER_LEN;
use wire::messages::Parse;

use crate::session::scanning::HEAD_LEN_MAX;
use crate::watch::texts::with_normal_form;

/// Returns the text of a Parse message; empty if the message was not kept.
pub(crate) fn text_of(parse: &[u8]) -> &[u8] {
    let parse = Parse::decode(parse.get(HEADER_LEN..).unwrap_or_default());
    parse.map_or(b"", |parse| parse.sql)
}

/// The beginning of a text that an operator may want to identify. It keeps its memory.
#[derive(Debug, Default)]
pub struct KeptText(Vec<u8>);

impl KeptText {
    /// Keeps another text. Returns whether there is one.
    pub(crate) fn keep(&mut self, text: &[u8]) -> bool {
        self.0.clear();
        self.0.extend_from_slice(&text[..text.len().min(HEAD_LEN_MAX)]);
        !text.is_empty()
    }

    /// Returns the fingerprint of its normal form, as SHOW FINGERPRINTS has it.
    pub(crate) fn fingerprint(&self) -> u64 {
        // A text that is cut is longer than the part that counts.
        with_normal_form(&self.0, true, |_, fingerprint| fingerprint)
    }
}
