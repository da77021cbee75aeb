//! The folder of a run: configuration, logs, sockets and certificates.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use net::sys::Address;

/// The port in the name of the canned server's unix socket. It is not a TCP port.
pub(super) const UNIX_PORT: u16 = 5_432;

/// The use of TLS by clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    None,
    /// A full handshake each time, with a certificate for a key of this kind.
    Fresh(Key),
    /// Sessions are resumed if the pooler allows it.
    Resumed,
}

/// The kind of key in the pooler's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// Elliptic curve P-256.
    P256,
    /// RSA with 2,048 bits.
    Rsa,
}

/// A temporary folder that any user may read, for configuration, logs and sockets. It is removed
/// when dropped.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: PathBuf,
    /// User and group id of the pooler if the benchmark runs as root, which PgBouncer refuses to
    /// do.
    user: Option<(u32, u32)>,
}

impl Workplace {
    pub(crate) fn create() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        let user = if fs::metadata("/proc/self")?.uid() == 0 {
            Some(unprivileged_user(&fs::read_to_string("/etc/passwd")?)?)
        } else {
            None
        };
        Ok(Self { folder, user })
    }

    /// Returns the path for the canned server's unix socket, and removes the socket of an earlier
    /// measurement.
    pub(crate) fn server_socket(&self) -> Address {
        let path = self.folder.join(format!(".s.PGSQL.{UNIX_PORT}"));
        // An error means that there was none.
        let _ = fs::remove_file(&path);
        Address::Unix(path)
    }

    /// Returns a command that runs the program as the pooler's user.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Creates a folder that belongs to the pooler's user.
    pub(crate) fn own_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.file(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        if let Some((user, group)) = self.user {
            chown(&folder, Some(user), Some(group))?;
        }
        Ok(folder)
    }

    /// Returns whether the programs run as another user.
    pub(super) fn is_for_another(&self) -> bool {
        self.user.is_some()
    }

    /// Returns an unused path in the folder.
    pub(super) fn vacant(&self, name: &str) -> Result<PathBuf> {
        let files = fs::read_dir(&self.folder)?.count();
        Ok(self.folder.join(format!("{name}-{files}")))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a path in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the pooler's self-signed certificate and its key. A process that has read earlier
    /// ones keeps them.
    pub(crate) fn certify(&self, tls: Tls) -> Result<Identity> {
        let identity = Identity::beside(&self.folder.join("pgbouncer.ini"));
        let Identity { certificate, key } = &identity;
        match tls {
            Tls::None => return Ok(identity),
            Tls::Fresh(Key::Rsa) => {
                // The library that makes the other keys cannot generate RSA keys.
                let output = Command::new("openssl")
                    .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj"])
                    .args(["/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
                    .arg("-keyout")
                    .arg(key)
                    .arg("-out")
                    .arg(certificate)
                    .output()
                    .context("cannot run openssl")?;
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "openssl: {said}");
            }
            Tls::Fresh(Key::P256) | Tls::Resumed => {
                let own = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
                fs::write(certificate, own.cert.pem())?;
                fs::write(key, own.signing_key.serialize_pem())?;
            }
        }
        if let Some((user, group)) = self.user {
            chown(key, Some(user), Some(group))?;
        }
        fs::set_permissions(key, Permissions::from_mode(0o600))?;
        Ok(identity)
    }
}

/// The files of a certificate and its private key.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Identity {
    /// Returns the names of the files that belong to this configuration.
    pub(super) fn beside(configuration: &Path) -> Self {
        let [certificate, key] =
            ["certificate.pem", "key.pem"].map(|name| configuration.with_file_name(name));
        Self { certificate, key }
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // Files that cannot be removed stay in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the user and group id of `postgres`, or of `nobody`.
fn unprivileged_user(passwd: &str) -> Result<(u32, u32)> {
    let find = |name: &str| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).context("no user postgres or nobody to run as")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_postgres_or_else_nobody() {
        let nobody = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(unprivileged_user(nobody).unwrap(), (65_534, 65_533));
        let both = format!("{nobody}postgres:x:101:104:,,,:/:/bin/bash\n");
        assert_eq!(unprivileged_user(&both).unwrap(), (101, 104));
        assert!(unprivileged_user("root:x:0:0::/:/bin/sh").is_err());
    }
}
