//! Delays and limits during login: the pause after wrong proofs (`auth_failure_delay`), and which
//! clients are disconnected when too many are logging in (`max_client_logins`) or a client limit is
//! reached (`max_client_conn` and others).

use config::Config;

use crate::client::{Client, ClientPhase};
use crate::ids::Micros;
use crate::login::auth::{Awaited, LoginStep};
use crate::login::door::Door;
use crate::login::guesses::Origin;
use crate::shell::{Exchange, Mail};

/// The time that a client may delay its first packet or its proof, before it may be disconnected
/// for others.
pub const LOGIN_GRACE: Micros = 1_000_000;
pub(crate) const CROWDED_OUT: &str = "too many clients are logging in (max_client_logins)";
pub(crate) const OUTWAITED: &str = "login is too slow, and other clients wait for a place";

impl<X: Exchange> Door<'_, X> {
    /// May the proof that has arrived be checked now? If not, it is checked later, and nothing is
    /// read from the client until then.
    pub(super) fn may_be_judged(&mut self, now: Micros) -> bool {
        let step = &self.login().step;
        // The first message of SASL has no proof.
        let is_proof =
            step.awaits() == Awaited::Password && !matches!(step, LoginStep::ExpectSaslInitial(_));
        let delay = failure_delay(&self.context.config);
        if !is_proof || delay == 0 {
            return true;
        }
        let login = self.client.login_mut();
        let (origin, user) = (Origin::new(login.peer.address), login.requested.user.as_str());
        let may = self.exchange.limits(|limits| limits.guesses.may_try(origin, user, delay, now));
        self.login().held = !may;
        may
    }

    /// Counts a wrong proof of the client. Does nothing if the client has logged in.
    pub(crate) fn note_wrong_proof(&mut self, now: Micros) {
        let delay = failure_delay(&self.context.config);
        let Some(login) = self.client.phase.login_mut() else { return };
        let (origin, user) = (Origin::new(login.peer.address), login.requested.user.as_str());
        self.exchange.limits(|limits| limits.guesses.failed(origin, user, delay, now));
    }

    /// Asks all workers to disconnect stalled logins, because a client limit is reached. A client
    /// counts in the limits before it is authenticated, and must not keep others out.
    pub(crate) fn want_places(&mut self) {
        if std::mem::replace(&mut self.context.places_wanted, true) {
            return;
        }
        self.exchange.post_to_others(self.context.worker, || Mail::FreePlaces);
    }
}

impl Client {
    /// Has its proof arrived, and must it be checked later?
    pub(crate) fn has_held_proof(&self) -> bool {
        matches!(&*self.phase, ClientPhase::Login(login) if login.held)
    }
}

fn failure_delay(config: &Config) -> Micros {
    config.global.auth_failure_delay.as_micros() as Micros
}
