//! The data of an empty cluster. `initdb` needs a second of CPU time, and a copy of its result a
//! tenth of that. So each run of tests runs it once for each version.

use std::fs;
use std::path::Path;

use crate::binaries::Version;
use crate::{guest, run};

/// Makes the folder `data`, an empty cluster. All clusters that are made so have the same system
/// identifier.
pub(super) fn copy(version: Version, data: &Path) {
    let name = match version {
        Version::Installed => "template",
        Version::Eighteen => "template18",
    };
    let template = run::once(name, |folder| {
        fs::create_dir(folder).expect("the run's own folder");
        guest::give_away(folder);
        make(version, &folder.join("data"));
    });
    guest::run(guest::command("cp").arg("-a").arg(template.join("data")).arg(data));
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
