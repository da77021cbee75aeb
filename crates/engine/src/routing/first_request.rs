//! Finds the first whole request in the bytes of an idle client.

use wire::{Header, frontend};

/// Maximal length of a routed request; longer ones go to the writer. At most this much of an
/// incomplete request is kept, and the bytes that arrive with its end.
pub(crate) const REQUEST_LEN_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstRequest {
    /// The request is this many bytes long.
    Whole(usize),
    /// The request is incomplete.
    Partial,
    /// The request goes to the writer: it is too long or invalid, or asks for replies before its
    /// end (Flush).
    Unjudged,
    /// The client sent Terminate.
    Terminate,
}

/// Finds the end of the first request: a Query, a FunctionCall, or messages of the extended
/// protocol up to their Sync.
pub(crate) fn first_request(input: &[u8]) -> FirstRequest {
    let mut at = 0;
    loop {
        let header = match Header::parse(&input[at..]) {
            Ok(Some(header)) => header,
            Ok(None) => return FirstRequest::Partial,
            Err(_) => return FirstRequest::Unjudged,
        };
        let is_end = match header.code {
            frontend::SYNC => true,
            frontend::QUERY | frontend::FUNCTION_CALL if at == 0 => true,
            frontend::PARSE
            | frontend::BIND
            | frontend::DESCRIBE
            | frontend::EXECUTE
            | frontend::CLOSE => false,
            frontend::TERMINATE if at == 0 => return FirstRequest::Terminate,
            _ => return FirstRequest::Unjudged,
        };
        at += header.total;
        if at > REQUEST_LEN_MAX {
            return FirstRequest::Unjudged;
        }
        if at > input.len() {
            return FirstRequest::Partial;
        }
        if is_end {
            return FirstRequest::Whole(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(codes: &[u8]) -> Vec<u8> {
        codes.iter().flat_map(|code| [*code, 0, 0, 0, 6, b'x', 0]).collect()
    }

    #[test]
    fn a_query_is_a_request_of_its_own() {
        assert_eq!(first_request(&messages(b"QQ")), FirstRequest::Whole(7));
        assert_eq!(first_request(&messages(b"F")), FirstRequest::Whole(7));
    }

    #[test]
    fn a_batch_ends_with_its_sync() {
        assert_eq!(first_request(&messages(b"PBDESQ")), FirstRequest::Whole(35));
        assert_eq!(first_request(&messages(b"PBDE")), FirstRequest::Partial);
    }

    #[test]
    fn part_of_a_request_is_told_at_any_byte() {
        let batch = messages(b"PBES");
        for len in 0..batch.len() {
            assert_eq!(first_request(&batch[..len]), FirstRequest::Partial, "{len} bytes");
        }
    }

    #[test]
    fn a_client_that_waits_for_an_answer_before_the_end_is_not_kept_waiting() {
        assert_eq!(first_request(&messages(b"PH")), FirstRequest::Unjudged);
        assert_eq!(first_request(&messages(b"PQ")), FirstRequest::Unjudged);
        assert_eq!(first_request(&messages(b"d")), FirstRequest::Unjudged);
    }

    #[test]
    fn a_long_request_is_not_waited_for() {
        let length = REQUEST_LEN_MAX as u32;
        let mut query = vec![b'Q'];
        query.extend_from_slice(&length.to_be_bytes());
        assert_eq!(first_request(&query), FirstRequest::Unjudged);
    }

    #[test]
    fn a_goodbye_needs_no_server() {
        assert_eq!(first_request(&[b'X', 0, 0, 0, 4]), FirstRequest::Terminate);
    }
}
