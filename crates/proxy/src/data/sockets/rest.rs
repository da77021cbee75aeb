//! Pauses in watching streams. PostgreSQL sends a large result in pieces of 8 KB. Forwarding a
//! piece is faster than producing it, so without a pause PostgreSQL would wake our thread for every
//! piece. A wake-up costs PostgreSQL a good part of a piece's time. So a server that sends piece
//! after piece is not watched for a moment, until several have arrived. Network cards delay
//! interrupts for the same reason. Other connections are served meanwhile.

use std::time::Duration;

use engine::ids::ServerId;

use super::Sockets;
use crate::data::{
    conn::{Conn, PIECE},
    table::{Kind, Token},
};
use net::sys::epoll;

/// This many pieces in a row are a stream. Smaller results are not worth a delay.
pub(super) const PIECES: u8 = 32;
/// After such a large read, no pause is needed.
pub(super) const LOT: usize = 4 * PIECE;
/// The time that a stream rests if nothing else happens. The kernel's timer slack adds some 50 µs.
pub(crate) const REST: Duration = Duration::from_micros(20);

impl Conn {
    pub(super) fn may_rest(&self) -> bool {
        self.pieces == PIECES
    }
}

impl Sockets {
    /// Counts a read of a piece or more that emptied the socket, when more is to come.
    pub(crate) fn note_piece(&mut self, server: ServerId, token: Token, count: usize) {
        let conn = self.server(server);
        if conn.pieces < PIECES {
            conn.pieces += 1;
        } else if count < LOT
            // Not while its writability must be watched.
            && conn.pending.is_none()
            && self.epoll().modify(token.fd(), epoll::EDGE, token.to_u64()).is_ok()
        {
            self.resting.push(token);
        }
    }

    #[inline]
    pub(crate) fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Watches the streams again. Bytes that have arrived meanwhile are reported by the next wait.
    pub(crate) fn end_rest(&mut self) {
        while let Some(token) = self.resting.pop() {
            // It may be closed, or parked and so watched already.
            if let kind @ Kind::Server(_) = self.table.kind(token) {
                self.watch_again(kind);
            }
        }
    }
}
