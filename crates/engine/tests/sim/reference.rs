//! What a direct connection would have answered: a private server that is fed the very bytes the
//! client sends. Its answers are the only ones the client may get, in that order.

use std::collections::VecDeque;

use wire::error_fields::ErrorFields;
use wire::{HEADER_LEN, Header, backend};

use crate::backend::{Backend, CANCELED};
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) backend: Backend,
    expected: VecDeque<Vec<u8>>,
    /// So many of the expected messages must come without anything more being sent.
    due: usize,
}

/// What a message was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Expected,
    /// Expected, since a cancel request has hit.
    Canceled,
    Wrong(String),
}

impl Reference {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { backend: Backend::reference(settings), expected: VecDeque::new(), due: 0 }
    }

    /// The client sends this.
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
        self.expected.extend(messages(&all).map(<[u8]>::to_vec));
    }

    /// Nothing more can come before something more is sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.due == 0 && self.backend.sleep().is_none()
    }

    /// Has everything been answered, and nothing been left open?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.expected.is_empty() && self.backend.is_at_rest()
    }

    /// What must come next, for the reader of a report.
    pub(crate) fn waits_for(&self) -> String {
        let next = self.expected.front().map_or_else(|| "nothing".to_owned(), |next| show(next));
        format!("{next}, {} due, asleep: {:?}", self.due, self.backend.sleep())
    }

    pub(crate) fn received(&mut self, message: &[u8]) -> Verdict {
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
        match self.expected.pop_front() {
            Some(expected) if expected == message => {
                self.due = self.due.saturating_sub(1);
                verdict
            }
            expected => Verdict::Wrong(format!(
                "got {}, a direct connection gives {}",
                show(message),
                expected.as_deref().map_or_else(|| "nothing".to_owned(), show)
            )),
        }
    }
}

/// The whole messages in `bytes`.
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

/// The messages in `bytes`, and how many bytes are left over.
pub(crate) fn show_all(bytes: &[u8]) -> String {
    let shown: Vec<String> = messages(bytes).map(show).collect();
    let whole: usize = messages(bytes).map(<[u8]>::len).sum();
    format!("{} and {} bytes", shown.join(" "), bytes.len() - whole)
}
