//! What workers want to know of a client that logs in, and would have to wait for: off the
//! workers, each question in a task of its own. A client that has no patience is dropped by its
//! login timeout; nobody hears the answer then.

use engine::{
    ids::{ClientId, WorkerId},
    shell::{Check, Checked},
};
use tokio::task;

use crate::{controller::Controller, shared::ShellMail, sys::process, warning};

/// A worker's question.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) worker: WorkerId,
    pub(crate) client: ClientId,
    pub(crate) serial: u64,
    pub(crate) check: Check,
}

/// Finds out and tells the worker.
pub(crate) async fn answer(inquiry: Inquiry, controller: Controller) {
    let Inquiry { worker, client, serial, check } = inquiry;
    let checked = find_out(check).await;
    let mailbox = controller.0.shared.hub.mailbox(worker);
    mailbox.post(ShellMail::Checked { client, serial, checked });
}

async fn find_out(check: Check) -> Checked {
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
    }
}
