//! Records the texts that draw numbers from sequences (INSERT, `nextval`), and whether the client
//! then asks for the number (`currval`, `lastval`) (`pool_mode = auto`). A text is represented by a
//! digest of its table or function.
//!
//! After a *watched* text the client keeps its server for a few transactions, so that the question
//! finds the number. Drivers often run other statements in between: they deallocate a statement, or
//! look up the sequence's name. Weir stops watching a text after several runs in a row without a
//! question, and starts again at the next question.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use crate::ids::Micros;

/// The number of transactions in a row without a question after which the text is no longer
/// watched.
const UNASKED_MAX: u8 = 8;
/// The maximum number of other transactions between the draw and the question. DBD::Pg has three:
/// it prepares and executes a query for the sequence's name, and prepares the question.
const BETWEEN_MAX: u8 = 4;
/// Limit of remembered texts. When it is reached, Weir forgets them and watches all texts again.
const TEXTS_MAX: usize = 4_096;
/// The time that a client keeps a server that others wait for, between two transactions.
const PATIENCE: Micros = 200_000;
/// The time that a client keeps such a server after a text that a question is known to follow.
const PATIENCE_IF_ASKED: Micros = 1_000_000;
/// Weir restarts watching all texts at most once in this time.
const RENEWAL: Micros = 60_000_000;

/// A worker's observations in one pool.
#[derive(Debug, Default)]
pub(crate) struct SequenceHabits {
    habits: HashMap<u32, Habit, RandomState>,
    /// When Weir last restarted watching all texts.
    renewed_at: Micros,
}

#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    /// Transactions since the last question.
    unasked: u8,
    /// Has a client ever asked after this text?
    is_asked: bool,
}

impl SequenceHabits {
    pub(crate) fn is_watched(&self, text: u32) -> bool {
        self.habits.get(&text).is_none_or(|habit| habit.unasked < UNASKED_MAX)
    }

    /// Notes a question from a client that has drawn these numbers, the last one by the text
    /// `last_draw`. If neither is known, any text may have drawn the number, so all are watched again.
    pub(crate) fn note_question(&mut self, drawn: &DrawnNumbers, last_draw: u32, now: Micros) {
        for text in drawn.texts.iter().copied().chain((last_draw != 0).then_some(last_draw)) {
            *self.habit(text) = Habit { unasked: 0, is_asked: true };
        }
        let is_due = self.renewed_at == 0 || now.saturating_sub(self.renewed_at) > RENEWAL;
        if drawn.is_empty() && last_draw == 0 && is_due {
            self.habits.clear();
            self.renewed_at = now;
        }
    }

    /// Notes that no question followed these draws.
    pub(crate) fn note_silence(&mut self, drawn: &DrawnNumbers) {
        for text in &drawn.texts {
            let habit = self.habit(*text);
            habit.unasked = habit.unasked.saturating_add(drawn.transactions.max(1));
            habit.is_asked &= habit.unasked < UNASKED_MAX;
        }
    }

    /// Returns the time that the client that has drawn these numbers keeps a server that others
    /// wait for.
    pub(crate) fn patience(&self, drawn: &DrawnNumbers) -> Micros {
        let is_asked = |text| self.habits.get(text).is_some_and(|habit| habit.is_asked);
        if drawn.texts.iter().any(is_asked) { PATIENCE_IF_ASKED } else { PATIENCE }
    }

    fn habit(&mut self, text: u32) -> &mut Habit {
        if self.habits.len() >= TEXTS_MAX && !self.habits.contains_key(&text) {
            self.habits.clear();
        }
        self.habits.entry(text).or_default()
    }
}

/// The watched texts by which a server's client may have drawn numbers since its last question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnNumbers {
    pub texts: Vec<u32>,
    /// Number of transactions with such a text.
    transactions: u8,
    /// Number of transactions without such a text since then.
    between: u8,
    /// Does the current transaction draw?
    is_drawing: bool,
}

impl DrawnNumbers {
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub fn add(&mut self, text: u32) {
        self.is_drawing = true;
        if !self.texts.contains(&text) && self.texts.len() < usize::from(UNASKED_MAX) {
            self.texts.push(text);
        }
    }

    /// The transaction is over. Returns true if Weir waits for the question.
    pub fn end_transaction(&mut self) -> bool {
        if std::mem::take(&mut self.is_drawing) {
            self.transactions = self.transactions.saturating_add(1);
            self.between = 0;
        } else {
            self.between += 1;
        }
        self.transactions < UNASKED_MAX && self.between <= BETWEEN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes that a client has drawn by that text and has not asked.
    fn silence(draws: &mut SequenceHabits, text: u32) {
        let mut drawn = DrawnNumbers::default();
        drawn.add(text);
        assert!(drawn.end_transaction());
        draws.note_silence(&drawn);
    }

    #[test]
    fn a_text_is_watched_until_no_client_asks_and_again_when_one_does() {
        let mut draws = SequenceHabits::default();
        for _ in 0..2 {
            for _ in 0..UNASKED_MAX {
                assert!(draws.is_watched(7));
                silence(&mut draws, 7);
            }
            assert!(!draws.is_watched(7) && draws.is_watched(8));
            draws.note_question(&DrawnNumbers::default(), 7, 1);
        }
        assert!(draws.is_watched(7));
    }

    #[test]
    fn a_question_after_an_unknown_text_makes_weir_watch_all_texts_once_in_a_while() {
        let mut draws = SequenceHabits::default();
        for (now, is_watched) in [(1, true), (RENEWAL, false), (RENEWAL + 2, true)] {
            (0..UNASKED_MAX).for_each(|_| silence(&mut draws, 7));
            draws.note_question(&DrawnNumbers::default(), 0, now);
            assert_eq!(draws.is_watched(7), is_watched, "{now}");
        }
    }

    #[test]
    fn a_client_that_only_draws_is_waited_for_a_few_times() {
        let (mut draws, mut drawn) = (SequenceHabits::default(), DrawnNumbers::default());
        let mut waited = 0;
        loop {
            drawn.add(7);
            if !drawn.end_transaction() {
                break;
            }
            waited += 1;
        }
        assert_eq!(waited, UNASKED_MAX - 1);
        draws.note_silence(&drawn);
        assert!(!draws.is_watched(7));
    }

    #[test]
    fn a_hold_lasts_a_few_other_transactions_after_the_last_draw() {
        let mut drawn = DrawnNumbers::default();
        for _ in 0..2 {
            drawn.add(7);
            for _ in 0..=BETWEEN_MAX {
                assert!(drawn.end_transaction());
            }
        }
        assert!(!drawn.end_transaction());
        assert_eq!(drawn.transactions, 2);
    }

    #[test]
    fn a_text_that_a_question_often_follows_is_held_longer() {
        let (mut draws, mut drawn) = (SequenceHabits::default(), DrawnNumbers::default());
        drawn.add(7);
        assert_eq!(draws.patience(&drawn), PATIENCE);
        draws.note_question(&DrawnNumbers::default(), 7, 1);
        assert_eq!(draws.patience(&drawn), PATIENCE_IF_ASKED);
    }

    #[test]
    fn when_there_are_too_many_texts_all_are_watched() {
        let mut draws = SequenceHabits::default();
        for text in 0..=TEXTS_MAX as u32 {
            (0..UNASKED_MAX).for_each(|_| silence(&mut draws, text));
        }
        assert!(draws.is_watched(0));
        assert!(draws.habits.len() <= TEXTS_MAX);
    }
}
