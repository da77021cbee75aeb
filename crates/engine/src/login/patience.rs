//! Delays and limits during login: the pause after wrong proofs (`auth_failure_delay`), and which
//! clients are disconnected when too many are logging in (`max_client_logins`) or a client limit is
//! reached (`max_client_conn` and others).

use config::Config;

use crate::client::ClientPhase;
use crate::engine::Engine;
use crate::ids::{ClientId, Micros};
use crate::login::auth::{Awaited, LoginStep};
use crate::login::guesses::Origin;
use crate::shell::Exchange;

/// The time that a client may delay its first packet or its proof, before it may be disconnected
/// for others.
pub const LOGIN_GRACE: Micros = 1_000_000;
pub(crate) const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";
pub(crate) const OUTWAITED: &str = "login is too slow, and other clients wait for a place";

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
}

fn failure_delay(config: &Config) -> Micros {
    config.global.auth_failure_delay.as_micros() as Micros
}
