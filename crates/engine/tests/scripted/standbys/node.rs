//! A node: how much of the log it has, and the requests that it has not answered.

use std::collections::{BTreeMap, VecDeque};

use engine::routing::freshness::Position;
use wire::{HEADER_LEN, Header, frontend};

/// A request at a server connection.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) text: String,
    /// The commits that the node had when the request arrived: its snapshot, if it is a read.
    pub(super) seen: usize,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    /// The number of commits that it has.
    pub(super) commits: usize,
    /// It answers nobody.
    pub(super) is_silent: bool,
    /// Weir has lost its own connection to it, and has not asked it again.
    pub(super) is_lost: bool,
    /// It streams from the primary.
    pub(super) follows: bool,
    /// Weir's connection to it is as old as the last loss: the position at its last sample.
    pub(super) sampled: Option<Position>,
    /// By the number of the server connection.
    pub(super) requests: BTreeMap<usize, VecDeque<Request>>,
}

impl Node {
    /// Takes bytes that Weir has sent on a server connection.
    pub(super) fn take(&mut self, server: usize, mut bytes: &[u8]) {
        while let Ok(Some(header)) = Header::parse(bytes) {
            let body = &bytes[HEADER_LEN..header.total];
            if header.code == frontend::QUERY {
                let text = String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body));
                let request = Request { text: text.into_owned(), seen: self.commits };
                self.requests.entry(server).or_default().push_back(request);
            }
            bytes = &bytes[header.total..];
        }
    }
}

/// Returns the position of a node with so many commits.
pub(super) fn position(commits: usize) -> Position {
    1_000 + 100 * commits as Position
}
