//! PostgreSQL's message loop, reduced to the types of messages. The sender of a message also
//! chooses its replies.

use std::collections::VecDeque;

use engine::ledger::Expect;

/// The outcome of a message when the server executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Fails,
    /// A Query or Execute fails after its rows.
    FailsLate,
    CopyIn,
    CopyOut,
    Suspended,
    /// A Query with two statements. The second is a copy.
    TwoCopies,
    /// Success of a message that the pooler itself sends.
    Swallowed,
    /// Failure of a message that the pooler itself sends.
    SwallowedFails,
    /// The message is not sent, since the server already has the statement. If it would have ended
    /// the connection, the client gets no promise.
    MadeUp,
    /// It is one of the pooler's own messages that concern no client.
    Weirs,
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

    /// Returns whether the pooler itself sends the message.
    pub(super) fn is_swallowed(self) -> bool {
        matches!(self, Self::Swallowed | Self::SwallowedFails | Self::Weirs)
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
    /// Returns whether the message may have replies. A late CopyDone has none.
    pub(super) fn may_be_answered(&self) -> bool {
        self.expect != Expect::CopyEnd && self.outcome != Outcome::MadeUp
    }
}

/// A reaction of the server to a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A reply with this code to this message.
    Reply {
        code: u8,
        to: Sent,
    },
    HangUp,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    /// Messages that are sent and not read yet.
    pub(super) queue: VecDeque<Sent>,
    skipping: bool,
    /// The query whose copy data is read, and the number of copies after this one.
    copy: Option<(Sent, u32)>,
    /// True if messages of the extended protocol have come without a Sync.
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
                    // The copy fails before the server reads the Sync.
                    Expect::Sync if sent.outcome.fails() => {
                        let mut answers = of(query, self.fail_copy(query));
                        answers.extend(of(sent, self.read(sent)));
                        answers
                    }
                    // The server ignores it.
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
        // A simple Query ends a previous batch. Its own ReadyForQuery answers both.
        self.in_batch = false;
        match sent.outcome {
            Outcome::Done | Outcome::Swallowed | Outcome::MadeUp | Outcome::Weirs => "TDDCZ",
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

    /// Handles CopyDone or CopyFail.
    fn end_copy(&mut self, query: Sent, more: u32, sent: Sent) -> &'static str {
        if sent.outcome.fails() {
            return self.fail_copy(query);
        }
        self.copy = None;
        let is_simple = query.expect == Expect::Query;
        if more > 0 {
            self.copy = Some((query, more - 1));
            return "CG";
        }
        if is_simple { "CZ" } else { "C" }
    }

    fn fail_copy(&mut self, query: Sent) -> &'static str {
        self.copy = None;
        let is_simple = query.expect == Expect::Query;
        self.skipping = !is_simple;
        if is_simple { "EZ" } else { "E" }
    }
}

fn of(sent: Sent, codes: &str) -> Vec<Answer> {
    codes.bytes().map(|code| Answer::Reply { code, to: sent }).collect()
}
