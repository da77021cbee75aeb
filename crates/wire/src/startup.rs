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
/// The newest supported minor version: 3.2, as in PostgreSQL 18. It differs from 3.0 by longer
/// cancel keys.
pub const MINOR_VERSION: u16 = 2;
/// A request code has 1234 where a protocol version has its major number.
pub const CANCEL_REQUEST: u32 = 1234 << 16 | 5678;
pub const SSL_REQUEST: u32 = 1234 << 16 | 5679;
pub const GSSENC_REQUEST: u32 = 1234 << 16 | 5680;

/// The shortest packet: a length and a code.
pub const PACKET_LEN_MIN: usize = 8;
/// The longest accepted packet, in bytes. PostgreSQL stops at 10,000; PgBouncer below 64 kB.
pub const PACKET_LEN_MAX: usize = 65_536;
/// Bytes of a cancel key's secret: 4 in protocol 3.0, up to this many in 3.2.
pub const CANCEL_SECRET_LEN_MAX: usize = 256;
const CANCEL_SECRET_LEN_MIN: usize = 4;
/// Room for the parameters of most drivers.
const PARAMETERS_USUAL: usize = 8;

/// The request in the first packet of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartupRequest<'a> {
    Startup(StartupPacket<'a>),
    Cancel(CancelKey),
    Ssl,
    GssEnc,
}

/// The key of a running query to cancel.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CancelKey {
    pub pid: u32,
    /// 4 bytes in protocol 3.0; 4 to [`CANCEL_SECRET_LEN_MAX`] are accepted.
    pub secret: Vec<u8>,
}

impl CancelKey {
    /// Returns the protocol 3.0 part of the key as one number, and the following bytes. The number
    /// has the process id in the upper half, and the first four bytes of the secret in the lower.
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

/// A session's parameters from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupPacket<'a> {
    /// Always 3.
    pub major: u16,
    /// The version that the client requested, even if it is newer than ours.
    pub minor: u16,
    parameters: Vec<Parameter<'a>>,
}

impl<'a> StartupPacket<'a> {
    /// Returns names and values in the packet's order, including repeated names.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter<'a>> {
        self.parameters.iter().copied()
    }

    /// Returns the value of a parameter. If it is repeated, the last one counts, as in PostgreSQL.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let last = self.parameters.iter().rfind(|(key, _)| *key == name.as_bytes());
        last.map(|(_, value)| *value)
    }
}

/// Why the first bytes of a connection are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartupError {
    /// A cancel key that no server can have created.
    #[error("bad cancel request")]
    CancelKey,
    /// An HTTP client: the first word of its request is a huge length.
    #[error("received an HTTP request instead of a startup packet")]
    Http,
    /// A length outside the limits, or not that of the packet.
    #[error("invalid length of startup packet: {0}")]
    Length(u32),
    /// The parameters end in the middle of one, or before the packet's end.
    #[error("invalid startup packet layout: expected terminator as last byte")]
    MissingTerminator,
    /// A proxy header from a sender that is not trusted.
    #[error(
        "received a PROXY protocol header from an address that is not in proxy_protocol_trusted"
    )]
    ProxyHeader,
    /// Protocol 2, removed in PostgreSQL 14 (or 1, removed long before).
    #[error("old V2 protocol not supported")]
    OldProtocol,
    /// TLS from the first byte, where it is not expected.
    #[error("received a TLS handshake instead of a startup packet")]
    Tls,
    #[error("unsupported protocol version {major}.{minor}")]
    UnsupportedVersion { major: u16, minor: u16 },
}

/// Returns the length of the packet that begins with `bytes`, including the length field;
/// `Ok(None)` if fewer than 4 bytes have arrived. [`parse`] needs exactly that many.
///
/// # Errors
/// When the length is outside [`PACKET_LEN_MIN`]`..=`[`PACKET_LEN_MAX`]. Other known protocols get
/// an error of their own.
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

/// Reads one whole packet of the length from [`packet_len`].
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

/// Reads pairs of names and values, up to an empty name, which must be the last byte.
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
