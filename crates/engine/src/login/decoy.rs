//! Treats an unknown user like an existing one. The challenge, the number of iterations and the
//! time for a check depend on the form of the stored secret. So an unknown user is given the form
//! of the known user whose name is next. Its salt is derived like that of a known user without a
//! stored salt.

use config::Config;
use wire::Secret;
use wire::scram::ScramVerifier;

use crate::login::auth::{Challenge, Credential, Login};

/// Stands in for the credential of a user that does not exist.
pub(crate) struct Decoy<'a> {
    pub(crate) config: &'a Config,
    pub(crate) seed: &'a [u8; 32],
}

impl Decoy<'_> {
    /// Returns the salt for a user whose secret has none.
    pub(super) fn salt_of(&self, user: &str) -> [u8; 16] {
        ScramVerifier::salt(self.seed, user.as_bytes())
    }

    /// Returns a verifier that no password satisfies.
    pub(super) fn verifier(&self, user: &str) -> ScramVerifier {
        let iterations = match self.secret(user) {
            Some(Secret::Scram(verifier)) => verifier.iterations,
            Some(Secret::Plain(_) | Secret::Md5(_)) | None => self.config.global.scram_iterations,
        };
        ScramVerifier::mock(self.seed, user.as_bytes(), iterations)
    }

    /// Returns the challenge for an unknown user, as if it had a stored secret.
    pub(super) fn challenge(&self, user: &str, challenge: Challenge) -> Challenge {
        match (challenge, self.secret(user)) {
            (Challenge::Md5, Some(Secret::Scram(_))) => Challenge::Scram,
            (challenge, _) => challenge,
        }
    }

    /// Is this the user's password? The check takes as long for an unknown user.
    pub(super) fn accepts_cleartext(&self, login: &Login, password: &[u8]) -> bool {
        let user = &login.requested.user;
        match &login.credential {
            Some(known) => known.accepts(user, password),
            None => {
                let secret = match self.secret(user) {
                    Some(Secret::Scram(_)) => Secret::Scram(self.verifier(user)),
                    Some(other) => other,
                    None => Secret::Plain(String::new()),
                };
                let _ = Credential::new(secret).accepts(user, password);
                false
            }
        }
    }

    fn secret(&self, user: &str) -> Option<Secret> {
        self.config.auth_file.decoy_secret(user).map(Secret::parse)
    }
}
