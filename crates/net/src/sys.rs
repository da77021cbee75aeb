//! The system calls of the data plane behind safe functions. The unsafe code of this crate is in
//! the files below. They decide nothing.
//!
//! Descriptors of connections are plain numbers. They index tables and are sent between threads.
//! The owner of the table entry closes them.

pub mod address;
pub mod epoll;
pub mod eventfd;
pub mod interface;
pub mod names;
pub mod pam;
pub mod process;
pub mod rights;
pub mod shared_memory;
pub mod signal;
pub mod socket;
pub mod twin;

use std::io;

pub use self::address::Address;
pub use self::{
    epoll::{Epoll, Events},
    eventfd::EventFd,
};

/// Turns a result of -1 into the C library's error.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Turns a result of -1 of a call that returns a length into the C library's error.
fn checked_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
