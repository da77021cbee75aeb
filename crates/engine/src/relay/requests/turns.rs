//! Reasons for which a client's next message waits: too many replies are owed, a copy may have
//! failed, or the server is needed elsewhere (`relay/pace.rs`).

use config::PoolMode;
use wire::{Header, frontend};

use super::{MessageAction, Requests};
use crate::client::Client;
use crate::ids::Micros;
use crate::relay::ledger::{CopyStep, DEPTH_UNKNOWN, Entry, Expect, OWED_MAX, Verb};
use crate::relay::pace::TURN;
use crate::routing::Place;
use crate::server::Server;
use crate::settings::PoolSettings;
use crate::shell::Exchange;

impl<X: Exchange> Requests<'_, X> {
    /// Returns whether the client must wait because of the number of owed replies. False if it need
    /// not wait: Weir could answer everything itself, or the server waits for the client.
    #[cold]
    pub(super) fn awaits_half(&mut self, header: Header) -> bool {
        let ledger = &self.server.ledger;
        if ledger.in_copy() || ledger.is_skipping() || !frontend::is_possible(header) {
            return false;
        }
        if !ledger.owes_many() {
            return self.awaits_pace();
        }
        if matches!(self.flush(), MessageAction::Drop) {
            return false;
        }
        let Some(serial) = self.server.ledger.middle() else { return false };
        frontend::flush(self.out.insert());
        self.extended().awaited.begin(serial);
        true
    }

    /// Returns whether the client must wait because of a Sync in its copy: not in the middle of a
    /// message. If the copy may have failed, takes the next step to find out what the server reads.
    #[cold]
    pub(super) fn awaits_copy(&mut self) -> bool {
        let Some(step) = self.server.ledger.copy_step() else { return false };
        // The rest of a message that nobody can send may never arrive.
        let next = Header::parse(&self.input[self.at..]).ok().flatten();
        if self.client.stream.remaining() > 0
            || next.is_some_and(|next| !frontend::is_possible(next))
        {
            return false;
        }
        match step {
            CopyStep::EndFirst if !self.ends_copy() => return false,
            CopyStep::EndFirst => {
                frontend::copy_fail(
                    self.out.insert(),
                    b"unexpected message during COPY from stdin",
                );
                self.owe(Entry::new(Expect::CopyEnd, Verb::Forward));
                frontend::flush(self.out.insert());
            }
            CopyStep::AwaitResult => frontend::flush(self.out.insert()),
            CopyStep::Count => {
                self.server.ledger.ask_count(*self.serial + 1, self.out.insert());
                *self.serial += 2;
            }
            CopyStep::AwaitCount => {}
        }
        let last = self.server.ledger.last().unwrap_or_default();
        self.extended().awaited.begin(last);
        true
    }

    /// The client is ahead. Between two requests it waits until half of them are answered, if other
    /// clients share the server.
    fn awaits_pace(&mut self) -> bool {
        if !is_shared(self.server, self.settings) {
            self.server.ledger.set_depth(OWED_MAX as u32);
            return false;
        }
        if !self.server.ledger.owes_end() {
            return false;
        }
        let Some(serial) = self.server.ledger.middle() else { return false };
        self.extended().awaited.begin(serial);
        true
    }

    /// Is the message in front none that a client sends in a copy? PostgreSQL ends the connection if
    /// it reads one there, and runs it if the copy has failed before.
    fn ends_copy(&self) -> bool {
        use frontend::{COPY_DATA, COPY_DONE, COPY_FAIL, FLUSH, SYNC, TERMINATE};
        let code = self.input.get(self.at).copied();
        code.is_some_and(|code| {
            !matches!(code, COPY_DATA | COPY_DONE | COPY_FAIL | FLUSH | SYNC | TERMINATE)
        })
    }

    /// Between two requests, waits until the previous one is answered if the turn is over.
    #[cold]
    pub(super) fn awaits_turn(&mut self, header: Header) -> bool {
        let goes_on =
            matches!(header.code, frontend::COPY_DATA | frontend::COPY_DONE | frontend::COPY_FAIL);
        if goes_on || !frontend::is_possible(header) || !self.server.ledger.owes_end() {
            return false;
        }
        let is_reader = self.place != Place::Writer;
        if !is_reader && !self.is_turn_over() {
            self.takes_turns = false;
            return false;
        }
        let last_end = self.server.ledger.last_end();
        let own = self.extended();
        own.awaited.begin(last_end);
        own.pace.ends_turn = !is_reader;
        true
    }

    /// Must the client, which sends ahead, give its server back? See `relay/pace.rs`.
    fn is_turn_over(&mut self) -> bool {
        let (now, on, epoch) = (self.now, self.server.pool, self.server.epoch);
        let pace = &mut self.extended().pace;
        pace.ends_turn || pace.looks(now) && self.exchange.pool(on, |pool| pool.wants_back(epoch))
    }
}

/// Do other clients get the server between two transactions?
fn is_shared(server: &Server, settings: &PoolSettings) -> bool {
    server.mode_in(settings.mode) != PoolMode::Session
        && server.replication.is_none()
        && !server.is_pinned()
}

/// Called before the messages of an input. `begins`: the server is at rest. Returns whether the turn
/// may be over: a request behind another one asks for that. The client may wait for each answer, and
/// send the end of a transaction together with the next one.
#[inline]
pub(super) fn keep_pace(
    begins: bool,
    client: &mut Client,
    server: &mut Server,
    settings: &PoolSettings,
    now: Micros,
) -> bool {
    let pace = client.extended.as_mut().map(|own| &mut own.pace);
    if begins {
        server.ledger.set_depth(pace.as_ref().map_or(DEPTH_UNKNOWN, |pace| pace.depth));
    }
    let ends = pace.is_some_and(|pace| match begins {
        true => pace.still_ends_turn(now),
        false => pace.ends_turn,
    });
    ends || now.saturating_sub(server.stages.linked_at()) >= TURN && is_shared(server, settings)
}
