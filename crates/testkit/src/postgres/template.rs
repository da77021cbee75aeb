//! The data of an empty cluster. `initdb` needs a second of CPU time, and a copy of its result a
//! tenth of that. So each process runs it once for each version.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::binaries::Version;
use crate::{guest, scratch};

/// Makes the folder `data`, an empty cluster. All clusters that are made so have the same system
/// identifier.
pub(super) fn copy(version: Version, data: &Path) {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    static EIGHTEEN: OnceLock<PathBuf> = OnceLock::new();
    let template = match version {
        Version::Installed => &INSTALLED,
        Version::Eighteen => &EIGHTEEN,
    };
    let template = template.get_or_init(|| {
        let made = scratch::folder("template").join("data");
        make(version, &made);
        made
    });
    guest::run(guest::command("cp").arg("-a").arg(template).arg(data));
}

/// Does the same, with a system identifier of its own.
pub(super) fn make(version: Version, data: &Path) {
    let folder = data.parent().expect("the folder of a cluster has a parent");
    guest::run(
        guest::command(version.program("initdb"))
            .arg("-D")
            .arg(data)
            .args(["-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .current_dir(folder),
    );
}
