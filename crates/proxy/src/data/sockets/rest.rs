//! Streams that rest. PostgreSQL sends a large result in pieces of 8 KB. To forward one takes less
//! time than to make it, so whoever waits for the next is asleep when that comes, and has to be
//! waked: for each piece, by the very process that makes them, which costs it as much as a good
//! part of a piece. So a server of which such pieces come one by one is not watched for a moment,
//! until there are some; as a network card does not interrupt for each packet. Others are heard
//! meanwhile.

use std::time::Duration;

use engine::ids::ServerId;

use super::Sockets;
use crate::data::{
    conn::{Conn, PIECE},
    table::{Kind, Token},
};
use net::sys::epoll;

/// So many pieces in a row are a stream. Smaller results are not worth a delay.
pub(super) const PIECES: u8 = 32;
/// After such a large read, the stream need not rest.
pub(super) const LOT: usize = 4 * PIECE;
/// How long a stream rests if nothing else happens. The kernel adds some 50 µs, its timers' slack.
pub(crate) const REST: Duration = Duration::from_micros(20);

impl Conn {
    pub(super) fn may_rest(&self) -> bool {
        self.pieces == PIECES
    }
}

impl Sockets {
    /// So much was read of a server, a piece or more, and that was all there was, and more is to
    /// come.
    pub(crate) fn note_piece(&mut self, server: ServerId, token: Token, count: usize) {
        let conn = self.server(server);
        if conn.pieces < PIECES {
            conn.pieces += 1;
        } else if count < LOT
            // Nor while it is to be told when the server takes bytes again.
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

    /// Watches the streams again. Bytes that have come meanwhile are reported by the next wait.
    pub(crate) fn end_rest(&mut self) {
        while let Some(token) = self.resting.pop() {
            // It may be gone, or parked, and then it is watched already.
            if let kind @ Kind::Server(_) = self.table.kind(token) {
                self.watch_again(kind);
            }
        }
    }
}
