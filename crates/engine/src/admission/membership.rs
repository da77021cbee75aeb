//! A client's own pool, and the role that it has logged in as: the role of the pool's servers may
//! change later.

use crate::ids::PoolId;

/// The pool of a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Membership {
    /// Set when the client is authenticated.
    pool: Option<PoolId>,
    /// The pool's count of changes of its role when the client came to the pool.
    role_changes: u16,
}

impl Membership {
    /// Returns the membership of a client that comes to this pool, whose count of changes of its role
    /// is `role_changes`.
    pub(crate) fn of(pool: PoolId, role_changes: u16) -> Self {
        Self { pool: Some(pool), role_changes }
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
