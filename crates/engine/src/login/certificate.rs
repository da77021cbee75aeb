//! The method `cert`: the client's certificate must name its user. TLS has verified the
//! certificate. Names are compared byte by byte, as in PostgreSQL.

use config::hba::{CertName, IdentMap};

use crate::ids::Identity;
use crate::login::auth::{Login, Secured};
use crate::login::door::{Door, Step};
use crate::own_error::{Cause, OwnError};
use crate::shell::{Event, Exchange, Io, Weight};

impl<X: Exchange> Door<'_, X> {
    pub(super) fn check_certificate(
        &mut self,
        name: CertName,
        map: Option<&IdentMap>,
        io: &mut impl Io<X>,
    ) -> Option<Step> {
        let login = self.client.login_mut();
        let trouble = trouble(login, name, map);
        if let Some(message) = &trouble {
            let Identity { database, user } = &*login.requested;
            let name = (database.as_str(), user.as_str());
            io.event(Event::ClientRemark { client: self.id, name, weight: Weight::Error, message });
        }
        let accepted = trouble.is_none() && login.credential.is_some();
        let failure = OwnError::new(Cause::Proof, "certificate authentication failed");
        self.verdict(accepted, failure, io.now())
    }
}

/// Returns the reason for rejecting the client, if there is one.
fn trouble(login: &Login, name: CertName, map: Option<&IdentMap>) -> Option<String> {
    let Some(secured) = &login.peer.secured else { return Some("TLS connection required".into()) };
    let Secured { common_name, dns_names, .. } = &**secured;
    if common_name.is_none() && dns_names.is_empty() {
        return Some("TLS client certificate required".into());
    }
    let is_common = |wanted: &str| common_name.as_deref() == Some(wanted);
    let is_named = |wanted: &str| match name {
        CertName::Any => is_common(wanted) || dns_names.iter().any(|name| name == wanted),
        CertName::Common => is_common(wanted),
    };
    match map {
        None if is_named(&login.requested.user) => None,
        None => Some("TLS certificate name mismatch".into()),
        Some(map) if map.who_may_be(&login.requested.user).any(is_named) => None,
        Some(map) => Some(format!("ident map: {} does not have a match", map.name)),
    }
}
