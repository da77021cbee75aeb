//! Commands that run as an unprivileged user, since neither PostgreSQL nor a pooler runs as root.
//! If the tests are not run by root, this is their own user.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::network::Host;

/// The account that Debian's packages create for PostgreSQL.
pub(crate) const ACCOUNT: &str = "postgres";

/// Returns a command that runs `program` as the unprivileged user.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = setpriv();
    command.args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--init-groups"]).arg(program);
    command
}

/// Returns such a command at a host of a network, if there is one. Only root has networks.
pub(crate) fn command_at(host: Option<&Host>, program: impl AsRef<OsStr>) -> Command {
    let Some(host) = host else { return command(program) };
    let mut command = host.enter();
    command.args(["setpriv", "--reuid", ACCOUNT, "--regid", ACCOUNT, "--init-groups"]);
    command.arg(program);
    command
}

/// Returns such a command that the kernel kills when the *thread* that started it ends. For
/// processes of a single test: a test has one thread, which ends after dropping them.
pub fn mortal_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = setpriv();
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--init-groups"]);
    }
    command.arg(program);
    command
}

/// Returns such a command at a host of a network. It may change the addresses of that host.
pub(crate) fn mortal_command_at(host: &Host, program: impl AsRef<OsStr>) -> Command {
    const RIGHTS: &str = "+net_admin,+net_raw";
    let mut command = host.enter();
    command.args(["setpriv", "--pdeathsig", "KILL", "--reuid", ACCOUNT, "--regid", ACCOUNT]);
    command.args(["--init-groups", "--inh-caps", RIGHTS, "--ambient-caps", RIGHTS]);
    command.arg(program);
    command
}

/// Returns such a command with its own `/dev`, in which `log` is the socket at this path. Root
/// only.
pub(crate) fn mortal_command_with_log(program: impl AsRef<OsStr>, socket: &Path) -> Command {
    const SCRIPT: &str = "set -e; dev=$2.dev; mkdir \"$dev\"; \
        for name in null zero urandom; do \
            : >\"$dev/$name\"; mount --bind /dev/$name \"$dev/$name\"; \
        done; \
        ln -s \"$2\" \"$dev/log\"; mount --rbind \"$dev\" /dev; \
        account=$1; shift 2; \
        exec setpriv --pdeathsig KILL --reuid $account --regid $account --init-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "dev", ACCOUNT]).arg(socket).arg(program);
    command
}

/// Returns such a command that finds other files in the place of the system's: each as (system's
/// path, file). Root only.
pub(crate) fn mortal_command_with_files(
    program: impl AsRef<OsStr>,
    files: &[(PathBuf, PathBuf)],
) -> Command {
    const SCRIPT: &str = "set -e; account=$1; count=$2; shift 2; \
        while [ $count -gt 0 ]; do mount --bind \"$2\" \"$1\"; shift 2; count=$((count - 1)); done; \
        exec setpriv --pdeathsig KILL --reuid $account --regid $account --init-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "files", ACCOUNT, &files.len().to_string()]);
    for (system, file) in files {
        command.arg(system).arg(file);
    }
    command.arg(program);
    command
}

/// Runs a command to its end. Panics with its words if it fails.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes the unprivileged user the owner of `path`.
pub fn give_away(path: &Path) {
    if is_root() {
        let (uid, gid) = account();
        chown(path, Some(uid), Some(gid))
            .unwrap_or_else(|e| panic!("cannot give {} to {ACCOUNT}: {e}", path.display()));
    }
}

/// Does this process run as root?
pub fn is_root() -> bool {
    static ROOT: OnceLock<bool> = OnceLock::new();
    *ROOT.get_or_init(|| std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0))
}

fn setpriv() -> Command {
    Command::new("setpriv")
}

fn account() -> (u32, u32) {
    static IDS: OnceLock<(u32, u32)> = OnceLock::new();
    *IDS.get_or_init(|| {
        let passwd = std::fs::read_to_string("/etc/passwd").expect("cannot read /etc/passwd");
        passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&ACCOUNT))
            .and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
            .unwrap_or_else(|| panic!("no user {ACCOUNT}: install the package postgresql"))
    })
}
