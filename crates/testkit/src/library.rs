//! The library `weir` for the installed PostgreSQL, built from a copy of `extension/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::binaries::postgres_program;
use crate::scratch;

/// Do all servers of the installed PostgreSQL load the library (`WEIR_LIBRARY=1`)? Weir then probes
/// none of them.
pub fn is_everywhere() -> bool {
    std::env::var_os("WEIR_LIBRARY").is_some_and(|value| value == "1")
}

/// Returns the file that a server loads.
pub fn file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extension");
        let copy = scratch::root().join("extension");
        run(Command::new("cp").arg("-R").arg(&source).arg(&copy));
        let pg_config = format!("PG_CONFIG={}", postgres_program("pg_config").display());
        // Objects for another server may be in the folder of the sources.
        run(Command::new("make").args(["-s", "-B", "-C"]).arg(&copy).arg(pg_config).arg("weir.so"));
        copy.join("weir.so")
    })
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("cannot run cp or make");
    assert!(
        output.status.success(),
        "cannot build the library weir (scripts/setup extension installs what it needs): {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
