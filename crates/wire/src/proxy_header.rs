//! The header that a proxy in front of Weir sends before a connection's first byte: the PROXY
//! protocol, version 2 (haproxy's `doc/proxy-protocol.txt`).
//!
//! Only the client's address is read. The rest of a header (its TLVs) is skipped. The caller
//! decides which senders to trust.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::reader::Reader;

/// The first bytes of every header. No startup packet and no TLS handshake begins with them.
pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length of the rest.
pub const HEAD_LEN: usize = 16;
/// The longest accepted header, in bytes. The protocol allows 65,551 and requires at least 536.
pub const HEADER_LEN_MAX: usize = 4_096;

/// The kind of a connection's first bytes, as far as they have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An incomplete header; no bytes beyond this number belong to it.
    Needs(usize),
    /// A whole header.
    Whole {
        /// Its length in bytes.
        len: usize,
        /// The client's address. `None`: the proxy's own connection, or an unknown address; the
        /// address of the connection counts.
        client: Option<SocketAddr>,
    },
}

/// Why a header is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyHeaderError {
    #[error("no PROXY protocol header")]
    Missing,
    #[error("PROXY protocol header of version 1, only version 2 is accepted")]
    Version1,
    #[error("PROXY protocol header of unknown version or command: {0:#04x}")]
    Command(u8),
    #[error("PROXY protocol header with an address family other than TCP or Unix: {0:#04x}")]
    Family(u8),
    #[error("PROXY protocol header of invalid length: {0}")]
    Length(u16),
}

/// Reads the first bytes of a connection, at most as many as it has asked for.
///
/// # Errors
/// As soon as no further bytes can make it a valid header.
pub fn read(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes.get(..known) != SIGNATURE.get(..known) {
        let is_old = !bytes.is_empty() && b"PROXY ".starts_with(bytes.get(..6).unwrap_or(bytes));
        return Err(if is_old { ProxyHeaderError::Version1 } else { ProxyHeaderError::Missing });
    }
    let mut reader = Reader::new(bytes.get(known..).unwrap_or_default());
    let (Some(command), Some(family), Some(rest_len)) = (reader.u8(), reader.u8(), reader.u16())
    else {
        return Ok(Progress::Needs(HEAD_LEN));
    };
    if !matches!(command, 0x20 | 0x21) {
        return Err(ProxyHeaderError::Command(command));
    }
    let len = HEAD_LEN + usize::from(rest_len);
    if len > HEADER_LEN_MAX {
        return Err(ProxyHeaderError::Length(rest_len));
    }
    if bytes.len() < len {
        return Ok(Progress::Needs(len));
    }
    // LOCAL: the proxy's own connection, whose addresses mean nothing.
    let client = if command == 0x20 { None } else { source(family, reader, rest_len)? };
    Ok(Progress::Whole { len, client })
}

/// Reads the source from the addresses and ports of source and destination.
fn source(
    family: u8,
    mut reader: Reader<'_>,
    rest_len: u16,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let address = match family {
        // Unknown, or a unix socket at the proxy.
        0x00 | 0x31 => return Ok(None),
        0x11 => address::<4, Ipv4Addr>(&mut reader),
        0x21 => address::<16, Ipv6Addr>(&mut reader),
        _ => return Err(ProxyHeaderError::Family(family)),
    };
    address.map(Some).ok_or(ProxyHeaderError::Length(rest_len))
}

fn address<const LEN: usize, Ip>(reader: &mut Reader<'_>) -> Option<SocketAddr>
where
    Ip: From<[u8; LEN]> + Into<IpAddr>,
{
    let source: [u8; LEN] = reader.bytes(LEN)?.try_into().ok()?;
    let _destination = reader.bytes(LEN)?;
    let (source_port, _destination_port) = (reader.u16()?, reader.u16()?);
    Some(SocketAddr::new(Ip::from(source).into(), source_port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &len, rest].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xd4, 0x31, 0x19, 0x20];

    fn whole(header: &[u8]) -> Option<SocketAddr> {
        match read(header) {
            Ok(Progress::Whole { len, client }) if len == header.len() => client,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_client_is_where_the_header_says() {
        assert_eq!(whole(&header(0x21, 0x11, &V4)), Some("192.0.2.7:54321".parse().unwrap()));
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        v6[15] = 9;
        v6[32..34].copy_from_slice(&[0, 80]);
        assert_eq!(whole(&header(0x21, 0x21, &v6)), Some("[2001::9]:80".parse().unwrap()));
        // Data after the addresses is skipped.
        let more = [&V4[..], &[4, 0, 3, 1, 2, 3]].concat();
        assert_eq!(whole(&header(0x21, 0x11, &more)), Some("192.0.2.7:54321".parse().unwrap()));
    }

    #[test]
    fn a_proxy_may_speak_for_itself_or_not_know() {
        for (command, family, rest) in [
            (0x20, 0x00, &[][..]),
            (0x20, 0x11, &V4),
            (0x21, 0x00, &[1, 2]),
            (0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(whole(&header(command, family, rest)), None);
        }
    }

    #[test]
    fn each_piece_of_a_header_asks_for_the_rest_of_it() {
        let all = header(0x21, 0x11, &V4);
        for at in 0..all.len() {
            let needs = if at < HEAD_LEN { HEAD_LEN } else { all.len() };
            assert_eq!(read(&all[..at]), Ok(Progress::Needs(needs)), "{at}");
        }
    }

    #[test]
    fn each_mistake() {
        use ProxyHeaderError::{Command, Family, Length, Missing, Version1};
        let bad = |bytes: &[u8]| read(bytes).unwrap_err();
        assert_eq!(bad(&[0, 0, 0, 8]), Missing);
        assert_eq!(bad(b"\r\n\r\r"), Missing);
        assert_eq!(bad(b"P"), Version1);
        assert_eq!(bad(b"PROXY TCP4 192.0.2.7"), Version1);
        assert_eq!(bad(b"PROBE"), Missing);
        assert_eq!(bad(&header(0x11, 0x11, &V4)), Command(0x11));
        assert_eq!(bad(&header(0x22, 0x11, &V4)), Command(0x22));
        assert_eq!(bad(&header(0x21, 0x12, &V4)), Family(0x12));
        assert_eq!(bad(&header(0x21, 0x11, &V4[..11])), Length(11));
        assert_eq!(bad(&header(0x21, 0x21, &[0; 35])), Length(35));
        assert_eq!(bad(&header(0x21, 0x11, &[0; 4_081])), Length(4_081));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_not(start in 0..17usize, bytes: Vec<u8>) {
            let mut all = header(0x21, 0x11, &V4);
            all.truncate(start);
            all.extend(bytes);
            if let Ok(Progress::Whole { len, .. }) = read(&all) {
                assert!(len <= all.len());
            }
        }
    }
}
