//! Passes an input from a server on in steps. Something may have to be decided before the rest of an
//! input is handled.

use crate::engine::Engine;
use crate::ids::ServerId;
use crate::lifecycle::link::Readable;
use crate::routing::Judged;
use crate::shell::{Exchange, Io};

/// The part of an input that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    All,
    /// The rest is held: it answers the request behind the settings.
    UpToRequest,
    /// Nothing yet: a reader may refuse its client's request.
    UntilJudged,
}

impl<X: Exchange> Engine<X> {
    pub(crate) fn reply_bytes(&mut self, on: ServerId, bytes: &[u8], io: &mut impl Io<X>) {
        let mut bytes = bytes;
        loop {
            match self.pass_replies(on, bytes, io) {
                Passed::All => return,
                Passed::UpToRequest if self.ahead_answered(on, io) == Readable::Now => {
                    // The replies to the request are held.
                    bytes = &[];
                }
                Passed::UpToRequest => return,
                Passed::UntilJudged => match self.judge_reader(on, bytes, io) {
                    Judged::Held | Judged::Lost => return,
                    Judged::Answers { is_held: true } => bytes = &[],
                    Judged::Answers { is_held: false } => {}
                    Judged::Refused => return self.ask_writer(on, io),
                },
            }
        }
    }
}
