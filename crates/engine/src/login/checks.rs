//! Checks that may take time: the name of the operating system's user at the other end (`peer`), or
//! a password (`ldap`, `pam`). The shell does them while the client waits.

use std::sync::Arc;

use config::hba::IdentMap;

use crate::client::Client;
use crate::ids::{ClientId, Micros};
use crate::login::auth::{Checking, Judge, LoginStep, Password};
use crate::login::door::{Door, Step};
use crate::login::server_secret::ServerSecret;
use crate::own_error::{Cause, OwnError};
use crate::shell::{Check, Checked, Exchange, Io};

const NOT_THE_PEER: &str = "unix socket login rejected";

impl<X: Exchange> Door<'_, X> {
    /// Takes the result of a check. Returns `Some(Step::Wait)` if the client does not wait for one.
    pub(crate) fn checked(&mut self, checked: &Checked, now: Micros) -> Option<Step> {
        let Some(login) = self.client.phase.login_mut() else { return Some(Step::Wait) };
        if !matches!(login.step, LoginStep::Checking(_)) {
            return Some(Step::Wait);
        }
        let LoginStep::Checking(checking) = std::mem::take(&mut login.step) else {
            return Some(Step::Wait);
        };
        let (fits, refusal) = match (checking, checked) {
            (Checking::Peer(map), Checked::PeerName(name)) => {
                let user = &login.requested.user;
                let fits = name.as_ref().is_some_and(|name| match &map {
                    Some(map) => map.who_may_be(user).any(|other| other == name),
                    None => name == user,
                });
                (fits && login.credential.is_some(), OwnError::new(Cause::Proof, NOT_THE_PEER))
            }
            (Checking::Password { judge, .. }, Checked::Password(None)) => {
                // Not a guess: the client may try again at once when the service works.
                return Some(Step::Refuse(judge.refusal()));
            }
            (Checking::Password { judge, password }, Checked::Password(Some(right))) => {
                login.proven = right.then(|| Box::new(ServerSecret::Password(password.0)));
                (*right, judge.refusal())
            }
            (Checking::Peer(_), Checked::Password(_))
            | (Checking::Password { .. }, Checked::PeerName(_)) => {
                debug_assert!(false, "the answer to another question");
                (false, OwnError::new(Cause::Rule, "login rejected"))
            }
        };
        self.verdict(fits, refusal, now)
    }
}

/// Asks for the user that runs the program at the other end of the unix socket. An unknown user
/// is checked as well, so the time does not reveal which users exist.
pub(crate) fn check_peer<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    map: Option<Arc<IdentMap>>,
    io: &mut impl Io<X>,
) -> Step {
    let Some(uid) = client.login_mut().peer.uid else {
        return Step::Refuse(OwnError::new(Cause::Proof, NOT_THE_PEER));
    };
    ask_shell(id, client, Checking::Peer(map), Check::PeerName(uid), io)
}

/// Has the password checked. The service may know users that the configuration does not
/// contain.
pub(crate) fn check_password<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    judge: Judge,
    password: &[u8],
    io: &mut impl Io<X>,
) -> Step {
    if password.is_empty() {
        // Many directories accept an empty password as an anonymous login.
        return Step::Refuse("empty password returned by client".into());
    }
    let Ok(password) = str::from_utf8(password).map(|text| Password(text.to_owned())) else {
        return Step::Refuse(judge.refusal());
    };
    let user = client.login_mut().requested.user.clone();
    let check = Check::Password { judge: judge.clone(), user, password: password.clone() };
    ask_shell(id, client, Checking::Password { judge, password }, check, io)
}

fn ask_shell<X: Exchange>(
    id: ClientId,
    client: &mut Client,
    checking: Checking,
    check: Check,
    io: &mut impl Io<X>,
) -> Step {
    client.login_mut().step = LoginStep::Checking(checking);
    io.check(id, client.serial, check);
    Step::Wait
}
