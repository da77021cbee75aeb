//! The file in memory that Weir and the backends of a pool share (`extension/lobby.h`), as a test
//! sees it.

use std::{
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

use testkit::memory_files;

const MAGIC: &[u8] = b"WeirLoby";
const BACKENDS_AT: u64 = 12;
const PLACES_AT: u64 = 16;
const HEADER: u64 = 4096;
const BACKEND_LINE: u64 = 128;
const PLACE_LINE: u64 = 64;
/// The lowest bits of the word of a place: a backend has the client, and is to return it.
const OWNED_AND_RECALLED: u32 = 0x103;

pub(crate) struct Shared(File);

impl Shared {
    /// The file of this process's only lobby, if it has one.
    pub(crate) fn find(weir: u32) -> Option<Self> {
        let paths = memory_files(weir, "");
        let mut lobbies = paths.filter_map(|path| File::open(path).ok().filter(is_lobby));
        lobbies.next().map(Self)
    }

    fn number(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).expect("the file is that long");
        u32::from_ne_bytes(bytes)
    }

    /// How many clients have a backend that Weir has asked to return them?
    pub(crate) fn recalled(&self) -> usize {
        let (backends, places) = (self.number(BACKENDS_AT), self.number(PLACES_AT));
        let first = HEADER + u64::from(backends) * BACKEND_LINE;
        let words = (0..u64::from(places)).map(|place| self.number(first + place * PLACE_LINE));
        words.filter(|word| word & 0x1ff == OWNED_AND_RECALLED).count()
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.0.metadata().expect("it is open").blocks() * 512
    }
}

fn is_lobby(file: &File) -> bool {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}
