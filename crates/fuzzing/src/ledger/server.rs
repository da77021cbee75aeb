//! PostgreSQL's message loop by the kinds of messages alone: what each is answered with is said by
//! whoever sends it.

use std::collections::VecDeque;

use engine::ledger::Expect;

/// How it goes, when the server gets to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Fails,
    /// A Query or Execute with rows that fails behind them.
    FailsLate,
    CopyIn,
    CopyOut,
    Suspended,
    /// Two statements in a Query, the second a copy.
    TwoCopies,
    /// Done; it is a message of the pooler's own.
    Swallowed,
    /// Likewise, and it fails.
    SwallowedFails,
    /// It is not sent: the server has what is asked for. (Where it would have ended the
    /// connection, nothing is promised to the client.)
    MadeUp,
}

impl Outcome {
    pub(super) const ALL: [Self; 9] = [
        Self::Done,
        Self::Fails,
        Self::FailsLate,
        Self::CopyIn,
        Self::CopyOut,
        Self::Suspended,
        Self::TwoCopies,
        Self::Swallowed,
        Self::SwallowedFails,
    ];

    /// Is it a message of the pooler's own?
    pub(super) fn is_swallowed(self) -> bool {
        matches!(self, Self::Swallowed | Self::SwallowedFails)
    }

    fn fails(self) -> bool {
        matches!(self, Self::Fails | Self::FailsLate | Self::SwallowedFails)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) expect: Expect,
    pub(super) outcome: Outcome,
    pub(super) serial: u64,
}

impl Sent {
    /// A late CopyDone is answered by nothing.
    pub(super) fn may_be_answered(&self) -> bool {
        self.expect != Expect::CopyEnd && self.outcome != Outcome::MadeUp
    }
}

/// What a message leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A message with this code that belongs to that message.
    Reply {
        code: u8,
        to: Sent,
    },
    HangUp,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    /// Sent and not read yet.
    pub(super) queue: VecDeque<Sent>,
    skipping: bool,
    /// The query whose copy is read, and how many copies are still to come after this one.
    copy: Option<(Sent, u32)>,
    /// Messages of the extended protocol have come and no Sync.
    in_batch: bool,
}

impl Server {
    pub(super) fn is_at_rest(&self) -> bool {
        let reads = self.queue.iter().any(Sent::may_be_answered);
        !reads && !self.skipping && self.copy.is_none() && !self.in_batch
    }

    pub(super) fn answers(&mut self, sent: Sent) -> Vec<Answer> {
        let codes = match self.copy {
            Some((query, more)) => {
                return match sent.expect {
                    // Ignored.
                    Expect::Sync => Vec::new(),
                    Expect::CopyEnd => of(query, self.end_copy(query, more, sent)),
                    _ => vec![Answer::HangUp],
                };
            }
            None => self.read(sent),
        };
        of(sent, codes)
    }

    fn read(&mut self, sent: Sent) -> &'static str {
        if sent.expect == Expect::Sync {
            (self.skipping, self.in_batch) = (false, false);
            return "Z";
        }
        if self.skipping || !sent.may_be_answered() {
            return "";
        }
        let fails = sent.outcome.fails();
        match sent.expect {
            Expect::Query => self.query(sent),
            Expect::FunctionCall => {
                self.in_batch = false;
                if fails { "EZ" } else { "VZ" }
            }
            _ => {
                self.in_batch = true;
                self.skipping = fails;
                self.extended(sent)
            }
        }
    }

    fn query(&mut self, sent: Sent) -> &'static str {
        // A simple Query ends the batch before it, if there is one: it is answered by its own
        // ReadyForQuery.
        self.in_batch = false;
        match sent.outcome {
            Outcome::Done | Outcome::Swallowed | Outcome::MadeUp => "TDDCZ",
            Outcome::Suspended => "IZ",
            Outcome::Fails | Outcome::SwallowedFails => "EZ",
            Outcome::FailsLate => "TDCTDEZ",
            Outcome::CopyOut => "HddcCZ",
            Outcome::CopyIn => {
                self.copy = Some((sent, 0));
                "G"
            }
            Outcome::TwoCopies => {
                self.copy = Some((sent, 1));
                "CG"
            }
        }
    }

    fn extended(&mut self, sent: Sent) -> &'static str {
        match (sent.expect, sent.outcome) {
            (Expect::Execute, Outcome::FailsLate) => "DE",
            (_, outcome) if outcome.fails() => "E",
            (Expect::Parse, _) => "1",
            (Expect::Bind, _) => "2",
            (Expect::Close, _) => "3",
            (Expect::Describe, Outcome::Suspended) => "n",
            (Expect::Describe, _) => "tT",
            (_, Outcome::CopyIn | Outcome::TwoCopies) => {
                self.copy = Some((sent, 0));
                "G"
            }
            (_, Outcome::CopyOut) => "HdcC",
            (_, Outcome::Suspended) => "Ds",
            (_, _) => "DC",
        }
    }

    /// CopyDone, or CopyFail.
    fn end_copy(&mut self, query: Sent, more: u32, sent: Sent) -> &'static str {
        self.copy = None;
        let is_simple = query.expect == Expect::Query;
        if sent.outcome.fails() {
            self.skipping = !is_simple;
            return if is_simple { "EZ" } else { "E" };
        }
        if more > 0 {
            self.copy = Some((query, more - 1));
            return "CG";
        }
        if is_simple { "CZ" } else { "C" }
    }
}

fn of(sent: Sent, codes: &str) -> Vec<Answer> {
    codes.bytes().map(|code| Answer::Reply { code, to: sent }).collect()
}
