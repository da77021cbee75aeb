//! The stages of the transaction that a server carries out, from the worker's clock:
//!
//! ```text
//!  queued ─► linked ─► state applied ─► sent ─► first byte ─► done
//! ```
//!
//! Each stage costs a store. Only a transaction that has taken at least [`REMEMBERED_FROM`] is
//! described and remembered ([`Transactions`](crate::operator::transactions::Transactions)), and a
//! connection's first one ([`Timings`](crate::operator::timings::Timings)).

use wire::{HEADER_LEN, frontend};

use crate::client::Client;
use crate::ids::{Micros, PoolId};
use crate::operator::transactions::{Name, REMEMBERED_FROM, Transaction};
use crate::relay::text::replace;
use crate::vars::APPLICATION_NAME;
use crate::watch::texts::{NORMALIZED_LEN_MAX, with_normal_form};

/// Bytes of a message that are kept for the fingerprint of its text. There may be a name before it.
const KEPT_LEN_MAX: usize = NORMALIZED_LEN_MAX + 1_024;
/// Most requests are not longer than this, in bytes. They are copied without a call.
const SHORT_LEN_MAX: usize = 128;

/// The present transaction of a server's client. A time before its beginning: the stage was not
/// reached, or there was nothing to wait for.
#[derive(Debug)]
pub struct Stages {
    times: StageTimes,
    /// The present transaction is described if it takes at least this long.
    described_from: Micros,
    message: Message,
}

#[derive(Debug, Default)]
struct StageTimes {
    queued_at: Micros,
    linked_at: Micros,
    applied_at: Micros,
    first_byte_at: Micros,
    /// When the first transaction of a pipeline was sent, if that one is asked for; else 0.
    first_sent_at: Micros,
    /// When the present query began.
    query_at: Micros,
    /// When the present query began, until it is answered; 0 = none is running.
    asked_at: Micros,
    /// The time with queries running.
    busy: Micros,
    /// The longest time from the beginning of a query to the next one.
    longest: Micros,
    /// The fingerprint of that query's text; 0 = unknown, or the query was fast.
    fingerprint: u64,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            times: StageTimes::default(),
            described_from: REMEMBERED_FROM,
            message: Message::default(),
        }
    }
}

impl Stages {
    /// A client has got the server, for which it has waited since `queued_at`.
    #[inline]
    pub(crate) fn link(&mut self, queued_at: Micros, now: Micros) {
        self.times.queued_at = queued_at;
        self.times.linked_at = now;
        // A client that has left may have left a query behind.
        self.times.asked_at = 0;
    }

    /// The server has the client's state.
    #[inline]
    pub(crate) fn apply(&mut self, now: Micros) {
        self.times.applied_at = now;
    }

    /// When its client got the server.
    #[inline]
    pub(crate) fn linked_at(&self) -> Micros {
        self.times.linked_at
    }

    /// Returns when its client asked for the server, and when it got it.
    pub(crate) fn assigned_at(&self) -> (Micros, Micros) {
        (self.times.queued_at, self.times.linked_at)
    }

    /// The transaction is described, however fast it is: it is its client's first
    /// ([`Timings`](crate::operator::timings::Timings)).
    pub(crate) fn describe_any(&mut self) {
        self.described_from = 0;
    }

    /// The client has the server for other reasons than a transaction.
    pub(crate) fn clear(&mut self) {
        self.times = StageTimes::default();
    }

    /// A query is sent, whose messages are the beginning of `input`.
    #[inline]
    pub(crate) fn send(&mut self, input: &[u8], client: &Client, now: Micros) {
        if client.times.in_transaction() {
            self.end_query(client, now);
        } else {
            self.times.first_byte_at = 0;
        }
        (self.times.query_at, self.times.asked_at) = (now, now);
        self.message.keep(input);
    }

    /// The server has sent something.
    #[inline]
    pub(crate) fn reply(&mut self, now: Micros) {
        if self.times.first_byte_at == 0 {
            self.times.first_byte_at = now;
        }
    }

    /// The server owes nothing more. Returns the duration of the query that this ends. None if the
    /// server has said something that answers no query.
    #[inline]
    pub(crate) fn answer(&mut self, now: Micros) -> Option<Micros> {
        if self.times.asked_at == 0 {
            return None;
        }
        let taken = now.saturating_sub(self.times.asked_at);
        self.times.busy += taken;
        self.times.asked_at = 0;
        Some(taken)
    }

    /// The client has sent its next transaction before the answer to this one, which is not described.
    /// If the client's first one is asked for, its stages are kept.
    #[cold]
    pub(crate) fn follow_on(&mut self, client: &Client) {
        if self.described_from != 0 {
            self.times.first_byte_at = 0;
        } else if self.times.first_sent_at == 0 {
            self.times.first_sent_at = client.times.transaction_at();
        }
    }

    /// The transaction is over, and the next one begins without these stages. Returns the transaction
    /// if it is to be described.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        client: &Client,
        pool: PoolId,
        is_complete: bool,
        now: Micros,
    ) -> Option<Transaction> {
        let queued_at = match self.times.queued_at {
            0 => client.times.transaction_at(),
            queued_at => queued_at,
        };
        let is_told = now.saturating_sub(queued_at) >= self.described_from;
        let transaction = is_told.then(|| self.describe(client, pool, is_complete, queued_at, now));
        // Earlier stages of other transactions count as 0.
        (self.times.queued_at, self.times.busy, self.times.longest) = (0, 0, 0);
        transaction
    }

    #[cold]
    fn describe(
        &mut self,
        client: &Client,
        pool: PoolId,
        is_complete: bool,
        queued_at: Micros,
        now: Micros,
    ) -> Transaction {
        self.described_from = REMEMBERED_FROM;
        self.end_query(client, now);
        // The client may have left in the middle of a query.
        let _ = self.answer(now);
        let sent_at = match std::mem::take(&mut self.times.first_sent_at) {
            0 => client.times.transaction_at(),
            first => first,
        };
        let queued_at = queued_at.min(sent_at);
        let times = &self.times;
        let since = |at: Micros| micros(at.saturating_sub(queued_at));
        Transaction {
            client: client.serial,
            queued_at,
            linked: since(times.linked_at),
            applied: since(times.applied_at),
            sent: since(sent_at),
            first_byte: since(times.first_byte_at),
            done: since(now),
            busy: micros(times.busy),
            pool,
            is_complete,
            name: Name::new(client.vars.get(APPLICATION_NAME).unwrap_or_default()),
            fingerprint: if times.longest == 0 { 0 } else { times.fingerprint },
        }
    }

    /// Notes the present query, if it is the one that has taken longest.
    #[inline]
    fn end_query(&mut self, client: &Client, now: Micros) {
        let taken = now.saturating_sub(self.times.query_at);
        if taken >= REMEMBERED_FROM && taken > self.times.longest {
            self.note_query(client, taken);
        }
    }

    #[cold]
    fn note_query(&mut self, client: &Client, taken: Micros) {
        self.times.longest = taken;
        self.times.fingerprint = match self.text(client) {
            Some((text, is_whole)) if !text.is_empty() => {
                with_normal_form(text, is_whole, |_, fingerprint| fingerprint)
            }
            Some(_) | None => 0,
        };
    }

    /// Returns the text of the present query, as far as it is known, and whether that is all of it.
    fn text<'a>(&'a self, client: &'a Client) -> Option<(&'a [u8], bool)> {
        let (head, body) = self.message.bytes().split_at_checked(HEADER_LEN)?;
        match *head.first()? {
            frontend::QUERY => Some(up_to_zero(body)),
            frontend::PARSE => Some(up_to_zero(behind_zero(body))),
            frontend::BIND => {
                let (name, _) = up_to_zero(behind_zero(body));
                Some((client.extended.as_ref()?.text_of(name)?, true))
            }
            _ => None,
        }
    }
}

/// The beginning of the first message of the present query.
#[derive(Debug)]
struct Message {
    /// The length of a short one; a longer one is in `long`.
    short_len: usize,
    short: [u8; SHORT_LEN_MAX],
    /// It keeps its memory.
    long: Vec<u8>,
}

impl Default for Message {
    fn default() -> Self {
        Self { short_len: 0, short: [0; SHORT_LEN_MAX], long: Vec::new() }
    }
}

impl Message {
    // Each query is kept. Two copies of a fixed length, which may overlap, need no call of memcpy, and
    // no Vec grows.
    #[inline(always)]
    fn keep(&mut self, input: &[u8]) {
        match input.len() {
            33..=64 => self.keep_halves::<32>(input),
            65..=SHORT_LEN_MAX => self.keep_halves::<64>(input),
            17..=32 => self.keep_halves::<16>(input),
            8..=16 => self.keep_halves::<8>(input),
            _ => self.keep_other(input),
        }
    }

    /// Keeps an input of at least `HALF` and at most twice as many bytes.
    #[inline(always)]
    fn keep_halves<const HALF: usize>(&mut self, input: &[u8]) {
        let tail_at = input.len() - HALF;
        self.short[..HALF].copy_from_slice(&input[..HALF]);
        self.short[tail_at..tail_at + HALF].copy_from_slice(&input[tail_at..]);
        self.short_len = input.len();
    }

    #[inline(never)]
    fn keep_other(&mut self, input: &[u8]) {
        if let Some(short) = self.short.get_mut(..input.len()) {
            short.copy_from_slice(input);
            self.short_len = input.len();
            return;
        }
        self.short_len = 0;
        replace(&mut self.long, &input[..input.len().min(KEPT_LEN_MAX)]);
    }

    fn bytes(&self) -> &[u8] {
        match self.short_len {
            0 => &self.long,
            len => &self.short[..len],
        }
    }
}

/// Returns the bytes before the first zero, and whether there is one.
fn up_to_zero(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], true),
        None => (bytes, false),
    }
}

fn behind_zero(bytes: &[u8]) -> &[u8] {
    bytes.get(up_to_zero(bytes).0.len() + 1..).unwrap_or_default()
}

fn micros(duration: Micros) -> u32 {
    u32::try_from(duration).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
