//! Weir's proof of its password to a server: clear text, MD5 or SCRAM.

use wire::error_fields::ErrorFields;
use wire::messages::AuthenticationRequest;
use wire::scram::{self, ScramClient, ScramSecret};
use wire::secret::Secret;
use wire::{frontend, md5};

use super::{Step, Unable};
use crate::ids::ServerId;
use crate::login::server_secret::ServerSecret;
use crate::server::{LoginStage, ServerLogin};
use crate::settings::PoolSettings;
use crate::shell::{Exchange, Io};

/// The password for a user without a known secret. It is always wrong, so the client gets
/// PostgreSQL's error, as with PgBouncer.
const NO_PASSWORD: &str = "";

/// Answers a message of the server's authentication.
pub(super) fn authentication<X: Exchange>(
    id: ServerId,
    login: &mut ServerLogin,
    settings: &PoolSettings,
    body: &[u8],
    io: &mut impl Io<X>,
) -> Step {
    let answered = match AuthenticationRequest::decode(body) {
        Ok(request) => prove_to(id, login, settings, request, io),
        Err(error) => return Step::Failed(error.to_string()),
    };
    answered.map_or_else(Step::Unable, |()| Step::Continue)
}

fn prove_to<X: Exchange>(
    id: ServerId,
    login: &mut ServerLogin,
    settings: &PoolSettings,
    request: AuthenticationRequest<'_>,
    io: &mut impl Io<X>,
) -> Result<(), Unable> {
    let mut out = Vec::new();
    match request {
        // A server that starts SCRAM and leaves out its own proof may not know the password.
        AuthenticationRequest::Ok
            if login.scram.as_ref().is_some_and(|client| !client.is_proven()) =>
        {
            return Err("the server ended SCRAM without its own proof".into());
        }
        AuthenticationRequest::Ok => {
            login.stage = LoginStage::Authenticated;
            return Ok(());
        }
        AuthenticationRequest::Cleartext => {
            let password = cleartext_password(login, settings)?;
            frontend::password(&mut out, password.as_bytes());
        }
        AuthenticationRequest::Md5(salt) => {
            let hash = md5_hash(login, settings)
                .ok_or(Unable::Secret("MD5 authentication: wrong password type"))?;
            frontend::password(&mut out, md5::response(&hash, salt).as_bytes());
            login.challenged = true;
        }
        AuthenticationRequest::Sasl(mechanisms) => {
            if !mechanisms.contains(scram::MECHANISM) {
                let why = "none of the server's SASL authentication mechanisms are supported";
                return Err(why.into());
            }
            let secret = scram_secret(login, settings)?;
            let mut nonce = [0; 18];
            io.random(&mut nonce);
            let offers = mechanisms.contains(scram::MECHANISM_PLUS);
            let (end, is_trusted) = (io.server_end(id), settings.tls.verifies_fully());
            let mut client =
                ScramClient::new(secret, nonce).bound_to_server(&end, offers, is_trusted)?;
            frontend::sasl_initial(&mut out, client.mechanism(), &client.first());
            login.scram = Some(client);
            login.challenged = true;
        }
        AuthenticationRequest::SaslContinue(data) => {
            let client = login.scram.as_mut().ok_or("unexpected SASL message")?;
            frontend::sasl_response(&mut out, &client.server_first(data)?);
        }
        AuthenticationRequest::SaslFinal(data) => {
            let client = login.scram.as_mut().ok_or("unexpected SASL message")?;
            client.server_final(data)?;
            return Ok(());
        }
        AuthenticationRequest::Unsupported(kind) => {
            return Err(Unable::Other(format!("unknown/unsupported auth method: {kind}")));
        }
    }
    io.send_server(id, &out);
    Ok(())
}

/// Does Weir know no password of the client's user? The client has logged in without one then. It says
/// nothing about a `user=` of the database's entry.
pub(super) fn has_nothing_to_prove(login: &ServerLogin, settings: &PoolSettings) -> bool {
    let is_known = match &settings.secret {
        Some(Secret::Plain(password)) => password != NO_PASSWORD,
        Some(Secret::Md5(_) | Secret::Scram(_)) => true,
        None => false,
    };
    !is_known && !settings.forced_user && login.proof().is_none() && login.server_secret.is_none()
}

/// Adds to the error for clients why the server's question for a password has no answer, and the remedy.
pub(super) fn advise_on_password(error: &mut ErrorFields, has: &str) {
    let detail = format!("PostgreSQL asked Weir for the user's password. {has}.");
    error.replace(b'D', detail);
    error.replace(
        b'H',
        "Log in with a password, for example over TCP. Or let pg_hba.conf of PostgreSQL admit the \
         system user of Weir as this user: by peer, with a map in pg_ident.conf.",
    );
}

pub(super) fn startup_user(settings: &PoolSettings) -> &str {
    settings.startup.iter().find(|(name, _)| name == "user").map_or("", |(_, user)| user)
}

fn cleartext_password<'a>(
    login: &'a ServerLogin,
    settings: &'a PoolSettings,
) -> Result<&'a str, Unable> {
    match (login.proof(), &settings.secret, &login.server_secret) {
        (Some(_), _, _) => {
            Err("the server asks for cleartext passwords: put user and password in the URL".into())
        }
        (None, _, Some(ServerSecret::Password(password)))
        | (None, Some(Secret::Plain(password)), _) => Ok(password),
        (None, None, None) => Ok(NO_PASSWORD),
        (None, Some(Secret::Md5(_) | Secret::Scram(_)) | None, _) => {
            Err(Unable::Secret("cleartext authentication: wrong password type"))
        }
    }
}

fn md5_hash(login: &ServerLogin, settings: &PoolSettings) -> Option<String> {
    let hash = |password: &[u8]| md5::hash(startup_user(settings).as_bytes(), password);
    match (login.proof(), &settings.secret, &login.server_secret) {
        (Some(password), _, _) => Some(hash(password)),
        (None, _, Some(ServerSecret::Password(password))) => Some(hash(password.as_bytes())),
        (None, Some(Secret::Plain(password)), _) => Some(hash(password.as_bytes())),
        (None, Some(Secret::Md5(stored)), _) => Some(stored.clone()),
        (None, _, Some(ServerSecret::Md5(stored))) => Some(stored.clone()),
        (None, None, None) => Some(hash(NO_PASSWORD.as_bytes())),
        (
            None,
            Some(Secret::Scram(_)) | None,
            Some(ServerSecret::Scram(_) | ServerSecret::Verifier) | None,
        ) => None,
    }
}

/// Returns the secret for SCRAM with the server.
fn scram_secret(login: &ServerLogin, settings: &PoolSettings) -> Result<ScramSecret, Unable> {
    if let Some(password) = login.proof() {
        return Ok(ScramSecret::Password(password.to_vec()));
    }
    match (&settings.secret, &login.server_secret) {
        (_, Some(ServerSecret::Password(password))) | (Some(Secret::Plain(password)), _) => {
            Ok(ScramSecret::Password(password.clone().into_bytes()))
        }
        (_, Some(ServerSecret::Scram(keys))) => Ok(ScramSecret::Keys(keys.clone())),
        (None, None) => Ok(ScramSecret::Password(NO_PASSWORD.into())),
        // A verifier alone is not enough: the client has not logged in by SCRAM.
        (Some(Secret::Scram(_)), Some(ServerSecret::Md5(_)) | None)
        | (_, Some(ServerSecret::Verifier)) => Err(Unable::NoKeys),
        (Some(Secret::Md5(_)) | None, Some(ServerSecret::Md5(_)))
        | (Some(Secret::Md5(_)), None) => {
            Err(Unable::Secret("SCRAM authentication: wrong password type"))
        }
    }
}
