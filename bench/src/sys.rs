//! The few system calls for which neither the standard library nor `net` has a safe wrapper: io_uring,
//! CPU affinity and priorities. Nothing here depends on PostgreSQL.
#![expect(unsafe_code, reason = "these calls have no safe face")]

pub(crate) mod ring;

use std::io;
use std::mem;
#[cfg(test)]
use std::time::Duration;

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
