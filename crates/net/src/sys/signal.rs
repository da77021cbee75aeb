//! Signals as bytes to read: no handler interrupts a thread.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use tokio::io::unix::AsyncFd;

use super::{checked, checked_len};

/// Blocks these signals in this thread and all threads that it starts from now on, and makes them
/// readable instead.
pub fn divert(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: zero is a valid set, and it is emptied properly below.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a live value for all these calls, which only read or write it.
    unsafe {
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            checked(libc::sigaddset(&raw mut set, *signal))?;
        }
        let code = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
    }
    // SAFETY: as above.
    let fd = checked(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the runtime report when a signal can be read.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open as long as it lives, and always is the same descriptor.
    unsafe { AsyncFd::register(fd) }.map_err(Into::into)
}

/// Returns the next signal; `WouldBlock` if there is none.
pub fn next(fd: &OwnedFd) -> io::Result<libc::c_int> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
    let size = size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes to `info`, which is as long.
    checked_len(unsafe { libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size) })?;
    Ok(info.ssi_signo.cast_signed())
}
