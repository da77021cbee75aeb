//! The library `weir` for PostgreSQL, built from a copy of `extension/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::binaries::Version;
use crate::{run as test_run, scratch};

/// Do all servers of the installed PostgreSQL load the library (`WEIR_LIBRARY=1`)? Weir then probes
/// none of them.
pub fn is_everywhere() -> bool {
    is_direct() || std::env::var_os("WEIR_LIBRARY").is_some_and(|value| value == "1")
}

/// Do the backends also serve the clients' sockets, where they can (`WEIR_LIBRARY=direct`)?
pub fn is_direct() -> bool {
    std::env::var_os("WEIR_LIBRARY").is_some_and(|value| value == "direct")
}

/// Returns the file that a server of this version loads.
pub fn file(version: Version) -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    static EIGHTEEN: OnceLock<PathBuf> = OnceLock::new();
    match version {
        Version::Installed => INSTALLED.get_or_init(|| build(version, "library")),
        Version::Eighteen => EIGHTEEN.get_or_init(|| build(version, "library18")),
    }
}

/// Builds a library in which this file of the sources is another one.
pub fn altered(version: Version, file: &str, alter: impl FnOnce(String) -> String) -> PathBuf {
    let copy = scratch::folder("altered").join("extension");
    copy_to(&copy);
    let path = copy.join(file);
    let text = std::fs::read_to_string(&path).expect("a file of the sources");
    let other = alter(text.clone());
    assert_ne!(other, text, "{file} is as before");
    std::fs::write(&path, other).expect("our own folder");
    make(version, &copy);
    copy.join("weir.so")
}

fn build(version: Version, name: &str) -> PathBuf {
    let built = test_run::once(name, |folder| {
        copy_to(folder);
        make(version, folder);
    });
    built.join("weir.so")
}

fn copy_to(folder: &Path) {
    run(Command::new("cp").arg("-R").arg(source()).arg(folder));
}

fn make(version: Version, copy: &Path) {
    let pg_config = format!("PG_CONFIG={}", version.program("pg_config").display());
    // Objects for another server may be in the folder of the sources.
    run(Command::new("make").args(["-s", "-B", "-C"]).arg(copy).arg(pg_config).arg("weir.so"));
}

/// Returns the statements of `CREATE EXTENSION weir`, for a server that loads this file.
pub(crate) fn statements(file: &str) -> String {
    let text = std::fs::read_to_string(source().join("weir--1.0.sql")).expect("the script");
    let own = text.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n");
    own.replace("MODULE_PATHNAME", file)
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extension")
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("cannot run cp or make");
    assert!(
        output.status.success(),
        "cannot build the library weir (scripts/setup extension installs what it needs): {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
