//! The SASL part of a client's login (protocol chapter 55.3), and what a successful login reveals
//! about its user's login to servers.

use wire::backend;
use wire::messages::SaslInitialResponse;
use wire::scram::{self, ScramError, ScramServer};

use super::steps::{PASSWORD_FAILED, Step};
use crate::engine::Engine;
use crate::ids::{ClientId, PoolId};
use crate::login::auth::LoginStep;
use crate::login::server_secret::ServerSecret;
use crate::operator::remarks::remark;
use crate::own_error::{Cause, OwnError};
use crate::shell::{Exchange, Io, Weight};

const SASL_FAILED: &str = "SASL authentication failed";

impl<X: Exchange> Engine<X> {
    pub(super) fn sasl_initial(
        &mut self,
        id: ClientId,
        mut server: ScramServer,
        body: &[u8],
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
                self.clients[id].login_mut().step = LoginStep::ExpectSaslResponse(server);
                Step::Continue
            }
            Err(error) => self.sasl_failed(id, error, io),
        }
    }

    pub(super) fn sasl_response(
        &mut self,
        id: ClientId,
        mut server: ScramServer,
        body: &[u8],
        io: &mut impl Io<X>,
    ) -> Step {
        let finished = match server.client_final(body) {
            Ok(finished) => finished,
            Err(error) => return self.sasl_failed(id, error, io),
        };
        let Some(credential) = self.clients[id].login_mut().credential.clone() else {
            return self.sasl_failed(id, ScramError::Proof, io);
        };
        let mut out = Vec::new();
        backend::authentication_sasl_final(&mut out, &finished.reply);
        io.send_client(id, &out);
        if let wire::Secret::Scram(verifier) = &credential.secret {
            // The key that the proof revealed also logs the user in to servers.
            let (client_key, server_key) = (finished.client_key, verifier.server_key);
            let keys = scram::ScramKeys { client_key, server_key };
            self.clients[id].login_mut().proven = Some(Box::new(ServerSecret::Scram(keys)));
        }
        self.authenticated(id, io)
    }

    /// Keeps what the client's proof revealed, to open servers of the pool.
    pub(super) fn learn_proof(&mut self, id: ClientId, pool: PoolId) {
        let login = self.clients[id].login_mut();
        if let Some(server_secret) = login.proven.take() {
            let requested = login.requested.clone();
            self.pools.one(pool).learn(&requested.user, *server_secret);
        }
    }

    /// Keeps the secret that `auth_query` returned, to open servers of the pool.
    pub(super) fn learn_answer(&mut self, id: ClientId, pool: PoolId) {
        let login = self.clients[id].login_mut();
        let Some(credential) = login.credential.clone().filter(|_| login.asked) else { return };
        let user = &login.requested.clone().user;
        match &credential.secret {
            wire::Secret::Plain(password) if password.is_empty() => {}
            wire::Secret::Plain(password) => {
                self.pools.one(pool).learn(user, ServerSecret::Password(password.clone()));
            }
            wire::Secret::Md5(hash) => {
                self.pools.one(pool).learn(user, ServerSecret::Md5(hash.clone()))
            }
            // Only a client's proof yields the keys. Those of an earlier login may still be right.
            wire::Secret::Scram(_) => {
                if self.pools.exchange.pool(pool, |pool| pool.server_secret.is_none()) {
                    self.pools.one(pool).learn(user, ServerSecret::Verifier);
                }
            }
        }
    }

    fn sasl_failed(&mut self, id: ClientId, error: ScramError, io: &mut impl Io<X>) -> Step {
        let now = io.now();
        match error {
            ScramError::AuthorizationIdentity
            | ScramError::ChannelBinding
            | ScramError::ChannelBindingDowngrade
            | ScramError::ChannelBindingMismatch
            | ScramError::Mechanism => return self.refuse_proof(id, error.to_string().into(), now),
            ScramError::Proof => remark(id, &self.clients[id], Weight::Error, PASSWORD_FAILED, io),
            ScramError::Iterations(_)
            | ScramError::Malformed { .. }
            | ScramError::MandatoryExtension
            | ScramError::NoDigest
            | ScramError::Nonce
            | ScramError::OutOfOrder
            | ScramError::Refused(_)
            | ScramError::ServerSignature => {
                remark(id, &self.clients[id], Weight::Error, &error.to_string(), io)
            }
        }
        self.refuse_proof(id, OwnError::new(Cause::Password, SASL_FAILED), now)
    }
}
