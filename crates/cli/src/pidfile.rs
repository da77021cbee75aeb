//! The pidfile: it names the running process, and prevents a second one from starting.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, anyhow, bail};
use config::in_words;
use proxy::log;

use crate::sys;

/// A pidfile of this process. The file is removed when dropped, if it still names this process.
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
}

/// Removes a file that was left by a process that has ended.
///
/// # Errors
/// When the process in the file is alive, or the file names none.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    let content = match fs::read_to_string(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            bail!("could not open pidfile '{}': {}", path.display(), in_words(&error));
        }
    };
    let pid = content.trim().parse().ok().filter(|pid: &i32| *pid > 0);
    // A file with our own id is stale as well: in a container every run may have the same id.
    let stale =
        pid.is_some_and(|pid| u32::try_from(pid) == Ok(process::id()) || !sys::process_exists(pid));
    if !stale {
        bail!("pidfile '{}' exists, another instance running?", path.display());
    }
    log!("stale pidfile, removing");
    fs::remove_file(path).with_context(|| format!("pidfile '{}'", path.display()))
}

/// Checks whether [`Pidfile::create`] could write the file. Returns the process that it names, if
/// that process runs.
///
/// # Errors
/// When it could not.
pub(crate) fn rehearse(path: &Path) -> anyhow::Result<Option<i32>> {
    let unable =
        |error| anyhow!("could not open pidfile '{}': {}", path.display(), in_words(&error));
    match fs::read_to_string(path) {
        Ok(content) => {
            let pid = content.trim().parse().ok().filter(|pid: &i32| *pid > 0);
            match pid {
                Some(pid) => Ok(sys::process_exists(pid).then_some(pid)),
                None => bail!("'{}' exists and names no process; remove it", path.display()),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            proxy::may_create_in(folder.unwrap_or(Path::new("."))).map_err(unable).map(|()| None)
        }
        Err(error) => Err(unable(error)),
    }
}

impl Pidfile {
    /// Writes the file, which must not exist.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| in_words(&error))
            .map_err(|why| anyhow!("could not open pidfile '{}': {why}", path.display()))?;
        let pidfile = Self { path: path.to_owned() };
        writeln!(file, "{}", process::id())
            .with_context(|| format!("could not write pidfile '{}'", path.display()))?;
        Ok(pidfile)
    }

    /// Replaces the pidfile of the process that we took over from, in one step: a reader finds
    /// either of them.
    pub(crate) fn replace(path: &Path) -> anyhow::Result<Self> {
        let new = path.with_added_extension("new");
        let failed = || format!("could not write pidfile '{}'", path.display());
        fs::write(&new, format!("{}\n", process::id())).with_context(failed)?;
        fs::rename(&new, path).with_context(failed)?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // Another process that took over has replaced the file by its own.
        let is_ours = fs::read_to_string(&self.path)
            .is_ok_and(|content| content.trim().parse() == Ok(process::id()));
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    #[test]
    fn a_pidfile_keeps_a_second_process_out_until_the_first_is_gone() {
        let path = env::temp_dir().join(format!("weir-pidfile-{}", process::id()));
        let text = |result: anyhow::Result<()>| result.map_err(|error| error.to_string());
        let taken = Err(format!("pidfile '{}' exists, another instance running?", path.display()));

        assert_eq!(text(check(&path)), Ok(()));
        let own = Pidfile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", process::id()));
        assert!(Pidfile::create(&path).is_err());
        drop(own);
        assert!(!path.exists());

        let mut child = Command::new("cat").stdin(process::Stdio::piped()).spawn().unwrap();
        fs::write(&path, format!("{}\n", child.id())).unwrap();
        assert_eq!(text(check(&path)), taken);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(text(check(&path)), Ok(()));
        assert!(!path.exists());

        for unreadable in ["", "abc", "0", "-1"] {
            fs::write(&path, unreadable).unwrap();
            assert_eq!(text(check(&path)), taken, "{unreadable:?}");
        }
        fs::write(&path, process::id().to_string()).unwrap();
        assert_eq!(text(check(&path)), Ok(()));
    }
}
