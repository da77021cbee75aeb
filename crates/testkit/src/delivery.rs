//! Waits until a peer has read what was written to it.
//!
//! Written bytes may still be in the reader's socket, where later bytes join them. For a unix
//! socket, Linux tells the writer how many there are. For TCP it does not, because acknowledged
//! bytes may be unread.
#![expect(unsafe_code, reason = "ioctl is reachable through libc only")]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::wait::poll_often;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the peer has read everything that was written to `stream`. A peer that has closed
/// its end is not waited for.
#[track_caller]
pub fn wait_until_read(stream: &UnixStream) {
    let read = poll_often(PATIENCE, || (unread(stream) == 0).then_some(()));
    assert!(read.is_some(), "what was written is not read");
}

/// Returns a number above 0 while bytes are unread; it counts the kernel's memory, not bytes.
fn unread(stream: &UnixStream) -> libc::c_int {
    let mut size = 0;
    // SAFETY: TIOCOUTQ writes one int, and that is what it is given room for.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut size) };
    assert_eq!(result, 0, "TIOCOUTQ: {}", std::io::Error::last_os_error());
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn bytes_count_as_read_when_they_are() {
        let (mut writer, mut reader) = UnixStream::pair().expect("two sockets");
        assert_eq!(unread(&writer), 0);
        writer.write_all(b"five!").expect("room");
        assert!(unread(&writer) > 0);
        reader.read_exact(&mut [0; 3]).expect("three of them");
        assert!(unread(&writer) > 0);
        reader.read_exact(&mut [0; 2]).expect("the others");
        wait_until_read(&writer);
        writer.write_all(b"more").expect("room");
        drop(reader);
        wait_until_read(&writer);
    }
}
