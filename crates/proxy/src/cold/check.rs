//! Checks of a login that would block a worker, each in a task of its own. A login timeout may
//! disconnect the client before the result arrives.
//!
//! Questions to an authentication service wait in a queue per kind of service. So many clients
//! neither overload a service nor fill the memory.

use engine::{
    auth::{Judge, Password},
    shell::{Check, Checked},
};
use tokio::{sync::Semaphore, task, time};

use crate::{
    cold::controller::Controller,
    exchange::{mail::ShellMail, requests::Inquiry},
    warning,
};
use net::sys::process;

mod ldap;
mod pam;

/// Maximal number of questions in a queue, including those being answered. Further logins are
/// refused. A question is as long as a password, 2 KiB at most.
const QUEUE_LEN_MAX: usize = 1000;

/// Maximal number of questions to LDAP servers at a time.
const LDAP_TURNS: usize = 16;

/// PAM modules need not be thread-safe: one question at a time, as in PgBouncer.
const PAM_TURNS: usize = 1;

static LDAP: Queue = Queue::new(LDAP_TURNS);
static PAM: Queue = Queue::new(PAM_TURNS);

/// Does the check and sends the result to the worker.
pub(crate) async fn answer(inquiry: Inquiry, controller: Controller) {
    let Inquiry { worker, client, serial, check, host } = inquiry;
    let checked = find_out(check, host, &controller).await;
    let mailbox = controller.0.shared.hub.mailbox(worker);
    mailbox.post(ShellMail::Checked { client, serial, checked });
}

async fn find_out(check: Check, host: String, controller: &Controller) -> Checked {
    match check {
        Check::PeerName(uid) => {
            // Names may come over the network (nsswitch.conf).
            let found = task::spawn_blocking(move || process::user_by_id(uid)).await;
            Checked::PeerName(match found {
                Ok(Ok(name)) => name,
                Ok(Err(error)) => {
                    warning!("cannot look up the name of user {uid}: {error}");
                    None
                }
                Err(_) => None,
            })
        }
        Check::Password { judge, user, password: Password(password) } => {
            Checked::Password(match judge {
                Judge::Ldap(options) => {
                    let asked = LDAP.take_turn("LDAP", ldap::accepts(&options, &user, &password));
                    asked.await.flatten()
                }
                Judge::Pam(service) => {
                    let folder = controller.config().global.auth_pam_confdir.clone();
                    let asked = pam::accepts(service, folder, user, password, host);
                    let asked = PAM.take_turn("PAM", asked).await;
                    let (accepted, delay) = asked.unwrap_or_default();
                    // Only this client waits.
                    time::sleep(delay).await;
                    accepted
                }
            })
        }
    }
}

/// The questions for a service, in the order of arrival.
struct Queue {
    room: Semaphore,
    turns: Semaphore,
}

impl Queue {
    const fn new(turns: usize) -> Self {
        Self { room: Semaphore::const_new(QUEUE_LEN_MAX), turns: Semaphore::const_new(turns) }
    }

    /// Runs `work` in its turn and returns its result; None if the queue is full.
    async fn take_turn<T>(&self, judge: &str, work: impl Future<Output = T>) -> Option<T> {
        let Ok(_place) = self.room.try_acquire() else {
            warning!("{judge} queue is full");
            return None;
        };
        let _turn = self.turns.acquire().await.ok()?;
        Some(work.await)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[test]
    fn a_queue_has_limits_on_running_and_on_waiting_questions() {
        let queue = Queue::new(2);
        let mut now = Context::from_waker(Waker::noop());
        let mut first = pin!(queue.take_turn("a judge", future::pending::<bool>()));
        let mut second = pin!(queue.take_turn("a judge", future::ready(true)));
        assert!(first.as_mut().poll(&mut now).is_pending());
        assert!(second.as_mut().poll(&mut now).is_ready());
        let mut waiting: Vec<_> = (1..QUEUE_LEN_MAX)
            .map(|_| Box::pin(queue.take_turn("a judge", future::pending::<bool>())))
            .collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().poll(&mut now).is_pending()));
        let mut beyond = pin!(queue.take_turn("a judge", future::ready(true)));
        assert_eq!(beyond.as_mut().poll(&mut now), Poll::Ready(None));
        // The place of a question that has ended is free for the next one.
        waiting.clear();
        let mut next = pin!(queue.take_turn("a judge", future::ready(true)));
        assert_eq!(next.as_mut().poll(&mut now), Poll::Ready(Some(true)));
    }
}
