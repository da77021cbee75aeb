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
use wire::frontend;
use wire::sqlstate::FEATURE_NOT_SUPPORTED;

use crate::relay::batch_end::BatchEnd;
use crate::relay::prepared::{Shape, Statement};

/// Longer requests are not kept, in bytes.
pub(crate) const KEPT_LEN_MAX: usize = 16_384;

/// The request that a server is working on, or its last one, if it was ever kept.
#[derive(Debug, Default)]
pub struct Kept(Option<Box<Request>>);

#[derive(Debug, Default)]
struct Request {
    /// The request as the client sent it, from the first message that the server answers.
    bytes: Vec<u8>,
    outline: Outline,
    /// The server has refused the statement with which the request begins.
    refused: Option<Refused>,
    /// The request begins with a Describe whose parameters the client has already received. Only
    /// the row description is missing.
    parameters_given: bool,
    /// The texts of the transaction that a client has begun on this reader, if it has read nothing
    /// yet (`routing/begun.rs`).
    opening: Option<Box<[u8]>>,
}

impl Kept {
    /// A part of the request goes to the server. `begins`: it is the first part.
    #[inline(always)]
    pub(super) fn keep(&mut self, outline: Outline, part: &[u8], begins: bool) {
        if !outline.is_worth_keeping() {
            return self.forget();
        }
        let kept = &mut **self.0.get_or_insert_default();
        if begins {
            kept.bytes.clear();
        }
        kept.outline = outline;
        if kept.bytes.len() + part.len() > KEPT_LEN_MAX {
            kept.outline = Outline::default();
        } else {
            kept.bytes.extend_from_slice(part);
        }
    }

    /// The last request cannot be sent again.
    #[inline]
    pub(crate) fn forget(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.outline = Outline::default();
        }
    }

    /// The server loses its client.
    pub(crate) fn lose_client(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.refused = None;
            kept.opening = None;
        }
    }

    #[inline]
    pub(super) fn outline(&self) -> Option<&Outline> {
        self.0.as_ref().map(|kept| &kept.outline)
    }

    /// Returns the request, for another server.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        self.0.as_mut().map(|kept| std::mem::take(&mut kept.bytes)).unwrap_or_default()
    }

    /// Returns the serial number of the request that a reader may still refuse.
    pub(crate) fn refusable(&self) -> Option<u64> {
        self.outline().filter(|outline| outline.asks_writer).map(|outline| outline.first)
    }

    /// Has the transaction read at most, if it has failed?
    pub(crate) fn only_reads(&self) -> bool {
        self.outline().is_some_and(|outline| outline.is_read || outline.opening.is_some())
    }

    /// A reader has answered the request, and does not refuse it.
    pub(crate) fn accept(&mut self) {
        if let Some(kept) = &mut self.0 {
            kept.outline.asks_writer = false;
        }
    }

    /// A reader has refused the request. Returns the request, and the texts before it in its
    /// transaction.
    pub(crate) fn take_refused(&mut self) -> (Vec<u8>, Option<Box<[u8]>>) {
        let Some(kept) = &mut self.0 else { return Default::default() };
        let outline = std::mem::take(&mut kept.outline);
        (std::mem::take(&mut kept.bytes), outline.opening)
    }

    /// Returns the request, and takes the texts before it in its transaction.
    pub(crate) fn take_texts_before(&mut self) -> Option<(&[u8], Vec<u8>)> {
        let kept = self.0.as_mut()?;
        let before = Vec::from(kept.outline.opening.take().unwrap_or_default());
        Some((&kept.bytes, before))
    }

    /// The client has begun a transaction with these texts, and has read nothing yet.
    pub(crate) fn open(&mut self, texts: Vec<u8>) {
        if let Some(kept) = &mut self.0 {
            kept.opening = Some(texts.into());
        }
    }

    /// A message of the client follows. Returns the texts of its transaction, if it has read nothing
    /// yet.
    #[inline]
    pub(super) fn take_opening(&mut self) -> Option<Box<[u8]>> {
        self.0.as_mut()?.opening.take()
    }

    /// The server has refused the statement with which the request begins.
    pub(super) fn refuse(&mut self, refused: Refused) {
        if let Some(kept) = &mut self.0 {
            kept.refused = Some(refused);
        }
    }

    pub(super) fn refused(&mut self) -> Option<&mut Refused> {
        self.0.as_mut()?.refused.as_mut()
    }

    /// Returns the end of the batch whose statement the server has refused.
    pub(crate) fn refused_end(&self) -> Option<BatchEnd> {
        self.0.as_ref()?.refused.as_ref().map(|refused| refused.end)
    }

    /// Weir asks first whether the statement returns what the client was told. The request is not
    /// sent yet.
    pub(super) fn confirm(&mut self, used: Used) {
        let refused = Refused {
            error: changed_result(),
            was_older: false,
            is_lost: false,
            end: BatchEnd::Open,
            shape: None,
        };
        let outline = Outline { uses: Some(used), ..Outline::default() };
        let kept = Request { outline, refused: Some(refused), ..Request::default() };
        **self.0.get_or_insert_default() = kept;
    }

    /// The request uses this statement instead.
    pub(super) fn substitute(&mut self, statement: &Arc<Statement>) {
        if let Some(used) = self.0.as_mut().and_then(|kept| kept.outline.uses.as_mut()) {
            used.statement = statement.clone();
        }
    }

    /// The cause of the refusal is known.
    pub(super) fn end_refusal(&mut self) -> Option<(Refused, Used)> {
        let kept = self.0.as_mut()?;
        let (refused, used) = (kept.refused.take(), kept.outline.uses.take());
        Some((refused?, used?))
    }

    /// The request is handled again. Returns it. `is_lost`: see [`Refused::is_lost`].
    pub(super) fn take_again(&mut self, is_lost: bool) -> Vec<u8> {
        let Some(kept) = &mut self.0 else { return Vec::new() };
        kept.parameters_given = !is_lost && kept.bytes.first() == Some(&frontend::DESCRIBE);
        std::mem::take(&mut kept.bytes)
    }

    /// A Describe follows. Has the client already received its parameters?
    pub(super) fn take_parameters_given(&mut self) -> bool {
        self.0.as_mut().is_some_and(|kept| std::mem::take(&mut kept.parameters_given))
    }
}

/// Was a client's present request sent again, because its first server was lost or has refused it?
#[derive(Clone, Copy, Debug, Default)]
pub struct Resent(bool);

impl Resent {
    #[inline]
    pub(crate) fn is_so(self) -> bool {
        self.0
    }

    /// The request is sent again.
    pub(crate) fn note(&mut self) {
        self.0 = true;
    }

    /// The request is over.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.0 = false;
    }
}

/// The properties of a request that decide whether it may be sent again.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline {
    /// Serial number of its first message; 0 = there is no request.
    pub(super) first: u64,
    /// May it have an effect that must not happen twice?
    pub(super) has_effect: bool,
    /// Has a reader got it, and may it still refuse it? Then the writer is asked.
    pub(super) asks_writer: bool,
    /// Has a reader got it, and do the judges say that it only reads?
    pub(super) is_read: bool,
    /// The texts before it in its transaction, if it is the first there that a reader may refuse.
    pub(super) opening: Option<Box<[u8]>>,
    /// The statement that its first message, a Bind or Describe, names.
    pub(super) uses: Option<Used>,
}

impl Outline {
    /// May this request have to be sent again?
    pub(super) fn is_worth_keeping(&self) -> bool {
        self.first != 0 && (self.may_move() || self.asks_writer || self.uses.is_some())
    }

    /// May another server get it, if this one has not answered?
    pub(super) fn may_move(&self) -> bool {
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
pub(super) struct Refused {
    /// PostgreSQL's error, for the client if it turns out to be right.
    pub(super) error: ErrorFields,
    /// Was the server's copy older than the client's own Parse?
    pub(super) was_older: bool,
    /// Had the server no such statement any more? Then it has sent nothing before the error.
    pub(super) is_lost: bool,
    pub(super) end: BatchEnd,
    /// The statement's new result and parameter types.
    pub(super) shape: Option<Shape>,
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
