//! The files and servers that the test processes of one run share: empty clusters to copy, the
//! library, running clusters.
//!
//! A runner that starts a process for each test names a folder for the run (`WEIR_TEST_RUN`), in
//! which `scripts/test-run` keeps the servers alive. Without it, each process is a run of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::scratch;

/// Returns the folder of a run of several processes.
pub(crate) fn shared() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os("WEIR_TEST_RUN").map(PathBuf::from)).as_deref()
}

/// Returns the folder of the run.
fn folder() -> &'static Path {
    shared().unwrap_or_else(|| scratch::root())
}

/// Returns the path of `name` in the run's folder. The first caller of the run makes it, and all
/// others wait for that.
pub(crate) fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let (path, made) = (folder().join(name), folder().join(format!("{name}.made")));
    let _lock = lock(name);
    if !made.exists() {
        // The remains of a caller that has failed.
        let _ = fs::remove_dir_all(&path);
        make(&path);
        fs::write(&made, "").expect("the run's own folder");
    }
    path
}

/// Returns a number that no other call of this run has got for `what`.
pub(crate) fn number(what: &str) -> u64 {
    let mut file = lock(what);
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the run's own file");
    let number = text.parse().unwrap_or(0);
    file.rewind().and_then(|()| write!(file, "{}", number + 1)).expect("the run's own file");
    number
}

/// Reserves `what` for the caller, and returns whether it was free.
pub(crate) fn claim(what: &str) -> bool {
    match File::create_new(folder().join(what)) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        Err(e) => panic!("cannot write to {}: {e}", folder().display()),
    }
}

/// Returns the end of a pipe that is open for writing as long as the run lasts.
pub(crate) fn lifeline(run: &Path) -> File {
    File::open(run.join("alive")).expect("scripts/test-run makes it")
}

/// Locks until the returned file is closed, also against other threads.
fn lock(name: &str) -> File {
    let path = folder().join(format!("{name}.lock"));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.unwrap_or_else(|e| panic!("cannot open {}: {e}", path.display()));
    file.lock().expect("a file of a local disk can be locked");
    file
}
