//! The files in memory (`memfd_create`) that a process has open.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Files are counted in blocks of this size.
const BLOCK: u64 = 512;

/// Returns the paths under which the files whose names begin so can be opened.
pub fn memory_files(process: u32, name: &str) -> impl Iterator<Item = PathBuf> {
    let wanted = format!("/memfd:{name}");
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs").flatten();
    files.map(|file| file.path()).filter(move |path| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(&wanted))
    })
}

/// Returns the bytes that all of them take.
pub fn memory_file_bytes(process: u32) -> u64 {
    let bytes = |path| fs::metadata(path).map_or(0, |file| file.blocks() * BLOCK);
    memory_files(process, "").map(bytes).sum()
}
