//! The request a server is working on, kept as its client sent it for as long as it might have to
//! be sent once more. Two things can make that necessary:
//!
//! * the server is lost, and the request has no effect by itself: a lone BEGIN, or a batch that
//!   does no more than prepare and describe. A server can commit and die before its first reply
//!   byte, so nothing else is ever repeated.
//! * the server's copy of a statement is older than the client's own Parse, and PostgreSQL refuses
//!   it because its tables have changed since (`cached plan must not change result type`). The
//!   refusal comes before anything is executed.

use std::sync::Arc;

use wire::error_fields::ErrorFields;

use crate::relay::prepared::{Shape, Statement};

/// Requests up to this length are kept, in bytes.
pub(crate) const KEPT_LEN_MAX: usize = 16_384;

/// So often a Bind is held back to find out what its statement returns: what the server has of it may
/// be described, and what the client means by it now may be prepared. Then it is sent as it is.
pub(crate) const QUESTIONS_MAX: u8 = 2;

#[derive(Debug, Default)]
pub struct KeptRequest {
    /// As the client sent it, from its first message that is the server's to answer.
    pub bytes: Vec<u8>,
    pub outline: Outline,
    /// The server has refused the statement it begins with.
    pub refused: Option<Refused>,
    /// It begins with a Describe whose parameters the client has been given; only the rows are
    /// still to be described.
    pub parameters_given: bool,
}

/// What matters of a request.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// Serial number of its first message; 0 = there is no request.
    pub first: u64,
    /// May it do what must not be done twice?
    pub has_effect: bool,
    /// The statement that its first message, a Bind or Describe, names.
    pub uses: Option<Used>,
}

impl Outline {
    /// Is there a case in which it would be sent once more?
    pub fn is_worth_keeping(&self) -> bool {
        self.first != 0 && (!self.has_effect || self.uses.is_some())
    }
}

/// A client's use of a statement.
#[derive(Clone, Debug)]
pub struct Used {
    pub statement: Arc<Statement>,
    /// Serial number of the client's own Parse of it.
    pub since: u64,
}

/// A statement was refused because its result would no longer be what it was; or would have been
/// by a server that had it.
#[derive(Debug)]
pub struct Refused {
    /// PostgreSQL's words, for the client if they turn out to be right.
    pub error: ErrorFields,
    /// Was the server's copy older than the client's own Parse?
    pub was_older: bool,
    /// Has the client sent the Sync of the batch?
    pub synced: bool,
    /// The statement's new shape.
    pub shape: Option<Shape>,
}

/// Does PostgreSQL say that a statement returns other columns than when it was prepared? Its text
/// may be in any language, the name of the function that says it is not.
pub(crate) fn is_changed_result(error: &ErrorFields) -> bool {
    error.sqlstate() == b"0A000" && error.get(b'R') == Some(b"RevalidateCachedQuery")
}

/// A Bind of this name stands for one of a statement that does not return what its client was told,
/// which PostgreSQL cannot know: it says that there is none of this name, and the client is told why.
pub(crate) const CHANGED_NAME: &[u8] = b"weir_changed_result";

/// Is it what PostgreSQL says of [`CHANGED_NAME`]?
pub(crate) fn is_of_changed_name(error: &ErrorFields) -> bool {
    let names = |text: &[u8]| text.windows(CHANGED_NAME.len()).any(|part| part == CHANGED_NAME);
    error.sqlstate() == b"26000" && error.get(b'M').is_some_and(names)
}

/// PostgreSQL's words for a changed result, where it cannot know what the client was told.
pub(crate) fn changed_result() -> ErrorFields {
    let text = "cached plan must not change result type";
    let mut error = ErrorFields::new("ERROR", "0A000", text);
    error.replace(b'R', *b"RevalidateCachedQuery");
    error
}

/// Does the text of a simple Query do nothing but open a transaction?
pub(crate) fn is_lone_begin(text: &[u8]) -> bool {
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
    // Its options are letters and commas; anything else is more than a BEGIN.
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
    fn what_is_more_than_a_begin() {
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
