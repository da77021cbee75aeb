//! A second process with the same descriptors (clone(2), `CLONE_FILES`). The two share one table: a
//! descriptor that one of them opens or closes is open or closed in both. If one of them is killed,
//! the other one still has them all.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
};

use super::checked;

/// Starts the second process. Its memory is a copy of this one's. Returns its number here, and
/// `None` there. The parent waits for its end by [`end_and_wait`].
///
/// # Errors
/// When this process has more than one thread: the copy of another thread's lock would stay locked.
/// When the system refuses.
pub fn start() -> io::Result<Option<u32>> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("there is more than one thread"));
    }
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: without `CLONE_VM`, this is a fork: both processes return here, on their own stacks.
    // There is only this thread, so no lock is held in the copy.
    let number = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match checked(libc::c_int::try_from(number).unwrap_or(-1))? {
        0 => Ok(None),
        number => Ok(Some(number.cast_unsigned())),
    }
}

/// Leaves the parent's session, so that signals to its group do not reach this process. Sets the
/// name that tools show.
pub fn stand_alone(name: &CStr) {
    // SAFETY: the name is a live C string; the other call takes nothing.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
}

/// Ends this process at once, with status 0. Nothing of the parent's is cleaned up.
pub fn end() -> ! {
    // SAFETY: takes an integer, and runs nothing of ours.
    unsafe { libc::_exit(0) }
}

/// Kills a process that [`start`] has started, and waits for its end.
pub fn end_and_wait(number: u32) {
    let number = number.cast_signed();
    let mut status = 0;
    // SAFETY: the process is a child that was not waited for, so no other process has its number.
    // The status is a live integer.
    unsafe {
        libc::kill(number, libc::SIGKILL);
        while libc::waitpid(number, &raw mut status, 0) == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Closes all descriptors but these. No other process may share the table any more.
///
/// # Errors
/// When the system refuses.
pub fn close_all_but(mut kept: Vec<RawFd>) -> io::Result<()> {
    kept.sort_unstable();
    kept.dedup();
    let mut from = 0;
    for number in kept {
        let number = libc::c_uint::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        if number > from {
            close_range(from, number - 1)?;
        }
        from = number + 1;
    }
    close_range(from, libc::c_uint::MAX)
}

fn close_range(from: libc::c_uint, to: libc::c_uint) -> io::Result<()> {
    // SAFETY: takes integers only. Owners of these descriptors are never dropped: see `end`.
    let done = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    checked(libc::c_int::try_from(done).unwrap_or(-1)).map(drop)
}

/// Waits until one of the descriptors has something to read, or its other side has ended. Returns
/// which of them; none after the timeout. -1: no timeout.
///
/// # Errors
/// When the system refuses.
pub fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], timeout_ms: i32) -> io::Result<[bool; N]> {
    let mut all =
        fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    loop {
        // SAFETY: as many live elements as the count says.
        let found = unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t, timeout_ms) };
        match checked(found) {
            Ok(_) => return Ok(all.map(|one| one.revents != 0)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
