//! Who may come in: the exchange with a client up to "authenticated", without any I/O.
//! The methods and texts are PgBouncer's (its `auth_type`), the messages are those of the
//! protocol chapter 55.2.1.

use std::collections::HashMap;
use std::sync::Arc;

use config::{AuthType, Config};
use wire::scram::{ScramServer, ScramVerifier};
use wire::secret::Secret;

use crate::vars::Vars;

/// A login in progress.
#[derive(Debug, Default)]
pub struct Login {
    pub peer: Peer,
    pub step: LoginStep,
    pub buffer: Vec<u8>,
    /// The client's own values of tracked parameters.
    pub vars: Vars,
    pub credential: Option<Arc<Credential>>,
    /// Database and user name asked for.
    pub database: String,
    pub user: String,
}

/// Where the client comes from, as far as it matters for what it may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// A unix socket.
    pub local: bool,
    /// A unix socket whose other end is a process of our own user.
    pub same_user: bool,
    /// A unix socket or a loopback address: nobody in between can listen.
    pub loopback: bool,
}

#[derive(Debug, Default)]
pub enum LoginStep {
    #[default]
    ExpectStartup,
    ExpectCleartext,
    ExpectMd5 {
        salt: [u8; 4],
    },
    ExpectSaslInitial(ScramServer),
    ExpectSaslResponse(ScramServer),
    /// A login to PostgreSQL with the client's password is under way.
    Proving,
}

/// What a user of auth_file has to know.
pub struct Credential {
    pub secret: Secret,
    /// For SCRAM; worked out once from a plain password.
    pub verifier: Option<ScramVerifier>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    /// `fake` is the secret of users that do not exist: their login takes the same course as with
    /// a wrong password.
    pub fn for_user(config: &Config, user: &str, salt: [u8; 16]) -> Option<Self> {
        let stored = config.auth_file.users.get(user)?;
        let secret = Secret::parse(stored);
        let verifier = match &secret {
            Secret::Plain(password) => Some(ScramVerifier::from_password(
                password.as_bytes(),
                &salt,
                config.global.scram_iterations,
            )),
            Secret::Scram(verifier) => Some(verifier.clone()),
            Secret::Md5(_) => None,
        };
        Some(Self { secret, verifier })
    }

    /// Does this cleartext password match?
    pub fn accepts(&self, user: &str, password: &[u8]) -> bool {
        use wire::md5;
        match &self.secret {
            Secret::Plain(known) => same(known.as_bytes(), password),
            Secret::Md5(hash) => {
                same(hash.as_bytes(), md5::hash(user.as_bytes(), password).as_bytes())
            }
            Secret::Scram(verifier) => verifier.verify_password(password),
        }
    }

    /// Does this answer to an MD5 challenge match?
    pub fn accepts_md5(&self, user: &str, salt: [u8; 4], answer: &[u8]) -> bool {
        use wire::md5;
        let hash = match &self.secret {
            Secret::Plain(known) => md5::hash(user.as_bytes(), known.as_bytes()),
            Secret::Md5(hash) => hash.clone(),
            Secret::Scram(_) => return false,
        };
        same(md5::response(&hash, salt).as_bytes(), answer)
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

/// The credentials seen so far of one configuration: parsing them and deriving SCRAM keys from
/// plain passwords is done once per user.
#[derive(Debug, Default)]
pub struct Credentials(HashMap<String, Arc<Credential>>);

impl Credentials {
    pub fn get(
        &mut self,
        config: &Config,
        user: &str,
        salt: impl FnOnce() -> [u8; 16],
    ) -> Option<Arc<Credential>> {
        if let Some(known) = self.0.get(user) {
            return Some(known.clone());
        }
        let credential = Arc::new(Credential::for_user(config, user, salt())?);
        self.0.insert(user.to_owned(), credential.clone());
        Some(credential)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The challenge a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// None: it is in.
    None,
    Cleartext,
    Md5,
    Scram,
    /// None, and it is out (`trust` with an unknown user).
    Refused,
}

/// Which challenge is due. An unknown user is challenged like any other.
pub fn challenge(method: AuthType, credential: Option<&Credential>) -> Challenge {
    let is_scram = credential.is_some_and(|known| matches!(known.secret, Secret::Scram(_)));
    match method {
        AuthType::Any => Challenge::None,
        AuthType::Trust if credential.is_some() => Challenge::None,
        AuthType::Trust => Challenge::Refused,
        AuthType::Plain => Challenge::Cleartext,
        AuthType::Md5 if is_scram => Challenge::Scram,
        AuthType::Md5 => Challenge::Md5,
        AuthType::ScramSha256 => Challenge::Scram,
        AuthType::Cert | AuthType::Hba | AuthType::Ldap | AuthType::Pam => Challenge::Refused,
    }
}
