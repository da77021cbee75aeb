//! A client's own pool, and the role that it has logged in as: the role of the pool's servers may
//! change later. Also, does the client count in the limits on clients?

use crate::ids::PoolId;

/// The pool of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Membership {
    /// Set when the client is authenticated.
    pool: Option<PoolId>,
    /// The pool's count of changes of its role when the client came to the pool.
    role_changes: u16,
    /// Does the client count in the limits on clients, under its identity?
    is_counted: bool,
}

impl Membership {
    /// The client comes to this pool, whose count of changes of its role is `role_changes`.
    pub(crate) fn enter(&mut self, pool: PoolId, role_changes: u16) {
        (self.pool, self.role_changes) = (Some(pool), role_changes);
    }

    pub(crate) fn is_counted(self) -> bool {
        self.is_counted
    }

    pub(crate) fn count(&mut self) {
        self.is_counted = true;
    }

    /// Ends counting the client. Returns whether it was counted.
    pub(crate) fn uncount(&mut self) -> bool {
        std::mem::take(&mut self.is_counted)
    }

    /// The client is welcomed by a server that was opened at this count.
    #[inline]
    pub(crate) fn welcomed_at(&mut self, role_changes: u16) {
        self.role_changes = role_changes;
    }

    /// Returns the pool, if the client is authenticated.
    #[inline(always)]
    pub fn id(&self) -> Option<PoolId> {
        self.pool
    }

    /// Is this the client's pool?
    #[inline]
    pub(crate) fn is(&self, pool: PoolId) -> bool {
        self.pool == Some(pool)
    }

    /// Has the client logged in as another role than a server that was opened at this count?
    #[inline]
    pub(crate) fn has_another_role(&self, role_changes: u16) -> bool {
        self.role_changes != role_changes
    }
}
