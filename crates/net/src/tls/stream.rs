//! A TLS connection as a stream, for the cold side.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::session::{Progress, Standing, Tls};

/// Bytes read from the socket at a time.
const READ_LEN: usize = 4096;

/// A stream of bytes over a connection whose handshake is complete.
#[derive(Debug)]
pub struct TlsStream<S> {
    inner: S,
    tls: Box<Tls>,
    progress: Progress,
    /// Records that are being sent to the peer, and how much of them is sent.
    records: Vec<u8>,
    sent: usize,
    is_over: bool,
}

impl<S> TlsStream<S> {
    /// Returns a stream that sends `records` first.
    pub fn new(inner: S, tls: Box<Tls>, records: Vec<u8>) -> Self {
        Self { inner, tls, progress: Progress::default(), records, sent: 0, is_over: false }
    }
}

impl<S: AsyncWrite + Unpin> TlsStream<S> {
    fn poll_records(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.records.len() {
            let rest = &self.records[self.sent..];
            let count = ready!(Pin::new(&mut self.inner).poll_write(context, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.records.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.progress.plain.is_empty() && !this.is_over {
            let mut fresh = [0; READ_LEN];
            let mut room = ReadBuf::new(&mut fresh);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut room))?;
            let count = room.filled().len();
            if count == 0 {
                this.is_over = true;
                break;
            }
            let standing = this
                .tls
                .receive(&mut fresh[..count], &mut this.progress)
                .map_err(io::Error::other)?;
            this.records.append(&mut this.progress.reply);
            this.is_over = standing == Standing::PeerClosed;
        }
        let count = this.progress.plain.len().min(buffer.remaining());
        buffer.put_slice(&this.progress.plain[..count]);
        this.progress.plain.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_records(context))?;
        this.tls.send(bytes, &mut this.records).map_err(io::Error::other)?;
        // Unsent bytes are sent before the next ones, or at the flush.
        match this.poll_records(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_records(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_records(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
