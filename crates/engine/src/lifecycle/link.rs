//! One end of the link between a client and its server. All modules can read it. `pair.rs` sets both
//! ends together, and panics if one of the two is linked already: otherwise a client could get the rows
//! of another one.

use std::ops::Deref;

use crate::ids::{ClientId, ServerId};

/// A client's server, or a server's client.
#[derive(Debug)]
pub struct Link<T>(Option<T>);

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Link<T> {
    type Target = Option<T>;

    #[inline(always)]
    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T> Link<T> {
    /// The other end is gone, or is ended next.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

/// Links a client, whose end is given with the server's id, and a server, whose end is given with the
/// client's id.
#[inline(always)]
pub(super) fn join(
    (client, on): (&mut Link<ServerId>, ServerId),
    (server, id): (&mut Link<ClientId>, ClientId),
) {
    assert!(server.is_none(), "a server was given to a second client");
    assert!(client.is_none(), "a client was given a second server");
    server.0 = Some(id);
    client.0 = Some(on);
}
