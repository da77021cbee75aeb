//! A connection that never blocks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cuts::Cuts;

/// One end of a connection: its input, and the output to it.
#[derive(Debug)]
pub(super) struct Pipe<'a> {
    unread: &'a [u8],
    cuts: Cuts,
    pub(super) written: Vec<u8>,
}

impl<'a> Pipe<'a> {
    pub(super) fn new(unread: &'a [u8], cuts: Cuts) -> Self {
        Self { unread, cuts, written: Vec::new() }
    }
}

impl AsyncRead for Pipe<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = self.get_mut();
        let len = pipe.unread.len().min(buffer.remaining());
        if len > 0 {
            let (read, unread) = pipe.unread.split_at(pipe.cuts.next(len));
            buffer.put_slice(read);
            pipe.unread = unread;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
