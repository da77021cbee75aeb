//! The last message of a server whose client goes on without it.

use wire::error_fields::ErrorFields;

use super::Replies;
use crate::lifecycle::lost::{outlives, says_farewell};

impl Replies<'_, '_> {
    /// Does PostgreSQL end, and the client go on without this server? Then the client is not told
    /// that its connection ends.
    pub(super) fn is_outlived(&self, error: Option<&ErrorFields>) -> bool {
        let client = self.client.as_deref();
        error.is_some_and(says_farewell)
            && client.is_some_and(|client| outlives(client, self.server, self.settings))
    }
}
