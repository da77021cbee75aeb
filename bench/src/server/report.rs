//! Reports of the library `weir`, in the format of `extension/README.md`. They contain settings
//! only.

use super::Session;
use crate::frame::put;

/// The startup parameter that asks for reports.
pub(super) const ASK: &[u8] = b"weir.report";
const NAME: &[u8] = b"weir.state\0";
/// The beginning of a text that restores settings.
const MARK: &[u8] = b"/*weir ";

/// Returns the text without its mark.
pub(super) fn without_mark(text: &[u8]) -> &[u8] {
    let end = text.windows(2).position(|pair| pair == b"*/").filter(|_| text.starts_with(MARK));
    end.map_or(text, |end| &text[end + 2..])
}

impl Session {
    /// Reports the state if it has changed. Names and values contain nothing that would need
    /// escaping.
    pub(super) fn report(&mut self, out: &mut Vec<u8>) {
        let Some(last) = &mut self.reported else { return };
        if self.status != b'I' {
            return;
        }
        let mut state = b"v1".to_vec();
        for (name, value) in &self.settings {
            state.extend([b";s:", &name[..], b"=", value].concat());
        }
        if *last == state {
            return;
        }
        let version: &[u8] = if last.is_empty() { b";w:1.1" } else { b"" };
        put(out, b'S', &[NAME, &state, version, b"\0"]);
        *last = state;
    }
}
