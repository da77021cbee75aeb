//! What crosses threads between workers: pools behind their locks, and mailboxes.

pub(crate) mod hub;
pub(crate) mod mailbox;
#[cfg(test)]
mod model;
mod sync;
