//! The dangerous names of a database, as a judge of texts looks them up.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::name::Name;
use crate::names::digest;

/// The dangerous names of a database.
#[derive(Clone, Debug, Default)]
pub struct CatalogView {
    pub(super) names: HashSet<u64, FixedState>,
    pub(super) operators: HashSet<u64, FixedState>,
    /// A dangerous name has letters beyond ASCII. A client may write them in another encoding, so
    /// all such names in a text count as dangerous.
    pub(super) beyond_ascii: bool,
}

impl CatalogView {
    pub(crate) fn has_name(&self, name: &Name) -> bool {
        self.names.contains(&name.digest()) || self.beyond_ascii && !name.as_bytes().is_ascii()
    }

    pub(crate) fn has_operator(&self, operator: &[u8]) -> bool {
        !self.operators.is_empty() && self.operators.contains(&digest(operator))
    }

    /// Returns the number of dangerous names.
    pub fn len(&self) -> usize {
        self.names.len() + self.operators.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
