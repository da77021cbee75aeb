//! Finds a password in libpq's password file.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Returns the password of the first line that matches host, port, database and user. As in libpq,
/// a file that others may read is ignored with a warning.
pub(super) fn find(path: &Path, place: &[&str; 2], login: &[&str; 2]) -> Option<String> {
    let mode = fs::metadata(path).ok().filter(fs::Metadata::is_file)?.permissions().mode();
    if mode & 0o077 != 0 {
        eprintln!(
            "WARNING: password file \"{}\" has group or world access; permissions should be \
             u=rw (0600) or less",
            path.display()
        );
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    config::password_in(&text, [place[0], place[1], login[0], login[1]])
}
