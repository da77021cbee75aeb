//! Treats an unknown user like an existing one. The challenge, the number of iterations and the
//! time for a check depend on the form of the stored secret. So an unknown user is given the form
//! of the known user whose name is next. Its salt is derived like that of a known user without a
//! stored salt.

use config::AuthType;
use wire::Secret;
use wire::scram::ScramVerifier;

use crate::engine::Engine;
use crate::ids::ClientId;
use crate::login::auth::{Challenge, Credential};
use crate::shell::Exchange;

impl<X: Exchange> Engine<X> {
    /// Returns the salt for a user whose secret has none.
    pub(crate) fn salt_of(&self, user: &str) -> [u8; 16] {
        ScramVerifier::salt(&self.seed, user.as_bytes())
    }

    /// Returns a verifier that no password satisfies.
    pub(super) fn decoy_verifier(&self, user: &str) -> ScramVerifier {
        let iterations = match self.decoy_secret(user) {
            Some(Secret::Scram(verifier)) => verifier.iterations,
            Some(Secret::Plain(_) | Secret::Md5(_)) | None => self.config.global.scram_iterations,
        };
        ScramVerifier::mock(&self.seed, user.as_bytes(), iterations)
    }

    /// Returns the challenge for an unknown user, as if it had a stored secret.
    pub(super) fn decoy_challenge(&self, user: &str, challenge: Challenge) -> Challenge {
        match (challenge, self.decoy_secret(user)) {
            (Challenge::Md5, Some(Secret::Scram(_))) => Challenge::Scram,
            (challenge, _) => challenge,
        }
    }

    /// Is this the user's password? The check takes as long for an unknown user.
    pub(super) fn accepts_cleartext(&mut self, id: ClientId, password: &[u8]) -> bool {
        let login = self.login_mut(id);
        let requested = login.requested.clone();
        let user = &requested.user;
        match login.credential.clone() {
            Some(known) => known.accepts(user, password),
            None => {
                let secret = match self.decoy_secret(user) {
                    Some(Secret::Scram(_)) => Secret::Scram(self.decoy_verifier(user)),
                    Some(other) => other,
                    None => Secret::Plain(String::new()),
                };
                let _ = Credential::new(secret).accepts(user, password);
                false
            }
        }
    }

    fn decoy_secret(&self, user: &str) -> Option<Secret> {
        self.config.auth_file.decoy_secret(user).map(Secret::parse)
    }

    /// Derives the keys of plain passwords in advance, one at a time. Unknown users have no keys,
    /// so the time for deriving them would reveal which users exist.
    pub(crate) fn derive_ahead(&mut self) {
        if !matches!(self.config.global.auth_type, AuthType::ScramSha256 | AuthType::Hba) {
            return;
        }
        let (config, seed) = (self.config.clone(), self.seed);
        self.credentials.derive_next(&config, |user| ScramVerifier::salt(&seed, user.as_bytes()));
    }
}
