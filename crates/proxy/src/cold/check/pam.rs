//! Asks PAM whether a password is right, and whether its user may log in now. The service is
//! `pgbouncer`, because existing machines have their rules there.

use std::time::Duration;

use tokio::task;

use crate::warning;
use net::sys::pam;

/// The name of the file in `/etc/pam.d` or in `auth_pam_confdir`, as for PgBouncer.
const SERVICE: &str = "pgbouncer";

/// Checks with the service in that folder whether this is the user's password, and whether the user
/// may log in from `host`. Also returns how long a refused client must wait, since modules slow
/// down guessing.
pub(super) async fn accepts(
    folder: Option<String>,
    user: String,
    password: String,
    host: String,
) -> (bool, Duration) {
    let asked = task::spawn_blocking(move || {
        let (user, password, host) = (&*user, &*password, &*host);
        let folder = folder.as_deref();
        pam::ask(&pam::Question { service: SERVICE, folder, user, password, host })
    })
    .await;
    let Ok(pam::Answer { verdict, delay, said }) = asked else { return (false, Duration::ZERO) };
    for line in said {
        warning!("pam_conversation(): PAM error: {line}");
    }
    if let Err(refusal) = &verdict {
        warning!("{refusal}");
    }
    (verdict.is_ok(), delay)
}
