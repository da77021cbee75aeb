//! The TLS state of one connection: records in, bytes out, and back. It never uses a socket.
//!
//! rustls is used without its buffers, so a connection between two records keeps only keys. Sent
//! records carry 8 KB at most, since older libpq stalls on longer ones in asynchronous use.

use std::{fmt, sync::Arc};

use rustls::{
    ClientConfig, CommonState, Error, ServerConfig,
    client::{ClientConnectionData, UnbufferedClientConnection},
    pki_types::ServerName,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic},
};

use super::certificate::{self, PeerNames};

/// Bytes of a record beyond its content, with room to spare.
const RECORD_OVERHEAD: usize = 64;
/// The content of a sent record, in bytes.
pub(crate) const RECORD_LEN: usize = 8192;

/// Either end of a TLS connection.
enum End {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// The state of a connection after all received bytes are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The handshake waits for the peer.
    Handshaking,
    Open,
    /// The peer has announced that it sends nothing more.
    PeerClosed,
}

/// The result of reading records.
#[derive(Debug, Default)]
pub struct Progress {
    /// The bytes that the peer sent, decrypted.
    pub plain: Vec<u8>,
    /// Bytes to send to the peer: parts of the handshake, alerts, key updates.
    pub reply: Vec<u8>,
}

/// The TLS state of a connection.
pub struct Tls {
    end: End,
    /// The beginning of an incomplete record.
    partial: Vec<u8>,
}

impl Tls {
    /// Returns our end of a client's connection.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn accept(config: Arc<ServerConfig>) -> Result<Self, Error> {
        let end = End::Server(UnbufferedServerConnection::new(config)?);
        Ok(Self { end, partial: Vec::new() })
    }

    /// Returns our end of a connection to a server. A [`Self::receive`] of no bytes returns its
    /// first message.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn connect(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let end = End::Client(UnbufferedClientConnection::new(config, name)?);
        Ok(Self { end, partial: Vec::new() })
    }

    /// Reads bytes from the peer; `fresh` is used as working space.
    ///
    /// # Errors
    /// When the peer violates the protocol or is not accepted. `progress.reply` then has the alert
    /// for it.
    pub fn receive(
        &mut self,
        fresh: &mut [u8],
        progress: &mut Progress,
    ) -> Result<Standing, Error> {
        let held = std::mem::take(&mut self.partial);
        if held.is_empty() {
            let (used, standing) = self.end.advance(fresh, progress)?;
            self.partial = fresh[used..].to_vec();
            return Ok(standing);
        }
        let mut whole = held;
        whole.extend_from_slice(fresh);
        let (used, standing) = self.end.advance(&mut whole, progress)?;
        whole.drain(..used);
        whole.shrink_to_fit();
        self.partial = whole;
        Ok(standing)
    }

    /// Appends `plain` to `out` as records.
    ///
    /// # Errors
    /// When the connection cannot send any more.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.traffic(out, plain.len(), |traffic, room| traffic.encrypt(plain, room))
    }

    /// Appends the announcement that nothing more will be sent to `out`.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.traffic(out, 0, |traffic, room| traffic.queue_close_notify(room))
    }

    /// Returns the lengths of the contents of these records without opening them, because opening
    /// consumes a record. They must be the next ones. Returns `None` if the lengths are unknown.
    pub fn content_lens(&self, records: &[u8]) -> Option<Vec<usize>> {
        let overhead = self.overhead().filter(|_| self.partial.is_empty())?;
        let (mut lens, mut rest) = (Vec::new(), records);
        while let [_, _, _, high, low, behind @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            rest = behind.get(len..)?;
            lens.push(len.checked_sub(overhead)?);
        }
        rest.is_empty().then_some(lens)
    }

    /// Returns how many bytes encryption adds to the content of a record (RFC 8446, 5.2; 5288, 3;
    /// 7905, 2).
    fn overhead(&self) -> Option<usize> {
        let common = self.common();
        let suite = format!("{:?}", common.negotiated_cipher_suite()?.suite());
        match common.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_3 => Some(1 + 16),
            rustls::ProtocolVersion::TLSv1_2 if suite.contains("CHACHA20") => Some(16),
            rustls::ProtocolVersion::TLSv1_2 => Some(8 + 16),
            _ => None,
        }
    }

    /// Describes the connection as PgBouncer does: `TLSv1.3/TLS_AES_256_GCM_SHA384/ECDH=X25519`.
    pub fn describe(&self) -> String {
        let common = self.common();
        let version = match common.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLS",
        };
        let suite = common.negotiated_cipher_suite().map_or_else(String::new, |suite| {
            let name = format!("{:?}", suite.suite());
            name.strip_prefix("TLS13_").map_or_else(|| name.clone(), |rest| format!("TLS_{rest}"))
        });
        let group = common
            .negotiated_key_exchange_group()
            .map_or_else(String::new, |group| format!("/ECDH={:?}", group.name()));
        format!("{version}/{suite}{group}")
    }

    /// Returns the application protocol, if the two ends have agreed on one.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.common().alpn_protocol()
    }

    /// Returns the names in the peer's certificate; none if the peer has sent none. A resumed
    /// session does not verify the certificate again, so its dates are checked here.
    ///
    /// # Errors
    /// When the certificate is not valid at that time.
    pub fn peer_names(&self, unix_seconds: i64) -> Result<PeerNames, String> {
        let Some(shown) = self.peer_certificate() else { return Ok(PeerNames::default()) };
        if !x509::Certificate::read(shown).is_ok_and(|own| own.is_within_its_dates(unix_seconds)) {
            return Err("TLS client certificate has expired".into());
        }
        Ok(PeerNames::of(shown))
    }

    /// Returns the peer's certificate in DER, if it has sent one.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.common().peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Was an earlier session resumed, without verifying certificates?
    #[cfg(test)]
    pub(crate) fn is_resumed(&self) -> bool {
        self.common().handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    /// Returns `tls-server-end-point` of the peer's certificate (RFC 5929); empty if there is none.
    pub fn end_point(&self) -> Arc<[u8]> {
        let digest = self.peer_certificate().and_then(certificate::end_point);
        digest.map(Arc::from).unwrap_or_default()
    }

    /// Brings the connection to where it can send, and has `write` do so.
    fn traffic(
        &mut self,
        out: &mut Vec<u8>,
        len: usize,
        mut write: impl Write,
    ) -> Result<(), Error> {
        // The library expects the bytes of an incomplete record again.
        let mut partial = std::mem::take(&mut self.partial);
        let result = match &mut self.end {
            End::Server(end) => send(end, &mut partial, len, out, &mut write),
            End::Client(end) => send(end, &mut partial, len, out, &mut write),
        };
        self.partial = partial;
        result
    }

    fn common(&self) -> &CommonState {
        match &self.end {
            End::Server(end) => end,
            End::Client(end) => end,
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("partial", &self.partial.len()).finish_non_exhaustive()
    }
}

impl End {
    fn advance(
        &mut self,
        incoming: &mut [u8],
        progress: &mut Progress,
    ) -> Result<(usize, Standing), Error> {
        match self {
            Self::Server(end) => advance(end, incoming, progress),
            Self::Client(end) => advance(end, incoming, progress),
        }
    }
}

/// The common interface of both ends.
trait Records {
    type Data;
    fn has_records_to_send(&self) -> bool;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    fn has_records_to_send(&self) -> bool {
        self.wants_write()
    }
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    fn has_records_to_send(&self) -> bool {
        self.wants_write()
    }
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

/// Reads all records in `incoming`. Returns how many bytes were consumed.
fn advance<R: Records>(
    end: &mut R,
    incoming: &mut [u8],
    progress: &mut Progress,
) -> Result<(usize, Standing), Error> {
    let mut at = 0;
    let mut closed = false;
    loop {
        let UnbufferedStatus { mut discard, state } = end.process(&mut incoming[at..]);
        let standing = match state {
            Err(error) => {
                take_alert(end, &mut progress.reply);
                return Err(error);
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    discard += record.discard;
                    progress.plain.extend_from_slice(record.payload);
                }
                None
            }
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut progress.reply, |out| data.encode(out))?;
                None
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                None
            }
            Ok(ConnectionState::PeerClosed) => {
                closed = true;
                None
            }
            Ok(ConnectionState::BlockedHandshake) => Some(Standing::Handshaking),
            Ok(ConnectionState::WriteTraffic(_)) => Some(Standing::Open),
            Ok(ConnectionState::Closed) => Some(Standing::PeerClosed),
            // Early data is never accepted.
            Ok(_) => return Err(Error::General("unexpected state of the TLS library".into())),
        };
        at += discard;
        if let Some(standing) = standing {
            return Ok((at, if closed { Standing::PeerClosed } else { standing }));
        }
    }
}

/// Fetches the alert for the peer after an error. The library must not continue behind it: it would
/// read the messages after the refused one, and panic since they are missing.
fn take_alert<R: Records>(end: &mut R, reply: &mut Vec<u8>) {
    while end.has_records_to_send()
        && let UnbufferedStatus { state: Ok(ConnectionState::EncodeTlsData(mut data)), .. } =
            end.process(&mut [])
    {
        if encode(reply, |out| data.encode(out)).is_err() {
            return;
        }
    }
}

/// An end that can send.
trait Traffic {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError>;
    fn queue_close_notify(&mut self, room: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<Data> Traffic for WriteTraffic<'_, Data> {
    fn encrypt(&mut self, plain: &[u8], room: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, plain, room)
    }

    fn queue_close_notify(&mut self, room: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::queue_close_notify(self, room)
    }
}

/// Writes records into the given room, and returns how much of it they take.
trait Write: FnMut(&mut dyn Traffic, &mut [u8]) -> Result<usize, EncryptError> {}

impl<F: FnMut(&mut dyn Traffic, &mut [u8]) -> Result<usize, EncryptError>> Write for F {}

fn send<R: Records>(
    end: &mut R,
    partial: &mut [u8],
    len: usize,
    out: &mut Vec<u8>,
    write: &mut impl Write,
) -> Result<(), Error> {
    loop {
        match end.process(partial).state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                return encrypt(len, out, |room| write(&mut traffic, room));
            }
            ConnectionState::EncodeTlsData(mut data) => encode(out, |out| data.encode(out))?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(Error::General("a TLS connection that cannot send".into())),
        }
    }
}

fn encode(
    out: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let before = out.len();
    let mut room = 1024;
    loop {
        out.resize(before + room, 0);
        match encode(&mut out[before..]) {
            Ok(len) => {
                out.truncate(before + len);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(need)) => room = need.required_size,
            Err(EncodeError::AlreadyEncoded) => {
                out.truncate(before);
                return Ok(());
            }
        }
    }
}

/// Appends records with `len` bytes of content to `out`.
fn encrypt(
    len: usize,
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), Error> {
    let before = out.len();
    let mut room = len + (len / RECORD_LEN + 1) * RECORD_OVERHEAD;
    loop {
        out.resize(before + room, 0);
        match write(&mut out[before..]) {
            Ok(len) => {
                out.truncate(before + len);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(need)) => room = need.required_size,
            Err(EncryptError::EncryptExhausted) => return Err(Error::EncryptError),
        }
    }
}
