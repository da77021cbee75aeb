//! A file in memory that this process shares with others (memfd_create(2)).
//!
//! The other processes may write every byte at any time. `crates/room` has the functions that use it.

#![expect(unsafe_code, reason = "a mapping, and direct system calls")]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr::{self, NonNull},
};

use super::checked;

/// The file and its mapping. Its pages are zeros, and take memory when they are written.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping stays where it is until the drop. This file does not look into it.
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

    /// Returns the first byte of the mapping, which lives as long as `self`. A caller that reads or
    /// writes there decides how the processes agree.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn size(&self) -> usize {
        self.size
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_opens_the_same_file() {
        let memory = SharedMemory::new(c"test", 8192).unwrap();
        let copy = || memory.file().try_clone().unwrap();
        let other = SharedMemory::open(copy(), 8192).unwrap();
        assert_eq!((memory.size(), other.size()), (8192, 8192));
        // SAFETY: both are mapped, and nobody else uses them.
        unsafe { memory.start().add(8191).write_volatile(5) };
        // SAFETY: as above.
        assert_eq!(unsafe { other.start().add(8191).read_volatile() }, 5);
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
}
