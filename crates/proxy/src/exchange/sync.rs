//! The primitives of `hub.rs` and `mailbox.rs`. These files name them as `super::sync`, so the
//! model check can compile the same files with the primitives of a scheduler that tries
//! interleavings.

pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};
