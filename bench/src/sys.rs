//! The few system calls for which the standard library has no safe wrapper: epoll, io_uring, CPU
//! affinity and the limit of open files. Nothing here depends on PostgreSQL. Sockets themselves are
//! the standard library's.
#![expect(unsafe_code, reason = "these calls have no safe face")]

pub(crate) mod ring;

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The bits of a readiness event; see epoll_ctl(2).
pub(crate) const READ: u32 = libc::EPOLLIN as u32;
pub(crate) const WRITE: u32 = libc::EPOLLOUT as u32;
pub(crate) const CLOSED: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// An edge-triggered epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; 512] })
    }

    /// Watches `fd` for input and for its end. Its events carry `token`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, READ)
    }

    /// Starts or stops to watch for the readiness to write.
    pub(crate) fn want_write(
        &self,
        fd: BorrowedFd<'_>,
        token: usize,
        wanted: bool,
    ) -> io::Result<()> {
        let interest = if wanted { READ | WRITE } else { READ };
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Waits at most `timeout` and returns `(token, events)` of everything that became ready.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Vec<(usize, u32)>> {
        // Valgrind does not know the call with nanoseconds. A load without a rate needs only
        // milliseconds.
        let is_fine = !timeout.subsec_nanos().is_multiple_of(1_000_000);
        match check(if is_fine { self.wait_fine(timeout) } else { self.wait_whole(timeout) }) {
            Ok(count) => Ok(self.events[..count as usize]
                .iter()
                .map(|e| (e.u64 as usize, e.events))
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn wait_whole(&mut self, timeout: Duration) -> i32 {
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the pointer and the length describe `self.events`, which outlives the call.
        unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as i32,
                timeout_ms,
            )
        }
    }

    fn wait_fine(&mut self, timeout: Duration) -> i32 {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        // SAFETY: the pointer and the length describe `self.events`, which outlives the call, as the
        // time does; there is no mask of signals.
        unsafe {
            libc::epoll_pwait2(
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as i32,
                &raw const timeout,
                std::ptr::null(),
            )
        }
    }

    fn control(
        &self,
        operation: i32,
        fd: BorrowedFd<'_>,
        token: usize,
        interest: u32,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: interest | (libc::EPOLLRDHUP | libc::EPOLLET) as u32,
            u64: token as u64,
        };
        // SAFETY: both descriptors are open for the call's duration and `event` outlives it.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event)
        })?;
        Ok(())
    }
}

/// Returns the unit of the times in `/proc/PID/stat`.
pub(crate) fn clock_ticks_per_second() -> io::Result<f64> {
    // SAFETY: no pointers are passed.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { Ok(ticks as f64) } else { Err(io::Error::last_os_error()) }
}

/// Returns the cores that this thread may run on.
pub(crate) fn allowed_cores() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is a plain bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the size and the pointer describe `set`; pid 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) })?;
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize)
        .filter(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .collect())
}

/// Binds this thread, and the threads and processes that it starts from now on, to these cores.
pub(crate) fn pin_to(cores: &[usize]) -> io::Result<()> {
    pin_thread(0, cores)
}

/// Binds a thread to these cores. 0 is the calling thread.
pub(crate) fn pin_thread(thread: u32, cores: &[usize]) -> io::Result<()> {
    // SAFETY: cpu_set_t is a plain bit array, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    let thread = thread as libc::pid_t;
    // SAFETY: the size and the pointer describe `set`.
    check(unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) })?;
    Ok(())
}

/// Lets all other threads run before this one, from now on.
pub(crate) fn give_way() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live value; thread 0 is the calling one, which may always have less.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) })?;
    Ok(())
}

/// Raises the soft limit of open files to the hard one and returns it. Child processes inherit it.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })?;
    Ok(limit.rlim_cur)
}

/// Returns the CPU time that this thread has used.
#[cfg(test)]
pub(crate) fn thread_time() -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value.
    check(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) })?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
