//! The owed-reply ledger: exactly which replies a server still owes, in order, and what to do with
//! each. A server may be given to another client only when its ledger is settled.
//!
//! Every message that makes PostgreSQL answer is entered when it is sent ([`Ledger::owe`]); every
//! message PostgreSQL sends is shown to the ledger ([`Ledger::reply`]), which says whose it is.
//! The rules are those of PostgreSQL's message loop (protocol chapter 55.2):
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
use std::sync::Arc;

use foldhash::fast::RandomState;
use wire::backend;

use crate::relay::prepared::Statement;
use crate::session::state::Lent;

mod latest;
mod part;

use latest::Latest;
use part::{Part, part};

/// A message whose answer is awaited, by what completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Completed by ReadyForQuery.
    Query,
    /// Completed by ReadyForQuery.
    FunctionCall,
    /// Completed by ReadyForQuery.
    Sync,
    Parse,
    Bind,
    /// Completed by RowDescription or NoData.
    Describe,
    /// Completed by CommandComplete, EmptyQueryResponse or PortalSuspended.
    Execute,
    Close,
    /// CopyDone or CopyFail: never answered, but its place in the order matters.
    CopyEnd,
}

/// What to do with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// It belongs to the linked client.
    Forward,
    /// It answers a message of ours: nobody sees it. An error in its place is still the client's.
    Swallow,
    /// The server never saw the message: this reply is made up when its turn comes.
    Synthesize(Reply),
    /// Like forward, but an error text that names the pooler's statement is put into the client's
    /// words.
    Replace,
    /// A Describe that is asked again: the client has been given the parameters already, and gets
    /// the rest.
    Continue,
    /// It answers a message of ours that has nothing to do with any client: nobody sees it,
    /// errors included.
    Internal,
}

/// Replies that can be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    ParseComplete,
    CloseComplete,
    /// A notice that what follows needs a session of its own (`auto_unsupported = warn`).
    Unsupported,
}

/// What has to be undone if the server never gets to this message.
#[derive(Clone, Debug)]
pub enum Undo {
    /// Nothing: the client's Parse was of a name that it has already. It must fail.
    Taken { name: Box<[u8]> },
    /// The client's Parse: it has no such name after all. If the statement was sent, the server
    /// does not have it either.
    Parse { name: Arc<[u8]>, statement: Arc<Statement>, sent: bool },
    /// The client's Close: it still has the name, since that Parse.
    /// `lent`: the server had the statement under that name, too.
    Close { name: Arc<[u8]>, statement: Arc<Statement>, since: u64, lent: Option<Lent> },
    /// A Parse of ours: the server does not have the statement.
    Prepare { statement: Arc<Statement> },
    /// A Close of ours: the server still has the statement, since that Parse.
    Evict { statement: Arc<Statement>, since: u64 },
    /// The client's Parse of its unnamed statement. If it failed there is none now; if the server
    /// never got to it, the one before still stands.
    ParseUnnamed { before: u64, message: Vec<u8> },
    /// The client's Query or Close: its unnamed statement still stands.
    DropUnnamed { before: u64 },
    /// A Parse of ours: the server does not have the client's unnamed statement.
    PrepareUnnamed,
    /// A Parse of ours: the server was not lent the statement.
    Lend { name: Arc<[u8]> },
}

impl Undo {
    /// The number of the statement that the message makes or closes on the server.
    fn changed_statement(&self) -> Option<u64> {
        match self {
            Self::Parse { statement, sent: true, .. }
            | Self::Prepare { statement }
            | Self::Evict { statement, .. } => Some(statement.id),
            Self::Taken { .. }
            | Self::Parse { .. }
            | Self::Close { .. }
            | Self::ParseUnnamed { .. }
            | Self::DropUnnamed { .. }
            | Self::PrepareUnnamed
            | Self::Lend { .. } => None,
        }
    }

    /// What it keeps, in bytes. A statement counts as if nobody else had it.
    fn bytes(&self) -> usize {
        let kept = match self {
            Self::Taken { name } => name.len(),
            Self::Parse { name, statement, .. } | Self::Close { name, statement, .. } => {
                name.len() + statement.bytes()
            }
            Self::Prepare { statement } | Self::Evict { statement, .. } => statement.bytes(),
            Self::ParseUnnamed { message, .. } => message.len(),
            Self::DropUnnamed { .. } | Self::PrepareUnnamed | Self::Lend { .. } => 0,
        };
        size_of::<Self>() + kept
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub expect: Expect,
    pub verb: Verb,
    /// Of the worker's message counter; orders entries of one pipeline.
    pub serial: u64,
    /// The statement that a Bind, Describe or Parse names on the server; 0 = none of ours.
    pub statement: u64,
    pub undo: Option<Box<Undo>>,
    /// It is void because it failed itself, and not because the server discarded it.
    pub failed: bool,
}

impl Entry {
    pub fn new(expect: Expect, verb: Verb) -> Self {
        Self { expect, verb, serial: 0, statement: 0, undo: None, failed: false }
    }

    pub fn undo(mut self, undo: Undo) -> Self {
        self.undo = Some(Box::new(undo));
        self
    }

    /// Is it answered with ReadyForQuery?
    fn ends_batch(&self) -> bool {
        matches!(self.expect, Expect::Query | Expect::FunctionCall | Expect::Sync)
    }

    /// Does the server wait for a Sync once it has got this message?
    fn opens_batch(&self) -> bool {
        let extended = match self.expect {
            Expect::Parse | Expect::Bind | Expect::Describe | Expect::Execute | Expect::Close => {
                true
            }
            Expect::Query | Expect::FunctionCall | Expect::Sync | Expect::CopyEnd => false,
        };
        extended && self.synthesized().is_none()
    }

    /// What it keeps to be undone, in bytes.
    fn undo_bytes(&self) -> usize {
        self.undo.as_deref().map_or(0, Undo::bytes)
    }

    /// Does it change what the client's unnamed statement is?
    fn changes_unnamed(&self) -> bool {
        matches!(self.undo.as_deref(), Some(Undo::ParseUnnamed { .. } | Undo::DropUnnamed { .. }))
    }

    fn synthesized(&self) -> Option<Reply> {
        match self.verb {
            Verb::Synthesize(reply) => Some(reply),
            Verb::Forward | Verb::Swallow | Verb::Replace | Verb::Continue | Verb::Internal => None,
        }
    }
}

/// Whose a server's message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Client,
    Nobody,
}

/// The server sent something it does not owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server sent message {code:?} where {expected:?} was owed")]
pub struct Unexpected {
    pub code: char,
    pub expected: Option<Expect>,
}

/// What a message did to the ledger.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    pub owner: Owner,
    /// Serial number of the entry it belongs to (0: to none).
    pub serial: u64,
    /// The statement its entry names on the server.
    pub statement: u64,
    /// The client's name for the statement, if this answers a Parse that must fail because the
    /// name is taken.
    pub taken: Option<Box<[u8]>>,
}

impl Settled {
    /// A message that answers nothing.
    pub fn unowed() -> Self {
        Self { owner: Owner::Client, serial: 0, statement: 0, taken: None }
    }
}

/// With so many answers owed the client is not read on until half of them have come, nor are more
/// answers made up. PostgreSQL gathers 8 KiB of them, more than 1,600, before it sends any: it is told
/// to flush.
pub const OWED_MAX: usize = 4_096;
/// Likewise if so many bytes are kept to undo the messages.
pub const OWED_BYTES_MAX: usize = 256 * 1024;
/// Room for so many answers is kept from one request to the next.
const OWED_KEPT_MAX: usize = 256;
const BEHIND_FRONT: usize = 1;

/// What the server does with the next message that it reads, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Input {
    /// It carries the message out.
    #[default]
    Messages,
    /// It takes it as copy data; Sync and Flush are ignored.
    CopyData,
    /// It discards everything up to the next Sync.
    UntilSync,
}

/// Is it known how many ReadyForQuery are still to come?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadyCount {
    #[default]
    Known,
    /// The server has ignored Syncs if it read them in copy-in mode. Should the copy fail, nobody can
    /// tell from outside whether it had read them by then.
    InDoubt,
    /// The copy has failed. The server must not be given to any other client.
    Unknown,
}

impl ReadyCount {
    /// The server may have ignored a Sync.
    fn doubt(&mut self) {
        if *self == Self::Known {
            *self = Self::InDoubt;
        }
    }

    /// It is known which Syncs were ignored.
    #[inline]
    fn settle(&mut self) {
        if *self == Self::InDoubt {
            *self = Self::Known;
        }
    }

    /// The copy has failed.
    fn fail(&mut self) {
        if *self == Self::InDoubt {
            *self = Self::Unknown;
        }
    }
}

#[derive(Debug, Default)]
pub struct Ledger {
    owed: VecDeque<Entry>,
    latest: Latest,
    /// What is kept to undo the messages, in bytes.
    undo_bytes: usize,
    /// Serial number of the last entry that ends a batch, if there is one.
    last_end: u64,
    /// The last messages that make or close a statement on the server, by its number; those that
    /// are answered may still be there.
    changed: HashMap<u64, u64, RandomState>,
    /// No entry before the one with this serial number, other than the first, changes the unnamed
    /// statement.
    searched_to: u64,
    input: Input,
    /// The server has got messages of the extended protocol without a Sync behind them: it may
    /// have an implicit transaction open, whatever its last ReadyForQuery said.
    in_batch: bool,
    ready_count: ReadyCount,
    /// A part of the reply at the front has come.
    begun: bool,
    /// Serial number of the message sent last that may discard prepared statements.
    discards_at: u64,
}

impl Ledger {
    /// Nothing is owed, nothing is left open: the server is fit for others.
    pub fn is_settled(&self) -> bool {
        self.is_at_rest() && self.ready_count != ReadyCount::Unknown
    }

    /// Nothing is owed and nothing is left open, as far as can be known.
    pub fn is_at_rest(&self) -> bool {
        self.owes_nothing() && !self.in_batch
    }

    /// Nothing more will come of what was sent so far.
    pub fn owes_nothing(&self) -> bool {
        self.owed.is_empty() && self.input == Input::Messages
    }

    #[inline]
    pub fn owes_many(&self) -> bool {
        self.owed.len() >= OWED_MAX || self.undo_bytes >= OWED_BYTES_MAX
    }

    /// Serial number of the message in the middle of those that are owed an answer.
    pub fn middle(&self) -> Option<u64> {
        self.owed.get(self.owed.len() / 2).map(|entry| entry.serial)
    }

    pub fn is_ambiguous(&self) -> bool {
        self.ready_count == ReadyCount::Unknown
    }

    /// Does what was sent last wait for a Sync?
    pub fn has_open_batch(&self) -> bool {
        if self.only_synthesized() { self.in_batch } else { !self.latest.is_end_last() }
    }

    /// Serial number of the first message that is not answered in full.
    pub fn first(&self) -> Option<u64> {
        self.owed.front().map(|front| front.serial)
    }

    /// Serial number of the last message that is not answered in full.
    pub fn last(&self) -> Option<u64> {
        self.owed.back().map(|back| back.serial)
    }

    /// Is a ReadyForQuery still to come? Until then nobody knows what the server makes of a
    /// message sent now: there may be an error before it, and a failed transaction.
    pub fn awaits_ready(&self) -> bool {
        self.latest.is_end_owed()
    }

    /// Is a message unanswered that makes or closes the statement of this number?
    pub fn concerns(&self, id: u64) -> bool {
        self.changed.get(&id).is_some_and(|serial| self.first().is_some_and(|it| it <= *serial))
    }

    /// Is the message with this serial number unanswered, and in an earlier batch than the next
    /// one to be sent? Whether that one finds its effect is open. (Within one batch it is sure to,
    /// or else it is discarded itself.)
    pub fn is_in_doubt(&self, serial: u64) -> bool {
        self.awaits_ready()
            && serial < self.last_end
            && self.owed.front().is_some_and(|front| serial >= front.serial)
    }

    /// The message with this serial number, the last one that was entered, may discard prepared
    /// statements by what its text says.
    pub fn note_discard(&mut self, serial: u64) {
        self.discards_at = serial;
    }

    /// The server, which owes nothing, goes where this worker's serial numbers mean nothing.
    pub fn leave_worker(&mut self) {
        self.discards_at = 0;
    }

    /// Is the message with this serial number answered in full, and so all before it?
    pub fn has_answered(&self, serial: u64) -> bool {
        self.owed.front().is_none_or(|front| front.serial > serial)
    }

    /// May what a name stands for depend on an answer? See [`Self::unsettled`].
    #[inline]
    pub fn may_unsettle(&self) -> bool {
        self.awaits_ready() || !self.has_answered(self.discards_at)
    }

    /// Message `change` has made or taken away a name. If what that means for the next message to be
    /// sent depends on an answer, the serial number of the message that it answers.
    pub fn unsettled(&self, change: u64) -> Option<u64> {
        if change < self.discards_at && !self.has_answered(self.discards_at) {
            return Some(self.discards_at);
        }
        (!self.has_answered(change) && self.is_in_doubt(change)).then_some(change)
    }

    /// Will the answer to the message with this serial number come without a Flush?
    pub fn is_in_ended_batch(&self, serial: u64) -> bool {
        self.awaits_ready() && serial <= self.last_end
    }

    /// Is the server busy with what it was sent, rather than waiting for more?
    fn is_working(&self) -> bool {
        !self.owed.is_empty() && !self.in_copy()
    }

    /// Does nothing that could take effect stand behind what the server is working on? Were a
    /// BEGIN cancelled, what follows it would be committed statement by statement.
    pub fn works_on_the_last_request(&self) -> bool {
        self.is_working() && self.owed.iter().filter(|entry| entry.ends_batch()).count() <= 1
    }

    /// Will the server come to rest without being sent anything more?
    pub fn ends_by_itself(&self) -> bool {
        !self.in_copy() && self.owed.back().is_some_and(Entry::ends_batch)
    }

    /// Will the server discard a message sent now, unless it is a Sync?
    pub fn is_skipping(&self) -> bool {
        self.input == Input::UntilSync
    }

    pub fn in_copy(&self) -> bool {
        self.input == Input::CopyData
    }

    /// A message that is answered has been sent (or, for [`Verb::Synthesize`], would have been).
    pub fn owe(&mut self, entry: Entry) {
        debug_assert!(
            !self.is_skipping() || entry.expect == Expect::Sync,
            "a message the server discards was entered"
        );
        if entry.expect == Expect::Sync {
            if self.in_copy() {
                self.ready_count.doubt();
                return;
            }
            self.input = Input::Messages;
        }
        if entry.expect == Expect::CopyEnd {
            if self.in_copy() {
                self.input = Input::Messages;
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

    /// The entry at the front is done with.
    #[inline]
    fn pop(&mut self) {
        if let Some(front) = self.owed.pop_front() {
            self.latest.leave(1);
            self.undo_bytes -= front.undo_bytes();
        }
    }

    /// Nothing is owed: what a long pipeline took is given back. On another worker there are other
    /// serial numbers.
    fn forget_answered(&mut self) {
        self.searched_to = 0;
        if !self.changed.is_empty() {
            self.changed = HashMap::default();
        }
        if self.owed.capacity() > OWED_KEPT_MAX {
            self.owed = VecDeque::new();
        }
    }

    /// Is it the server's turn to answer, and not ours?
    #[inline]
    pub fn awaits_server(&self) -> bool {
        self.owed
            .front()
            .is_none_or(|front| front.synthesized().is_none() && front.expect != Expect::CopyEnd)
    }

    /// The reply at the front if it is one that has to be made up; it is taken out.
    pub fn next_synthesized(&mut self) -> Option<Reply> {
        self.drop_copy_ends();
        let reply = self.owed.front()?.synthesized()?;
        self.pop();
        Some(reply)
    }

    /// Is everything that is still owed to be made up by ourselves?
    pub fn only_synthesized(&self) -> bool {
        !self.latest.is_sent_owed()
    }

    /// Has the server got nothing yet that it has not answered in full?
    pub fn is_untouched(&self) -> bool {
        !self.in_batch && self.input == Input::Messages && self.only_synthesized()
    }

    /// Is all that is not answered in full Weir's own?
    // Inlined into each message it cost 2 % of a transaction.
    #[cold]
    #[inline(never)]
    pub fn owes_only_us(&self) -> bool {
        let is_ours = |one: &Entry| one.verb == Verb::Internal || one.synthesized().is_some();
        self.latest.is_internal_owed()
            && !self.in_batch
            && self.input == Input::Messages
            && self.owed.iter().all(is_ours)
    }

    /// Is the message with this serial number unanswered, even in part, and so all that were sent
    /// after it?
    pub fn is_unanswered(&self, serial: u64) -> bool {
        let first = self.owed.iter().find(|entry| entry.synthesized().is_none());
        first.is_some_and(|entry| entry.serial == serial) && !self.begun
    }

    /// Is the message with this serial number still owed an answer?
    pub fn owes(&self, serial: u64) -> bool {
        self.owed.front().is_some_and(|front| front.serial <= serial)
            && self.owed.back().is_some_and(|back| serial <= back.serial)
    }

    /// Is the end of the failed batch all that may still come?
    pub fn only_ends_batch(&self) -> bool {
        self.owed.len() <= 1 && self.owed.iter().all(|entry| entry.expect == Expect::Sync)
    }

    /// Is the end of the request being answered all that may still come?
    pub fn only_awaits_ready(&self) -> bool {
        self.owed.len() == 1 && self.ends_by_itself()
    }

    /// The end of the failed batch is the pooler's affair. False if the client has not sent its
    /// Sync yet.
    pub fn take_over_batch(&mut self) -> bool {
        debug_assert!(self.only_ends_batch(), "more than the end of a batch is owed");
        let Some(sync) = self.owed.front_mut() else { return false };
        sync.verb = Verb::Internal;
        self.latest.take_over_front();
        true
    }

    /// The client is told that its batch has failed, and has not sent its Sync yet: what it sends
    /// before that is discarded, as the server would.
    pub fn skip_to_sync(&mut self) {
        debug_assert!(self.is_at_rest(), "a batch is under way");
        self.input = Input::UntilSync;
    }

    /// Does the next RowDescription tell what a statement of ours returns?
    pub fn describes_statement(&self) -> bool {
        self.owed
            .front()
            .is_some_and(|front| front.expect == Expect::Describe && front.statement != 0)
    }

    /// Nothing of what is owed will come, the server is lost: all of it is void, the last sent
    /// first.
    pub fn abandon(&mut self, void: &mut dyn FnMut(Entry)) {
        self.latest.leave(self.owed.len());
        self.undo_bytes = 0;
        self.owed.drain(..).rev().for_each(void);
        self.forget_answered();
    }

    /// Nothing of what is owed was sent after all. Before it the server was at rest.
    pub fn take_back(&mut self, void: &mut dyn FnMut(Entry)) {
        self.abandon(void);
        self.in_batch = false;
    }

    /// Is a message of ours owed an answer that has nothing to do with the client's?
    pub fn owes_us(&self) -> bool {
        self.latest.is_internal_owed()
    }

    /// A late CopyDone was ignored by the server: it stands for nothing.
    #[inline]
    fn drop_copy_ends(&mut self) {
        while self.owed.front().is_some_and(|entry| entry.expect == Expect::CopyEnd) {
            self.pop();
        }
    }

    /// Are rows that come now simply the client's?
    pub fn rows_are_forwarded(&self) -> bool {
        self.owed.front().is_some_and(|front| {
            front.verb == Verb::Forward && matches!(front.expect, Expect::Query | Expect::Execute)
        })
    }

    /// Whose would an asynchronous message (notice, parameter status, notification) be now?
    pub fn bystander(&self) -> Owner {
        match self.owed.front() {
            Some(entry) if entry.verb == Verb::Internal => Owner::Nobody,
            _ => Owner::Client,
        }
    }

    /// The server sent a message with this code, other than an asynchronous one. Made-up replies
    /// at the front must have been taken first. What an error makes void is handed to `void`, the
    /// last sent first.
    pub fn reply(&mut self, code: u8, void: &mut dyn FnMut(Entry)) -> Result<Settled, Unexpected> {
        self.drop_copy_ends();
        let Some(front) = self.owed.front() else { return self.reply_to_nothing(code) };
        let expect = front.expect;
        let settled = Settled {
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
        if code == backend::COMMAND_COMPLETE {
            // A copy that went well has come to its CopyDone: what was ignored is known.
            self.ready_count.settle();
        }
        match part(expect, code) {
            Part::Completes => {
                self.pop();
                self.begun = false;
                self.drop_copy_ends();
                if code == backend::READY_FOR_QUERY {
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
            Part::Fails => self.fail(void),
            // Out of step by a ReadyForQuery or two; whatever it is, it is this client's.
            Part::Foreign if self.is_ambiguous() => return Ok(Settled::unowed()),
            Part::Foreign => {
                return Err(Unexpected { code: char::from(code), expected: Some(expect) });
            }
        }
        Ok(settled)
    }

    /// Does what is known of all entries agree with them?
    pub fn check_invariants(&self) {
        assert!(self.latest.agrees_with(self.owed.iter()), "the latest entries: {self:?}");
        let undo_bytes: usize = self.owed.iter().map(Entry::undo_bytes).sum();
        assert_eq!(self.undo_bytes, undo_bytes, "what is kept to undo");
        let end = self.owed.iter().rev().find(|entry| entry.ends_batch());
        assert!(end.is_none_or(|end| end.serial == self.last_end), "the last end of a batch");
        let in_order = self.owed.iter().is_sorted_by_key(|entry| entry.serial);
        assert!(in_order, "entries out of order");
    }

    fn reply_to_nothing(&self, code: u8) -> Result<Settled, Unexpected> {
        // An error out of the blue is the server saying good-bye (57P01 and its like).
        if code != backend::ERROR && !self.is_ambiguous() {
            return Err(Unexpected { code: char::from(code), expected: None });
        }
        Ok(Settled::unowed())
    }

    /// CopyInResponse: messages already sent behind the query are read in copy-in mode now.
    fn start_copy(&mut self) {
        self.input = Input::CopyData;
        self.ready_count.settle();
        while let Some(entry) = self.owed.get(BEHIND_FRONT) {
            match entry.expect {
                Expect::Sync => {
                    self.ready_count.doubt();
                    self.remove_behind_front();
                }
                Expect::CopyEnd => {
                    self.input = Input::Messages;
                    return self.remove_behind_front();
                }
                // The server ends the connection when it meets one of these.
                Expect::Query
                | Expect::FunctionCall
                | Expect::Parse
                | Expect::Bind
                | Expect::Describe
                | Expect::Execute
                | Expect::Close => return,
            }
        }
    }

    /// The entry behind the front is done with, which makes room for the next at the same place.
    fn remove_behind_front(&mut self) {
        let removed = self.owed.remove(BEHIND_FRONT);
        self.undo_bytes -= removed.as_ref().map_or(0, Entry::undo_bytes);
        let Some(front) = self.owed.front() else { return };
        self.latest.leave_behind(front);
        if !self.latest.is_end_owed_behind_front() {
            self.last_end = front.serial;
        }
    }

    /// What a client's unnamed statement was before a void message is the business of the next
    /// message that changes it, if there is one: that one is not void.
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

    /// Where the first entry from `from` on stands that changes the unnamed statement. Each entry is
    /// looked at once, however often that is asked.
    fn next_unnamed(&mut self, from: usize) -> Option<usize> {
        let searched = self.owed.partition_point(|entry| entry.serial < self.searched_to);
        let from = from.max(searched);
        let found = self.owed.range(from..).position(Entry::changes_unnamed).map(|at| from + at);
        let behind = self.owed.back().map_or(0, |last| last.serial + 1);
        self.searched_to = found.and_then(|at| self.owed.get(at)).map_or(behind, |it| it.serial);
        found
    }

    /// Does a message behind the one with serial number `last` close or make the statement that this
    /// Close of ours takes away? Then that message decides whether the server has the statement.
    fn is_evicted_again(&self, entry: &Entry, last: u64) -> bool {
        let Some(Undo::Evict { statement, .. }) = entry.undo.as_deref() else { return false };
        self.changed.get(&statement.id).is_some_and(|serial| *serial > last)
    }

    fn fail(&mut self, void: &mut dyn FnMut(Entry)) {
        self.ready_count.fail();
        if self.in_copy() {
            self.input = Input::Messages;
        }
        let extended = self.owed.front().is_some_and(|front| {
            !matches!(front.expect, Expect::Query | Expect::FunctionCall | Expect::Sync)
        });
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
            if last.is_some_and(|last| self.is_evicted_again(&entry, last)) {
                entry.undo = None;
            }
            self.void_one(entry, next, void);
        }
        self.owed.drain(..end);
        self.latest.leave(end);
        self.begun = false;
        self.input = if sync.is_none() { Input::UntilSync } else { Input::Messages };
    }
}

#[cfg(test)]
mod tests;
