//! The list for the next process, if this one is killed: the descriptors of the lobbies, each with a
//! record. It is a file in memory. The holder (`crate::holder`) has the same descriptors, and
//! reads the file when this process has ended.
//!
//! The file is a sequence of entries; a later entry of the same key replaces the earlier one. An
//! entry is written by one call, so a process that is killed leaves whole entries, and perhaps a part
//! of the last one, which is ignored.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::fs::FileExt as _,
    },
};

use engine::records::HeldRecord;
use net::sys::{process, shared_memory};

use crate::warning;

/// The key, and the lengths of descriptors and record.
const HEAD_LEN: usize = 16;
/// The count of descriptors of an entry that only removes the one before.
const REMOVED: u32 = u32::MAX;
/// The file is rewritten without its replaced entries when it has twice its length then, and at
/// least this one.
const COMPACT_MIN: u64 = 256 * 1024;

/// The subject of an entry. `at`: the number of a lobby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Process,
    Lobby(usize),
    Line(usize, u32),
    Guest(usize, u32),
}

impl Key {
    fn number(self) -> u64 {
        let (kind, at, place) = match self {
            Self::Process => (0, 0, 0),
            Self::Lobby(at) => (1, at, 0),
            Self::Line(at, line) => (2, at, line),
            Self::Guest(at, place) => (3, at, place),
        };
        kind << 56 | (at as u64 & 0xff_ffff) << 32 | u64::from(place)
    }

    fn of_number(number: u64) -> Self {
        let (at, place) = ((number >> 32 & 0xff_ffff) as usize, number as u32);
        match number >> 56 {
            1 => Self::Lobby(at),
            2 => Self::Line(at, place),
            3 => Self::Guest(at, place),
            _ => Self::Process,
        }
    }

    /// Returns the number of the lobby.
    pub(crate) fn lobby(self) -> Option<usize> {
        match self {
            Self::Process => None,
            Self::Lobby(at) | Self::Line(at, _) | Self::Guest(at, _) => Some(at),
        }
    }
}

/// Descriptors and record of an entry.
pub(crate) type Entry = (Vec<RawFd>, Vec<u8>);

/// Does nothing in a process without a holder.
#[derive(Debug, Default)]
pub(crate) struct HeldList(Option<List>);

#[derive(Debug)]
struct List {
    file: File,
    len: Cell<u64>,
    compact_at: Cell<u64>,
}

impl HeldList {
    /// # Errors
    /// When the system refuses.
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(shared_memory::plain_file(c"weir-held")?);
        Ok(Self(Some(List { file, len: Cell::new(0), compact_at: Cell::new(COMPACT_MIN) })))
    }

    /// Is there a holder?
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes these descriptors, which stay open until the entry is removed or replaced.
    pub(crate) fn put(&self, key: Key, fds: &[RawFd], record: &HeldRecord) {
        let Some(list) = &self.0 else { return };
        let written = record.to_bytes().map_err(io::Error::other).and_then(|record| {
            list.append(&entry(key.number(), fds, &record))?;
            list.compact_if_due()
        });
        if let Err(error) = written {
            warning!("a client of a direct pool would be lost with this process: {error}");
        }
    }

    /// Removes an entry. That of a lobby takes all entries of the lobby with it.
    pub(crate) fn remove(&self, key: Key) {
        let Some(list) = &self.0 else { return };
        let mut bytes = entry(key.number(), &[], &[]);
        bytes[8..12].copy_from_slice(&REMOVED.to_ne_bytes());
        if let Err(error) = list.append(&bytes) {
            warning!("the list of the clients of direct pools cannot be written: {error}");
        }
    }

    /// Reads all entries.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self) -> io::Result<Vec<(Key, Entry)>> {
        let Some(list) = &self.0 else { return Ok(Vec::new()) };
        let entries = list.entries()?.into_iter();
        Ok(entries.map(|(key, entry)| (Key::of_number(key), entry)).collect())
    }
}

impl List {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(bytes, self.len.get());
        if written.is_err() {
            // A part of it would be read with the next entry.
            let _ = self.file.set_len(self.len.get());
        }
        written?;
        self.len.set(self.len.get() + bytes.len() as u64);
        Ok(())
    }

    fn entries(&self) -> io::Result<BTreeMap<u64, Entry>> {
        // The process that reads may be another one than the one that has written.
        let mut bytes = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(decode(&bytes))
    }

    /// Rewrites the file if most of it may be of no use any more. The number of its descriptor stays.
    fn compact_if_due(&self) -> io::Result<()> {
        if self.len.get() < self.compact_at.get() {
            return Ok(());
        }
        let entries = self.entries()?.into_iter();
        let bytes: Vec<u8> =
            entries.flat_map(|(key, (fds, record))| entry(key, &fds, &record)).collect();
        let fresh: OwnedFd = shared_memory::plain_file(c"weir-held")?;
        let fresh = File::from(fresh);
        fresh.write_all_at(&bytes, 0)?;
        process::replace(self.file.as_raw_fd(), &fresh.into())?;
        self.len.set(bytes.len() as u64);
        self.compact_at.set((2 * bytes.len() as u64).max(COMPACT_MIN));
        Ok(())
    }
}

fn entry(key: u64, fds: &[RawFd], record: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_LEN + size_of_val(fds) + record.len());
    bytes.extend(key.to_ne_bytes());
    bytes.extend((fds.len() as u32).to_ne_bytes());
    bytes.extend((record.len() as u32).to_ne_bytes());
    fds.iter().for_each(|fd| bytes.extend(fd.to_ne_bytes()));
    bytes.extend(record);
    bytes
}

fn decode(mut bytes: &[u8]) -> BTreeMap<u64, Entry> {
    let mut entries = BTreeMap::new();
    while let Some((key, entry)) = take_entry(&mut bytes) {
        let Some(entry) = entry else {
            entries.remove(&key);
            if let Key::Lobby(at) = Key::of_number(key) {
                entries.retain(|key, _| Key::of_number(*key).lobby() != Some(at));
            }
            continue;
        };
        entries.insert(key, entry);
    }
    entries
}

/// Returns `None` for the entry if it is a removal.
fn take_entry(bytes: &mut &[u8]) -> Option<(u64, Option<Entry>)> {
    let key = u64::from_ne_bytes(take(bytes)?);
    let count = u32::from_ne_bytes(take(bytes)?);
    let len = u32::from_ne_bytes(take(bytes)?) as usize;
    if count == REMOVED {
        return Some((key, None));
    }
    let fds = (0..count).map(|_| take(bytes).map(RawFd::from_ne_bytes)).collect::<Option<_>>()?;
    let (record, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some((key, Some((fds, record.to_vec()))))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use engine::records::ProcessRecord;

    use super::*;

    fn record(ahead: i64) -> HeldRecord {
        HeldRecord::Process(ProcessRecord { ahead, ..ProcessRecord::default() })
    }

    fn keys(list: &HeldList) -> Vec<Key> {
        list.read().unwrap().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn the_last_entry_of_a_key_counts_and_a_lobby_takes_its_entries_with_it() {
        let list = HeldList::new().unwrap();
        list.put(Key::Lobby(1), &[5, 6], &record(1));
        list.put(Key::Guest(1, 4), &[7], &record(2));
        list.put(Key::Guest(1, 4), &[8, 9], &record(3));
        list.put(Key::Guest(2, 4), &[], &record(4));
        list.put(Key::Line(1, 3), &[1], &record(5));
        list.remove(Key::Line(1, 3));
        assert_eq!(keys(&list), [Key::Lobby(1), Key::Guest(1, 4), Key::Guest(2, 4)]);
        let entries = list.read().unwrap();
        assert_eq!(entries[1].1, (vec![8, 9], record(3).to_bytes().unwrap()));
        list.remove(Key::Lobby(1));
        assert_eq!(keys(&list), [Key::Guest(2, 4)]);
    }

    #[test]
    fn the_file_stays_small_and_keeps_its_number() {
        let list = HeldList::new().unwrap();
        let number = || list.0.as_ref().map(|own| own.file.as_raw_fd());
        let before = number();
        list.put(Key::Lobby(0), &[5], &record(1));
        for round in 0..100_000 {
            list.put(Key::Guest(0, round % 10), &[round as RawFd], &record(round.into()));
            list.remove(Key::Guest(0, (round + 5) % 10));
        }
        let own = list.0.as_ref().unwrap();
        assert!(own.file.metadata().unwrap().len() <= COMPACT_MIN + 100);
        assert_eq!(number(), before);
        assert_eq!(keys(&list).len(), 6);
    }

    #[test]
    fn a_part_of_an_entry_is_ignored() {
        let whole = entry(Key::Guest(0, 1).number(), &[3, 4], b"abc");
        let twice = [&whole[..], &whole[..]].concat();
        for len in whole.len()..twice.len() {
            assert_eq!(decode(&twice[..len]).len(), 1, "{len}");
        }
        assert_eq!(decode(&whole[..10]).len(), 0);
    }

    #[test]
    fn without_a_holder_nothing_is_noted() {
        let list = HeldList::default();
        list.put(Key::Process, &[], &record(1));
        assert!(!list.is_on() && list.read().unwrap().is_empty());
    }
}
