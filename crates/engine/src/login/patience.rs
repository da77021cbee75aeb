//! What those who are logging in have to wait for, and how long we wait for them: the pause after
//! wrong proofs (`auth_failure_delay`), and who has to go when too many are logging in at a time
//! (`max_client_logins`), or when others find no room (`max_client_conn` and its like).

use super::steps::Step;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, WorkerId};
use crate::login::auth::LoginStep;
use crate::login::guesses::Origin;
use crate::shell::{Exchange, Io, Mail};

/// How long anybody who is logging in may keep us waiting, however many others there are: for its first
/// packet, and for its proof.
pub const LOGIN_GRACE: Micros = 1_000_000;
const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";
const OUTWAITED: &str = "others wait for the place of a client that does not log in";

impl<X: Exchange> Engine<X> {
    /// May the proof that has come be looked at? If not, that is done later, and nothing is read of
    /// the client until then.
    pub(super) fn may_be_judged(&mut self, id: ClientId, now: Micros) -> bool {
        let is_proof = match self.login_mut(id).step {
            LoginStep::ExpectCleartext
            | LoginStep::ExpectJudged(_)
            | LoginStep::ExpectMd5 { .. }
            | LoginStep::ExpectSaslResponse(_) => true,
            LoginStep::ExpectSaslInitial(_)
            | LoginStep::ExpectStartup
            | LoginStep::Proving(_)
            | LoginStep::Asking(_)
            | LoginStep::Checking(_) => false,
        };
        let delay = self.failure_delay();
        if !is_proof || delay == 0 {
            return true;
        }
        let ClientPhase::Login(login) = &self.clients[id.0 as usize].phase else { return true };
        let (origin, user) = (Origin::new(login.peer.address), login.user.as_str());
        let may = self.exchange.limits(|limits| limits.guesses.may_try(origin, user, delay, now));
        self.login_mut(id).held = !may;
        may
    }

    /// The client has not proven that it is who it says it is.
    pub(crate) fn note_wrong_proof(&mut self, id: ClientId, now: Micros) {
        let delay = self.failure_delay();
        let ClientPhase::Login(login) = &self.clients[id.0 as usize].phase else { return };
        let (origin, user) = (Origin::new(login.peer.address), login.user.as_str());
        self.exchange.limits(|limits| limits.guesses.failed(origin, user, delay, now));
    }

    /// Those whose proofs had to wait may have their turn, the oldest first.
    pub(crate) fn judge_held(&mut self, now: Micros, io: &mut impl Io<X>) {
        let is_held =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Login(login) if login.held);
        let held = self.clients.iter().filter(|(_, client)| is_held(&client.phase));
        let mut held: Vec<_> = held.map(|(slot, client)| (client.serial, slot)).collect();
        held.sort_unstable();
        for (serial, slot) in held {
            let id = ClientId(slot as u32);
            self.login_mut(id).held = false;
            self.go_on_login(id, Step::Continue, now, io);
            let is_there = self.clients.get(slot).is_some_and(|client| client.serial == serial);
            if is_there && !is_held(&self.clients[slot].phase) {
                // What it has said since is still unread.
                io.resume_client(id);
            }
        }
    }

    pub(crate) fn end_slow_logins(&mut self, now: Micros, io: &mut impl Io<X>) {
        self.end_waits(|_| true, CROWDED_OUT, now, io);
    }

    /// Whoever has said its name counts in the limits on clients, proven or not. It must not take the
    /// places of others by that alone: somebody for whom there was none has been turned away.
    pub(crate) fn want_places(&mut self) {
        if std::mem::replace(&mut self.places_wanted, true) {
            return;
        }
        for worker in (0..self.exchange.worker_count()).map(WorkerId) {
            if worker != self.worker {
                self.exchange.post(worker, Mail::FreePlaces);
            }
        }
    }

    pub(crate) fn free_places(&mut self, now: Micros, io: &mut impl Io<X>) {
        if std::mem::take(&mut self.places_wanted) {
            self.end_waits(|client| client.counted, OUTWAITED, now, io);
        }
    }

    fn end_waits(
        &mut self,
        is_meant: impl Fn(&Client) -> bool,
        why: &str,
        now: Micros,
        io: &mut impl Io<X>,
    ) {
        let (mut slow, mut held) = (Vec::new(), Vec::new());
        for (slot, client) in &self.clients {
            let ClientPhase::Login(login) = &client.phase else { continue };
            if !is_meant(client) {
                continue;
            }
            let since = client.connected_at.max(login.challenged_at);
            if login.peer.local || !keeps_us(&login.step) || now.saturating_sub(since) < LOGIN_GRACE
            {
                continue;
            }
            let out = if login.held { &mut held } else { &mut slow };
            out.push(ClientId(slot as u32));
        }
        for id in if slow.is_empty() { held } else { slow } {
            self.disconnect(id, why, now, io);
        }
    }

    fn failure_delay(&self) -> Micros {
        self.config.global.auth_failure_delay.as_micros() as Micros
    }
}

/// Is it the client whose turn it is?
fn keeps_us(step: &LoginStep) -> bool {
    match step {
        // It is somebody else that we wait for.
        LoginStep::Proving(_) | LoginStep::Asking(_) | LoginStep::Checking(_) => false,
        LoginStep::ExpectStartup
        | LoginStep::ExpectCleartext
        | LoginStep::ExpectJudged(_)
        | LoginStep::ExpectMd5 { .. }
        | LoginStep::ExpectSaslInitial(_)
        | LoginStep::ExpectSaslResponse(_) => true,
    }
}
