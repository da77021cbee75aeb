//! What is found out about a client that logs in where it may take time: the name of the operating
//! system's user at the other end (`peer`), whether a password is right (`ldap`, `pam`). The shell
//! finds out and tells; the client waits.

use std::sync::Arc;

use config::hba::IdentMap;

use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros};
use crate::login::auth::{Checking, Judge, LoginStep, Password};
use crate::login::server_secret::ServerSecret;
use crate::login::steps::Step;
use crate::shell::{Check, Checked, Exchange, Io};

const NOT_THE_PEER: &str = "unix socket login rejected";

impl<X: Exchange> Engine<X> {
    /// Who runs the program at the other end of the unix socket? Asked for an unknown user as well,
    /// so that the time it takes does not tell who is known.
    pub(crate) fn check_peer(
        &mut self,
        id: ClientId,
        map: Option<Arc<IdentMap>>,
        io: &mut impl Io<X>,
    ) -> Step {
        let Some(uid) = self.login_mut(id).peer.uid else {
            return Step::Refuse(NOT_THE_PEER.into());
        };
        self.check(id, Checking::Peer(map), Check::PeerName(uid), io)
    }

    /// Is that its password? Who is not known to us may be known to the judge.
    pub(crate) fn check_password(
        &mut self,
        id: ClientId,
        judge: Judge,
        password: &[u8],
        io: &mut impl Io<X>,
    ) -> Step {
        if password.is_empty() {
            // To many a directory it would be no password at all, but a visit without a name.
            return Step::Refuse("empty password returned by client".into());
        }
        let Ok(password) = str::from_utf8(password).map(|text| Password(text.to_owned())) else {
            return Step::Refuse(judge.refusal().into());
        };
        let user = self.login_mut(id).user.clone();
        let check = Check::Password { judge: judge.clone(), user, password: password.clone() };
        self.check(id, Checking::Password { judge, password }, check, io)
    }

    fn check(
        &mut self,
        id: ClientId,
        checking: Checking,
        check: Check,
        io: &mut impl Io<X>,
    ) -> Step {
        self.login_mut(id).step = LoginStep::Checking(checking);
        io.check(id, self.client(id).serial, check);
        Step::Wait
    }

    /// What was to be found out about the client with that serial number.
    pub(crate) fn take_check(
        &mut self,
        id: ClientId,
        serial: u64,
        checked: &Checked,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
        let ClientPhase::Login(login) = &mut client.phase else { return };
        if client.serial != serial || !matches!(login.step, LoginStep::Checking(_)) {
            return;
        }
        let LoginStep::Checking(checking) = std::mem::take(&mut login.step) else { return };
        let (fits, refusal) = match (checking, checked) {
            (Checking::Peer(map), Checked::PeerName(name)) => {
                let user = &login.user;
                let fits = name.as_ref().is_some_and(|name| match &map {
                    Some(map) => map.who_may_be(user).any(|other| other == name),
                    None => name == user,
                });
                (fits && login.credential.is_some(), NOT_THE_PEER)
            }
            (Checking::Password { judge, password }, Checked::Password(right)) => {
                login.proven = right.then(|| Box::new(ServerSecret::Password(password.0)));
                (*right, judge.refusal())
            }
            (Checking::Peer(_), Checked::Password(_))
            | (Checking::Password { .. }, Checked::PeerName(_)) => {
                debug_assert!(false, "the answer to another question");
                (false, "login rejected")
            }
        };
        let step = self.verdict(id, fits, refusal, now, io);
        self.go_on_login(id, step, now, io);
    }
}
