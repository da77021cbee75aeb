//! The process as a whole: limits, users, descriptors.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    ffi::{CStr, CString},
    fmt, io, mem,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use super::checked;

/// The buffer for the strings of one entry of the user or group database, in bytes.
const ENTRY_BYTES: usize = 16 * 1024;
/// The largest such buffer that is tried, in bytes.
const ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;

pub fn effective_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns the effective user of the process with this number, if it has this name.
pub fn user_of(number: u32, name: &str) -> Option<u32> {
    let status = status_of(number)?;
    if field(&status, "Name:")? != name {
        return None;
    }
    // The real user and the effective one, and two more.
    field(&status, "Uid:")?.split('\t').nth(1)?.parse().ok()
}

/// Has this process the capability with this bit (capabilities(7))? True if the kernel does not say.
pub fn has_capability(bit: u32) -> bool {
    status_of(std::process::id()).and_then(|status| capability_in(&status, bit)).unwrap_or(true)
}

fn capability_in(status: &str, bit: u32) -> Option<bool> {
    let all = u64::from_str_radix(field(status, "CapEff:")?, 16).ok()?;
    Some(all >> bit & 1 == 1)
}

/// Returns the lines that Linux has about a process.
fn status_of(number: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{number}/status")).ok()
}

fn field<'a>(status: &'a str, label: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(label)).map(str::trim)
}

/// A process as Linux shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub parent: u32,
    /// The number by which the process knows itself. It is another one in a PID namespace of its own.
    pub own_number: u32,
    /// Resident memory that belongs to no file and is not shared, in bytes.
    pub private_bytes: u64,
}

impl Status {
    /// Returns the process with this number. `None` if there is none, or Linux hides it.
    pub fn find(number: u32) -> Option<Self> {
        let status = status_of(number)?;
        let kilobytes: u64 = field(&status, "RssAnon:")?.strip_suffix(" kB")?.parse().ok()?;
        Some(Self {
            parent: field(&status, "PPid:")?.parse().ok()?,
            own_number: field(&status, "NSpid:")?.split('\t').next_back()?.parse().ok()?,
            private_bytes: kilobytes * 1024,
        })
    }
}

/// Returns the title of the process with this number: its command line, which a process may change.
pub fn title(number: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Closes a connection's descriptor, which the caller has just taken out of its table.
pub fn close(fd: RawFd) {
    drop(own(fd));
}

/// Returns a descriptor as an object; it must have left its table.
pub fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: descriptors of connections have one owner, the table entry they are in, and the
    // caller gave that up.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Takes over a descriptor that the process which executed this one has passed, and that has no
/// owner yet. It is closed when this process executes something.
///
/// # Errors
/// When it is not open.
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    close_on_exec(fd)?;
    // SAFETY: it is open, as the call above showed, and the caller knows of no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the kernel close this descriptor when this process executes something.
///
/// # Errors
/// When it is not open.
pub fn close_on_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// Returns another descriptor of the same file.
///
/// # Errors
/// When it is not open.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let copy = checked(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Makes this descriptor refer to the file of another one, in one step.
///
/// # Errors
/// When the system refuses.
pub fn replace(fd: RawFd, by: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes no pointers; whoever owns `fd` owns what it stands for then.
    checked(unsafe { libc::dup3(by.as_raw_fd(), fd, libc::O_CLOEXEC) }).map(drop)
}

/// Takes the free descriptor `number`, for the file of `like`. It is kept free of other files by
/// this.
///
/// # Errors
/// When the number is in use, or beyond the limit.
pub fn reserve(number: RawFd, like: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = checked(unsafe { libc::fcntl(like.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let taken = unsafe { OwnedFd::from_raw_fd(fd) };
    if fd == number { Ok(taken) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

/// Another process, which cannot be mistaken for a later one of the same number (pidfd_open(2)).
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// # Errors
    /// When there is no such process.
    pub fn open(number: u32) -> io::Result<Self> {
        let number = libc::pid_t::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let fd = checked(libc::c_int::try_from(fd).unwrap_or(-1))?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the process of a descriptor that another process has opened.
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Interrupts it (SIGINT) with this value. A process that has ended gets nothing.
    pub fn interrupt(&self, value: u32) {
        let about = SignalInfo {
            number: libc::SIGINT,
            error: 0,
            code: libc::SI_QUEUE,
            // SAFETY: takes no arguments.
            process: unsafe { libc::getpid() },
            user: effective_uid(),
            value: value.into(),
            ..SignalInfo::default()
        };
        let (fd, about) = (self.fd(), &raw const about);
        // SAFETY: the structure is alive, and has the size and the layout of `siginfo_t`.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGINT, about, 0) };
    }
}

impl Process {
    /// Kills it. A process that has ended gets nothing.
    pub fn kill(&self) {
        let about = ptr::null::<libc::siginfo_t>();
        // SAFETY: takes no structure, and the descriptor is open.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.fd(), libc::SIGKILL, about, 0) };
    }

    /// Waits for the end of a child of this process. Returns how it has ended.
    ///
    /// # Errors
    /// When it is no child, or another call has returned its end.
    pub fn wait(&self) -> io::Result<Ended> {
        let number = libc::id_t::try_from(self.fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: all-zero is a valid value of this structure of integers.
        let mut about: libc::siginfo_t = unsafe { mem::zeroed() };
        loop {
            // SAFETY: the structure is alive and of the right type.
            let done =
                unsafe { libc::waitid(libc::P_PIDFD, number, &raw mut about, libc::WEXITED) };
            match checked(done) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // SAFETY: `waitid` has filled in these fields.
        let status = unsafe { about.si_status() };
        Ok(match about.si_code {
            libc::CLD_EXITED => Ended::Status(status),
            _ => Ended::Signal(status),
        })
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Status(i32),
    Signal(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `siginfo_t` of a signal with a value, on 64-bit systems.
#[repr(C)]
#[derive(Default)]
struct SignalInfo {
    number: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    padding: libc::c_int,
    process: libc::pid_t,
    user: libc::uid_t,
    value: u64,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// From now on the kernel does not end this process when its parent ends (prctl(2),
/// `PR_SET_PDEATHSIG`). Call it in the first thread, to which that belongs.
///
/// # Errors
/// Never, on a kernel that Weir supports.
pub fn outlive_parent() -> io::Result<()> {
    // SAFETY: takes integers only.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0) }).map(drop)
}

/// Kills all processes of the group that this process leads.
///
/// # Errors
/// When there is no such group any more.
pub fn kill_group(leader: u32) -> io::Result<()> {
    let group = libc::pid_t::try_from(leader).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: takes integers only.
    checked(unsafe { libc::killpg(group, libc::SIGKILL) }).map(drop)
}

/// Has this child of the process ended? Its number is not given to another process before a call such
/// as `Child::wait`.
///
/// # Errors
/// When it is no child, or another call has returned its end.
pub fn has_ended(child: u32) -> io::Result<bool> {
    // SAFETY: all-zero is a valid value of this structure of integers.
    let mut about: libc::siginfo_t = unsafe { mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure is alive and of the right type.
    checked(unsafe { libc::waitid(libc::P_PID, child, &raw mut about, flags) })?;
    // SAFETY: `waitid` has filled in this field, or left it zero.
    Ok(unsafe { about.si_pid() } != 0)
}

/// Makes calls on this descriptor return at once.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: takes no pointers.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Makes calls on this descriptor wait.
pub fn set_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let flags = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: takes no pointers.
    checked(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(drop)
}

/// Would a write to it return at once, with success or an error?
pub fn is_writable(fd: RawFd) -> bool {
    let mut own = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live element, as the count says.
    unsafe { libc::poll(&raw mut own, 1, 0) > 0 }
}

/// Closes the file behind a descriptor, which becomes `/dev/null` and keeps its owner.
pub fn blank(fd: RawFd) -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    // SAFETY: takes no pointers. The owner of `fd` then owns the new file.
    checked(unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) }).map(drop)
}

/// Microseconds of the system's monotonic clock, which other processes see the same way.
pub fn monotonic_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live value of the right type is written to; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000
}

/// Microseconds of the clock that goes on while the machine sleeps, which other processes see the same
/// way.
#[must_use]
pub fn boottime_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live value of the right type is written to; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000
}

/// Makes room for `count` descriptors in the kernel's table of open files. The table also doubles
/// by itself, but then the opening thread waits for ten milliseconds or more. In a process with
/// several threads, the kernel waits until none can still be reading the old table.
pub fn make_room_for_files(count: u64) -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    let last = libc::c_int::try_from(count.saturating_sub(1)).unwrap_or(libc::c_int::MAX);
    // SAFETY: takes no pointers.
    let fd = checked(unsafe { libc::fcntl(null.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last) })?;
    close(fd);
    Ok(())
}

/// Returns unused memory of the allocator to the system. Threads that allocate meanwhile may wait
/// for some milliseconds if there is much memory.
pub fn give_memory_back() {
    // Other C libraries do so by themselves, or have no such call.
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers; it may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Returns the process's resident memory; 0 if the system does not tell.
pub fn resident_bytes() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = sizes.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    // SAFETY: takes no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * u64::try_from(page).unwrap_or(0)
}

/// Returns the bytes that the allocator has given out. Other threads may wait for a millisecond
/// meanwhile, if much memory is free in small pieces.
pub fn allocated_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes no pointers; it may be called by any thread at any time.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(target_env = "gnu"))]
    u64::MAX
}

/// Checks that this process may create a file in `folder` (access(2), by its effective user).
///
/// # Errors
/// The reason why it may not.
pub fn may_create_in(folder: &Path) -> io::Result<()> {
    if !folder.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mode = libc::W_OK | libc::X_OK;
    // SAFETY: the path is a live C string.
    let allowed = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) };
    checked(allowed).map(drop)
}

/// Returns the limit of open files and the hard limit, to which a start raises it.
pub fn file_limit() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live value of the right type is written to.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Raises the number of open files to the hard limit if allowed. Returns the new limit and the hard
/// limit.
pub fn raise_file_limit() -> io::Result<(u64, u64)> {
    let (limit, hard) = file_limit()?;
    let raised = libc::rlimit { rlim_cur: hard, rlim_max: hard };
    // SAFETY: a live value of the right type is read.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    Ok((if done { hard } else { limit }, hard))
}

/// Returns the name of this machine; `somehost` if it has none.
pub fn host_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the pointer is to a live buffer, and the length is less than its own: the last byte
    // stays zero even where the name is cut.
    let told = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    match CStr::from_bytes_until_nul(&name) {
        Ok(name) if told == 0 => name.to_string_lossy().into_owned(),
        _ => "somehost".to_owned(),
    }
}

/// An operating system user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Looks up a user by name; `None` when there is none of this name.
///
/// # Errors
/// When the system cannot tell.
pub fn user_by_name(name: &str) -> io::Result<Option<User>> {
    let c_name = CString::new(name)?;
    let user = find_entry(ENTRY_BYTES, |entry, strings, len, found| {
        // SAFETY: the name is alive, and so is what `find_entry` points to.
        unsafe { libc::getpwnam_r(c_name.as_ptr(), entry, strings, len, found) }
    })?;
    Ok(user.map(|(user, _)| User { name: name.to_owned(), uid: user.pw_uid, gid: user.pw_gid }))
}

/// Returns the name of the user with this number; `None` when there is none.
pub fn user_by_id(uid: u32) -> io::Result<Option<String>> {
    name_within(uid, ENTRY_BYTES)
}

fn name_within(uid: u32, room: usize) -> io::Result<Option<String>> {
    let user = find_entry(room, |entry, strings, len, found| {
        // SAFETY: all that `find_entry` points to is alive.
        unsafe { libc::getpwuid_r(uid, entry, strings, len, found) }
    })?;
    Ok(user.map(|(user, _strings): (libc::passwd, _)| {
        // SAFETY: the name is a C string within the strings, which are still there.
        let name = unsafe { CStr::from_ptr(user.pw_name) };
        name.to_string_lossy().into_owned()
    }))
}

/// Returns the number of the group with this name; `None` when there is none.
pub fn group_by_name(name: &str) -> io::Result<Option<u32>> {
    group_within(name, ENTRY_BYTES)
}

fn group_within(name: &str, room: usize) -> io::Result<Option<u32>> {
    let c_name = CString::new(name)?;
    let group = find_entry(room, |entry, strings, len, found| {
        // SAFETY: the name is alive, and so is what `find_entry` points to.
        unsafe { libc::getgrnam_r(c_name.as_ptr(), entry, strings, len, found) }
    })?;
    Ok(group.map(|(group, _): (libc::group, _)| group.gr_gid))
}

/// Returns an entry of the user or group database, with the strings that it points to. If `room` is
/// too small for them, it is doubled: a group may have thousands of members.
///
/// `look_up` is the call. It gets the places for the entry, for the strings, and for the result
/// pointer.
fn find_entry<T>(
    room: usize,
    look_up: impl Fn(*mut T, *mut libc::c_char, usize, *mut *mut T) -> libc::c_int,
) -> io::Result<Option<(T, Vec<libc::c_char>)>> {
    let mut entry = MaybeUninit::uninit();
    let mut strings = vec![0; room];
    let mut found = ptr::null_mut();
    let code = look_up(entry.as_mut_ptr(), strings.as_mut_ptr(), room, &raw mut found);
    match code {
        // SAFETY: it was found, and that is where the call has put it.
        _ if !found.is_null() => Ok(Some((unsafe { entry.assume_init() }, strings))),
        libc::ERANGE if room < ENTRY_BYTES_MAX => find_entry(2 * room, look_up),
        0 | libc::ENOENT | libc::ESRCH => Ok(None),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_bits_of_a_number() {
        let status = |bits: &str| format!("Name:\tweir\nCapPrm:\tffff\nCapEff:\t{bits}\n");
        let has = |bits: &str| [12, 13].map(|bit| capability_in(&status(bits), bit));
        assert_eq!(has("0000000000000000"), [Some(false), Some(false)]);
        assert_eq!(has("0000000000001000"), [Some(true), Some(false)]);
        assert_eq!(has("000001ffffffffff"), [Some(true), Some(true)]);
        assert_eq!(capability_in("Name:\tweir\n", 12), None);
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_name() {
        let own = std::process::id();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let name = status.lines().next().unwrap().strip_prefix("Name:\t").unwrap();
        assert_eq!(user_of(own, name), Some(effective_uid()));
        assert_eq!(user_of(own, "postgres"), None);
        assert_eq!(user_of(u32::MAX, name), None);
        let found = Status::find(own).unwrap();
        assert_eq!((found.own_number, found.parent), (own, std::os::unix::process::parent_id()));
        assert!((100_000..1 << 40).contains(&found.private_bytes), "{found:?}");
        assert!(title(own).unwrap().starts_with(&std::env::args().next().unwrap()));
        assert_eq!((Status::find(u32::MAX), title(u32::MAX)), (None, None));
    }

    #[test]
    fn a_group_is_found_however_many_members_it_has() {
        assert_eq!(group_within("root", 1).unwrap(), Some(0));
        assert_eq!(group_within("no such group", 1).unwrap(), None);
    }

    #[test]
    fn a_user_is_found_however_long_its_entry_is() {
        assert_eq!(name_within(0, 1).unwrap().as_deref(), Some("root"));
        let root = user_by_name("root").unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.uid), ("root", 0));
        assert_eq!(user_by_name("no such user").unwrap(), None);
    }
}
