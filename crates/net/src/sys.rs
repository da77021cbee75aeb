//! The system calls of the data plane, each made safe. All unsafe code of this crate but the
//! log's clock is in the files below; there is no policy here.
//!
//! Descriptors of connections are plain numbers: they live in tables indexed by them, travel in
//! handles between threads, and are closed by whoever holds their table entry.

pub mod address;
pub mod epoll;
pub mod eventfd;
pub mod pam;
pub mod process;
pub mod rights;
pub mod signal;
pub mod socket;

use std::io;

pub use self::address::Address;
pub use self::{
    epoll::{Epoll, Events},
    eventfd::EventFd,
};

/// Turns the -1 of the C library into the error it stands for.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that answer with a length.
fn checked_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
