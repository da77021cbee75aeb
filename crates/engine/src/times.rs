//! When something last happened to a client or a server. Limits and ages are computed from these times.

use crate::ids::{Micros, over};

/// The times of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimes {
    connected_at: Micros,
    /// When the present or last request came, or the last reply was sent.
    request_at: Micros,
    /// When the present transaction began; 0 = there is none.
    transaction_at: Micros,
}

impl ClientTimes {
    /// It connects.
    pub(crate) fn connect(now: Micros) -> Self {
        Self { connected_at: now, request_at: now, transaction_at: 0 }
    }

    /// Returns the times of a client of another process.
    pub(crate) fn imported(
        connected_at: Micros,
        request_at: Micros,
        transaction_at: Micros,
    ) -> Self {
        Self { connected_at, request_at, transaction_at }
    }

    /// A request comes, or has come at this earlier time.
    #[inline]
    pub(crate) fn request_came(&mut self, at: Micros) {
        self.request_at = at;
    }

    /// The server gets a request. Returns whether it begins a transaction.
    #[inline(always)]
    pub(crate) fn request_begins(&mut self, now: Micros) -> bool {
        self.request_at = now;
        let begins = self.transaction_at == 0;
        if begins {
            self.transaction_at = now;
        }
        begins
    }

    /// All its requests are answered.
    #[inline]
    pub(crate) fn answered(&mut self, now: Micros) {
        self.request_at = now;
    }

    /// A transaction begins with a request that came earlier, or for the client.
    #[inline]
    pub(crate) fn transaction_begins(&mut self, now: Micros) {
        self.transaction_at = now;
    }

    /// Its transaction is over, or given up.
    #[inline]
    pub(crate) fn transaction_ends(&mut self) {
        self.transaction_at = 0;
    }

    /// Has it begun a transaction, which is not over?
    #[inline]
    pub fn in_transaction(&self) -> bool {
        self.transaction_at != 0
    }

    /// Is its transaction older than this limit?
    pub(crate) fn in_transaction_over(&self, limit: Micros, now: Micros) -> bool {
        self.in_transaction() && over(limit, self.transaction_at, now)
    }

    pub fn connected_at(&self) -> Micros {
        self.connected_at
    }

    /// Returns when the present or last request came, or the last reply was sent.
    #[inline]
    pub fn request_at(&self) -> Micros {
        self.request_at
    }

    /// Returns when the present transaction began; 0 = there is none.
    #[inline]
    pub fn transaction_at(&self) -> Micros {
        self.transaction_at
    }
}

/// The times of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerTimes {
    /// When its socket was opened.
    connected_at: Micros,
    /// When its login was complete, or its backend was sent to the lobby.
    opened_at: Micros,
    /// When its client last gave it back.
    used_at: Micros,
    /// When it was last known to work without a client: it was given back and reset, or checked.
    released_at: Micros,
    /// When its client had last given it back before it went to another worker; 0 = it never has.
    moved_since: Micros,
    /// When Weir's own query was last sent.
    asked_at: Micros,
    /// When the present query began: its first message was forwarded, or the query before it was
    /// answered. In a copy, when its client last sent something.
    query_at: Micros,
    /// When it last sent something.
    replied_at: Micros,
}

impl ServerTimes {
    /// Its socket is opened.
    pub(crate) fn connect(now: Micros) -> Self {
        Self {
            connected_at: now,
            opened_at: now,
            used_at: now,
            released_at: now,
            moved_since: 0,
            asked_at: now,
            query_at: now,
            replied_at: now,
        }
    }

    /// The server was used in another process.
    pub(crate) fn import(&mut self, released_at: Micros, asked_at: Micros, replied_at: Micros) {
        (self.released_at, self.asked_at, self.replied_at) = (released_at, asked_at, replied_at);
        self.used_at = released_at;
    }

    /// It is ready for its first client, or its backend goes to the lobby.
    pub(crate) fn opened(&mut self, now: Micros) {
        (self.used_at, self.released_at, self.opened_at) = (now, now, now);
    }

    /// Its backend was in the lobby when this process began.
    pub(crate) fn adopted(&mut self, now: Micros) {
        self.opened_at = now;
    }

    /// Its client has given it back.
    #[inline]
    pub(crate) fn given_back(&mut self, now: Micros) {
        self.used_at = now;
    }

    /// It is free for the next client, or a check shows that it works.
    #[inline]
    pub(crate) fn released(&mut self, now: Micros) {
        self.released_at = now;
    }

    /// It goes to another worker.
    pub(crate) fn moves(&mut self) {
        self.moved_since = self.released_at;
    }

    /// Has it come from another worker, and served no client here?
    pub(crate) fn has_moved(&self) -> bool {
        self.moved_since == self.released_at
    }

    /// Has it served no client since it was opened?
    pub(crate) fn is_unused(&self) -> bool {
        self.released_at == self.opened_at
    }

    /// Weir sends a query of its own.
    pub(crate) fn asked(&mut self, now: Micros) {
        self.asked_at = now;
    }

    /// A client's query begins, or the one before it is answered.
    #[inline]
    pub(crate) fn query_begins(&mut self, now: Micros) {
        self.query_at = now;
    }

    /// It has sent something.
    #[inline]
    pub(crate) fn replied(&mut self, now: Micros) {
        self.replied_at = now;
    }

    /// Returns the time since its socket was opened.
    #[inline]
    pub(crate) fn age(&self, now: Micros) -> Micros {
        now.saturating_sub(self.connected_at)
    }

    /// Was its login complete less than this time ago?
    pub(crate) fn opened_within(&self, time: Micros, now: Micros) -> bool {
        now.saturating_sub(self.opened_at) < time
    }

    /// Was it asked by Weir since its client gave it back?
    pub(crate) fn asked_when_free(&self) -> bool {
        self.asked_at > self.released_at
    }

    /// Returns when its socket was opened.
    pub fn connected_at(&self) -> Micros {
        self.connected_at
    }

    /// Returns when its login was complete, or its backend was sent to the lobby.
    pub(crate) fn opened_at(&self) -> Micros {
        self.opened_at
    }

    /// Returns when its client last gave it back.
    pub(crate) fn used_at(&self) -> Micros {
        self.used_at
    }

    /// Returns when it was last known to work without a client.
    pub fn released_at(&self) -> Micros {
        self.released_at
    }

    /// Returns when Weir's own query was last sent.
    pub fn asked_at(&self) -> Micros {
        self.asked_at
    }

    /// Returns when the present query began.
    pub fn query_at(&self) -> Micros {
        self.query_at
    }

    /// Returns when it last sent something.
    pub fn replied_at(&self) -> Micros {
        self.replied_at
    }
}
