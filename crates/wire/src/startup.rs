//! The packets a connection opens with: startup, cancel, SSLRequest, GSSENCRequest.
//!
//! They have a length but no code. This module reads the requests in a startup packet; the caller
//! decides about them.

mod options;

use std::fmt;

use thiserror::Error;

pub use self::options::{OptionsError, parse_options};
use crate::reader::Reader;

/// Protocol 3.0: the major number in the upper half, the minor in the lower.
pub const PROTOCOL_3_0: u32 = 3 << 16;
/// The newest minor version spoken here, on both sides: 3.2, PostgreSQL 18's. Its difference from
/// 3.0 is longer cancel keys.
pub const MINOR_VERSION: u16 = 2;
/// A request code has 1234 where a protocol version has its major number.
pub const CANCEL_REQUEST: u32 = 1234 << 16 | 5678;
pub const SSL_REQUEST: u32 = 1234 << 16 | 5679;
pub const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;

/// The shortest packet: a length and a code.
pub const PACKET_LEN_MIN: usize = 8;
/// The longest packet accepted, in bytes. PostgreSQL stops at 10,000; PgBouncer below 64 kB.
pub const PACKET_LEN_MAX: usize = 65_536;
/// Bytes of a cancel key's secret: 4 in protocol 3.0, up to this many in 3.2.
pub const CANCEL_SECRET_LEN_MAX: usize = 256;
const CANCEL_SECRET_LEN_MIN: usize = 4;
/// Room for what most drivers send.
const PARAMETERS_USUAL: usize = 8;

/// The request in the first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupRequest<'a> {
    Startup(StartupPacket<'a>),
    Cancel(CancelKey),
    Ssl,
    GssEnc,
}

/// The key that names a running query to cancel.
#[derive(Clone, PartialEq, Eq)]
pub struct CancelKey {
    pub pid: u32,
    /// 4 bytes in protocol 3.0; 4 to [`CANCEL_SECRET_LEN_MAX`] are accepted.
    pub secret: Vec<u8>,
}

impl CancelKey {
    /// The protocol 3.0 part of the key, as one number: the process id in the upper half, the first
    /// four bytes of the secret in the lower. The bytes after them are returned unchanged.
    #[must_use]
    pub fn number(&self) -> Option<(u64, &[u8])> {
        let (short, tag) = self.secret.split_first_chunk::<4>()?;
        Some(((u64::from(self.pid) << 32) | u64::from(u32::from_be_bytes(*short)), tag))
    }
}

impl fmt::Debug for CancelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelKey").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// A name and its value.
pub type Parameter<'a> = (&'a [u8], &'a [u8]);

/// A session's parameters as the client gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupPacket<'a> {
    /// Always 3.
    pub major: u16,
    /// The version that the client asked for, even if it is newer than ours.
    pub minor: u16,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> StartupPacket<'a> {
    /// Names and values in the packet's order, repeated names included.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter<'a>> {
        self.parameters.iter().copied()
    }

    /// The value of a parameter; of a repeated one the last, which is the one PostgreSQL heeds.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let last = self.parameters.iter().rfind(|(key, _)| *key == name.as_bytes());
        last.map(|(_, value)| *value)
    }
}

/// Why the first bytes of a connection are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartupError {
    /// A cancel key no server could have given.
    #[error("bad cancel request")]
    CancelKey,
    /// An HTTP client: its request's first word reads as a huge length.
    #[error("received an HTTP request instead of a startup packet")]
    Http,
    /// A length outside the limits, or not the one of the packet it stands in.
    #[error("invalid length of startup packet: {0}")]
    Length(u32),
    /// The parameters end in the middle of one, or not at the packet's end.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    MissingTerminator,
    /// A proxy announces its client to a pooler that would not take its word.
    #[error(
        "received a PROXY protocol header from an address that is not in proxy_protocol_trusted"
    )]
    ProxyHeader,
    /// Protocol 2, gone since PostgreSQL 14 (or 1, gone long before).
    #[error("old V2 protocol not supported")]
    OldProtocol,
    /// TLS from the first byte, which nobody agreed upon.
    #[error("received a TLS handshake instead of a startup packet")]
    Tls,
    #[error("unsupported protocol version {major}.{minor}")]
    UnsupportedVersion { major: u16, minor: u16 },
}

/// The length of the packet that begins with `bytes`, in bytes and with the length field;
/// `Ok(None)` when fewer than 4 bytes are there. [`parse`] wants exactly that many.
///
/// # Errors
/// When the length is outside [`PACKET_LEN_MIN`]`..=`[`PACKET_LEN_MAX`]; what looks like another
/// protocol gets an error that says so.
pub fn packet_len(bytes: &[u8]) -> Result<Option<usize>, StartupError> {
    let Some(first) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*first);
    match length as usize {
        len @ PACKET_LEN_MIN..=PACKET_LEN_MAX => Ok(Some(len)),
        _ => Err(match first {
            b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"CONN" | b"OPTI" | b"TRAC"
            | b"PATC" | b"PRI " => StartupError::Http,
            [0x16, 0x03, ..] => StartupError::Tls,
            b"\r\n\r\n" | b"PROX" => StartupError::ProxyHeader,
            _ => StartupError::Length(length),
        }),
    }
}

/// Reads one whole packet, as long as [`packet_len`] said.
///
/// # Errors
/// See [`StartupError`].
pub fn parse(packet: &[u8]) -> Result<StartupRequest<'_>, StartupError> {
    let declared = packet.first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    if packet_len(packet)? != Some(packet.len()) {
        return Err(StartupError::Length(declared));
    }
    let mut reader = Reader::new(packet);
    let (Some(_), Some(code)) = (reader.u32(), reader.u32()) else {
        return Err(StartupError::Length(declared));
    };
    match code {
        CANCEL_REQUEST => parse_cancel(reader).map(StartupRequest::Cancel),
        SSL_REQUEST if reader.is_empty() => Ok(StartupRequest::Ssl),
        GSSENC_REQUEST if reader.is_empty() => Ok(StartupRequest::GssEnc),
        SSL_REQUEST | GSSENC_REQUEST => Err(StartupError::Length(declared)),
        _ => {
            let (major, minor) = ((code >> 16) as u16, code as u16);
            match major {
                3 => {
                    let parameters = parse_parameters(reader)?;
                    Ok(StartupRequest::Startup(StartupPacket { major, minor, parameters }))
                }
                1 | 2 => Err(StartupError::OldProtocol),
                _ => Err(StartupError::UnsupportedVersion { major, minor }),
            }
        }
    }
}

fn parse_cancel(mut reader: Reader<'_>) -> Result<CancelKey, StartupError> {
    let pid = reader.u32().ok_or(StartupError::CancelKey)?;
    let secret = reader.rest();
    if !(CANCEL_SECRET_LEN_MIN..=CANCEL_SECRET_LEN_MAX).contains(&secret.len()) {
        return Err(StartupError::CancelKey);
    }
    Ok(CancelKey { pid, secret: secret.to_vec() })
}

/// Names and values come in pairs, up to an empty name, which is the last byte.
fn parse_parameters(mut reader: Reader<'_>) -> Result<Vec<Parameter<'_>>, StartupError> {
    let mut parameters = Vec::with_capacity(PARAMETERS_USUAL);
    loop {
        let name = reader.cstr().ok_or(StartupError::MissingTerminator)?;
        if name.is_empty() {
            break;
        }
        parameters.push((name, reader.cstr().ok_or(StartupError::MissingTerminator)?));
    }
    if reader.is_empty() { Ok(parameters) } else { Err(StartupError::MissingTerminator) }
}

#[cfg(test)]
mod tests;
