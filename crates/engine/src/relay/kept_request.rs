//! The request that a server is working on, kept as its client sent it as long as it may have to be
//! sent again. There are three cases:
//!
//! * The server is lost and the request has no effect by itself: a lone BEGIN, or a batch that only
//!   prepares and describes. A server can commit and die before its first reply byte, so nothing
//!   else is ever repeated.
//! * The server is a reader and refuses the request, for example because it writes. A reader cannot
//!   change anything, so the writer is asked instead (`routing/refusal.rs`). If the reader is lost,
//!   another server is asked only for what the judges call a read: a standby that was promoted a
//!   moment ago may have done what a hint has sent there. The first statement of a transaction is
//!   refused in the same way (`routing/begun.rs`).
//! * The server's copy of a statement is older than the client's own Parse, and PostgreSQL refuses
//!   it because its tables have changed since (`cached plan must not change result type`). Or the
//!   server has lost the copy. PostgreSQL refuses before it executes anything.

use std::sync::Arc;

use wire::error_fields::ErrorFields;
use wire::sqlstate::FEATURE_NOT_SUPPORTED;

use crate::relay::batch_end::BatchEnd;
use crate::relay::prepared::{Shape, Statement};

/// Longer requests are not kept, in bytes.
pub(crate) const KEPT_LEN_MAX: usize = 16_384;

#[derive(Debug, Default)]
pub struct KeptRequest {
    /// The request as the client sent it, from the first message that the server answers.
    pub bytes: Vec<u8>,
    pub outline: Outline,
    /// The server has refused the statement with which the request begins.
    pub refused: Option<Refused>,
    /// The request begins with a Describe whose parameters the client has already received. Only
    /// the row description is missing.
    pub parameters_given: bool,
    /// The texts of the transaction that a client has begun on this reader, if it has read nothing
    /// yet (`routing/begun.rs`).
    pub opening: Option<Box<[u8]>>,
}

/// The properties of a request that decide whether it may be sent again.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// Serial number of its first message; 0 = there is no request.
    pub first: u64,
    /// May it have an effect that must not happen twice?
    pub has_effect: bool,
    /// Has a reader got it, and may it still refuse it? Then the writer is asked.
    pub asks_writer: bool,
    /// Has a reader got it, and do the judges say that it only reads?
    pub is_read: bool,
    /// The texts before it in its transaction, if it is the first there that a reader may refuse.
    pub opening: Option<Box<[u8]>>,
    /// The statement that its first message, a Bind or Describe, names.
    pub uses: Option<Used>,
}

impl Outline {
    /// May this request have to be sent again?
    pub fn is_worth_keeping(&self) -> bool {
        self.first != 0 && (self.may_move() || self.asks_writer || self.uses.is_some())
    }

    /// May another server get it, if this one has not answered?
    pub fn may_move(&self) -> bool {
        !self.has_effect || self.asks_writer && self.is_read
    }
}

/// A client's use of a statement.
#[derive(Clone, Debug)]
pub struct Used {
    pub statement: Arc<Statement>,
    /// Serial number of the client's own Parse.
    pub since: u64,
}

/// A statement was refused because its result type has changed or the server has lost it, or Weir
/// refuses it for the first reason before it is sent.
#[derive(Debug)]
pub struct Refused {
    /// PostgreSQL's error, for the client if it turns out to be right.
    pub error: ErrorFields,
    /// Was the server's copy older than the client's own Parse?
    pub was_older: bool,
    /// Had the server no such statement any more? Then it has sent nothing before the error.
    pub is_lost: bool,
    pub end: BatchEnd,
    /// The statement's new result and parameter types.
    pub shape: Option<Shape>,
}

/// Does the error say that a statement returns other columns than when it was prepared? The error's
/// text may be in any language; the name of the function that raises it is not.
pub(crate) fn is_changed_result(error: &ErrorFields) -> bool {
    error.sqlstate() == FEATURE_NOT_SUPPORTED.as_bytes()
        && error.get(b'R') == Some(b"RevalidateCachedQuery")
}

/// The statement name in a Bind that must fail because the statement no longer returns what the
/// client was told. PostgreSQL cannot know that. It answers that the name does not exist, and Weir
/// replaces the error by the real reason.
pub(crate) const CHANGED_NAME: &[u8] = b"weir_changed_result";

/// Is this PostgreSQL's error about [`CHANGED_NAME`]?
pub(crate) fn is_of_changed_name(error: &ErrorFields) -> bool {
    let names = |text: &[u8]| text.windows(CHANGED_NAME.len()).any(|part| part == CHANGED_NAME);
    error.sqlstate() == b"26000" && error.get(b'M').is_some_and(names)
}

/// PostgreSQL's error for a changed result, for cases in which PostgreSQL cannot know what the
/// client was told.
pub(crate) fn changed_result() -> ErrorFields {
    let text = "cached plan must not change result type";
    let mut error = ErrorFields::new("ERROR", FEATURE_NOT_SUPPORTED, text);
    // Drivers that read the severity in English read this field.
    error.replace(b'V', *b"ERROR");
    error.replace(b'R', *b"RevalidateCachedQuery");
    error
}

/// Does the text of a simple Query do nothing but open a transaction?
pub(crate) fn is_lone_begin(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    // A cheap test that excludes most texts.
    let may_begin = text.first_chunk::<5>().is_some_and(|head| {
        head.eq_ignore_ascii_case(b"begin") || head.eq_ignore_ascii_case(b"start")
    });
    may_begin && is_begin_alone(text)
}

fn is_begin_alone(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\0").unwrap_or(text).trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let begins = match words.next() {
        Some(word) if word.eq_ignore_ascii_case(b"begin") => true,
        Some(word) if word.eq_ignore_ascii_case(b"start") => {
            words.next().is_some_and(|next| next.eq_ignore_ascii_case(b"transaction"))
        }
        _ => false,
    };
    // The options of BEGIN consist of letters and commas. Anything else is more than a BEGIN.
    begins && words.all(|word| word.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_begin_in_all_its_forms() {
        for text in [
            "begin\0",
            "BEGIN;\0",
            " begin work \0",
            "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY;\0",
            "start transaction read write\0",
            "Start\n  Transaction ;\0",
        ] {
            assert!(is_lone_begin(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn texts_that_are_more_than_a_begin() {
        for text in [
            "begin; delete from t\0",
            "begin;;\0",
            "begin/**/;x\0",
            "begin_work()\0",
            "start\0",
            "start replication\0",
            "select 1\0",
            "\0",
            "",
        ] {
            assert!(!is_lone_begin(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_changed_result_is_known_in_any_language() {
        let mut error = ErrorFields::new("ERROR", "0A000", "das gespeicherte Plan ...");
        assert!(!is_changed_result(&error));
        error.replace(b'R', b"RevalidateCachedQuery".as_slice());
        assert!(is_changed_result(&error));
    }
}
