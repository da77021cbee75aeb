//! Reduces a failing script to the steps that it needs to fail.

use std::time::{Duration, Instant};

use crate::play::{Failure, Outcome, play};
use crate::script::Script;
use crate::stage::Stage;

/// The maximum time for this.
const TIME: Duration = Duration::from_secs(120);

/// Returns the smallest script found that fails in the same way, and its failure.
pub(crate) fn shrink(stage: &mut Stage, script: Script, failure: Failure) -> (Script, Failure) {
    let mut search = Search { stage, script, failure, end: Instant::now() + TIME };
    search.drop_steps();
    search.trim();
    search.drop_steps();
    (search.script, search.failure)
}

struct Search<'a> {
    stage: &'a mut Stage,
    script: Script,
    failure: Failure,
    end: Instant,
}

impl Search<'_> {
    /// Continues with the candidate if it fails in the same way as the script.
    fn try_on(&mut self, candidate: Script) -> bool {
        if Instant::now() >= self.end {
            return false;
        }
        match play(self.stage, &candidate) {
            Outcome::Failure(failure) if failure.kind == self.failure.kind => {
                (self.script, self.failure) = (candidate, failure);
                true
            }
            _ => false,
        }
    }

    fn drop_steps(&mut self) {
        let mut count = self.script.steps.len().div_ceil(2);
        while count > 0 {
            let mut at = self.script.steps.len();
            while at > 0 {
                at = at.saturating_sub(count);
                if let Some(fewer) = self.script.without_steps(at, count) {
                    self.try_on(fewer);
                }
                at = at.min(self.script.steps.len());
            }
            count /= 2;
        }
    }

    fn trim(&mut self) {
        let mut place = 0;
        while let Some(candidate) = self.script.trimmed().into_iter().nth(place) {
            if !self.try_on(candidate) {
                place += 1;
            }
            if Instant::now() >= self.end {
                return;
            }
        }
    }
}
