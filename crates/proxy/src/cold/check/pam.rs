//! Asks PAM whether a password is right, and whether its user may log in now.

use std::{sync::Arc, time::Duration};

use tokio::task;

use crate::warning;
use net::sys::pam;

/// Checks with a service whether this is the user's password, and whether the user may log in from
/// `host`. The service is a file in `/etc/pam.d` or in `folder`. Returns `None` if no module could
/// check it. Also returns how long a refused client must wait, since modules slow down guessing.
pub(super) async fn accepts(
    service: Arc<str>,
    folder: Option<String>,
    user: String,
    password: String,
    host: String,
) -> (Option<bool>, Duration) {
    let asked = task::spawn_blocking(move || {
        let (user, password, host) = (&*user, &*password, &*host);
        let folder = folder.as_deref();
        pam::ask(&pam::Question { service: &service, folder, user, password, host })
    })
    .await;
    let Ok(pam::Answer { verdict, delay, said }) = asked else { return (None, Duration::ZERO) };
    for line in said {
        warning!("pam_conversation(): PAM error: {line}");
    }
    let accepted = match verdict {
        Ok(()) => Some(true),
        Err(refusal) => {
            warning!("{refusal}");
            (!refusal.is_outage()).then_some(false)
        }
    };
    (accepted, delay)
}
