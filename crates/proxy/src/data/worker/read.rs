//! Reads clients and servers, usually one `recv` per event. A read that did not fill the buffer was
//! the last one before the next event, unless the peer has closed its side.

use std::io;

use engine::{
    ids::{ClientId, ServerId},
    server::CloseReason,
};

use super::{BUFFER_LEN, CROWDED_READ, MESSAGES_IN_TURN, READS_IN_TURN, SMALL_READ, Worker};
use crate::data::{
    conn::{BROKEN, BULK, Conn, DONE, FAILED, NEWS, PIECE, READABLE},
    sockets::{Outcome, flow::LastWords},
    table::{Kind, Token},
};
use net::{
    sys::socket,
    tls::{Progress, Standing},
};

/// The result of one `recv`.
enum Read {
    Bytes { count: usize, drained: bool },
    Nothing,
    End,
}

#[inline(always)]
fn read(conn: &mut Conn, buffer: &mut [u8]) -> Read {
    let room = match (conn.has(BULK), conn.crowded) {
        (true, _) => BUFFER_LEN,
        (false, false) => SMALL_READ,
        (false, true) => CROWDED_READ,
    };
    loop {
        match socket::recv(conn.fd, &mut buffer[..room]) {
            Ok(0) => return Read::End,
            Ok(count) => return Read::Bytes { count, drained: conn.note_read(count, room) },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                conn.flags &= !(READABLE | NEWS);
                // Sending failed, so reading has no use.
                return if conn.has(FAILED) { Read::End } else { Read::Nothing };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Read::End,
        }
    }
}

/// The result of handling bytes that were read.
enum Opened {
    /// They are what the peer sent.
    Clear,
    /// They are TLS records; the decrypted content is in the progress, perhaps empty.
    Records,
    /// They are TLS records as above, and the peer sends nothing more.
    End,
}

/// Decrypts what the peer sent, if the connection uses TLS.
#[inline]
fn open(conn: &mut Conn, bytes: &mut [u8], progress: &mut Progress) -> Opened {
    match &mut conn.tls {
        None => Opened::Clear,
        Some(_) => open_records(conn, bytes, progress),
    }
}

fn open_records(conn: &mut Conn, bytes: &mut [u8], progress: &mut Progress) -> Opened {
    progress.plain.clear();
    let Some(tls) = &mut conn.tls else { return Opened::Clear };
    let standing = tls.receive(bytes, progress);
    if !progress.reply.is_empty() {
        let _ = conn.send_as_it_is(&progress.reply);
        progress.reply.clear();
    }
    match standing {
        Ok(Standing::Open | Standing::Handshaking) => Opened::Records,
        Ok(Standing::PeerClosed) | Err(_) => {
            // Further bytes do not matter: the next read finds the end.
            conn.flags |= READABLE | DONE | FAILED;
            socket::shutdown(conn.fd, false);
            Opened::End
        }
    }
}

impl Worker {
    /// Reads a client, as far as that is allowed now.
    pub(super) fn read_client(&mut self, client: ClientId, token: Token) {
        let share = self.engine.messages() + MESSAGES_IN_TURN;
        for _ in 0..self.reads_in_turn() {
            let on = self.engine.look().server_of(client);
            if self.keeps_client(client) || !self.sockets.client_may_be_read(client, on) {
                return;
            }
            let is_done = self.sockets.client(client).has(DONE);
            if is_done && on.is_none() {
                match self.sockets.last_words(client) {
                    LastWords::None => return self.lose_client(client),
                    LastWords::Terminate => {
                        self.engine.client_left(client, &mut self.sockets);
                        return self.report_outcomes();
                    }
                    LastWords::Request => {}
                }
            }
            if !self.engine.client_readable(client, &mut self.sockets) {
                self.report_outcomes();
                // It waits for a server. Its bytes can wait in the kernel, but its end must be
                // noticed.
                let is_there = self.sockets.is_client(token, client);
                if is_there && self.sockets.client(client).has(BROKEN) {
                    self.lose_client(client);
                }
                return;
            }
            if !self.sockets.is_client(token, client) {
                return self.report_outcomes();
            }
            match read(self.sockets.client(client), &mut self.buffer) {
                Read::Bytes { count, drained } => {
                    let conn = self.sockets.client(client);
                    let bytes = match open(conn, &mut self.buffer[..count], &mut self.progress) {
                        Opened::Clear => &self.buffer[..count],
                        Opened::Records => &self.progress.plain,
                        Opened::End if self.progress.plain.is_empty() => {
                            return self.lose_client(client);
                        }
                        Opened::End => &self.progress.plain,
                    };
                    let before = self.engine.messages();
                    if bytes.is_empty() {
                        self.engine.client_quiet(client, &mut self.sockets);
                    } else {
                        self.engine.client_bytes(client, bytes, &mut self.sockets);
                    }
                    self.report_outcomes();
                    if drained || !self.sockets.is_client(token, client) {
                        return;
                    }
                    let messages = self.engine.messages();
                    self.note_messages(client, messages - before, count);
                    if messages >= share {
                        break;
                    }
                }
                Read::Nothing => {
                    self.engine.client_quiet(client, &mut self.sockets);
                    return self.report_outcomes();
                }
                Read::End => return self.lose_client(client),
            }
        }
        self.sockets.queue(token);
    }

    /// Notes how many messages a read of `count` bytes held, when more is to come. A longer read is
    /// made only if it would hold at most [`MESSAGES_IN_TURN`] of the same length.
    fn note_messages(&mut self, client: ClientId, messages: u64, count: usize) {
        let conn = self.sockets.client(client);
        let is_too_much = |room: usize| messages * room as u64 > MESSAGES_IN_TURN * count as u64;
        conn.crowded = is_too_much(SMALL_READ);
        if is_too_much(BUFFER_LEN) {
            conn.flags &= !BULK;
        }
    }

    /// Reads a server, as far as its client accepts the replies.
    pub(super) fn read_server(&mut self, server: ServerId, token: Token) {
        let share = self.engine.messages() + MESSAGES_IN_TURN;
        for _ in 0..self.reads_in_turn() {
            let by = self.engine.look().receiver_of(server);
            if self.keeps_server(server) || !self.sockets.server_may_be_read(server, by) {
                return;
            }
            match read(self.sockets.server(server), &mut self.buffer) {
                Read::Bytes { count, drained } => {
                    let conn = self.sockets.server(server);
                    let opened = open(conn, &mut self.buffer[..count], &mut self.progress);
                    let bytes = match opened {
                        Opened::Clear => &self.buffer[..count],
                        Opened::Records | Opened::End => &self.progress.plain,
                    };
                    let (engine, sockets) = (&mut self.engine, &mut self.sockets);
                    match opened {
                        _ if !bytes.is_empty() => engine.server_bytes(server, bytes, sockets),
                        Opened::End => engine.server_closed(server, CloseReason::Lost, sockets),
                        _ => engine.server_quiet(server, sockets),
                    }
                    self.report_outcomes();
                    if drained && count >= PIECE {
                        return self.note_piece(server, token, count);
                    }
                    if drained || !self.sockets.is_server(token, server) {
                        return;
                    }
                    if self.engine.messages() >= share {
                        self.sockets.server(server).flags &= !BULK;
                        break;
                    }
                }
                Read::Nothing => {
                    self.engine.server_quiet(server, &mut self.sockets);
                    return self.report_outcomes();
                }
                Read::End => {
                    self.engine.server_closed(server, CloseReason::Lost, &mut self.sockets);
                    return self.report_outcomes();
                }
            }
        }
        self.sockets.queue(token);
    }

    #[cold]
    fn note_piece(&mut self, server: ServerId, token: Token, count: usize) {
        if self.sockets.is_server(token, server) && !self.engine.look().owes_nothing(server) {
            self.sockets.note_piece(server, token, count);
        }
    }

    /// Returns how often a connection is read before others get their turn.
    #[inline]
    fn reads_in_turn(&self) -> u32 {
        match self.sockets.global().sbuf_loopcnt {
            0 => READS_IN_TURN,
            count => count,
        }
    }

    pub(super) fn lose_client(&mut self, client: ClientId) {
        self.engine.client_closed(client, &mut self.sockets);
        self.report_outcomes();
    }

    /// Reports outcomes to the engine until there are none left. Mostly there are none.
    #[inline(always)]
    pub(super) fn report_outcomes(&mut self) {
        if !self.sockets.outcomes.is_empty() {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(&mut self) {
        while let Some(outcome) = self.sockets.outcomes.pop_front() {
            self.tell(&outcome);
        }
    }

    fn tell(&mut self, outcome: &Outcome) {
        let (engine, sockets) = (&mut self.engine, &mut self.sockets);
        match *outcome {
            Outcome::ClientLost(token) => {
                if let Kind::Client(at) = sockets.table.kind(token) {
                    engine.client_closed(ClientId(at), sockets);
                }
            }
            Outcome::ServerLost(token) => {
                if let Kind::Server(at) = sockets.table.kind(token) {
                    engine.server_closed(ServerId(at), CloseReason::Lost, sockets);
                }
            }
            Outcome::ServerConnected { server, ticket }
                if !sockets.needs_no_tls(server, ticket) =>
            {
                if sockets.is_connecting(server, ticket) {
                    engine.notes().server_reached(server);
                }
            }
            Outcome::ServerConnected { server, ticket }
            | Outcome::ServerReady { server, ticket } => {
                if sockets.end_connecting(server, ticket) {
                    sockets.note_reached(server);
                    engine.server_connected(server, sockets);
                }
            }
            Outcome::ConnectFailed { server, ticket, reason } => {
                if sockets.end_connecting(server, ticket) {
                    engine.server_closed(server, CloseReason::Text(reason), sockets);
                }
            }
            Outcome::CancelDone(cancel, end) => engine.cancel_finished(cancel, end, sockets),
        }
    }
}
