//! A worker's mailbox: what other threads tell it, in order.
//!
//! Invariant: a box that is not empty has been waked for since it was last empty. The owner takes
//! everything out each time it is waked, so no mail is ever left lying and most mail costs no
//! wake at all.

use std::collections::VecDeque;

use super::sync::{Mutex, PoisonError};

/// How the owner of a box is waked: an eventfd in its epoll.
pub(crate) trait Wake {
    /// Makes the owner look into its box soon; never lost, even when it is awake just now.
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

    /// Puts mail into the box. Any thread may, the owner included.
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

    /// Takes everything out, in exchange for `spare`, which must be empty and gives its room.
    pub(crate) fn take(&self, spare: &mut VecDeque<M>) {
        debug_assert!(spare.is_empty(), "mail was not dealt with");
        std::mem::swap(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner), spare);
    }
}
