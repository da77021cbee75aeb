//! The unnamed prepared statement: each client has one, and each server has one. Every simple Query
//! destroys the server's. Weir keeps the client's Parse, and sends it again if the client uses its
//! statement on a server that has another one.

use sql::{Seen, Signs};
use wire::HEADER_LEN;
use wire::messages::Parse;

use crate::relay::ledger::{Ledger, Undo};
use crate::relay::text::text_of;

/// The unnamed statement of a client.
#[derive(Debug, Default)]
pub struct ClientUnnamed {
    /// Serial number of its Parse; 0 = there is none.
    parse: u64,
    /// Serial number of the last message that changed it while the server may have had another one.
    /// Until the reply, it is unknown which one exists. 0 = none.
    doubt: u64,
    seen: Seen,
    /// The Parse message, for other servers. Empty if it was too long to keep.
    message: Vec<u8>,
}

/// The unnamed statement of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerUnnamed {
    /// Serial number of the client's Parse of it; 0 = there is none that a client may use.
    parse: u64,
}

/// The way in which a client's statement comes to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bring {
    /// The server has it.
    Nothing,
    /// Its Parse is sent again.
    Parse,
    /// The client has none, or its Parse was not kept. The server may have another client's, which
    /// is closed.
    Close,
}

impl ClientUnnamed {
    /// Returns the statement of a client that was with another process or in a lobby. `parse`: the
    /// serial number here of its Parse.
    pub(crate) fn imported(parse: u64, message: Vec<u8>) -> Self {
        let text = Parse::decode(message.get(HEADER_LEN..).unwrap_or_default());
        let seen = match text {
            Ok(parse) => sql::scan_either(parse.sql),
            Err(_) => Self::of_unknown_text(),
        };
        Self { parse, doubt: 0, seen, message }
    }

    /// Returns what a text that Weir does not know may leave in the session.
    fn of_unknown_text() -> Seen {
        Seen { signs: Signs::OPAQUE, ..Seen::default() }
    }

    /// Has the client one?
    #[inline]
    pub fn exists(&self) -> bool {
        self.parse != 0
    }

    /// Is its Parse kept?
    #[inline]
    pub fn is_kept(&self) -> bool {
        !self.message.is_empty()
    }

    /// Returns what its text may leave in the session.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// Returns its text; empty if its Parse is not kept.
    pub fn text(&self) -> &[u8] {
        text_of(&self.message)
    }

    /// Returns its Parse, if that is kept.
    pub(crate) fn kept(&self) -> Option<Parse<'_>> {
        Parse::decode(self.message.get(HEADER_LEN..)?).ok()
    }

    /// Returns the message of its Parse; empty if it is not kept.
    #[inline]
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the serial number of the message on whose reply its meaning may depend.
    pub(crate) fn doubt(&self) -> Option<u64> {
        (self.doubt != 0).then_some(self.doubt)
    }

    /// The client's Parse with this serial number goes to the server. `message` is kept. Returns what
    /// its failure restores.
    pub(crate) fn parse(
        &mut self,
        serial: u64,
        seen: Seen,
        message: Vec<u8>,
        server: &mut ServerUnnamed,
        ledger: &Ledger,
    ) -> Undo {
        let there = std::mem::replace(&mut server.parse, serial);
        // The message that was to prepare the client's own statement may have no effect.
        let is_in_doubt = !ledger.has_answered(self.doubt);
        let before = std::mem::replace(&mut self.parse, serial);
        if before == 0 || before != there || is_in_doubt {
            self.doubt = serial;
        }
        self.seen = seen;
        let message = std::mem::replace(&mut self.message, message);
        Undo::ParseUnnamed { before, message }
    }

    /// The rest of a long Parse has come, which has this serial number.
    pub(crate) fn complete(&mut self, serial: u64, seen: Seen, message: Option<Vec<u8>>) {
        if self.parse == serial {
            self.seen = seen;
            self.message = message.unwrap_or_default();
        }
    }

    /// A message with this serial number, a simple Query or a Close, removes it. Returns what its
    /// failure restores, if that is anything.
    #[inline(always)]
    pub(crate) fn remove(&mut self, serial: u64, ledger: &Ledger) -> Option<Undo> {
        let before = std::mem::take(&mut self.parse);
        // An earlier message that removed the statement may turn out to have no effect.
        if before == 0 && ledger.has_answered(self.doubt) {
            return None;
        }
        self.doubt = serial;
        Some(Undo::DropUnnamed { before })
    }

    /// The client uses it on this server. `serial` is the serial number of a Parse that is sent again.
    pub(crate) fn bring(&mut self, server: &mut ServerUnnamed, serial: u64) -> Bring {
        if server.is_of(self) {
            return Bring::Nothing;
        }
        if !self.exists() || !self.is_kept() {
            server.destroy();
            return Bring::Close;
        }
        server.parse = self.parse;
        // If the batch fails before this Parse, the server has another unnamed statement.
        self.doubt = serial;
        Bring::Parse
    }

    /// The Parse with this serial number has had no effect. The statement `before` it had this
    /// message. `failed`: PostgreSQL has refused the Parse.
    pub(crate) fn undo_parse(&mut self, serial: u64, failed: bool, before: u64, message: &[u8]) {
        // The entry was a Close or Query that has taken this over (`Ledger::void_one`).
        let is_latest = self.parse == serial || self.parse == 0;
        if is_latest {
            self.parse = if failed { 0 } else { before };
            self.message = message.into();
            // Weir has not kept which of the two texts is the current one.
            self.seen = Self::of_unknown_text();
        }
    }

    /// A message that removed the statement `before` it has had no effect.
    pub(crate) fn undo_removal(&mut self, before: u64) {
        if self.parse == 0 {
            self.parse = before;
        }
    }
}

impl ServerUnnamed {
    /// Returns the statement of a server whose client's Parse has this serial number here.
    pub(crate) fn imported(parse: u64) -> Self {
        Self { parse }
    }

    /// Is it this client's?
    #[inline]
    pub(crate) fn is_of(self, client: &ClientUnnamed) -> bool {
        client.parse != 0 && client.parse == self.parse
    }

    /// A message destroys it, or leaves a statement of Weir's own in its place.
    #[inline]
    pub(crate) fn destroy(&mut self) {
        self.parse = 0;
    }

    /// The message with this serial number, a Parse, has had no effect. The client's Parse is sent
    /// again when it is needed, whatever the server has now. Messages that were sent later in
    /// another batch remain valid.
    pub(crate) fn undo_parse(&mut self, serial: u64) {
        if self.parse <= serial {
            self.parse = 0;
        }
    }
}
