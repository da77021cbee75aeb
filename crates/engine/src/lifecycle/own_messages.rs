//! Messages of Weir's own to a server. No client sees the replies.

use wire::frontend;

use crate::context::Context;
use crate::ids::{Micros, ServerId};
use crate::relay::ledger::{Entry, Expect, Verb};
use crate::server::Server;
use crate::shell::{Exchange, Io};

impl Server {
    /// Sends simple Queries of Weir's own. Each may fail alone. The server owes no reply, and its
    /// client does not see the replies.
    pub(crate) fn send_own_queries<'a, X: Exchange>(
        &mut self,
        on: ServerId,
        texts: impl Iterator<Item = &'a [u8]>,
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        debug_assert!(self.is_clean(), "a message of ours into a client's conversation");
        let mut messages = Vec::new();
        for sql in texts {
            frontend::query(&mut messages, sql);
            let mut entry = Entry::new(Expect::Query, Verb::Internal);
            entry.serial = context.next_serial();
            self.ledger.owe(entry);
        }
        self.begin_to_ask(io.now());
        self.unnamed.destroy();
        io.send_server(on, &messages);
    }

    /// Weir asks the server something. An earlier error no longer matters.
    #[inline]
    pub(crate) fn begin_to_ask(&mut self, now: Micros) {
        self.own_error.take();
        self.times.asked(now);
    }

    /// Sends one such query.
    pub(crate) fn send_own_query<X: Exchange>(
        &mut self,
        on: ServerId,
        sql: &[u8],
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        self.send_own_queries(on, [sql].into_iter(), context, io);
    }

    /// Sends messages of Weir's own while the client is held back. `statement` is the number of the
    /// statement that they concern, or 0.
    pub(crate) fn ask<X: Exchange>(
        &mut self,
        on: ServerId,
        expected: &[Expect],
        statement: u64,
        messages: &[u8],
        context: &mut Context,
        io: &mut impl Io<X>,
    ) {
        for expect in expected {
            let mut entry = Entry::new(*expect, Verb::Internal);
            entry.serial = context.next_serial();
            entry.statement = statement;
            self.ledger.owe(entry);
        }
        if !messages.is_empty() {
            io.send_server(on, messages);
        }
    }
}
