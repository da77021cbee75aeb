//! Portals of a client that may discard prepared statements when they are executed. An Execute names
//! only a portal, so Weir notes it when the portal is bound.

use std::sync::Arc;

/// The portals that may discard statements.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Discarding {
    unnamed: bool,
    /// Any named portal.
    named: bool,
    /// The name that the unnamed portal deallocates, if it does nothing else.
    deallocates: Option<Arc<[u8]>>,
}

/// The statements that an Execute may discard.
pub(crate) enum Discards {
    Nothing,
    /// This statement's name, and no other.
    Name(Arc<[u8]>),
    Any,
}

impl Discarding {
    pub(crate) fn is_empty(&self) -> bool {
        !self.unnamed && !self.named && self.deallocates.is_none()
    }

    /// A transaction begins: a named portal lives until its transaction ends.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }

    /// The unnamed portal is bound. `name`: the name that it deallocates, if it does nothing else.
    pub(crate) fn bind_unnamed(&mut self, discards: bool, name: Option<Arc<[u8]>>) {
        (self.unnamed, self.deallocates) = (discards, name);
    }

    /// A named portal is bound.
    pub(crate) fn bind_named(&mut self, discards: bool) {
        self.named |= discards;
    }

    /// A portal is executed. Its name is not examined.
    #[inline]
    pub(crate) fn execute(&mut self) -> Discards {
        if !self.unnamed && !self.named {
            return Discards::Nothing;
        }
        match self.deallocates.take().filter(|_| !self.named) {
            Some(name) => Discards::Name(name),
            None => Discards::Any,
        }
    }
}
