//! How a user is met who does not exist: as somebody who does. Which challenge comes, with how many
//! iterations, and how long an answer takes depend on the form of the stored secret; so an unknown
//! user is given the form of the known one whose name comes next, and the salt that a known user
//! without a stored one has.

use config::AuthType;
use wire::Secret;
use wire::scram::ScramVerifier;

use crate::engine::Engine;
use crate::ids::ClientId;
use crate::login::auth::{Challenge, Credential};
use crate::shell::Exchange;

impl<X: Exchange> Engine<X> {
    /// The salt of a user whose secret has none.
    pub(crate) fn salt_of(&self, user: &str) -> [u8; 16] {
        ScramVerifier::salt(&self.seed, user.as_bytes())
    }

    /// A verifier that nobody satisfies.
    pub(super) fn decoy_verifier(&self, user: &str) -> ScramVerifier {
        let iterations = match self.decoy_secret(user) {
            Some(Secret::Scram(verifier)) => verifier.iterations,
            Some(Secret::Plain(_) | Secret::Md5(_)) | None => self.config.global.scram_iterations,
        };
        ScramVerifier::mock(&self.seed, user.as_bytes(), iterations)
    }

    /// The challenge of an unknown user, where that of the known ones depends on their secrets.
    pub(super) fn decoy_challenge(&self, user: &str, challenge: Challenge) -> Challenge {
        match (challenge, self.decoy_secret(user)) {
            (Challenge::Md5, Some(Secret::Scram(_))) => Challenge::Scram,
            (challenge, _) => challenge,
        }
    }

    /// Is this the user's password? That takes as long for nobody's as for somebody's.
    pub(super) fn accepts_cleartext(&mut self, id: ClientId, password: &[u8]) -> bool {
        let login = self.login_mut(id);
        let user = login.user.clone();
        match login.credential.clone() {
            Some(known) => known.accepts(&user, password),
            None => {
                let secret = match self.decoy_secret(&user) {
                    Some(Secret::Scram(_)) => Secret::Scram(self.decoy_verifier(&user)),
                    Some(other) => other,
                    None => Secret::Plain(String::new()),
                };
                let _ = Credential::new(secret).accepts(&user, password);
                false
            }
        }
    }

    fn decoy_secret(&self, user: &str) -> Option<Secret> {
        self.config.auth_file.decoy_secret(user).map(Secret::parse)
    }

    /// Keys of passwords that are stored as text are derived when they are first needed, which takes
    /// its time, and unknown users have none. So they are derived before, one at a time.
    pub(crate) fn derive_ahead(&mut self) {
        if !matches!(self.config.global.auth_type, AuthType::ScramSha256 | AuthType::Hba) {
            return;
        }
        let (config, seed) = (self.config.clone(), self.seed);
        self.credentials.derive_next(&config, |user| ScramVerifier::salt(&seed, user.as_bytes()));
    }
}
