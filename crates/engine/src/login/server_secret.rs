//! The type [`ServerSecret`].

use wire::scram::ScramKeys;

/// A secret for logins to servers, learnt from a client's login.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerSecret {
    /// The password that `auth_query` returned and the client has proven.
    Password(String),
    /// The keys from the client's own SCRAM proof, or derived from its password.
    Scram(ScramKeys),
    /// `md5` and 32 digits.
    Md5(String),
    /// `auth_query` returned a SCRAM verifier, and the client has not revealed the keys. Servers
    /// that ask for a password cannot be opened.
    Verifier,
}

impl std::fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "ServerSecret::Password",
            Self::Scram(_) => "ServerSecret::Scram",
            Self::Md5(_) => "ServerSecret::Md5",
            Self::Verifier => "ServerSecret::Verifier",
        })
    }
}
