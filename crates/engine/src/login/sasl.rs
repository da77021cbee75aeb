//! The SASL part of a client's login (protocol chapter 55.3), and what a successful login reveals
//! about its user's login to servers.

use wire::messages::SaslInitialResponse;
use wire::scram::{ScramError, ScramServer};
use wire::{backend, scram};

use crate::admission::one_pool::OnePool;
use crate::login::auth::{Login, LoginStep};
use crate::login::door::{Door, PASSWORD_FAILED, Step};
use crate::login::server_secret::ServerSecret;
use crate::operator::remarks::remark;
use crate::own_error::{Cause, OwnError};
use crate::shell::{Exchange, Io, Weight};

const SASL_FAILED: &str = "SASL authentication failed";

impl<X: Exchange> Door<'_, X> {
    pub(super) fn sasl_initial(
        &mut self,
        mut server: ScramServer,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Option<Step> {
        let Ok(initial) = SaslInitialResponse::decode(body) else {
            return Some(Step::Refuse("malformed SASLInitialResponse message".into()));
        };
        match server.client_first(initial.mechanism, initial.data) {
            Ok(reply) => {
                let mut out = Vec::new();
                backend::authentication_sasl_continue(&mut out, &reply);
                io.send_client(self.id, &out);
                self.login().step = LoginStep::ExpectSaslResponse(server);
                None
            }
            Err(error) => self.sasl_failed(error, io),
        }
    }

    pub(super) fn sasl_response(
        &mut self,
        mut server: ScramServer,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Option<Step> {
        let finished = match server.client_final(body) {
            Ok(finished) => finished,
            Err(error) => return self.sasl_failed(error, io),
        };
        let Some(credential) = self.login().credential.clone() else {
            return self.sasl_failed(ScramError::Proof, io);
        };
        let mut out = Vec::new();
        backend::authentication_sasl_final(&mut out, &finished.reply);
        io.send_client(self.id, &out);
        if let wire::Secret::Scram(verifier) = &credential.secret {
            // The key that the proof revealed also logs the user in to servers.
            let (client_key, server_key) = (finished.client_key, verifier.server_key);
            let keys = scram::ScramKeys { client_key, server_key };
            self.login().proven = Some(Box::new(ServerSecret::Scram(keys)));
        }
        Some(Step::Authenticated)
    }

    fn sasl_failed(&mut self, error: ScramError, io: &mut impl Io<X>) -> Option<Step> {
        let now = io.now();
        match error {
            ScramError::AuthorizationIdentity
            | ScramError::ChannelBinding
            | ScramError::ChannelBindingDowngrade
            | ScramError::ChannelBindingMismatch
            | ScramError::Mechanism => return self.refuse_proof(error.to_string().into(), now),
            ScramError::Proof => remark(self.id, self.client, Weight::Error, PASSWORD_FAILED, io),
            ScramError::Iterations(_)
            | ScramError::Malformed { .. }
            | ScramError::MandatoryExtension
            | ScramError::NoDigest
            | ScramError::Nonce
            | ScramError::OutOfOrder
            | ScramError::Refused(_)
            | ScramError::ServerSignature => {
                remark(self.id, self.client, Weight::Error, &error.to_string(), io)
            }
        }
        self.refuse_proof(OwnError::new(Cause::Password, SASL_FAILED), now)
    }
}

impl Login {
    /// Keeps what its login has revealed about its user's logins to servers: the client's proof, or the
    /// secret that `auth_query` returned.
    pub(super) fn teach<X: Exchange>(&mut self, pool: &mut OnePool<'_, X>) {
        if let Some(credential) = self.credential.clone().filter(|_| self.asked) {
            learn_answer(pool, &self.requested.user, &credential.secret);
        }
        if let Some(server_secret) = self.proven.take() {
            pool.learn(&self.requested.user, *server_secret);
        }
    }
}

/// Keeps the secret that `auth_query` returned, to open servers of the pool.
fn learn_answer<X: Exchange>(pool: &mut OnePool<'_, X>, user: &str, secret: &wire::Secret) {
    match secret {
        wire::Secret::Plain(password) if password.is_empty() => {}
        wire::Secret::Plain(password) => pool.learn(user, ServerSecret::Password(password.clone())),
        wire::Secret::Md5(hash) => pool.learn(user, ServerSecret::Md5(hash.clone())),
        // Only a client's proof yields the keys. Those of an earlier login may still be right.
        wire::Secret::Scram(_) => {
            if pool.lock(|pool| pool.server_secret.is_none()) {
                pool.learn(user, ServerSecret::Verifier);
            }
        }
    }
}
