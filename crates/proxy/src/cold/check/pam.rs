//! Asks PAM whether a password is right, and whether its owner may log in now: the service
//! `pgbouncer`, since that is where existing machines have their rules.

use std::time::Duration;

use tokio::task;

use crate::warning;
use net::sys::pam;

/// The name of the file in `/etc/pam.d` or in `auth_pam_confdir`, PgBouncer's.
const SERVICE: &str = "pgbouncer";

/// Is this the user's password, and may it come from `host`, as the service in that folder says? And how long is a refused client to
/// wait? Modules want guessing to be slow.
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
