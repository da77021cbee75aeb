//! The files that are read and written.

use std::{
    fs::{OpenOptions, remove_file},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf, absolute},
};

use pgpool::Broken;

use super::shown;

/// Reads a file. Bytes that are not in UTF-8 are replaced; they are in comments, mostly.
pub(super) fn text(file: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&config::read_file(file)?).into_owned())
}

pub(super) fn needed(file: &Path) -> Result<String, Broken> {
    text(file).map_err(|error| unread(file, &error))
}

/// Reads a file that the operator has named. Returns its absolute name as well.
pub(super) fn named(file: &Path) -> Result<(String, String), Broken> {
    let file = absolute_of(file)?;
    Ok((shown(&file), needed(&file)?))
}

/// Reads a file that may be missing.
pub(super) fn optional(file: &Path) -> Result<Option<(String, String)>, Broken> {
    match text(file) {
        Ok(text) => Ok(Some((shown(file), text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unread(file, &error)),
    }
}

pub(super) fn absolute_of(file: &Path) -> Result<PathBuf, Broken> {
    absolute(file).map_err(|error| unread(file, &error))
}

fn unread(file: &Path, error: &io::Error) -> Broken {
    let what = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run weir convert as a user that may read it",
        io::ErrorKind::NotFound => "; correct the name",
        _ => "",
    };
    Broken::of_file(&shown(file), format!("cannot be read: {}{what}", config::in_words(error)))
}

/// Writes new files that only their owner may read. Either all are written, or none is.
pub(super) fn write_secret<'a>(
    files: impl Iterator<Item = (&'a Path, &'a str)>,
) -> Result<(), Broken> {
    let mut written = Vec::new();
    for (file, text) in files {
        let create = || {
            let mut opened =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            written.push(file);
            opened.write_all(text.as_bytes())
        };
        if let Err(error) = { create }() {
            written.iter().for_each(|file| drop(remove_file(file)));
            let what = match error.kind() {
                io::ErrorKind::AlreadyExists => "; move it away, or choose a folder by --secrets",
                _ => "; choose a folder by --secrets",
            };
            let why = format!("cannot be written: {}{what}", config::in_words(&error));
            return Err(Broken::of_file(&shown(file), why));
        }
    }
    Ok(())
}
