//! A pooler's program: PgBouncer, Weir, or one of the relays, which are the lower bound.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::workplace::Workplace;

/// The kind of a pooler's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Make {
    /// PgBouncer, with its major and minor version.
    PgBouncer(u32, u32),
    Weir,
    /// This program's own [`crate::relay`].
    Relay,
    /// The relay with io_uring, [`crate::relay`] with `--ring`.
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

/// All programs that the benchmark can measure.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) pgbouncer: Binary,
    pub(crate) weir: Binary,
    pub(super) relay: Binary,
    pub(super) ring: Binary,
}

impl Programs {
    /// Finds the programs. Without `pgbouncer`, searches for PgBouncer in the usual places.
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
        let (label, make) = parse_version(&text)
            .with_context(|| format!("{} -V says {text:?}", program.display()))?;
        Ok(Self { path, label: label.to_owned(), make })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether named prepared statements work in transaction mode. PgBouncer supports them
    /// from 1.21 on.
    pub(crate) fn prepares_statements(&self) -> bool {
        match self.make {
            Make::PgBouncer(major, minor) => (major, minor) >= (1, 21),
            Make::Weir => true,
            Make::Relay | Make::Ring => false,
        }
    }
}

/// As root, copies the program to a folder that the pooler's user can read: the build folder may be
/// closed to other users.
fn within_reach(workplace: &Workplace, program: &Path) -> Result<PathBuf> {
    if !workplace.is_for_another() {
        // The program is started in another folder, so its path must be absolute.
        return program.canonicalize().with_context(|| program.display().to_string());
    }
    let copy = workplace.vacant("pooler")?;
    fs::copy(program, &copy).with_context(|| program.display().to_string())?;
    fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// Parses the output of `-V`. Both programs print PgBouncer's version in the first line. Weir prints its
/// own in the second line, PgBouncer the libraries that it was built with. Returns the program's own name
/// with its version.
fn parse_version(text: &str) -> Option<(&str, Make)> {
    let mut lines = text.lines().map(str::trim);
    let first = lines.next()?;
    let mut numbers = first.strip_prefix("PgBouncer ")?.split('.').map(str::parse);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    match lines.next().filter(|second| second.starts_with("Weir ")) {
        Some(own) => Some((own, Make::Weir)),
        None => Some((first, Make::PgBouncer(version.0, version.1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_either_pooler() {
        for (text, label, make) in [
            ("PgBouncer 1.18.0\n", "PgBouncer 1.18.0", Make::PgBouncer(1, 18)),
            ("PgBouncer 1.25.2\nlibevent 2.1.12\n", "PgBouncer 1.25.2", Make::PgBouncer(1, 25)),
            ("PgBouncer 1.25.2\nWeir 0.1.0\n", "Weir 0.1.0", Make::Weir),
        ] {
            assert_eq!(parse_version(text), Some((label, make)));
        }
        let own = config::version_lines();
        assert_eq!(parse_version(&own).map(|(_, make)| make), Some(Make::Weir), "{own}");
        for text in ["", "weir 0.1.0", "PgBouncer", "PgBouncer x.y"] {
            assert_eq!(parse_version(text), None);
        }
    }
}
