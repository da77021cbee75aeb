//! Login roles, and their authentication methods over TCP.

use super::Postgres;

/// A role's method is the group that it is in; without a group it is SCRAM.
pub(super) const HBA: &str = "\
local all postgres trust
host all +auth_trust 127.0.0.1/32 trust
host all +auth_password 127.0.0.1/32 password
host all +auth_md5 127.0.0.1/32 md5
host all,replication all 127.0.0.1/32 scram-sha-256
host all,replication all 198.18.0.0/16 scram-sha-256
";

/// The groups, and the role that most tests use. They survive a crash of the server right afterwards,
/// although other transactions do not wait until they are written.
pub(super) const GROUPS: &str = "\
SET synchronous_commit = on;
CREATE ROLE auth_trust; CREATE ROLE auth_password; CREATE ROLE auth_md5; CREATE ROLE auth_scram;
CREATE ROLE app LOGIN PASSWORD 'app-secret';
GRANT pg_signal_backend TO app";

/// The server's authentication method for a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAuth {
    /// No authentication.
    Trust,
    /// The password as text.
    Password,
    /// An MD5 challenge; the role's verifier must be MD5 too.
    Md5,
    /// SCRAM-SHA-256.
    Scram,
}

impl ServerAuth {
    /// Every method.
    pub const ALL: [Self; 4] = [Self::Trust, Self::Password, Self::Md5, Self::Scram];

    fn group(self) -> &'static str {
        match self {
            Self::Trust => "auth_trust",
            Self::Password => "auth_password",
            Self::Md5 => "auth_md5",
            Self::Scram => "auth_scram",
        }
    }
}

/// The stored form of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verifier {
    /// `md5` and 32 hexadecimal digits.
    Md5,
    /// `SCRAM-SHA-256$…`
    Scram,
}

/// A login role made for one test.
#[derive(Debug, Clone)]
pub struct Role {
    /// The role's name.
    pub name: String,
    /// The role's password.
    pub password: String,
    /// The server's stored form of the password, as in `auth_file`.
    pub verifier: String,
}

impl Role {
    /// The role of most tests; it logs in by SCRAM.
    pub const APP: &'static str = "app";
    /// Its password.
    pub const APP_PASSWORD: &'static str = "app-secret";
}

impl Postgres {
    /// Creates a role that logs in over TCP by `method`.
    pub fn role(&self, method: ServerAuth) -> Role {
        let verifier = if method == ServerAuth::Md5 { Verifier::Md5 } else { Verifier::Scram };
        self.role_with(method, verifier)
    }

    /// Creates a role with this kind of verifier.
    pub fn role_with(&self, method: ServerAuth, verifier: Verifier) -> Role {
        let name = self.name("role");
        let password = format!("secret of {name}");
        let kind = match verifier {
            Verifier::Md5 => "md5",
            Verifier::Scram => "scram-sha-256",
        };
        let mut superuser = self.superuser("postgres");
        superuser.rows(&format!("SET password_encryption = '{kind}'"));
        superuser.rows(&format!(
            "CREATE ROLE {name} LOGIN PASSWORD '{password}' IN ROLE {}",
            method.group()
        ));
        let stored =
            superuser.value(&format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{name}'"));
        Role { name, password, verifier: stored }
    }
}
