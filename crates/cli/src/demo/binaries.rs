//! The paths of PostgreSQL's programs.

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

/// The programs of PostgreSQL that the demo needs. They must be in one directory, so that server
/// and client programs have the same version.
const NEEDED: [&str; 4] = ["initdb", "postgres", "psql", "pgbench"];
const DEBIAN: &str = "/usr/lib/postgresql";

#[derive(Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Returns the first complete directory of: the one that `pg_config` prints, Debian's, newest
    /// first, and `PATH`.
    ///
    /// # Errors
    /// When there is none, with the name of the Debian package to install.
    pub(super) fn find() -> anyhow::Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let candidates = pg_config().into_iter().chain(debian(Path::new(DEBIAN)));
        match candidates.chain(env::split_paths(&path)).find(|directory| is_complete(directory)) {
            Some(directory) => Ok(Self { directory }),
            None => bail!(
                "PostgreSQL ({}) was found neither by pg_config nor in {DEBIAN}/*/bin nor in PATH; \
                 on Debian, install the package postgresql",
                NEEDED.join(", ")
            ),
        }
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.directory.join(program)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim()))
}

/// Returns the `bin` of every major version under `root`, the newest first.
fn debian(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<_> = entries
        .filter_map(|entry| {
            let version: f32 = entry.file_name().to_str()?.parse().ok()?;
            Some((Reverse((version * 10.0) as u32), entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    versions.into_iter().map(|(_, directory)| directory).collect()
}

fn is_complete(directory: &Path) -> bool {
    !directory.as_os_str().is_empty()
        && NEEDED.iter().all(|program| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::scratch::Scratch;

    #[test]
    fn newer_versions_come_first_and_incomplete_ones_do_not_count() {
        let scratch = Scratch::create().unwrap();
        for version in ["9.6", "15", "17", "common"] {
            let bin = scratch.path().join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            let programs = if version == "17" { &NEEDED[1..] } else { &NEEDED[..] };
            for program in programs {
                fs::write(bin.join(program), "").unwrap();
            }
        }
        let found = debian(scratch.path());
        let expected = ["17", "15", "9.6"].map(|version| scratch.path().join(version).join("bin"));
        assert_eq!(found, expected);
        assert_eq!(found.into_iter().find(|bin| is_complete(bin)), Some(expected[1].clone()));
        assert!(!is_complete(Path::new("")));
    }
}
