//! The answers of a direct connection: a private server that gets the client's bytes unchanged. The
//! client may get only these answers, in this order.

use std::collections::VecDeque;

use wire::error_fields::ErrorFields;
use wire::{HEADER_LEN, Header, backend};

use crate::backend::{Backend, CANCELED, FOLLOWS, NOTICED};
use crate::settings::{NAMES, STYLE, Settings, is_default_style};
use crate::sql::Tag;

#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) backend: Backend,
    expected: VecDeque<Vec<u8>>,
    /// The number of the expected messages that must arrive without further requests.
    due: usize,
    /// Committed inserts, each with the number of the ReadyForQuery that tells the client.
    committed: Vec<(usize, Tag)>,
    /// The number of ReadyForQuery messages that were collected, and that the client has received.
    ends: usize,
    received_ends: usize,
    /// The settings at the last ReadyForQuery outside of a transaction that the client has received,
    /// and at later ones, each with its number. Empty unless [`Self::follow_losses`] was called.
    settled: VecDeque<(usize, Settings)>,
    /// Earlier values that the client was told of when its server was lost. On a direct connection it
    /// is told of them by its ROLLBACK.
    told_early: Vec<Vec<u8>>,
}

/// The kind of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Expected,
    /// Expected, because a cancel request has hit.
    Canceled,
    Wrong(String),
}

impl Reference {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            backend: Backend::reference(settings),
            expected: VecDeque::new(),
            due: 0,
            committed: Vec::new(),
            ends: 0,
            received_ends: 0,
            settled: VecDeque::new(),
            told_early: Vec::new(),
        }
    }

    /// Its client may outlive a server.
    pub(crate) fn follow_losses(&mut self) {
        self.settled.push_back((0, self.backend.settings.clone()));
    }

    /// The client sends these bytes.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.backend.feed(bytes);
        self.run();
    }

    fn run(&mut self) {
        while let Some(flushed) = self.backend.step() {
            self.collect();
            if flushed {
                self.due = self.expected.len();
            }
        }
    }

    fn collect(&mut self) {
        let all = self.backend.take_output();
        let counts = |message: &&[u8]| !self.backend.marks_defaults || !is_style(message);
        let ends = messages(&all).filter(|message| is_end(message)).count();
        self.ends += ends;
        let end = if ends > 0 { self.ends } else { self.ends + 1 };
        if ends > 0 && self.backend.is_between_transactions() && !self.settled.is_empty() {
            self.settled.push_back((end, self.backend.settings.clone()));
        }
        self.committed.extend(self.backend.inserted.drain(..).map(|tag| (end, tag)));
        self.expected.extend(messages(&all).filter(counts).map(<[u8]>::to_vec));
    }

    /// Is every expected message there until the client sends more?
    pub(crate) fn is_quiet(&self) -> bool {
        self.due == 0 && self.backend.sleep().is_none()
    }

    /// Is everything answered and no transaction open?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.expected.is_empty() && self.backend.is_at_rest()
    }

    /// The client gives up its session. Returns the inserts of its last request or transaction that it
    /// does not know of, if all requests before were answered.
    pub(crate) fn give_up(&mut self) -> Option<Vec<Tag>> {
        let requests = self.unanswered();
        let mut tags = std::mem::take(&mut self.backend.inserting);
        tags.extend(self.committed.drain(..).map(|(_, tag)| tag));
        (self.expected, self.due) = (VecDeque::new(), 0);
        (requests <= 1).then_some(tags)
    }

    /// The number of requests without their last answer. An extended batch without its Sync is one,
    /// too.
    fn unanswered(&self) -> usize {
        let ends = self.expected.iter().filter(|message| is_end(message)).count();
        ends + usize::from(self.expected.back().is_some_and(|message| !is_end(message)))
    }

    /// After the loss of a server, the client gets this row, as the answer to this text. Checks that
    /// its session is the one from before the lost transaction, without state that only the server
    /// had.
    pub(crate) fn recovered(&mut self, row: &[u8], tag: Tag, sql: &str) -> Result<(), String> {
        let Some((_, settings)) = self.settled.pop_front() else { return Ok(()) };
        self.settled = [(0, settings.clone())].into();
        let expected = self.backend.row_of(settings, tag, sql);
        // The new server may have the defaults of a later configuration.
        match expected == row || self.differs_by_reload(&expected, row, true) {
            true => Ok(()),
            false => Err(format!("recovered with {}, and had {}", show(row), show(&expected))),
        }
    }

    /// Describes the next expected message, for a report.
    pub(crate) fn waits_for(&self) -> String {
        let next = self.expected.front().map_or_else(|| "nothing".to_owned(), |next| show(next));
        format!("{next}, {} due, asleep: {:?}", self.due, self.backend.sleep())
    }

    pub(crate) fn received(&mut self, message: &[u8]) -> Verdict {
        if self.is_earlier_value(message) {
            self.told_early.push(message.to_vec());
            return Verdict::Expected;
        }
        let mut verdict = Verdict::Expected;
        if self.expected.is_empty() && self.backend.sleep().is_some() {
            if sqlstate(message) == Some(CANCELED.as_bytes().to_vec()) {
                self.backend.cancel();
                verdict = Verdict::Canceled;
            } else {
                self.backend.wake();
            }
            self.due = usize::from(!self.backend.out.is_empty());
            self.collect();
            if self.due > 0 {
                self.due = self.expected.len();
            }
            self.run();
        }
        self.skip_told_early();
        if is_end(message) && message.last() == Some(&b'I') && !self.told_early.is_empty() {
            let why = "got an earlier value: a direct connection gives none, as nothing was lost";
            return Verdict::Wrong(why.into());
        }
        match self.expected.pop_front() {
            Some(expected)
                if expected == message || self.differs_by_reload(&expected, message, false) =>
            {
                self.due = self.due.saturating_sub(1);
                if is_end(message) {
                    self.received_ends += 1;
                    self.committed.retain(|(end, _)| *end > self.received_ends);
                    while self.settled.get(1).is_some_and(|(end, _)| *end <= self.received_ends) {
                        self.settled.pop_front();
                    }
                }
                verdict
            }
            expected => Verdict::Wrong(format!(
                "got {}, a direct connection gives {}",
                show(message),
                expected.as_deref().map_or_else(|| "nothing".to_owned(), show)
            )),
        }
    }

    /// Is it a report of a value from before the transaction, which the client does not expect yet?
    fn is_earlier_value(&self, message: &[u8]) -> bool {
        if message[0] != backend::PARAMETER_STATUS
            || self.expected.front().is_some_and(|next| next == message)
        {
            return false;
        }
        let Some((_, settings)) = self.settled.front() else { return false };
        let mut reports = NAMES.iter().filter_map(|(name, _)| {
            let mut report = Vec::new();
            backend::parameter_status(&mut report, name.as_bytes(), settings.get(name)?.as_bytes());
            Some(report)
        });
        reports.any(|report| report == message)
    }

    /// Expected reports that the client has got already do not come again.
    fn skip_told_early(&mut self) {
        while let Some(next) = self.expected.front()
            && let Some(at) = self.told_early.iter().position(|told| told == next)
        {
            self.told_early.remove(at);
            self.expected.pop_front();
            self.due = self.due.saturating_sub(1);
        }
    }

    /// Do the two rows differ only by a reload of the servers, as docs/auto-mode.md allows? A client
    /// without its own value may see any default. Another client sees its own value, except in the
    /// transaction in which the server notices the reload.
    fn differs_by_reload(&self, expected: &[u8], got: &[u8], may_be_later: bool) -> bool {
        let (Some(expected), Some(got)) = (around_style(expected), around_style(got)) else {
            return false;
        };
        let strip =
            |value: &'static str, of: &[u8]| of.strip_prefix(value.as_bytes()).map(<[u8]>::to_vec);
        let noticed = strip(NOTICED, got.1);
        let value = noticed.as_deref().unwrap_or(got.1);
        let is_allowed = match strip(FOLLOWS, expected.1) {
            Some(_) => is_default_style(value),
            None => {
                let is_later = may_be_later && is_default_style(expected.1);
                let may_differ = noticed.is_some() || is_later;
                expected.1 == value || may_differ && is_default_style(value)
            }
        };
        is_allowed && (expected.0, expected.2) == (got.0, got.2)
    }
}

/// Does it report [`STYLE`]?
pub(crate) fn is_style(message: &[u8]) -> bool {
    let name = message.get(HEADER_LEN..).and_then(|body| body.split(|byte| *byte == 0).next());
    message[0] == backend::PARAMETER_STATUS && name == Some(STYLE.as_bytes())
}

/// Splits a row that shows [`STYLE`]: the part before the value, the value, the part after it.
fn around_style(row: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    /// Number of columns, length of the value.
    const LENGTHS: usize = 2 + 4;
    let body = row.get(HEADER_LEN + LENGTHS..).filter(|_| row[0] == backend::DATA_ROW)?;
    let (name, end) = (format!("{STYLE}=").into_bytes(), b",");
    let from = body.windows(name.len()).position(|part| part == name)? + name.len();
    let (before, rest) = body.split_at_checked(from)?;
    // The default value itself contains a comma.
    let skipped = rest.windows(4).take(2).position(|part| part == b"ISO,").map_or(0, |at| at + 4);
    let len = rest.get(skipped..)?.windows(1).position(|byte| byte == end)? + skipped;
    Some((before, &rest[..len], &rest[len..]))
}

fn is_end(message: &[u8]) -> bool {
    message[0] == backend::READY_FOR_QUERY
}

/// Splits `bytes` into whole messages.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let header = Header::parse(bytes).ok()??;
        let (message, rest) = bytes.split_at_checked(header.total)?;
        bytes = rest;
        Some(message)
    })
}

/// The SQLSTATE of an error or a notice.
pub(crate) fn sqlstate(message: &[u8]) -> Option<Vec<u8>> {
    let is_error = matches!(message[0], backend::ERROR | backend::NOTICE);
    let fields = ErrorFields::decode(message.get(HEADER_LEN..)?).ok().filter(|_| is_error)?;
    fields.get(b'C').map(<[u8]>::to_vec)
}

pub(crate) fn show(message: &[u8]) -> String {
    let body: String = message
        .get(HEADER_LEN..)
        .unwrap_or_default()
        .iter()
        .take(400)
        .map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' })
        .collect();
    format!("{:?}[{body}]", char::from(message[0]))
}

/// Formats the messages in `bytes`, and the number of bytes left over.
pub(crate) fn show_all(bytes: &[u8]) -> String {
    let shown: Vec<String> = messages(bytes).map(show).collect();
    let whole: usize = messages(bytes).map(<[u8]>::len).sum();
    format!("{} and {} bytes", shown.join(" "), bytes.len() - whole)
}
