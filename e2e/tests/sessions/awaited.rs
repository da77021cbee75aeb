//! Faults that are known and not mended yet. An entry goes when its fault is mended: the scripts that
//! it lets pass are counted and named.

use crate::play::{Failure, Kind};

/// The name of the known fault that this failure shows.
pub(crate) fn fault(failure: &Failure) -> Option<&'static str> {
    let says = |words: &str| failure.what.contains(words);
    let is_about_names = [" 26000 ", " 42P05 ", " 25P02 "].into_iter().any(says);
    match failure.kind {
        Kind::Hang if says(" unverified ") => Some("a parameter's bytes are guessed to be a name"),
        Kind::Reply if says("app.kept") => Some("a setting among hundreds of names is not found"),
        Kind::Reply if is_about_names => Some("a name in a pipeline past a Sync"),
        Kind::Notifications => Some("a notification comes to another session"),
        _ => None,
    }
}
