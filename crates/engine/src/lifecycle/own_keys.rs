//! Servers that were opened with the keys of a user's own SCRAM proof, although `user=` gives all
//! clients of the database this user ([`PoolSettings::own_verifier`]). The configuration does not
//! contain the password. So other users could not have opened these servers, and get none of them.
//!
//! [`PoolSettings::own_verifier`]: crate::settings::PoolSettings::own_verifier

use config::{AuthType, Config};

use crate::client::Client;
use crate::ids::ClientId;
use crate::operator::remarks::remark;
use crate::own_error::{Cause, OwnError};
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io, Weight};

/// Returns the error for a client of another user. Without the keys it would be the same.
pub(crate) fn no_keys() -> OwnError<'static> {
    OwnError::new(Cause::ServerUnreachable, "server login failed: wrong password type")
}

pub(crate) fn remark_own_keys<X: Exchange>(
    id: ClientId,
    client: &Client,
    settings: &PoolSettings,
    io: &mut impl Io<X>,
) {
    let owner = settings.login_user();
    let message = format!(
        "password= is a SCRAM verifier, so only clients that log in as \"{owner}\" may use the \
         servers; write the password itself to let other users use them"
    );
    remark(id, client, Weight::Warning, &message, io);
}

/// May clients of this user use servers that were opened with the keys of the pool's user? With
/// `auth_type = any`, nobody has shown to be that user.
pub(crate) fn may_use_keys(config: &Config, settings: &PoolSettings, user: &str) -> bool {
    config.global.auth_type != AuthType::Any && settings.login_user() == user
}
