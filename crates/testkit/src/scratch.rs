//! The temporary folder of this test process, which is removed however the process ends, and the
//! ports that it uses.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{guest, run};

/// Waits for the end of the process that holds its standard input, then removes the folder.
/// It tries for a while, because servers may still be writing their last files there.
const CARETAKER: &str = r#"cat >/dev/null
for _ in $(seq 100); do rm -rf -- "$1" 2>/dev/null && exit; sleep 0.1; done"#;

struct Scratch {
    root: PathBuf,
    /// Its standard input stays open as long as this process runs.
    _caretaker: Child,
}

static SCRATCH: OnceLock<Scratch> = OnceLock::new();
static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// Returns the root folder. Its path is short, since the path of a unix socket is limited to 107
/// bytes.
pub(crate) fn root() -> &'static Path {
    &SCRATCH.get_or_init(create).root
}

/// Makes a folder that belongs to the unprivileged user of PostgreSQL and the pooler.
pub fn folder(name: &str) -> PathBuf {
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let path = root().join(format!("{name}{number}"));
    fs::create_dir(&path).unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
    guest::give_away(&path);
    path
}

/// Opens the log of a process in its folder.
pub(crate) fn log_file(folder: &Path) -> Stdio {
    let file = fs::File::options().create(true).append(true).open(folder.join("log"));
    file.expect("our own folder").into()
}

/// Makes a folder that any user may write to, like `/tmp`; removed at the end of the process.
pub fn open_folder(name: &str) -> PathBuf {
    let path = folder(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).expect("our own folder");
    path
}

/// Returns a TCP port on 127.0.0.1 that is free and was not returned before in this run.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("no free port on 127.0.0.1");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        if run::claim(&format!("port{port}")) {
            return port;
        }
    }
}

fn create() -> Scratch {
    let pid = std::process::id();
    let root = (0..)
        .map(|n| std::env::temp_dir().join(format!("weir-{pid}-{n}")))
        .find(|path| match fs::create_dir(path) {
            Ok(()) => true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
            Err(e) => panic!("cannot create {}: {e}", path.display()),
        })
        .expect("the range has no end");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("our own folder");
    let caretaker = Command::new("sh")
        .args(["-c", CARETAKER, "caretaker"])
        .arg(&root)
        .stdin(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("cannot start sh");
    Scratch { root, _caretaker: caretaker }
}
