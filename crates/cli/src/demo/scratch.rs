//! The temporary directory with all files of a demo. It is removed when dropped.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{secret, terminal::say};

#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a directory that no other user can enter.
    pub(super) fn create() -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("weir-demo-{}", &secret::random()?[..8]));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("could not create {}", path.display()))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the directory, which other users cannot enter.
    pub(super) fn write(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
        Ok(path)
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
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::create_dir(path.join("data")).unwrap();
        scratch.write("data/file", "content").unwrap();
        assert_eq!(fs::read_to_string(path.join("data/file")).unwrap(), "content");
        drop(scratch);
        assert!(!path.exists());
    }
}
