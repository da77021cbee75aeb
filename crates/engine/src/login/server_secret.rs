//! What a client's login has shown of how its user logs in to the server.

use wire::scram::ScramKeys;

/// What a client's login has shown us of how its user logs in to the server.
#[derive(Clone)]
pub enum ServerSecret {
    /// What `auth_query` told, and the client has proven to know.
    Password(String),
    /// From the client's own SCRAM proof, or derived from the password it gave.
    Scram(ScramKeys),
    /// `md5` and 32 digits.
    Md5(String),
    /// `auth_query` told a SCRAM verifier, and the client has not shown its keys: no server that wants a
    /// proof can be logged in to.
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
