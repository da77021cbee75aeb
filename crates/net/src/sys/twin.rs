//! A second process with the same descriptors (clone(2), `CLONE_FILES`). The two share one table: a
//! descriptor that one of them opens or closes is open or closed in both. If one of them is killed,
//! the other one still has them all.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    collections::HashSet,
    ffi::CStr,
    fs, io, mem,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
};

use super::{checked, process::Process, socket};

/// Signals that end a process: its own faults, and requests to end.
const FATAL: [libc::c_int; 10] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGALRM,
];
/// Signals that may be meant for all processes of a program.
const IGNORED: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

/// Starts the second process. Its memory is a copy of this one's. Returns it here, as a child, and
/// `None` there.
///
/// # Errors
/// When this process has more than one thread: the copy of another thread's lock would stay locked.
/// When the system refuses.
pub fn start() -> io::Result<Option<Process>> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("there is more than one thread"));
    }
    let flags = libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: without `CLONE_VM`, this is a fork: both processes return here, on their own stacks.
    // There is only this thread, so no lock is held in the copy.
    let number = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match checked(libc::c_int::try_from(number).unwrap_or(-1))? {
        0 => Ok(None),
        number => Process::open(number.cast_unsigned()).map(Some).inspect_err(|_| {
            // SAFETY: takes integers only. The child was not waited for, so it has its number still.
            unsafe { libc::kill(number, libc::SIGKILL) };
        }),
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

/// Makes this process end with status 0 by the signals that would end it otherwise, also by those of
/// its own faults. SIGKILL remains. The parent may take another status for a crash of its own.
pub fn end_well() {
    extern "C" fn end_by_signal(_: libc::c_int) {
        end();
    }
    let handler = end_by_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in FATAL {
        // SAFETY: the handler calls only _exit(2), which may be called in a handler.
        unsafe { libc::signal(signal, handler) };
    }
    for signal in IGNORED {
        // SAFETY: takes integers only.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Ends this process at once, with status 0. Nothing of the parent's is cleaned up.
pub fn end() -> ! {
    // SAFETY: takes an integer, and runs nothing of ours.
    unsafe { libc::_exit(0) }
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
            close_all_of(from, number - 1)?;
        }
        from = number + 1;
    }
    close_all_of(from, libc::c_uint::MAX)
}

fn close_all_of(from: libc::c_uint, to: libc::c_uint) -> io::Result<()> {
    // Linux 5.9 has the call, but a container's rules may refuse calls that they do not know.
    close_range(from, to).or_else(|_| close_one_by_one(from, to))
}

fn close_range(from: libc::c_uint, to: libc::c_uint) -> io::Result<()> {
    // SAFETY: takes integers only. Owners of these descriptors are never dropped: see `end`.
    let done = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    checked(libc::c_int::try_from(done).unwrap_or(-1)).map(drop)
}

/// Ends all connections but these, whichever of their descriptors is named. Other processes may have
/// descriptors of them, so closing would not end them.
///
/// # Errors
/// When the system refuses.
pub fn end_connections_but(kept: &[RawFd]) -> io::Result<()> {
    let inodes: HashSet<u64> = kept.iter().filter_map(|fd| socket_of(*fd)).collect();
    for number in open_descriptors()? {
        let fd = number.cast_signed();
        if let Some(inode) = socket_of(fd)
            && !inodes.contains(&inode)
            && socket::peer_address(fd).is_ok()
        {
            socket::shutdown(fd, false);
        }
    }
    Ok(())
}

/// Returns the number of the socket behind a descriptor, equal for all descriptors of it.
fn socket_of(fd: RawFd) -> Option<u64> {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut facts: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: writes into the live structure.
    checked(unsafe { libc::fstat(fd, &raw mut facts) }).ok()?;
    (facts.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(facts.st_ino)
}

fn open_descriptors() -> io::Result<Vec<libc::c_uint>> {
    let listed = fs::read_dir("/proc/self/fd")?;
    // The list's own descriptor is closed then.
    Ok(listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn close_one_by_one(from: libc::c_uint, to: libc::c_uint) -> io::Result<()> {
    let numbers = open_descriptors()?;
    for number in numbers.into_iter().filter(|number| (from..=to).contains(number)) {
        // SAFETY: takes an integer. Owners of these descriptors are never dropped: see `end`.
        unsafe { libc::close(number.cast_signed()) };
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn is_open(number: libc::c_uint) -> bool {
        fs::exists(format!("/proc/self/fd/{number}")).unwrap()
    }

    #[test]
    fn descriptors_are_closed_by_a_kernel_without_the_call_too() {
        let null = File::open("/dev/null").unwrap();
        let at = |number| {
            let copy = super::super::process::reserve(number, &null.try_clone().unwrap().into());
            std::os::fd::IntoRawFd::into_raw_fd(copy.unwrap()).cast_unsigned()
        };
        // Numbers that no other test has.
        let numbers = [at(7001), at(7002), at(7003), at(7004)];
        close_one_by_one(7002, 7003).unwrap();
        assert_eq!(numbers.map(is_open), [true, false, false, true]);
        close_range(7001, 7004).unwrap();
        assert_eq!(numbers.map(is_open), [false; 4]);
    }
}
