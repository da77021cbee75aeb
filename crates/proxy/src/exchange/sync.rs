//! The primitives that `hub.rs` and `mailbox.rs` are built of. Those two files name them as
//! `super::sync`, so that the model check can compile the very same files against the primitives
//! of a scheduler that tries all interleavings.

pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};
