//! A pooler's program: PgBouncer, Weir, or the relay that both are more than.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::pooler::{Setting, Workplace};
use crate::socket::Address;

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    /// Its release.
    PgBouncer(u32, u32),
    Weir,
    /// This program's own [`crate::relay`].
    Relay,
    /// The same by io_uring.
    Ring,
}

/// A pooler's program.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(super) path: PathBuf,
    /// Its name and version, for people.
    pub(crate) label: String,
    pub(super) make: Make,
}

/// Those that are measured.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) pgbouncer: Binary,
    pub(crate) weir: Binary,
    pub(super) relay: Binary,
    pub(super) ring: Binary,
}

impl Programs {
    /// PgBouncer is looked for if it is not told where it is.
    pub(crate) fn find(
        workplace: &Workplace,
        weir: &Path,
        pgbouncer: Option<&Path>,
    ) -> Result<Self> {
        let pgbouncer = pgbouncer.map_or_else(find_pgbouncer, |path| Ok(path.to_owned()))?;
        let own = within_reach(workplace, &std::env::current_exe()?)?;
        Ok(Self {
            pgbouncer: Binary::new(workplace, &pgbouncer)?,
            weir: Binary::new(workplace, weir)?,
            relay: Binary { path: own.clone(), label: "relay".to_owned(), make: Make::Relay },
            ring: Binary { path: own, label: "relay on io_uring".to_owned(), make: Make::Ring },
        })
    }
}

fn find_pgbouncer() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join("pgbouncer"))
        .find(|path| Path::is_file(path))
        .context("pgbouncer is not installed; on Debian: apt-get install pgbouncer")
}

impl Binary {
    /// Asks the program for its version.
    fn new(workplace: &Workplace, program: &Path) -> Result<Self> {
        let path = within_reach(workplace, program)?;
        let output = Command::new(&path)
            .arg("-V")
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next().unwrap_or_default().trim();
        let make = parse_version(first)
            .with_context(|| format!("{} -V says {first:?}", program.display()))?;
        Ok(Self { path, label: first.to_owned(), make })
    }

    /// Whether named prepared statements work in transaction mode; PgBouncer's do from 1.21 on.
    pub(crate) fn prepares_statements(&self) -> bool {
        match self.make {
            Make::PgBouncer(major, minor) => (major, minor) >= (1, 21),
            Make::Weir => true,
            Make::Relay | Make::Ring => false,
        }
    }

    /// What it is started with. The relays read no file.
    pub(super) fn arguments(
        &self,
        setting: &Setting,
        server: &Address,
        port: u16,
        configuration: &Path,
    ) -> Vec<OsString> {
        let ring = match self.make {
            Make::PgBouncer(..) | Make::Weir => return vec![configuration.into()],
            Make::Relay => None,
            Make::Ring => Some("--ring"),
        };
        let listen = format!("127.0.0.1:{port}");
        let (server, servers) = (server.to_string(), setting.servers.to_string());
        let words = ["relay", "--listen", &listen, "--connect", &server, "--servers", &servers];
        words.into_iter().chain(ring).map(OsString::from).collect()
    }
}

/// As root it is copied to where the user it will run as can reach it: the folder it was built in may
/// be closed to others.
fn within_reach(workplace: &Workplace, program: &Path) -> Result<PathBuf> {
    if !workplace.is_for_another() {
        // It is started in another folder.
        return program.canonicalize().with_context(|| program.display().to_string());
    }
    let copy = workplace.vacant("pooler")?;
    fs::copy(program, &copy).with_context(|| program.display().to_string())?;
    fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// `PgBouncer 1.18.0` and what may follow.
/// Weir names the PgBouncer that it equals, and its own version in parentheses.
fn parse_version(line: &str) -> Option<Make> {
    let release = line.strip_prefix("PgBouncer ")?;
    if release.contains("(Weir ") {
        return Some(Make::Weir);
    }
    let mut numbers = release.split('.').map(str::parse);
    Some(Make::PgBouncer(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_either_pooler() {
        assert_eq!(parse_version("PgBouncer 1.18.0"), Some(Make::PgBouncer(1, 18)));
        assert_eq!(parse_version("PgBouncer 1.25.2"), Some(Make::PgBouncer(1, 25)));
        assert_eq!(parse_version(&config::version()), Some(Make::Weir));
        assert_eq!(parse_version("weir 0.1.0"), None);
    }
}
