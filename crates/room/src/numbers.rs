//! Descriptors with fixed numbers. A client's socket has the same number in Weir and in every
//! backend: epoll knows an entry by its file and its number, so each process can arm it.
//!
//! The numbers are reserved when the first lobby is made, so no other file of Weir can get one. Lobbies
//! share them: at most one lobby has a client with a number at a time.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use net::sys::process;

/// The first number. PostgreSQL uses lower ones for its files
/// (`max_files_per_process`).
const FIRST: RawFd = FIRST_NUMBER as RawFd;
pub const FIRST_NUMBER: u64 = 4096;

#[derive(Debug)]
pub struct Numbers {
    /// The file of a number without a client.
    blank: OwnedFd,
    base: RawFd,
    reserved: Vec<OwnedFd>,
}

impl Numbers {
    /// Reserves `count` numbers in a row.
    ///
    /// # Errors
    /// When the limit of open files leaves no room.
    pub fn reserve(count: u32) -> io::Result<Self> {
        let mut base = FIRST;
        loop {
            match Self::reserve_at(base, count) {
                Ok(numbers) => return Ok(numbers),
                Err((number, error)) if error.kind() == io::ErrorKind::AlreadyExists => {
                    base = number + 1;
                }
                // Higher numbers are beyond the limit.
                Err(_) => {
                    let least = i64::from(base) + i64::from(count);
                    let why = format!("the limit of open files must be at least {least}");
                    return Err(io::Error::other(why));
                }
            }
        }
    }

    /// Reserves `count` numbers from `base` on.
    ///
    /// # Errors
    /// When one of them is in use, or beyond the limit of open files. The number is told.
    pub fn reserve_at(base: RawFd, count: u32) -> Result<Self, (RawFd, io::Error)> {
        let first = |error: io::Error| (base, error);
        let blank = OwnedFd::from(std::fs::File::open("/dev/null").map_err(first)?);
        let end = RawFd::try_from(count).ok().and_then(|count| base.checked_add(count));
        let end = end.ok_or((base, io::ErrorKind::InvalidInput.into()))?;
        let mut reserved = Vec::with_capacity(count as usize);
        for number in base..end {
            let fd = process::reserve(number, &blank).map_err(|error| (number, error))?;
            reserved.push(fd);
        }
        Ok(Self { blank, base, reserved })
    }

    pub fn base(&self) -> RawFd {
        self.base
    }

    pub fn count(&self) -> u32 {
        self.reserved.len() as u32
    }

    pub fn of(&self, place: u32) -> RawFd {
        self.reserved[place as usize].as_raw_fd()
    }

    /// Returns the descriptor to which the number of a place without a client refers.
    pub(crate) fn blank(&self) -> RawFd {
        self.blank.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_a_row_and_pass_over_used_ones() {
        let first = Numbers::reserve(3).unwrap();
        let second = Numbers::reserve(3).unwrap();
        assert!(second.base() >= first.base() + 3);
        assert_eq!(second.of(2), second.base() + 2);
    }
}
