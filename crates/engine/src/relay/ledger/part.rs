//! The role of a server message in the reply to one message.

use wire::backend;

use super::entry::Expect;

/// The meaning of a message for the entry at the front.
pub(super) enum Part {
    Completes,
    Belongs,
    StartsCopy,
    /// ReadyForQuery for a Sync that may have been ignored.
    Counts,
    /// Weir's question about such Syncs is answered.
    Counted,
    Fails,
    Foreign,
}

#[inline]
pub(super) fn part(expect: Expect, code: u8) -> Part {
    use backend::{
        BIND_COMPLETE, CLOSE_COMPLETE, COMMAND_COMPLETE, COPY_BOTH, COPY_DATA, COPY_DONE, COPY_IN,
        COPY_OUT, DATA_ROW, EMPTY_QUERY, ERROR, FUNCTION_CALL_RESPONSE, NO_DATA,
        PARAMETER_DESCRIPTION, PARSE_COMPLETE, PORTAL_SUSPENDED, READY_FOR_QUERY, ROW_DESCRIPTION,
    };
    match (expect, code) {
        (Expect::Query | Expect::FunctionCall | Expect::Sync, READY_FOR_QUERY) => Part::Completes,
        // A replication connection refuses the Close, and so answers it, too.
        (Expect::Count, CLOSE_COMPLETE | ERROR) => Part::Counted,
        (_, ERROR) => Part::Fails,
        (
            Expect::Query | Expect::Execute,
            DATA_ROW | COPY_DATA | COPY_OUT | COPY_BOTH | COPY_DONE,
        ) => Part::Belongs,
        (Expect::Query | Expect::Execute, COPY_IN) => Part::StartsCopy,
        (Expect::Query, ROW_DESCRIPTION | COMMAND_COMPLETE | EMPTY_QUERY) => Part::Belongs,
        (Expect::Execute, COMMAND_COMPLETE | EMPTY_QUERY | PORTAL_SUSPENDED) => Part::Completes,
        (Expect::Parse, PARSE_COMPLETE) => Part::Completes,
        (Expect::Bind, BIND_COMPLETE) => Part::Completes,
        (Expect::Close, CLOSE_COMPLETE) => Part::Completes,
        (Expect::Describe, PARAMETER_DESCRIPTION) => Part::Belongs,
        (Expect::Describe, ROW_DESCRIPTION | NO_DATA) => Part::Completes,
        (Expect::FunctionCall, FUNCTION_CALL_RESPONSE) => Part::Belongs,
        (Expect::Count, READY_FOR_QUERY) => Part::Counts,
        _ => Part::Foreign,
    }
}
