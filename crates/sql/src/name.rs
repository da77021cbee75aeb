//! The name a token bears, folded as PostgreSQL folds it, in a place of fixed size.

/// PostgreSQL's NAMEDATALEN, less the zero byte. What is longer is cut by the server.
pub(crate) const LEN_MAX: usize = 63;

#[derive(Clone, Debug)]
pub(crate) struct Name {
    bytes: [u8; LEN_MAX],
    /// Of all that was written, also what found no place here.
    len: usize,
}

impl Name {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; LEN_MAX], len: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// As it is written: of a quoted identifier, or of a dollar quote's tag.
    pub(crate) fn push_raw(&mut self, run: &[u8]) {
        self.push(run, |byte| byte);
    }

    /// Folded: of an identifier without quotes, or of a keyword.
    pub(crate) fn push_folded(&mut self, run: &[u8]) {
        self.push(run, |byte| byte.to_ascii_lowercase());
    }

    /// What was raw is to be folded after all.
    pub(crate) fn fold(&mut self) {
        self.bytes.make_ascii_lowercase();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    /// Some of it found no place.
    pub(crate) fn is_cut(&self) -> bool {
        self.len > LEN_MAX
    }

    fn push(&mut self, run: &[u8], fold: impl Fn(u8) -> u8) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(run) {
            *place = fold(*byte);
        }
        self.len += run.len();
    }
}
