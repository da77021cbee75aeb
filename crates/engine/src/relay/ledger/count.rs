//! How many Syncs of a failed copy does the server answer? See [`Input`].

use wire::frontend;

use super::entry::{Entry, Expect, Verb};
use super::{Input, Ledger, Owner};

/// A portal that does not exist. To close it is no error.
const NO_PORTAL: &[u8] = b"weir_count";

/// The next step, before anything else of the client's may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// Go on with copy data. Before another message, end the copy: Weir cannot tell whether the server
    /// is still in the copy.
    EndFirst,
    /// Wait until it is known whether the copy has failed.
    AwaitResult,
    /// Ask how many Syncs were answered.
    Count,
    /// Wait for the answer.
    AwaitCount,
}

impl Ledger {
    /// Returns why the client's next message must wait because of a Sync in its copy.
    pub fn copy_step(&self) -> Option<CopyStep> {
        match self.input {
            Input::CopyData { has_sync: true } => Some(CopyStep::EndFirst),
            Input::CopyEnded => Some(CopyStep::AwaitResult),
            Input::CopyFailed { .. } => Some(CopyStep::Count),
            Input::Counting { .. } => Some(CopyStep::AwaitCount),
            Input::Messages | Input::CopyData { has_sync: false } | Input::UntilSync => None,
        }
    }

    /// May the server have ignored a Sync in a copy, or not?
    #[inline]
    pub fn copies_in_doubt(&self) -> bool {
        self.input.is_in_doubt()
    }

    /// Does the server send nothing more until it gets another message?
    pub fn awaits_message(&self) -> bool {
        self.in_copy() || matches!(self.input, Input::CopyFailed { .. } | Input::UntilSync)
    }

    /// May the server be in copy-in mode by now? Not known before it answers the last Sync.
    pub fn may_enter_copy(&self) -> bool {
        !self.in_copy() && self.owed.back().is_some_and(|last| last.expect == Expect::Sync)
    }

    /// Writes the question, and enters it with this serial number and the next.
    pub fn ask_count(&mut self, serial: u64, out: &mut Vec<u8>) {
        let Input::CopyFailed { skips } = self.input else { return };
        frontend::sync(out);
        frontend::close_portal(out, NO_PORTAL);
        frontend::sync(out);
        for (serial, expect) in (serial..).zip([Expect::Count, Expect::Sync]) {
            self.push(Entry { serial, ..Entry::new(expect, Verb::Internal) });
        }
        self.input = Input::Counting { skips, answered: false };
    }

    /// A ReadyForQuery. One of them answers Weir's Sync, and the client gets the others. All have the
    /// same status.
    pub(super) fn count_ready(&mut self) -> Owner {
        let Input::Counting { skips, answered } = &mut self.input else { return Owner::Nobody };
        if !std::mem::replace(answered, true) {
            return Owner::Nobody;
        }
        *skips = false;
        Owner::Client
    }

    pub(super) fn end_count(&mut self) {
        let skips = matches!(self.input, Input::Counting { skips: true, .. });
        self.input = if skips { Input::UntilSync } else { Input::Messages };
    }
}
