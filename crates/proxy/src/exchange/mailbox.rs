//! A worker's mailbox: messages of other threads, in order.
//!
//! Invariant: the owner of a non-empty box has been waked since the box was last empty. When waked,
//! the owner takes everything out. So no mail is forgotten, and most mail needs no wake-up.

use std::collections::VecDeque;

use super::sync::{Mutex, PoisonError};

/// Wakes the owner of a box: an eventfd in its epoll.
pub(crate) trait Wake {
    /// Makes the owner look into its box soon; never lost, even if it is running.
    fn wake(&self);
}

#[derive(Debug)]
pub(crate) struct Mailbox<M, W> {
    mail: Mutex<VecDeque<M>>,
    wake: W,
}

impl<M, W: Wake> Mailbox<M, W> {
    pub(crate) fn new(wake: W) -> Self {
        Self { mail: Mutex::new(VecDeque::new()), wake }
    }

    pub(crate) fn waker(&self) -> &W {
        &self.wake
    }

    /// Puts mail into the box. Any thread may call it, including the owner.
    pub(crate) fn post(&self, mail: M) {
        let was_empty = {
            let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push_back(mail);
            waiting.len() == 1
        };
        if was_empty {
            self.wake.wake();
        }
    }

    /// Takes everything out. `spare` must be empty, and its capacity is used for the box.
    pub(crate) fn take(&self, spare: &mut VecDeque<M>) {
        debug_assert!(spare.is_empty(), "mail was not dealt with");
        std::mem::swap(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner), spare);
    }
}
