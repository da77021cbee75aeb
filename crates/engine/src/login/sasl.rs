//! The SASL part of a client's login (protocol chapter 55.3), and what a login that went well
//! teaches about how its user logs in to the server.

use wire::backend;
use wire::messages::SaslInitialResponse;
use wire::scram::{self, ScramError, ScramServer};

use super::steps::{PASSWORD_FAILED, Step};
use crate::engine::Engine;
use crate::ids::{ClientId, Micros, PoolId};
use crate::login::auth::LoginStep;
use crate::login::server_secret::ServerSecret;
use crate::shell::{Exchange, Io};

const SASL_FAILED: &str = "SASL authentication failed";

impl<X: Exchange> Engine<X> {
    pub(super) fn sasl_initial(
        &mut self,
        id: ClientId,
        mut server: ScramServer,
        body: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Step {
        let Ok(initial) = SaslInitialResponse::decode(body) else {
            return Step::Refuse("malformed SASLInitialResponse message".into());
        };
        match server.client_first(initial.mechanism, initial.data) {
            Ok(reply) => {
                let mut out = Vec::new();
                backend::authentication_sasl_continue(&mut out, &reply);
                io.send_client(id, &out);
                self.login_mut(id).step = LoginStep::ExpectSaslResponse(server);
                Step::Continue
            }
            Err(error) => self.sasl_failed(id, error, now, io),
        }
    }

    pub(super) fn sasl_response(
        &mut self,
        id: ClientId,
        mut server: ScramServer,
        body: &[u8],
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Step {
        let finished = match server.client_final(body) {
            Ok(finished) => finished,
            Err(error) => return self.sasl_failed(id, error, now, io),
        };
        let Some(credential) = self.login_mut(id).credential.clone() else {
            return self.sasl_failed(id, ScramError::Proof, now, io);
        };
        let mut out = Vec::new();
        backend::authentication_sasl_final(&mut out, &finished.reply);
        io.send_client(id, &out);
        if let wire::Secret::Scram(verifier) = &credential.secret {
            // The same user logs in to the server with the key that the proof has shown us.
            let (client_key, server_key) = (finished.client_key, verifier.server_key);
            let keys = scram::ScramKeys { client_key, server_key };
            self.login_mut(id).proven = Some(Box::new(ServerSecret::Scram(keys)));
        }
        self.authenticated(id, now, io)
    }

    fn learn(&mut self, pool: PoolId, server_secret: ServerSecret) {
        self.exchange.pool(pool, |pool| {
            // How a forced user logs in is not this client's to tell.
            if !pool.settings.forced_user {
                pool.server_secret = Some(server_secret);
            }
        });
    }

    /// What the client's proof has shown also opens its servers.
    pub(super) fn learn_proof(&mut self, id: ClientId, pool: PoolId) {
        if let Some(server_secret) = self.login_mut(id).proven.take() {
            self.learn(pool, *server_secret);
        }
    }

    /// What `auth_query` has told of the user also opens its servers.
    pub(super) fn learn_answer(&mut self, id: ClientId, pool: PoolId) {
        let login = self.login_mut(id);
        let Some(credential) = login.credential.clone().filter(|_| login.asked) else { return };
        match &credential.secret {
            wire::Secret::Plain(password) if password.is_empty() => {}
            wire::Secret::Plain(password) => {
                self.learn(pool, ServerSecret::Password(password.clone()))
            }
            wire::Secret::Md5(hash) => self.learn(pool, ServerSecret::Md5(hash.clone())),
            // Only a client's proof yields the keys. Those of an earlier one may still be right.
            wire::Secret::Scram(_) => {
                if self.exchange.pool(pool, |pool| pool.server_secret.is_none()) {
                    self.learn(pool, ServerSecret::Verifier);
                }
            }
        }
    }

    /// The keys of a user's verifier open the servers of each database, in whichever of them its
    /// client has shown them.
    pub(crate) fn learn_from_other_pools(&mut self, pool: PoolId) {
        let unknown = self.exchange.pool(pool, |pool| {
            let settings = &pool.settings;
            let is_verifier = matches!(settings.secret, Some(wire::Secret::Scram(_)));
            (is_verifier && pool.server_secret.is_none()).then(|| settings.secret.clone())
        });
        let Some(verifier) = unknown else { return };
        let found = self.exchange.pool_ids().into_iter().find_map(|other| {
            self.exchange.pool(other, |other| match &other.server_secret {
                Some(ServerSecret::Scram(keys)) if other.settings.secret == verifier => {
                    Some(keys.clone())
                }
                _ => None,
            })
        });
        if let Some(keys) = found {
            self.exchange.pool(pool, |pool| pool.server_secret = Some(ServerSecret::Scram(keys)));
        }
    }

    fn sasl_failed(
        &mut self,
        id: ClientId,
        error: ScramError,
        now: Micros,
        io: &mut impl Io<X>,
    ) -> Step {
        self.note_wrong_proof(id, now);
        match error {
            ScramError::AuthorizationIdentity
            | ScramError::ChannelBinding
            | ScramError::ChannelBindingDowngrade
            | ScramError::ChannelBindingMismatch
            | ScramError::Mechanism => return Step::Refuse(error.to_string()),
            ScramError::Proof => self.client_trouble(id, PASSWORD_FAILED, io),
            _ => self.client_trouble(id, &error.to_string(), io),
        }
        Step::Refuse(SASL_FAILED.into())
    }
}
