//! Finds out whether a reader refuses a request. PostgreSQL's standbys refuse what they cannot do
//! before it has an effect: a write, a lock, a serializable transaction. The error may follow
//! messages that do not depend on the outcome, such as ParseComplete and RowDescription, or the end of
//! a BEGIN. Weir holds these until the outcome is known.

use wire::error_fields::ErrorFields;
use wire::messages::CommandComplete;
use wire::{HEADER_LEN, Header, backend};

use crate::relay::kept_request::is_changed_result;

/// No more bytes of a reader's replies are held. A standby's error is shorter.
const HELD_LEN_MAX: usize = 65_536;

/// The verdict on a reader's replies to a request, as far as they have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The replies do not show the outcome yet.
    Open,
    /// The reader answers the request, perhaps with an error that the writer would give, too.
    Answers,
    /// The reader refuses the request, and these are all its replies. They end with this
    /// transaction status.
    Refuses(u8),
    /// The reader has run so many commands that begin a transaction or read nothing in it. The
    /// transaction goes on.
    Opens(usize),
    /// The reader ends the session.
    Leaves,
}

/// Reads the replies to a request from their beginning. `is_read`: the judges say that it only reads.
pub(super) fn word(replies: &[u8], is_read: bool) -> Word {
    let (mut at, mut refuses, mut reports, mut commands) = (0, false, false, 0);
    loop {
        let rest = &replies[at..];
        let header = match Header::parse(rest) {
            Ok(Some(header)) if depends_on_outcome(header.code, refuses) => return Word::Answers,
            Ok(Some(header)) if header.total <= rest.len() => header,
            // The rest is not there yet.
            Ok(_) if replies.len() < HELD_LEN_MAX => return Word::Open,
            Ok(_) | Err(_) => return Word::Answers,
        };
        let body = &rest[HEADER_LEN..header.total];
        match (header.code, body) {
            (backend::READY_FOR_QUERY, [status]) if refuses => return Word::Refuses(*status),
            (backend::READY_FOR_QUERY, b"T") if !reports => return Word::Opens(commands),
            (backend::READY_FOR_QUERY, _) => return Word::Answers,
            (backend::COMMAND_COMPLETE, _) if is_opening(body) => commands += 1,
            (backend::COMMAND_COMPLETE, _) => return Word::Answers,
            // The client hears of a value that another server does not have.
            (backend::PARAMETER_STATUS, _) => reports = true,
            (backend::ERROR, _) => {
                let Ok(error) = ErrorFields::decode(body) else { return Word::Answers };
                if error.ends_session() {
                    return Word::Leaves;
                }
                // The writer, too, refuses a statement whose result has changed.
                if !is_refusal(error.sqlstate(), is_read) || is_changed_result(&error) {
                    return Word::Answers;
                }
                refuses = true;
            }
            _ => {}
        }
        at += header.total;
    }
}

/// Does PostgreSQL send this message only if it executes the request, or after it has refused it?
fn depends_on_outcome(code: u8, refuses: bool) -> bool {
    match code {
        backend::ERROR | backend::COMMAND_COMPLETE => return refuses,
        _ => {}
    }
    !matches!(
        code,
        backend::PARSE_COMPLETE
            | backend::BIND_COMPLETE
            | backend::CLOSE_COMPLETE
            | backend::PARAMETER_DESCRIPTION
            | backend::ROW_DESCRIPTION
            | backend::NO_DATA
            | backend::COPY_OUT
            | backend::PARAMETER_STATUS
            | backend::NOTICE
            | backend::NOTIFICATION
            | backend::READY_FOR_QUERY
    )
}

/// Does this CommandComplete belong to a command that the writer can run as well, in the same
/// transaction?
fn is_opening(body: &[u8]) -> bool {
    let tag = CommandComplete::decode(body).map_or(&b""[..], |done| done.tag);
    matches!(tag, b"BEGIN" | b"START TRANSACTION" | b"SET" | b"SAVEPOINT")
}

/// May the writer do what a standby fails to do with this SQLSTATE? Measured on PostgreSQL 15. The
/// node may have been promoted a moment ago. Then a procedure may have committed before another error
/// than the first of these.
fn is_refusal(sqlstate: &[u8], is_read: bool) -> bool {
    // Writes, row locks, sequences, NOTIFY, LISTEN, LOCK, VACUUM.
    sqlstate == b"25006"
        || is_read
            && matches!(
                sqlstate,
                // Serializable transactions, BEGIN READ WRITE, unlogged tables.
                b"0A000"
            // Questions about the position of the write-ahead log.
            | b"55000"
            // Large objects.
            | b"XX000"
            // Conflicts with the replay of the write-ahead log.
            | b"40001"
            | b"40P01"
            // Tables, columns, functions and schemas that the standby does not have yet.
            | b"42P01"
            | b"42703"
            | b"42883"
            | b"3F000"
            )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![code];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        message
    }

    fn error(severity: &str, sqlstate: &str) -> Vec<u8> {
        let mut message = Vec::new();
        backend::error(&mut message, &ErrorFields::new(severity, sqlstate, "no"));
        message
    }

    fn preface() -> Vec<u8> {
        [message(b'1', b""), message(b'2', b""), message(b'T', b"\0\0")].concat()
    }

    fn ready() -> Vec<u8> {
        message(b'Z', b"I")
    }

    #[test]
    fn a_refusal_is_known_when_its_last_message_is_there() {
        let replies = [preface(), error("ERROR", "25006"), ready()].concat();
        for len in 0..replies.len() {
            assert_eq!(word(&replies[..len], true), Word::Open, "{len}");
        }
        assert_eq!(word(&replies, true), Word::Refuses(b'I'));
    }

    #[test]
    fn what_shows_that_the_request_is_executed_is_an_answer() {
        for (code, body) in
            [(b'D', "\0\0"), (b'C', "SELECT 0\0"), (b'Z', "I"), (b'I', ""), (b's', "")]
        {
            let replies = [preface(), message(code, body.as_bytes())].concat();
            assert_eq!(word(&replies, true), Word::Answers, "{code}");
        }
        let replies = [preface(), error("ERROR", "22012"), ready()].concat();
        assert_eq!(word(&replies, true), Word::Answers);
    }

    #[test]
    fn a_request_that_may_have_committed_is_refused_as_a_write_alone() {
        for (sqlstate, word_of_write) in [("25006", Word::Refuses(b'I')), ("42P01", Word::Answers)]
        {
            let replies = [error("ERROR", sqlstate), ready()].concat();
            assert_eq!(word(&replies, true), Word::Refuses(b'I'));
            assert_eq!(word(&replies, false), word_of_write, "{sqlstate}");
        }
    }

    #[test]
    fn commands_that_open_a_transaction_are_told_apart() {
        let tag = |tag: &str| message(b'C', format!("{tag}\0").as_bytes());
        let end = |status: &str| message(b'Z', status.as_bytes());
        let begin = [message(b'1', b""), message(b'2', b""), tag("BEGIN")].concat();
        for (replies, expected) in [
            (vec![begin.clone(), end("T")], Word::Opens(1)),
            (vec![begin.clone(), tag("SET"), tag("SAVEPOINT"), end("T")], Word::Opens(3)),
            (vec![message(b'1', b""), end("T")], Word::Opens(0)),
            (vec![begin.clone(), tag("COMMIT"), end("I")], Word::Answers),
            (vec![tag("SET"), end("I")], Word::Answers),
            (vec![begin.clone(), tag("LISTEN"), end("T")], Word::Answers),
            (vec![begin.clone(), error("ERROR", "25006"), end("E")], Word::Refuses(b'E')),
            (vec![begin.clone(), error("ERROR", "22012"), end("E")], Word::Answers),
        ] {
            let replies = replies.concat();
            assert_eq!(word(&replies, true), expected, "{replies:?}");
            assert_eq!(word(&replies[..5], true), Word::Open);
        }
    }

    #[test]
    fn a_row_is_an_answer_before_all_of_it_is_there() {
        let row = message(b'D', &vec![0; HELD_LEN_MAX]);
        assert_eq!(word(&[preface(), row[..5].to_vec()].concat(), true), Word::Answers);
    }

    #[test]
    fn a_changed_result_is_an_answer() {
        let mut fields = ErrorFields::new("ERROR", "0A000", "cached plan must not change ...");
        fields.replace(b'R', b"RevalidateCachedQuery".as_slice());
        let mut replies = Vec::new();
        backend::error(&mut replies, &fields);
        assert_eq!(word(&replies, true), Word::Answers);
    }

    #[test]
    fn an_end_of_the_session_is_no_refusal() {
        let replies = [preface(), error("FATAL", "57P01")].concat();
        assert_eq!(word(&replies, true), Word::Leaves);
    }

    #[test]
    fn no_more_than_the_limit_is_held() {
        let mut replies = message(b'N', &vec![b'x'; HELD_LEN_MAX]);
        replies.truncate(HELD_LEN_MAX - 1);
        assert_eq!(word(&replies, true), Word::Open);
        replies.push(b'x');
        assert_eq!(word(&replies, true), Word::Answers);
    }

    #[test]
    fn replies_that_are_no_messages_are_passed_on() {
        assert_eq!(word(b"1\0\0\0\x03", true), Word::Answers);
    }
}
