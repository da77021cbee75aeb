//! The user that the pooler runs as. Nothing here is needed once it runs.

use anyhow::{Context as _, bail};

use crate::sys;

/// Switches to `user`, unless it is empty or already the current one. As in PgBouncer, an empty
/// name means no user.
///
/// # Errors
/// When there is no such user, or when the process is not root and may not switch.
pub(crate) fn switch_to(user: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = user.filter(|name| !name.is_empty()) else { return Ok(()) };
    let user = proxy::user_by_name(name)
        .with_context(|| format!("could not look up user \"{name}\""))?
        .with_context(|| format!("could not find user '{name}' to switch to"))?;
    if sys::effective_uid() == user.uid {
        return Ok(());
    }
    sys::become_user(&user).with_context(|| format!("could not become user \"{name}\""))
}

/// As root, switches to a user with fewer rights and returns its name.
///
/// # Errors
/// When there is no such user.
pub(crate) fn leave_root() -> anyhow::Result<Option<&'static str>> {
    if sys::effective_uid() != 0 {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if proxy::user_by_name(name).context("users")?.is_some() {
            return switch_to(Some(name)).map(|()| Some(name));
        }
    }
    bail!("Weir does not serve as root, and there is no user postgres or nobody to switch to")
}

/// Refuses to serve as root: a pooler needs no privileges, and PgBouncer refuses as well.
pub(crate) fn refuse_root() -> anyhow::Result<()> {
    if sys::effective_uid() == 0 {
        bail!("Weir should not run as root; name the user to become with -u USER");
    }
    Ok(())
}
