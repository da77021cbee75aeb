//! The pidfile: it names the running process, and prevents a second one from starting.
//!
//! Two processes may change it at a time: an old one that ends, and the one that takes over from it.
//! So a process that removes or replaces the file has it locked, from its look at the content on.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use config::in_words;
use proxy::log;

use crate::sys;

/// The time for which a process may keep the file locked. It needs some microseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_micros(500);

/// A pidfile of a process. The file is removed when dropped, if it still names that process.
#[derive(Debug)]
pub(crate) struct Pidfile {
    path: PathBuf,
    pid: u32,
}

/// A file that no other process removes or replaces until this is dropped.
struct Claimed {
    /// Has the lock.
    _file: File,
    content: String,
}

/// Locks the file at `path` and reads it. `None`: there is none.
fn claim(path: &Path) -> io::Result<Option<Claimed>> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_locked = lock(&file, until);
        // Another process may have removed or replaced it meanwhile.
        let is_there = fs::metadata(path).is_ok_and(|there| {
            file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
        });
        if is_there || !is_locked {
            let mut content = String::new();
            file.read_to_string(&mut content)?;
            return Ok(Some(Claimed { _file: file, content }));
        }
    }
}

/// Waits for the lock. Returns false if there is none: a process that was stopped has it, or the
/// file system has no locks.
fn lock(file: &File, until: Instant) -> bool {
    loop {
        match file.try_lock() {
            Ok(()) => return true,
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return false,
        }
    }
}

/// Removes a file that was left by a process that has ended.
///
/// # Errors
/// When the process in the file is alive, or the file names none.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    let claimed = match claim(path) {
        Ok(Some(claimed)) => claimed,
        Ok(None) => return Ok(()),
        Err(error) => {
            bail!("could not open pidfile '{}': {}", path.display(), in_words(&error));
        }
    };
    let pid = claimed.content.trim().parse().ok().filter(|pid: &i32| *pid > 0);
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
        let pidfile = Self { path: path.to_owned(), pid: process::id() };
        writeln!(file, "{}", pidfile.pid)
            .with_context(|| format!("could not write pidfile '{}'", path.display()))?;
        Ok(pidfile)
    }

    /// Replaces the pidfile of the process that we took over from, in one step: a reader finds
    /// either of them.
    pub(crate) fn replace(path: &Path) -> anyhow::Result<Self> {
        Self { path: path.to_owned(), pid: process::id() }.written_over()
    }

    fn written_over(self) -> anyhow::Result<Self> {
        let new = self.path.with_added_extension("new");
        let failed = || format!("could not write pidfile '{}'", self.path.display());
        fs::write(&new, format!("{}\n", self.pid)).with_context(failed)?;
        let former = claim(&self.path);
        fs::rename(&new, &self.path).with_context(failed)?;
        drop(former);
        Ok(self)
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // Another process that took over may have replaced the file by its own.
        if let Ok(Some(claimed)) = claim(&self.path)
            && claimed.content.trim().parse() == Ok(self.pid)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command, sync::Barrier};

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

    #[test]
    fn an_old_process_that_ends_leaves_the_file_of_the_new_one() {
        let path = env::temp_dir().join(format!("weir-pidfile-race-{}", process::id()));
        for _ in 0..3000 {
            let own = |pid| Pidfile { path: path.clone(), pid };
            let old = own(1).written_over().unwrap();
            let at_once = Barrier::new(2);
            let new = thread::scope(|scope| {
                let ends = scope.spawn(|| {
                    at_once.wait();
                    drop(old);
                });
                at_once.wait();
                let new = own(2).written_over().unwrap();
                ends.join().unwrap();
                new
            });
            assert_eq!(fs::read_to_string(&path).unwrap(), "2\n");
            drop(new);
            assert!(!path.exists());
        }
    }
}
