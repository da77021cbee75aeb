//! Delays and limits during login: the pause after wrong proofs (`auth_failure_delay`), and which
//! clients are disconnected when too many are logging in (`max_client_logins`) or a client limit is
//! reached (`max_client_conn` and others).

use config::Config;

use super::steps::Step;
use crate::client::{Client, ClientPhase};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, WorkerId};
use crate::login::auth::{Awaited, LoginStep};
use crate::login::guesses::Origin;
use crate::own_error::{Cause, OwnError};
use crate::shell::{Exchange, Io, Mail};

/// The time that a client may delay its first packet or its proof, before it may be disconnected
/// for others.
pub const LOGIN_GRACE: Micros = 1_000_000;
const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";
const OUTWAITED: &str = "login is too slow, and other clients wait for a place";

impl<X: Exchange> Engine<X> {
    /// May the proof that has arrived be checked now? If not, it is checked later, and nothing is
    /// read from the client until then.
    pub(super) fn may_be_judged(&mut self, id: ClientId, now: Micros) -> bool {
        let step = &self.clients[id].login_mut().step;
        // The first message of SASL has no proof.
        let is_proof =
            step.awaits() == Awaited::Password && !matches!(step, LoginStep::ExpectSaslInitial(_));
        let delay = failure_delay(&self.context.config);
        if !is_proof || delay == 0 {
            return true;
        }
        let ClientPhase::Login(login) = &*self.clients[id].phase else { return true };
        let (origin, user) = (Origin::new(login.peer.address), login.requested.user.as_str());
        let may =
            self.pools.exchange.limits(|limits| limits.guesses.may_try(origin, user, delay, now));
        self.clients[id].login_mut().held = !may;
        may
    }

    /// Counts a wrong proof of the client.
    pub(crate) fn note_wrong_proof(&mut self, id: ClientId, now: Micros) {
        let delay = failure_delay(&self.context.config);
        let ClientPhase::Login(login) = &*self.clients[id].phase else { return };
        let (origin, user) = (Origin::new(login.peer.address), login.requested.user.as_str());
        self.pools.exchange.limits(|limits| limits.guesses.failed(origin, user, delay, now));
    }

    /// Checks proofs whose delay is over, the oldest client first.
    pub(crate) fn judge_held(&mut self, io: &mut impl Io<X>) {
        let is_held =
            |phase: &ClientPhase| matches!(phase, ClientPhase::Login(login) if login.held);
        let held = self.clients.iter().filter(|(_, client)| is_held(&client.phase));
        let mut held: Vec<_> = held.map(|(id, client)| (client.serial, id)).collect();
        held.sort_unstable();
        for (serial, id) in held {
            self.clients[id].login_mut().held = false;
            self.go_on_login(id, Step::Continue, io);
            let is_there = self.clients.get(id).is_some_and(|client| client.serial == serial);
            if is_there && !is_held(&self.clients[id].phase) {
                // Messages that it has sent meanwhile are still unread.
                io.resume_client(id);
            }
        }
    }

    pub(crate) fn end_slow_logins(&mut self, io: &mut impl Io<X>) {
        self.end_waits(|_| true, &OwnError::new(Cause::TooManyClients, CROWDED_OUT), io);
    }

    /// Asks all workers to disconnect stalled logins, because a client limit is reached. A client
    /// counts in the limits before it is authenticated, and must not keep others out.
    pub(crate) fn want_places(&mut self) {
        if std::mem::replace(&mut self.places_wanted, true) {
            return;
        }
        for worker in (0..self.pools.exchange.worker_count()).map(WorkerId) {
            if worker != self.context.worker {
                self.pools.exchange.post(worker, Mail::FreePlaces);
            }
        }
    }

    pub(crate) fn free_places(&mut self, io: &mut impl Io<X>) {
        if std::mem::take(&mut self.places_wanted) {
            self.end_waits(
                |client| client.counted,
                &OwnError::new(Cause::TooManyClients, OUTWAITED),
                io,
            );
        }
    }

    fn end_waits(
        &mut self,
        is_meant: impl Fn(&Client) -> bool,
        why: &OwnError<'_>,
        io: &mut impl Io<X>,
    ) {
        let (mut slow, mut held) = (Vec::new(), Vec::new());
        for (id, client) in self.clients.iter() {
            let ClientPhase::Login(login) = &*client.phase else { continue };
            if !is_meant(client) {
                continue;
            }
            let since = client.connected_at.max(login.challenged_at);
            if login.peer.local
                || login.step.awaits() == Awaited::Answer
                || io.now().saturating_sub(since) < LOGIN_GRACE
            {
                continue;
            }
            let out = if login.held { &mut held } else { &mut slow };
            out.push(id);
        }
        for id in if slow.is_empty() { held } else { slow } {
            self.disconnect_with(id, why, None, io);
        }
    }
}

fn failure_delay(config: &Config) -> Micros {
    config.global.auth_failure_delay.as_micros() as Micros
}
