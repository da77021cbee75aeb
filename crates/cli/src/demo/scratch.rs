//! The temporary directory that holds all of a demo, removed when the value is dropped.

use std::{
    env, fs,
    os::unix::fs::{DirBuilderExt as _, chown},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{say, secret};
use crate::sys::User;

#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory nobody else can look into, and gives it to `owner`.
    pub(super) fn create(owner: Option<&User>) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("weir-demo-{}", &secret::random()?[..8]));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("could not create {}", path.display()))?;
        let scratch = Self { path };
        scratch.give(&scratch.path, owner)?;
        Ok(scratch)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the directory for `owner` to read; nobody else gets at it, by way of the
    /// directory's mode.
    pub(super) fn write(
        &self,
        name: &str,
        content: &str,
        owner: Option<&User>,
    ) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
        self.give(&path, owner)?;
        Ok(path)
    }

    fn give(&self, path: &Path, owner: Option<&User>) -> anyhow::Result<()> {
        let Some(owner) = owner else { return Ok(()) };
        chown(path, Some(owner.uid), Some(owner.gid))
            .with_context(|| format!("could not give {} to {}", path.display(), owner.name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            say(&format!("could not remove {}: {error}", self.path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_private_and_goes_with_everything_in_it() {
        let scratch = Scratch::create(None).unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(path.join("data")).unwrap();
        scratch.write("data/file", "content", None).unwrap();
        assert_eq!(fs::read_to_string(path.join("data/file")).unwrap(), "content");
        drop(scratch);
        assert!(!path.exists());
    }
}
