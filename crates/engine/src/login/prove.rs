//! Authentication where only PostgreSQL knows the users (`AccessPolicy::ProvenByServer`): Weir logs
//! in to PostgreSQL with the client's password. That login takes a place in the pool and a seat
//! like any other. If there is none, the client waits in the pool's queue, and the server that it
//! gets is replaced by the login. `engine/login.rs` carries out the steps.
//!
//! ```text
//!  password ─┬─ known to be right ─► authenticated
//!            ├─ there is room ─────► login … ─► authenticated, or refused
//!            └─ queued … ─┬─ a server ─┬─ known by now ─► authenticated
//!                         │            └─ closed ─► login …
//!                         └─ a place ──► login …
//! ```
//!
//! Until a password was found right, the pool opens servers only to prove one.
//!
//! For the console, the password is proven at the database of the URL, and each time again: the
//! password or the user's rights may have changed. Only if PostgreSQL cannot be asked now, a
//! password that is known to be right is accepted.

use wire::error_fields::ErrorFields;

use crate::admission::one_pool::OnePool;
use crate::ids::{ClientId, PoolId};
use crate::login::auth::{Login, LoginStep};
use crate::own_error::judges_user;
use crate::server::ServerPurpose;
use crate::shell::Exchange;

/// The parameter that a server reports to a superuser.
const SUPERUSER: (&[u8], &[u8]) = (b"is_superuser", b"on");

/// May the user of this pool, whose password PostgreSQL has accepted, change things on the console? A
/// superuser can do anything to the only server behind it anyway.
pub(crate) fn is_superuser<X: Exchange>(pool: &mut OnePool<'_, X>) -> bool {
    let welcome = pool.lock(|pool| pool.welcome.clone());
    welcome.is_some_and(|welcome| {
        let is_it = |(name, value): &(Vec<u8>, Vec<u8>)| (&name[..], &value[..]) == SUPERUSER;
        welcome.fixed().iter().any(is_it)
    })
}

impl<X: Exchange> OnePool<'_, X> {
    /// The login that should prove this password has failed. Is the password known to be right all the
    /// same, because PostgreSQL could not be asked?
    pub(crate) fn outlives(&mut self, password: &[u8], error: &ErrorFields) -> bool {
        if !self.is_proven(password) {
            return false;
        }
        // The user may also have lost the right to connect to the database.
        if judges_user(error) || matches!(error.sqlstate(), b"42501" | b"3D000" | b"55000") {
            self.lock(|pool| pool.proven = None);
            return false;
        }
        true
    }
}

impl Login {
    /// Takes the password of this client that a login to PostgreSQL is to prove. Returns the pool for
    /// that login, and its purpose.
    pub(crate) fn take_proof(&mut self, client: ClientId) -> Option<(PoolId, ServerPurpose)> {
        let LoginStep::Proving(proving) = &mut self.step else { return None };
        proving.waiter = None;
        let password = std::mem::take(&mut proving.password);
        Some((proving.pool, ServerPurpose::Proof { client, password }))
    }
}
