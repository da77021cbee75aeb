//! The second tries of a client's requests. Each is limited: a statement that fails again and again,
//! or a question without a useful answer, must not hold the client back for ever.

/// The maximum number of times that a Bind is held back to find out what its statement returns: the
/// server's copy may be described, and the client's current meaning may be prepared. After that it
/// is sent as it is.
const QUESTIONS_MAX: u8 = 2;

/// The second tries of the present request of a client, and the questions about its next Bind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repeats {
    /// The number of times that the next Bind was held back to find out what its statement returns.
    questions: u8,
    /// Was the statement of the present request prepared again, because the server had refused it?
    renewed: bool,
    /// The held input was processed before, and nothing of it was sent.
    rewound: bool,
}

impl Repeats {
    /// May the next Bind be held back for a question about its statement?
    pub(crate) fn may_ask(self) -> bool {
        !(self.rewound || self.renewed || self.questions >= QUESTIONS_MAX)
    }

    /// The next Bind is held back for a question.
    pub(crate) fn ask(&mut self) {
        debug_assert!(self.questions < QUESTIONS_MAX, "a Bind is held back again and again");
        self.questions += 1;
    }

    /// No other question about the next Bind would help.
    pub(crate) fn ask_no_more(&mut self) {
        self.questions = QUESTIONS_MAX;
    }

    /// A Bind is sent.
    #[inline]
    pub(crate) fn bound(&mut self) {
        self.questions = 0;
    }

    /// May the statement of the present request be prepared again, if the server refuses it?
    pub(crate) fn may_renew(self) -> bool {
        !self.renewed
    }

    /// The present request is handled again. `renewed`: its statement was refused before.
    pub(crate) fn again(&mut self, renewed: bool) {
        self.renewed = renewed;
    }

    /// The present request is over. A statement of the next one may be prepared again.
    #[inline]
    pub(crate) fn request_ends(&mut self) {
        self.renewed = false;
    }

    /// The input was taken back, and will be handled once more from its beginning.
    pub(crate) fn rewind(&mut self) {
        self.rewound = true;
    }

    /// Was the held input handled before?
    pub(crate) fn is_rewound(self) -> bool {
        self.rewound
    }

    /// The input goes on, or its request waits for another reason.
    #[inline]
    pub(crate) fn go_on(&mut self) {
        self.rewound = false;
    }
}
