//! A worker's table of descriptors, which finds the connection of each, and the tokens for epoll.
//!
//! A descriptor number is reused. Each use has its own generation, so that events of an earlier use
//! are recognised.

use std::os::fd::{AsRawFd as _, RawFd};

use engine::ids::PoolId;

use crate::exchange::transport::Transport;

/// The present use of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not in use.
    #[default]
    Free,
    /// A client, by its slot.
    Client(u32),
    /// A server, by its slot.
    Server(u32),
    /// An idle server of this pool, or one that was idle and has moved to another worker.
    Parked(PoolId),
    /// A cancel request on its way to PostgreSQL.
    Cancel,
    /// A client that has left, with unsent output.
    Lingering,
    /// A server whose backend was told to end.
    Departing,
    /// A listening socket, by its number.
    Listener(u32),
    /// The mailbox's eventfd.
    Wake,
}

/// One use of a descriptor. The default stands for no use, since generations begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    fn new(fd: RawFd, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(fd.cast_unsigned()))
    }

    pub(crate) fn from_u64(token: u64) -> Self {
        Self(token)
    }

    pub(crate) fn to_u64(self) -> u64 {
        self.0
    }

    pub(crate) fn fd(self) -> RawFd {
        (self.0 as u32).cast_signed()
    }

    /// Returns the token of a server at its home.
    pub(crate) fn of(transport: &Transport) -> Self {
        Self::new(transport.fd.as_raw_fd(), transport.generation)
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    generation: u32,
    kind: Kind,
}

#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Entry>);

impl Table {
    /// Begins a new use of `fd`.
    pub(crate) fn register(&mut self, fd: RawFd, kind: Kind) -> Token {
        let at = fd as usize;
        if at >= self.0.len() {
            self.0.resize_with((at + 1).next_power_of_two(), Entry::default);
        }
        let entry = &mut self.0[at];
        *entry = Entry { generation: entry.generation.wrapping_add(1), kind };
        Token::new(fd, entry.generation)
    }

    /// Returns the use of the descriptor, or `Free` if the token is of an earlier use.
    #[inline]
    pub(crate) fn kind(&self, token: Token) -> Kind {
        match self.0.get(token.fd() as usize) {
            Some(entry) if entry.generation == token.generation() => entry.kind,
            _ => Kind::Free,
        }
    }

    /// Changes the kind within the same use.
    #[inline]
    pub(crate) fn change(&mut self, token: Token, kind: Kind) {
        let entry = &mut self.0[token.fd() as usize];
        debug_assert_eq!(entry.generation, token.generation(), "a descriptor of another use");
        entry.kind = kind;
    }

    /// Returns the present use of `fd`, which must be registered.
    #[inline]
    pub(crate) fn token(&self, fd: RawFd) -> Token {
        Token::new(fd, self.0[fd as usize].generation)
    }

    /// Ends the present use of `fd`, if there is one.
    pub(crate) fn clear(&mut self, fd: RawFd) {
        if let Some(entry) = self.0.get_mut(fd as usize) {
            entry.kind = Kind::Free;
        }
    }

    /// Returns the descriptors of this worker's connections, to close them at its end.
    pub(crate) fn connections(&self) -> impl Iterator<Item = RawFd> {
        let is_own = |kind| {
            matches!(
                kind,
                Kind::Client(_)
                    | Kind::Server(_)
                    | Kind::Cancel
                    | Kind::Lingering
                    | Kind::Departing
            )
        };
        let numbered = self.0.iter().enumerate();
        numbered.filter(move |(_, entry)| is_own(entry.kind)).map(|(at, _)| at as RawFd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_an_earlier_use_is_recognised() {
        let mut table = Table::default();
        let first = table.register(7, Kind::Client(1));
        assert_eq!(table.kind(first), Kind::Client(1));
        table.clear(7);
        assert_eq!(table.kind(first), Kind::Free);
        let second = table.register(7, Kind::Server(2));
        assert_eq!((table.kind(first), table.kind(second)), (Kind::Free, Kind::Server(2)));
        assert_eq!(table.token(7), second);
    }

    #[test]
    fn a_change_within_one_use_keeps_its_token() {
        let mut table = Table::default();
        let token = table.register(300, Kind::Server(2));
        table.change(token, Kind::Parked(PoolId(9)));
        assert_eq!(table.kind(token), Kind::Parked(PoolId(9)));
    }
}
