//! The owed-reply ledger: exactly which replies a server still owes, in order, and what to do with
//! each. A server may be given to another client only when its ledger is settled.
//!
//! Every message that makes PostgreSQL answer is entered when it is sent ([`Ledger::owe`]). Every
//! message from PostgreSQL is shown to the ledger ([`Ledger::reply`]), which says to whom it
//! belongs. The rules are those of PostgreSQL's message loop (protocol chapter 55.2):
//!
//! * an error in the extended protocol makes the server skip everything up to the next Sync, a
//!   simple Query included;
//! * while the server is in copy-in mode it ignores Sync and Flush;
//! * CopyDone and CopyFail are never answered themselves, and are ignored outside copy-in.
//!
//! ```text
//!   owe(Parse) owe(Bind) owe(Execute) owe(Sync)      ┌ '1' '2' … 'C' 'Z': each pops its entry
//!   ────────────────────────────────────────────► queue
//!                                                     └ 'E': pops up to the Sync, or skips
//! ```
//!
//! A client decides how many answers are owed. So the work for one message does not depend on their
//! number: what is asked about all entries is known from where the latest of each kind stands
//! ([`Latest`]), and one is found by its serial number. Entries leave in order, from the front.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use wire::backend;

use crate::relay::batch_end::BatchEnd;
use crate::relay::ending::Endings;

use self::depth::Depth;

pub use self::count::CopyStep;
pub use self::depth::DEPTH_UNKNOWN;
pub use self::entries::{Rest, Unanswered};
pub use self::entry::{Entry, Expect, Reply, Undo, Verb};
use self::input::Input;
use self::latest::Latest;
use self::part::{Part, part};
pub use self::settled::{Owner, Settled, Unexpected};

mod count;
mod depth;
mod entries;
mod entry;
mod first;
mod input;
mod latest;
mod part;
mod settled;

/// With this number of owed replies, Weir stops reading from the client until half of them have
/// arrived, and makes up no more replies. PostgreSQL buffers 8 KiB of replies, more than 1,600,
/// before it sends any. So Weir also sends it a Flush.
pub const OWED_MAX: usize = 4_096;
/// The limit of the bytes that are kept to undo messages.
pub const OWED_BYTES_MAX: usize = 256 * 1024;
/// The number of entries for which the queue keeps room from one request to the next.
const OWED_KEPT_MAX: usize = 256;
const BEHIND_FRONT: usize = 1;

#[derive(Debug, Default)]
pub struct Ledger {
    owed: VecDeque<Entry>,
    /// The number of owed replies that end a request.
    requests: u32,
    latest: Latest,
    /// Bytes that are kept to undo messages.
    undo_bytes: usize,
    /// Serial number of the last entry that ends a batch, if there is one.
    last_end: u64,
    /// For each statement number, the last message that makes or closes it on the server. May
    /// contain messages that are already answered.
    changed: HashMap<u64, u64, RandomState>,
    /// Among the entries before this serial number, only the first may change the unnamed
    /// statement.
    searched_to: u64,
    input: Input,
    /// The server has received messages of the extended protocol without a Sync after them. It may
    /// have an implicit transaction open, whatever its last ReadyForQuery said.
    in_batch: bool,
    /// With so many replies owed, the client's next request waits (`relay/pace.rs`).
    depth: Depth,
    /// A part of the first reply has arrived.
    begun: bool,
    /// Serial number of the last message that may discard prepared statements.
    discards_at: u64,
    /// May the client's unanswered requests have ended the transaction? Known only if
    /// [`keeps_clients`](crate::settings::PoolSettings::keeps_clients).
    pub(crate) endings: Endings,
}

impl Ledger {
    /// True if the server owes nothing and has nothing open, so another client may have it.
    pub fn is_at_rest(&self) -> bool {
        self.owes_nothing() && !self.in_batch
    }

    /// Do the owed replies end with those of a whole request: a Query, or a batch with its Sync? False
    /// during a copy, when the server waits for the client and ignores a Sync.
    pub fn owes_whole_request(&self) -> bool {
        self.latest.is_end_owed()
            && self.latest.is_end_last()
            && !self.in_copy()
            && !self.input.is_in_doubt()
    }

    /// Does a ReadyForQuery come behind all owed replies? A Query may have been sent together with
    /// the data of its copy.
    pub fn owes_end(&self) -> bool {
        let expects = |back: usize| self.owed.iter().rev().nth(back).map(|entry| entry.expect);
        self.owes_whole_request()
            || !self.in_copy()
                && expects(0) == Some(Expect::CopyEnd)
                && expects(1) == Some(Expect::Query)
    }

    /// Serial number of the last message that ends a request.
    pub fn last_end(&self) -> u64 {
        self.last_end
    }

    /// True if the server will send nothing more for the messages so far.
    pub fn owes_nothing(&self) -> bool {
        self.owed.is_empty() && self.input == Input::Messages
    }

    /// The number of requests whose end is owed.
    #[inline]
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Is the client so far ahead that its next request must wait, or its next message?
    #[inline]
    pub fn is_ahead(&self) -> bool {
        self.requests >= self.depth.0 || self.owes_many()
    }

    #[inline]
    pub fn owes_many(&self) -> bool {
        self.owed.len() >= OWED_MAX || self.undo_bytes >= OWED_BYTES_MAX
    }

    /// Is this number of requests more than half of those that may be under way?
    #[inline]
    pub fn is_deep(&self, requests: u32) -> bool {
        requests > self.depth.0 / 2
    }

    #[inline]
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = Depth(depth);
    }

    /// Serial number of the last message in the first half of the owed replies.
    pub fn middle(&self) -> Option<u64> {
        let last = self.owed.len().checked_sub(1)?;
        self.owed.get(last / 2).map(|entry| entry.serial)
    }

    /// Does the server wait for a Sync after the last message?
    pub fn has_open_batch(&self) -> bool {
        if self.only_synthesized() { self.in_batch } else { !self.latest.is_end_last() }
    }

    /// Serial number of the first message that is not fully answered.
    pub fn first(&self) -> Option<u64> {
        self.owed.front().map(|front| front.serial)
    }

    /// Serial number of the last message that is not fully answered.
    pub fn last(&self) -> Option<u64> {
        self.owed.back().map(|back| back.serial)
    }

    /// Is a ReadyForQuery still owed? Until it arrives, the effect of a message sent now is
    /// unknown: an earlier error may make the server skip it.
    pub fn awaits_ready(&self) -> bool {
        self.latest.is_end_owed()
    }

    /// Is a message that makes or closes this statement still unanswered?
    pub fn concerns(&self, id: u64) -> bool {
        self.changed.get(&id).is_some_and(|serial| self.first().is_some_and(|it| it <= *serial))
    }

    /// Is the message with this serial number unanswered, and in an earlier batch than the next
    /// message? Then it is open whether the next message will see its effect. Within one batch it
    /// is certain: otherwise the next message is discarded, too.
    pub fn is_in_doubt(&self, serial: u64) -> bool {
        self.awaits_ready()
            && serial < self.last_end
            && self.owed.front().is_some_and(|front| serial >= front.serial)
    }

    /// The last message, with this serial number, may discard prepared statements according to its
    /// text.
    pub fn note_discard(&mut self, serial: u64) {
        self.discards_at = serial;
    }

    /// Forgets serial numbers, because the server moves to another worker. It owes nothing.
    pub fn leave_worker(&mut self) {
        self.discards_at = 0;
    }

    /// Are this message and all earlier ones fully answered?
    pub fn has_answered(&self, serial: u64) -> bool {
        self.owed.front().is_none_or(|front| front.serial > serial)
    }

    /// May the meaning of a statement name depend on a reply that is still owed? See
    /// [`Self::unsettled`].
    #[inline]
    pub fn may_unsettle(&self) -> bool {
        self.awaits_ready() || !self.has_answered(self.discards_at)
    }

    /// Message `change` has made or removed a name. If the meaning of that name depends on a reply
    /// that is still owed, returns the serial number of the message that it answers.
    pub fn unsettled(&self, change: u64) -> Option<u64> {
        if change < self.discards_at && !self.has_answered(self.discards_at) {
            return Some(self.discards_at);
        }
        (!self.has_answered(change) && self.is_in_doubt(change)).then_some(change)
    }

    /// Will the reply to this message arrive without a Flush?
    pub fn is_in_ended_batch(&self, serial: u64) -> bool {
        self.awaits_ready() && serial <= self.last_end
    }

    /// Is the server busy, and not waiting for more messages?
    fn is_working(&self) -> bool {
        !self.owed.is_empty() && !self.in_copy()
    }

    /// Does a query run, so that the next message does not begin one? A copy takes each message.
    #[inline]
    pub fn runs_query(&self) -> bool {
        self.latest.is_sent_owed() && !self.in_copy()
    }

    /// Will the server become idle without another message?
    pub fn ends_by_itself(&self) -> bool {
        !self.in_copy() && self.owed.back().is_some_and(Entry::ends_batch)
    }

    /// Will the server discard a message sent now, unless it is a Sync?
    pub fn is_skipping(&self) -> bool {
        self.input == Input::UntilSync
    }

    #[inline]
    pub fn in_copy(&self) -> bool {
        matches!(self.input, Input::CopyData { .. })
    }

    /// Enters a message that was sent and that the server answers. (With [`Verb::Synthesize`] it
    /// was not sent.)
    pub fn owe(&mut self, entry: Entry) {
        debug_assert!(
            !self.is_skipping() || entry.expect == Expect::Sync,
            "a message the server discards was entered"
        );
        if entry.expect == Expect::Sync {
            if let Input::CopyData { has_sync } = &mut self.input {
                *has_sync = true;
                return;
            }
            self.input = Input::Messages;
        }
        if entry.expect == Expect::CopyEnd {
            if let Input::CopyData { has_sync } = self.input {
                self.input = Input::after_copy(has_sync);
                return;
            }
            if self.owed.is_empty() {
                return;
            }
        }
        self.in_batch |= entry.opens_batch();
        self.push(entry);
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        self.latest.enter(&entry, self.owed.len());
        if entry.ends_batch() {
            self.last_end = entry.serial;
            self.requests += 1;
        }
        if entry.undo.is_some() {
            self.note_undo(&entry);
        }
        self.owed.push_back(entry);
    }

    #[cold]
    fn note_undo(&mut self, entry: &Entry) {
        let Some(undo) = entry.undo.as_deref() else { return };
        self.undo_bytes += undo.bytes();
        if let Some(id) = undo.changed_statement() {
            self.changed.insert(id, entry.serial);
        }
    }

    /// Removes the first entry.
    #[inline]
    fn pop(&mut self) {
        if let Some(front) = self.owed.pop_front() {
            self.latest.leave(1);
            self.undo_bytes -= front.undo_bytes();
        }
    }

    /// Nothing is owed. Returns the memory of a long pipeline. Also resets what refers to serial
    /// numbers, since another worker has others.
    fn forget_answered(&mut self) {
        self.searched_to = 0;
        if !self.changed.is_empty() {
            self.changed = HashMap::default();
        }
        if self.owed.capacity() > OWED_KEPT_MAX {
            self.owed = VecDeque::new();
        }
    }

    /// Is the first reply the server's, and not one that Weir makes up?
    #[inline]
    pub fn awaits_server(&self) -> bool {
        self.owed
            .front()
            .is_none_or(|front| front.synthesized().is_none() && front.expect != Expect::CopyEnd)
    }

    /// Removes and returns the first entry's reply, if Weir has to make it up.
    pub fn next_synthesized(&mut self) -> Option<Reply> {
        self.drop_copy_ends();
        let reply = self.owed.front()?.synthesized()?;
        self.pop();
        Some(reply)
    }

    /// Are all owed replies made up by Weir?
    pub fn only_synthesized(&self) -> bool {
        !self.latest.is_sent_owed()
    }

    /// Has the server fully answered everything that it has received?
    pub fn is_untouched(&self) -> bool {
        !self.in_batch && self.input == Input::Messages && self.only_synthesized()
    }

    /// Do all unanswered messages belong to Weir? Not inlined: inlining cost 2 % of a transaction.
    #[cold]
    #[inline(never)]
    pub fn owes_only_us(&self) -> bool {
        let is_ours = |one: &Entry| one.verb == Verb::Internal || one.synthesized().is_some();
        self.latest.is_internal_owed()
            && !self.in_batch
            && self.input == Input::Messages
            && self.owed.iter().all(is_ours)
    }

    /// Is this message entirely unanswered, and so all messages after it?
    pub fn is_unanswered(&self, serial: u64) -> bool {
        let first = self.owed.iter().find(|entry| entry.synthesized().is_none());
        first.is_some_and(|entry| entry.serial == serial) && !self.begun
    }

    /// Is the message with this serial number still owed an answer?
    pub fn owes(&self, serial: u64) -> bool {
        self.owed.front().is_some_and(|front| front.serial <= serial)
            && self.owed.back().is_some_and(|back| serial <= back.serial)
    }

    /// Is the Sync of the failed batch the only entry left?
    pub fn only_ends_batch(&self) -> bool {
        self.owed.len() <= 1 && self.owed.iter().all(|entry| entry.expect == Expect::Sync)
    }

    /// Is the ReadyForQuery of the current request the only thing that is still owed?
    pub fn only_awaits_ready(&self) -> bool {
        self.owed.len() == 1 && self.ends_by_itself()
    }

    /// Weir ends the failed batch itself, and the client does not see the reply.
    pub fn take_over_batch(&mut self) -> BatchEnd {
        debug_assert!(self.only_ends_batch(), "more than the end of a batch is owed");
        let Some(sync) = self.owed.front_mut() else { return BatchEnd::Open };
        sync.verb = Verb::Internal;
        self.latest.take_over_front();
        BatchEnd::Synced
    }

    /// The client knows that its batch has failed, and has not sent its Sync yet. Weir discards its
    /// messages up to the Sync, as the server would.
    pub fn skip_to_sync(&mut self) {
        debug_assert!(self.is_at_rest(), "a batch is under way");
        self.input = Input::UntilSync;
    }

    /// Does the next RowDescription answer a Describe of one of Weir's statements?
    pub fn describes_statement(&self) -> bool {
        self.owed
            .front()
            .is_some_and(|front| front.expect == Expect::Describe && front.statement != 0)
    }

    /// The server is lost, so no owed reply will arrive. Hands all entries to `void`, the last sent
    /// first.
    pub fn abandon(&mut self, void: &mut dyn FnMut(Entry)) {
        self.latest.leave(self.owed.len());
        (self.requests, self.undo_bytes) = (0, 0);
        self.owed.drain(..).rev().for_each(void);
        self.forget_answered();
    }

    /// None of the owed messages was sent after all. Before them the server was at rest.
    pub fn take_back(&mut self, void: &mut dyn FnMut(Entry)) {
        self.abandon(void);
        self.in_batch = false;
    }

    /// Is a reply owed to a message of Weir's own that concerns no client?
    pub fn owes_us(&self) -> bool {
        self.latest.is_internal_owed()
    }

    /// Removes CopyDone entries that the server has ignored because the copy had already ended.
    #[inline]
    fn drop_copy_ends(&mut self) {
        while self.owed.front().is_some_and(|entry| entry.expect == Expect::CopyEnd) {
            self.pop();
        }
    }

    /// Do rows that arrive now go to the client unchanged?
    pub fn rows_are_forwarded(&self) -> bool {
        self.owed.front().is_some_and(|front| {
            front.verb == Verb::Forward && matches!(front.expect, Expect::Query | Expect::Execute)
        })
    }

    /// Who gets an asynchronous message (notice, parameter status, notification) that arrives now?
    pub fn bystander(&self) -> Owner {
        match self.owed.front() {
            Some(entry) if entry.verb == Verb::Internal => Owner::Nobody,
            _ => Owner::Client,
        }
    }

    /// The server has sent a message with this code, which is not asynchronous. Made-up replies at
    /// the front must have been taken first. Entries that an error makes void are handed to `void`,
    /// the last sent first.
    // Inlined: it runs for each message. A call cost 2 % of a transaction.
    #[inline(always)]
    pub fn reply(&mut self, code: u8, void: &mut dyn FnMut(Entry)) -> Result<Settled, Unexpected> {
        self.drop_copy_ends();
        let Some(front) = self.owed.front() else { return self.reply_to_nothing(code) };
        let expect = front.expect;
        let mut settled = Settled {
            owner: match (front.verb, code) {
                (Verb::Internal, _) => Owner::Nobody,
                (Verb::Swallow, backend::ERROR) => Owner::Client,
                (Verb::Swallow, _) => Owner::Nobody,
                (Verb::Continue, backend::PARAMETER_DESCRIPTION) => Owner::Nobody,
                _ => Owner::Client,
            },
            serial: front.serial,
            statement: front.statement,
            taken: match front.undo.as_deref() {
                Some(Undo::Taken { name }) => Some(name.clone()),
                _ => None,
            },
        };
        if code == backend::COMMAND_COMPLETE && self.input == Input::CopyEnded {
            // The copy has reached its CopyDone, so all its Syncs were ignored.
            self.input = Input::Messages;
        }
        match part(expect, code) {
            Part::Completes => {
                self.pop();
                self.begun = false;
                self.drop_copy_ends();
                if code == backend::READY_FOR_QUERY {
                    self.requests -= 1;
                    self.in_batch = self.latest.is_opening_owed();
                    if self.owed.is_empty() {
                        self.forget_answered();
                    }
                }
            }
            Part::Belongs => self.begun = true,
            Part::StartsCopy => {
                self.begun = true;
                self.start_copy();
            }
            Part::Counts => settled.owner = self.count_ready(),
            Part::Counted => {
                self.pop();
                self.end_count();
            }
            Part::Fails => self.fail(void),
            Part::Foreign => {
                return Err(Unexpected { code: char::from(code), expected: Some(expect) });
            }
        }
        Ok(settled)
    }

    /// Checks that the summaries agree with the entries.
    pub fn check_invariants(&self) {
        assert!(self.latest.agrees_with(self.owed.iter()), "the latest entries: {self:?}");
        let undo_bytes: usize = self.owed.iter().map(Entry::undo_bytes).sum();
        assert_eq!(self.undo_bytes, undo_bytes, "what is kept to undo");
        let requests = self.owed.iter().filter(|entry| entry.ends_batch()).count();
        assert_eq!(self.requests as usize, requests, "the number of requests");
        let end = self.owed.iter().rev().find(|entry| entry.ends_batch());
        assert!(end.is_none_or(|end| end.serial == self.last_end), "the last end of a batch");
        let in_order = self.owed.iter().is_sorted_by_key(|entry| entry.serial);
        assert!(in_order, "entries out of order");
    }

    fn reply_to_nothing(&mut self, code: u8) -> Result<Settled, Unexpected> {
        match (code, &mut self.input) {
            // It answers a Sync that was read behind the error of the copy.
            (backend::READY_FOR_QUERY, Input::CopyFailed { skips }) => {
                *skips = false;
                self.in_batch = false;
                Ok(Settled::unowed())
            }
            // An error without a request announces the end of the connection (57P01 and similar).
            (backend::ERROR, _) => Ok(Settled::unowed()),
            _ => Err(Unexpected { code: char::from(code), expected: None }),
        }
    }

    /// CopyInResponse: the server reads messages already sent after the query in copy-in mode. It does
    /// not see those that Weir answers itself.
    fn start_copy(&mut self) {
        let is_sent = |entry: &&Entry| entry.synthesized().is_none();
        let behind = || self.owed.iter().skip(BEHIND_FRONT).filter(is_sent);
        let syncs = behind().take_while(|entry| entry.expect == Expect::Sync).count();
        let ignored = match behind().nth(syncs).map(|entry| entry.expect) {
            None => {
                self.input = Input::CopyData { has_sync: syncs > 0 };
                syncs
            }
            Some(Expect::CopyEnd) => {
                self.input = Input::after_copy(syncs > 0);
                syncs + 1
            }
            // The server closes the connection when it reads this message in the copy. If the copy
            // fails before, no Sync was ignored.
            Some(_) => return,
        };
        if ignored > 0 {
            self.remove_behind_front(ignored);
        }
    }

    /// Removes the first `count` entries after the front that were sent to the server.
    fn remove_behind_front(&mut self, count: usize) {
        let mut left = count;
        for (at, entry) in self.take_all().enumerate() {
            if at < BEHIND_FRONT {
                self.last_end = entry.serial;
            } else if left > 0 && entry.synthesized().is_none() {
                left -= 1;
                continue;
            }
            self.push(entry);
        }
    }

    /// Hands a void message to `void`. If a later message that is not void also changes the unnamed
    /// statement, that message takes over the knowledge of the earlier one.
    fn void_one(&mut self, mut entry: Entry, next: Option<usize>, void: &mut dyn FnMut(Entry)) {
        let next = next.and_then(|at| self.owed.get_mut(at));
        let Some(next) = next.filter(|_| entry.changes_unnamed()) else { return void(entry) };
        self.undo_bytes -= next.undo_bytes();
        let failed = entry.failed;
        match (entry.undo.as_deref_mut(), next.undo.as_deref_mut()) {
            (Some(Undo::ParseUnnamed { before, message }), Some(next)) => {
                let before = if failed { 0 } else { *before };
                *next = Undo::ParseUnnamed { before, message: std::mem::take(message) };
            }
            (
                Some(Undo::DropUnnamed { before }),
                Some(Undo::DropUnnamed { before: next } | Undo::ParseUnnamed { before: next, .. }),
            ) => *next = *before,
            _ => {}
        }
        self.undo_bytes += next.undo_bytes();
    }

    /// Position of the first entry from `from` on that changes the unnamed statement. Each entry is
    /// examined once, however often this is called.
    fn next_unnamed(&mut self, from: usize) -> Option<usize> {
        let searched = self.owed.partition_point(|entry| entry.serial < self.searched_to);
        let from = from.max(searched);
        let found = self.owed.range(from..).position(Entry::changes_unnamed).map(|at| from + at);
        let behind = self.owed.back().map_or(0, |last| last.serial + 1);
        self.searched_to = found.and_then(|at| self.owed.get(at)).map_or(behind, |it| it.serial);
        found
    }

    /// Does a message after serial number `last` close or make the statement that this Close of
    /// Weir's removes? Then the later message decides whether the server has the statement.
    fn is_evicted_again(&self, entry: &Entry, last: u64) -> bool {
        let Some(Undo::Evict { statement }) = entry.undo.as_deref() else { return false };
        self.changed.get(&statement.id).is_some_and(|serial| *serial > last)
    }

    fn fail(&mut self, void: &mut dyn FnMut(Entry)) {
        let is_in_doubt = self.input.is_in_doubt();
        let extended = self.owed.front().is_some_and(|front| {
            !matches!(front.expect, Expect::Query | Expect::FunctionCall | Expect::Sync)
        });
        if is_in_doubt {
            self.input = Input::CopyFailed { skips: extended };
        } else if self.in_copy() {
            self.input = Input::Messages;
        }
        if !extended {
            return;
        }
        if let Some(front) = self.owed.front_mut() {
            front.failed = true;
        }
        let sync = self.owed.iter().position(|entry| entry.expect == Expect::Sync);
        let end = sync.unwrap_or(self.owed.len());
        let changes_unnamed = self.owed.range(..end).any(Entry::changes_unnamed);
        let next = if changes_unnamed { self.next_unnamed(end) } else { None };
        let last = self.owed.get(end).map(|sync| sync.serial);
        for at in (0..end).rev() {
            let gone = Entry::new(Expect::CopyEnd, Verb::Forward);
            let mut entry = std::mem::replace(&mut self.owed[at], gone);
            self.undo_bytes -= entry.undo_bytes();
            self.requests -= u32::from(entry.ends_batch());
            if last.is_some_and(|last| self.is_evicted_again(&entry, last)) {
                entry.undo = None;
            }
            self.void_one(entry, next, void);
        }
        self.owed.drain(..end);
        self.latest.leave(end);
        self.begun = false;
        if !is_in_doubt {
            self.input = if sync.is_none() { Input::UntilSync } else { Input::Messages };
        }
    }
}

#[cfg(test)]
mod tests;
