//! The basis of all builders: a message whose length is set after its body is written.
//!
//! Callers limit what they build (a pooler builds only small messages and streams the rest), so
//! builders do not fail. If a message were too long for its length field, the field would be
//! capped, and the peer would see a protocol error.

/// Appends a message: its code, its length, and what `body` appends.
#[inline]
pub(crate) fn message(out: &mut Vec<u8>, code: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(code);
    packet(out, body);
}

/// Appends a message without a code, such as the first one of a connection.
#[inline]
pub(crate) fn packet(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = length(out.len() - start);
    if let Some(slot) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
        *slot = len;
    }
}

/// A length or count of four bytes.
#[inline]
pub(crate) fn length(n: usize) -> [u8; 4] {
    debug_assert!(i32::try_from(n).is_ok(), "longer than the protocol can say: {n}");
    i32::try_from(n).unwrap_or(i32::MAX).to_be_bytes()
}

/// A count of two bytes.
#[inline]
pub(crate) fn count(n: usize) -> [u8; 2] {
    debug_assert!(i16::try_from(n).is_ok(), "more than the protocol can count: {n}");
    i16::try_from(n).unwrap_or(i16::MAX).to_be_bytes()
}

/// Appends a string and its NUL. A NUL in the string would end it and turn the rest into other
/// fields, so the string is cut there.
#[inline]
pub(crate) fn cstr(out: &mut Vec<u8>, string: &[u8]) {
    match std::ffi::CStr::from_bytes_until_nul(string) {
        Ok(cut) => out.extend_from_slice(cut.to_bytes()),
        Err(_) => out.extend_from_slice(string),
    }
    out.push(0);
}

/// Appends a value after its length; `None` is the SQL null.
#[inline]
pub(crate) fn value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(bytes) => {
            out.extend_from_slice(&length(bytes.len()));
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}
