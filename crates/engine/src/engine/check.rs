//! What is found out about a client that logs in where it may take time: the name of the operating
//! system's user at the other end (`peer`). The shell finds out and tells; the client waits.

use std::sync::Arc;

use config::hba::IdentMap;

use super::Engine;
use super::login::Step;
use crate::auth::{Checking, LoginStep};
use crate::client::ClientPhase;
use crate::ids::{ClientId, Micros};
use crate::shell::{Check, Checked, Exchange, Io};

const NOT_THE_PEER: &str = "unix socket login rejected";

impl<X: Exchange> Engine<X> {
    /// Who runs the program at the other end of the unix socket?
    pub(super) fn check_peer(
        &mut self,
        id: ClientId,
        map: Option<Arc<IdentMap>>,
        io: &mut impl Io,
    ) -> Step {
        let login = self.login_mut(id);
        let known = login.credential.is_some();
        let Some(uid) = login.peer.uid.filter(|_| known) else {
            self.log_login_failed(id, io);
            return Step::Refuse(NOT_THE_PEER.into());
        };
        login.step = LoginStep::Checking(Checking::Peer(map));
        io.check(id, self.client(id).serial, Check::PeerName(uid));
        Step::Wait
    }

    /// What was to be found out about the client with that serial number.
    pub fn checked(
        &mut self,
        id: ClientId,
        serial: u64,
        checked: &Checked,
        now: Micros,
        io: &mut impl Io,
    ) {
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
        let ClientPhase::Login(login) = &mut client.phase else { return };
        let LoginStep::Checking(Checking::Peer(map)) = &login.step else { return };
        if client.serial != serial {
            return;
        }
        let Checked::PeerName(name) = checked;
        let fits = name.as_ref().is_some_and(|name| match map {
            Some(map) => map.who_may_be(&login.user).any(|other| other == name),
            None => *name == login.user,
        });
        login.step = LoginStep::ExpectStartup;
        let step = self.verdict(id, fits, NOT_THE_PEER, now, io);
        self.go_on_login(id, step, now, io);
    }
}
