//! A file in memory that this process shares with others (memfd_create(2)).
//!
//! The other processes may write every byte at any time. So words are atomics, and all other bytes
//! are copied before they are looked at.

#![expect(unsafe_code, reason = "mapped memory, with the bounds of each access checked")]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use super::checked;

/// The file and its mapping. Its pages are zeros, and take memory when they are written.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping stays where it is until the drop. It is reached by atomics only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a file of this size, which nobody can shrink: otherwise a process that has it mapped
    /// could be killed by the kernel.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(name: &CStr, size: usize) -> io::Result<Self> {
        let length = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a live C string.
        let fd = checked(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: takes no pointers.
        checked(unsafe { libc::ftruncate(fd, length) })?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: takes no pointers.
        checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) })?;
        Self::map(file, size)
    }

    /// Opens a file that another process has made by [`SharedMemory::new`] with this size.
    ///
    /// # Errors
    /// When the file has another size, or can be shrunk, or the system refuses.
    pub fn open(file: OwnedFd, size: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        // SAFETY: all fields are integers, for which zero is valid.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: writes into the live structure.
        checked(unsafe { libc::fstat(file.as_raw_fd(), &raw mut facts) })?;
        let fits = usize::try_from(facts.st_size) == Ok(size);
        if !fits || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file, size)
    }

    fn map(file: OwnedFd, size: usize) -> io::Result<Self> {
        let fd = file.as_raw_fd();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file has this size.
        let start = unsafe { libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, start, size })
    }

    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// # Panics
    /// When `len` bytes from `at` on are not in the file, or are not aligned to `align`.
    fn place(&self, at: usize, len: usize, align: usize) -> *mut u8 {
        let end = at.checked_add(len).expect("an offset of the file");
        assert!(end <= self.size && at.is_multiple_of(align), "{at} is no place of the file");
        // SAFETY: `at` is within the mapping, as the assertion says.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// # Panics
    /// When `at` is no multiple of 4 in the file.
    pub fn word32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the place is mapped as long as `self`, is aligned (the mapping is to a page), and
        // every value is valid. All accesses in this process are atomic.
        unsafe { AtomicU32::from_ptr(self.place(at, 4, 4).cast()) }
    }

    /// # Panics
    /// When `at` is no multiple of 8 in the file.
    pub fn word64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as for `word32`.
        unsafe { AtomicU64::from_ptr(self.place(at, 8, 8).cast()) }
    }

    /// Writes bytes that no other process reads before a later store to a word.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let start = self.place(at, bytes.len(), 1);
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: as for `word32`; `place` has checked all of them.
            unsafe { AtomicU8::from_ptr(start.add(offset)) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// Returns a copy of bytes that no other process writes at this time.
    ///
    /// # Panics
    /// When they are not in the file.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let start = self.place(at, len, 1);
        let byte = |offset| {
            // SAFETY: as for `word32`; `place` has checked all of them.
            unsafe { AtomicU8::from_ptr(start.add(offset)) }.load(Ordering::Relaxed)
        };
        (0..len).map(byte).collect()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and references to it do not outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Makes a file in memory that is read and written, and not mapped.
///
/// # Errors
/// When the system refuses.
pub fn plain_file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a live C string.
    let fd = checked(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Punches a hole: the pages become zeros and take no memory.
///
/// # Errors
/// When the system refuses.
pub fn punch(memory: &SharedMemory, at: usize, len: usize) -> io::Result<()> {
    let (at, len) = (at as libc::off_t, len as libc::off_t);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: takes no pointers; other processes may read zeros from now on.
    checked(unsafe { libc::fallocate(memory.file.as_raw_fd(), mode, at, len) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_shared_and_holes_are_zeros() {
        let memory = SharedMemory::new(c"test", 8192).unwrap();
        memory.word64(8).store(7, Ordering::SeqCst);
        memory.word32(4).store(5, Ordering::SeqCst);
        memory.write(4097, b"abc");
        assert_eq!(memory.word64(0).load(Ordering::SeqCst), 5 << 32);
        assert_eq!(memory.word32(4096).load(Ordering::SeqCst), u32::from_le_bytes(*b"\0abc"));
        punch(&memory, 4096, 4096).unwrap();
        assert_eq!(memory.word32(4096).load(Ordering::SeqCst), 0);
    }

    #[test]
    fn another_process_opens_the_same_file() {
        let memory = SharedMemory::new(c"test", 8192).unwrap();
        let copy = || memory.file().try_clone().unwrap();
        let other = SharedMemory::open(copy(), 8192).unwrap();
        memory.word32(4).store(5, Ordering::SeqCst);
        assert_eq!(other.word32(4).load(Ordering::SeqCst), 5);
        assert!(SharedMemory::open(copy(), 4096).is_err());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedMemory::open(file.into(), 0).is_err());
    }

    #[test]
    fn nobody_can_shrink_the_file() {
        let memory = SharedMemory::new(c"test", 8192).unwrap();
        // SAFETY: takes no pointers.
        let result = unsafe { libc::ftruncate(memory.file().as_raw_fd(), 0) };
        assert!(checked(result).is_err());
    }

    #[test]
    #[should_panic(expected = "is no place of the file")]
    fn a_place_outside_is_refused() {
        SharedMemory::new(c"test", 4096).unwrap().word64(4096);
    }
}
