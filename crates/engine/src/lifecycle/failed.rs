//! The next messages of a client whose transaction or session was lost with its server.
//!
//! ```text
//!  Failed ─┬─ not told, and the request is no ROLLBACK ─► the error, in place of the request
//!          ├─ in a batch that has failed ─► its messages are dropped up to the Sync
//!          └─ told, in a transaction ─► a server ─► Fail (a transaction that fails) ─► Linked
//! ```
//!
//! After the error the client is in a failed transaction, as after any other error. For its next
//! request, Weir puts a server into a failed transaction and sends it the request. PostgreSQL then
//! refuses all but ROLLBACK and COMMIT (25P02).

use wire::messages::{Parse, bind_names};
use wire::{HEADER_LEN, Header, backend, bad_header, frontend};

use crate::client::{Client, ClientPhase, Extended};
use crate::ids::{ClientId, Micros};
use crate::lifecycle::loss::{Failed, Skips};
use crate::lifecycle::pair::Pair;
use crate::lifecycle::while_waiting::Steps;
use crate::relay::ending::Ending;
use crate::routing::{FirstRequest, first_request};
use crate::server::{Preparation, Server};
use crate::shell::{Exchange, Io};

/// Begins a transaction and fails in it.
const FAIL: &[u8] = b"BEGIN; ROLLBACK TO SAVEPOINT \"the transaction was lost with its server\"";

/// The next step for a failed client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More bytes are needed.
    Wait,
    /// A server in a failed transaction gets the rest.
    Serve,
    /// The failure is over. The client is like any other.
    Over,
    Terminate,
    /// A message is invalid, for this reason.
    Violation(String),
}

impl Failed {
    /// Is there nothing left to tell or to drop, and no transaction?
    pub(crate) fn is_over(&self) -> bool {
        self.error.is_none() && self.skips == Skips::Nothing && self.status == b'I'
    }

    /// Is the client outside of a transaction and of a batch, as far as it knows?
    pub(crate) fn is_between_requests(&self) -> bool {
        self.skips != Skips::ToSync && self.status == b'I'
    }

    /// Answers the client's messages, as far as that needs no server. Returns the length of these
    /// messages, whose end may not have arrived.
    fn answer(&mut self, own: Option<&Extended>, input: &[u8], out: &mut Vec<u8>) -> (usize, Next) {
        let mut at = 0;
        loop {
            if self.is_over() {
                return (at, Next::Over);
            }
            let Some(rest) = input.get(at..) else { return (at, Next::Wait) };
            let header = match Header::parse(rest) {
                Ok(Some(header)) => header,
                Ok(None) => return (at, Next::Wait),
                Err(_) => return (at, Next::Violation(bad_header(rest))),
            };
            match header.code {
                frontend::TERMINATE => return (at, Next::Terminate),
                // Outside a copy these are ignored.
                frontend::COPY_DATA => {}
                frontend::COPY_DONE | frontend::COPY_FAIL => self.end_copy(),
                _ if self.skips == Skips::Copy => {
                    self.end_copy();
                    continue;
                }
                frontend::SYNC if self.skips == Skips::ToSync => {
                    self.skips = Skips::Nothing;
                    backend::ready_for_query(out, self.status);
                }
                _ if self.skips == Skips::ToSync => {}
                _ => match first_request(rest) {
                    _ if self.error.is_none() => return (at, Next::Serve),
                    FirstRequest::Whole(len) => {
                        let ending = ending_of(&rest[..len], own);
                        if self.status == b'E' && ending == Ending::Rollback {
                            self.error = None;
                            return (at, Next::Serve);
                        }
                        if ending == Ending::Commit {
                            self.status = b'I';
                        }
                        self.tell(out);
                        backend::ready_for_query(out, self.status);
                        at += len;
                        continue;
                    }
                    FirstRequest::Unjudged => {
                        self.tell(out);
                        match header.code {
                            frontend::QUERY | frontend::FUNCTION_CALL => {
                                backend::ready_for_query(out, self.status);
                            }
                            _ => self.skips = Skips::ToSync,
                        }
                    }
                    FirstRequest::Partial | FirstRequest::Terminate => return (at, Next::Wait),
                },
            }
            at += header.total;
        }
    }

    fn end_copy(&mut self) {
        if self.skips == Skips::Copy {
            self.skips = Skips::Nothing;
        }
    }

    fn tell(&mut self, out: &mut Vec<u8>) {
        self.error.take().iter().for_each(|error| backend::error(out, error));
    }
}

impl Client {
    /// Is it in a transaction or a batch that has no server, as far as it knows?
    pub(crate) fn is_in_lost_request(&self) -> bool {
        self.while_waiting.is_due(Steps::FAILS | Steps::BEGINS)
            || matches!(&*self.phase, ClientPhase::Failed(failed) if !failed.is_between_requests())
    }

    /// Reads bytes of a client whose transaction or session was lost.
    pub(crate) fn failed_bytes<X: Exchange>(
        &mut self,
        id: ClientId,
        bytes: &[u8],
        io: &mut impl Io<X>,
    ) -> Next {
        self.times.request_came(io.now());
        let Some(mut failed) = self.phase.take_failed() else { return Next::Wait };
        let bytes = &bytes[self.stream.take_body(bytes)..];
        let joined = self.stream.take_joined(bytes);
        let input = joined.as_deref().unwrap_or(bytes);
        let mut out = Vec::new();
        let (len, next) = failed.answer(self.extended.as_deref(), input, &mut out);
        let there = len.min(input.len());
        let missing = len - there;
        self.stream.hold_rest(joined, bytes, there);
        if missing > 0 {
            self.stream.handled(missing, true);
        }
        if !out.is_empty() {
            io.send_client(id, &out);
        }
        match next {
            Next::Wait => self.phase.lose(failed),
            Next::Serve => self.while_waiting.plan(Steps::FAILS),
            Next::Over | Next::Terminate | Next::Violation(_) => {}
        }
        next
    }

    /// Begins to use a server that was to be put into a failed transaction. Returns false if it is in
    /// none.
    pub(crate) fn begin_failed(&mut self, server: &mut Server, now: Micros) -> bool {
        server.own_error.take();
        if !server.status.is_failed() {
            return false;
        }
        self.while_waiting.done(Steps::FAILS);
        self.times.transaction_begins(now);
        true
    }

    /// Its server is lost. `failed`: what it is told, and what it may not do.
    pub(crate) fn fail(&mut self, failed: Failed) {
        match failed.is_over() {
            true => self.phase.unlink(),
            false => self.phase.lose(Box::new(failed)),
        }
    }
}

impl<X: Exchange> Pair<'_, X> {
    /// Puts the server into a failed transaction. Everything else is prepared for its client.
    #[cold]
    pub(crate) fn fail_transaction(&mut self, io: &mut impl Io<X>) {
        self.server.phase.prepare(Preparation::Fail);
        self.server.send_own_query(self.on, FAIL, self.context, io);
    }
}

/// Returns the effect of a whole request on its transaction, as far as the texts are known.
fn ending_of(mut request: &[u8], own: Option<&Extended>) -> Ending {
    let mut ending = Ending::None;
    let mut parsed: Vec<(&[u8], &[u8])> = Vec::new();
    while let Ok(Some(header)) = Header::parse(request) {
        let Some((message, rest)) = request.split_at_checked(header.total) else { break };
        request = rest;
        let body = &message[HEADER_LEN..];
        match header.code {
            frontend::QUERY => ending = ending.then(Ending::of(body)),
            frontend::PARSE => {
                parsed.extend(Parse::decode(body).map(|parse| (parse.name, parse.sql)));
            }
            frontend::BIND => {
                let Some((_, name, _)) = bind_names(body) else { continue };
                let here = parsed.iter().rfind(|(its, _)| *its == name).map(|(_, text)| *text);
                let text = here.or_else(|| own?.text_of(name)).unwrap_or_default();
                ending = ending.then(Ending::of(text));
            }
            _ => {}
        }
    }
    ending
}

#[cfg(test)]
mod tests {
    use wire::ErrorFields;

    use super::*;

    fn query(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        frontend::query(&mut out, text.as_bytes());
        out
    }

    /// A batch that prepares and executes these texts.
    fn batch(texts: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for text in texts {
            frontend::parse(&mut out, b"", text.as_bytes(), frontend::NO_TYPES);
            frontend::bind_text(&mut out, b"", &[]);
            frontend::execute(&mut out, b"", 0);
        }
        frontend::sync(&mut out);
        out
    }

    fn failed(is_told: bool, skips: bool, status: u8) -> Failed {
        let skips = if skips { Skips::ToSync } else { Skips::Nothing };
        let error = ErrorFields::new("ERROR", "40001", "lost");
        Failed { error: Some(error).filter(|_| !is_told), skips, status }
    }

    /// Returns the codes of the answers, with the status of each ReadyForQuery, and what is next.
    fn answer(mut failed: Failed, input: &[u8]) -> (String, usize, Next) {
        let mut out = Vec::new();
        let (len, next) = failed.answer(None, input, &mut out);
        let mut said = String::new();
        let mut rest = &out[..];
        while let Ok(Some(header)) = Header::parse(rest) {
            said.push(char::from(header.code));
            if header.code == backend::READY_FOR_QUERY {
                said.push(char::from(rest[HEADER_LEN]));
            }
            rest = &rest[header.total..];
        }
        (said, len, next)
    }

    #[test]
    fn the_first_request_is_refused_unless_it_rolls_back() {
        for (request, said, next) in [
            (query("SELECT 1"), "EZE", Next::Wait),
            (query("COMMIT"), "EZI", Next::Over),
            (query("ROLLBACK"), "", Next::Serve),
            (query("ROLLBACK TO a"), "EZE", Next::Wait),
            (batch(&["SELECT 1"]), "EZE", Next::Wait),
            (batch(&["COMMIT"]), "EZI", Next::Over),
            (batch(&["ROLLBACK"]), "", Next::Serve),
            (batch(&["ROLLBACK", "SELECT 1"]), "EZI", Next::Over),
        ] {
            let (got, len, then) = answer(failed(false, false, b'E'), &request);
            assert_eq!((got.as_str(), &then), (said, &next), "{request:?}");
            assert_eq!(len, if next == Next::Serve { 0 } else { request.len() });
        }
    }

    #[test]
    fn a_request_after_the_error_needs_a_server() {
        let request = query("SELECT 1");
        let twice = [request.clone(), request.clone()].concat();
        let (said, len, next) = answer(failed(false, false, b'E'), &twice);
        assert_eq!((said.as_str(), len, next), ("EZE", request.len(), Next::Serve));
        assert_eq!(answer(failed(true, false, b'E'), &request), (String::new(), 0, Next::Serve));
    }

    #[test]
    fn without_a_transaction_one_request_is_refused() {
        for request in [query("ROLLBACK"), query("SELECT 1"), batch(&["SELECT 1"])] {
            let (said, len, next) = answer(failed(false, false, b'I'), &request);
            assert_eq!((said.as_str(), len, next), ("EZI", request.len(), Next::Over));
        }
    }

    #[test]
    fn a_failed_batch_ends_with_its_sync() {
        let (mut rest, mut copy) = (batch(&["SELECT 1"]), Vec::new());
        let (said, len, next) = answer(failed(true, true, b'E'), &rest);
        assert_eq!((said.as_str(), len, next), ("ZE", rest.len(), Next::Wait));
        assert_eq!(answer(failed(true, true, b'I'), &rest).2, Next::Over);
        frontend::copy_data(&mut copy, b"1\n");
        assert_eq!(answer(failed(false, false, b'E'), &copy), (String::new(), 7, Next::Wait));
        rest.truncate(rest.len() - 5);
        assert_eq!(answer(failed(false, false, b'E'), &rest).2, Next::Wait);
        // It waits for the answers before it sends its Sync.
        frontend::flush(&mut rest);
        let (said, len, next) = answer(failed(false, false, b'E'), &rest);
        assert_eq!((said.as_str(), len, next), ("E", rest.len(), Next::Wait));
    }

    #[test]
    fn the_rest_of_a_copy_is_dropped() {
        let copying = || Failed { error: None, skips: Skips::Copy, status: b'I' };
        let (mut data, mut done, request) = (Vec::new(), vec![b'c', 0, 0, 0, 4], query("SELECT 1"));
        frontend::copy_data(&mut data, b"1\n");
        assert_eq!(answer(copying(), &data), (String::new(), data.len(), Next::Wait));
        let copied = [&data[..], &done, &request].concat();
        let len = data.len() + done.len();
        assert_eq!(answer(copying(), &copied), (String::new(), len, Next::Over));
        // Its next message is of no copy: it knows that the copy has failed.
        assert_eq!(answer(copying(), &request), (String::new(), 0, Next::Over));
        let in_transaction = Failed { status: b'E', ..copying() };
        done.extend(query("ROLLBACK"));
        assert_eq!(answer(in_transaction, &done), (String::new(), 5, Next::Serve));
    }

    #[test]
    fn a_long_request_is_refused_before_its_end() {
        let long = query(&format!("SELECT '{}'", "x".repeat(100_000)));
        let (said, len, next) = answer(failed(false, false, b'E'), &long[..10_000]);
        assert_eq!((said.as_str(), len, next), ("EZE", long.len(), Next::Wait));
    }
}
