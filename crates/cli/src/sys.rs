//! The system calls that the command line needs and the standard library lacks, behind safe
//! functions. This is the only unsafe code of this crate.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    ffi::CString,
    fs::OpenOptions,
    io::{self, PipeReader, PipeWriter, Read as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command},
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use proxy::User;

/// Turns a result of -1 into the C library's error.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns the user that this process acts as.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Prevents all users but root from reading this process's memory, by a core dump or a debugger
/// (prctl(2), PR_SET_DUMPABLE). The kernel undoes it when a program is executed.
pub(crate) fn hide_memory() -> io::Result<()> {
    // SAFETY: takes integers only.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Switches this process to another user with its groups. It cannot be undone.
pub(crate) fn become_user(user: &User) -> io::Result<()> {
    let name = CString::new(user.name.as_str())?;
    // SAFETY: the name is a live C string; the other calls take integers.
    unsafe {
        checked(libc::initgroups(name.as_ptr(), user.gid))?;
        checked(libc::setgid(user.gid))?;
        checked(libc::setuid(user.uid))?;
    }
    Ok(())
}

/// Returns whether a process with this id exists, also if it belongs to another user.
pub(crate) fn process_exists(pid: i32) -> bool {
    match send_signal(pid, 0) {
        Ok(()) => true,
        Err(error) => error.raw_os_error() == Some(libc::EPERM),
    }
}

/// Sends a signal to one process. Signal 0 only asks whether it could be sent.
///
/// # Panics
/// When `pid` is not positive: that would name a whole group of processes.
pub(crate) fn send_signal(pid: i32, signal: libc::c_int) -> io::Result<()> {
    assert!(pid > 0, "a single process is meant");
    // SAFETY: takes two integers and touches no memory of ours.
    checked(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Kills a child that [`tie_to_us`] made the leader of its own group, and all its children with it.
pub(crate) fn kill_group(leader: &Child) -> io::Result<()> {
    let group = i32::try_from(leader.id()).map_err(io::Error::other)?;
    // SAFETY: as above. The child is not yet waited for, so its id names no other group.
    checked(unsafe { libc::killpg(group, libc::SIGKILL) }).map(drop)
}

/// Detaches from the terminal by a double fork. The call returns in a grandchild, in a new session of
/// which it is not the leader, with the pipe's writer. The caller's process exits with status 0 when a
/// byte comes from the pipe, and with 1 if its writer is closed.
///
/// Only for a process with a single thread, since no other thread would survive.
pub(crate) fn detach(mut reader: PipeReader, writer: PipeWriter) -> io::Result<PipeWriter> {
    for new_session in [true, false] {
        // SAFETY: there is only this thread, so no lock can be left held in the child.
        if checked(unsafe { libc::fork() })? != 0 {
            drop(writer);
            let status = match new_session {
                true => i32::from(reader.read_exact(&mut [0]).is_err()),
                false => 0,
            };
            // SAFETY: `_exit` runs nothing of ours, so nothing the child owns is cleaned up.
            unsafe { libc::_exit(status) };
        }
        if new_session {
            // SAFETY: takes nothing.
            checked(unsafe { libc::setsid() })?;
        }
    }
    Ok(writer)
}

/// Takes a socket that the parent process has passed, for the first time. It is closed when this
/// process executes a program.
///
/// # Errors
/// When the descriptor is not an open socket.
pub(crate) fn adopt_socket(fd: i32) -> io::Result<UnixStream> {
    let mut kind: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both pointers are to this frame, and `len` is the size of what the first one is to.
    let asked = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &raw mut len)
    };
    checked(asked)?;
    // SAFETY: takes integers only.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, as the calls above showed, and the caller knows of no other owner.
    Ok(unsafe { UnixStream::from_raw_fd(fd) })
}

/// Points standard input, output and error at `/dev/null`.
pub(crate) fn silence_standard_streams() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: takes two descriptors; the standard streams belong to nobody in particular.
        checked(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
    }
    Ok(())
}

static TERMINATED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_termination(_signal: libc::c_int) {
    TERMINATED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C, SIGTERM and the hang-up of the terminal do not end the process, but are
/// remembered for [`terminated`].
pub(crate) fn remember_termination() -> io::Result<()> {
    // SAFETY: zero is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note_termination as *const () as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        checked(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
    }
    Ok(())
}

/// Returns whether this process was asked to end since [`remember_termination`].
pub(crate) fn terminated() -> bool {
    TERMINATED.load(Ordering::Relaxed)
}

/// Makes a command's process end when this one does, even if this one is killed. Keeps the
/// terminal's Ctrl-C from it, so that the demo decides the order of the ends. Unblocks all its
/// signals.
///
/// `signal` is sent to it when the thread that started it has ended.
pub(crate) fn tie_to_us(command: &mut Command, signal: libc::c_int) {
    command.process_group(0);
    let prepare = move || {
        // SAFETY: async-signal-safe calls between fork and exec, on a set of this frame.
        unsafe {
            checked(libc::prctl(libc::PR_SET_PDEATHSIG, signal))?;
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            checked(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()))?;
        }
        Ok(())
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}
