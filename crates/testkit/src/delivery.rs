//! Waits until a peer has read what was written to it.
//!
//! Written bytes may still be in the reader's socket, where later bytes join them. For a unix
//! socket, Linux tells the writer how many there are. For TCP it does not, because acknowledged
//! bytes may be unread. But a table shows the sockets of this machine with their unread bytes.
#![expect(unsafe_code, reason = "ioctl is reachable through libc only")]

use std::net::{SocketAddr, TcpStream};
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

/// Does the same for a peer at an IPv4 address of this machine.
#[track_caller]
pub(crate) fn wait_until_read_over_tcp(stream: &TcpStream) {
    let read = poll_often(PATIENCE, || (unread_over_tcp(stream) == 0).then_some(()));
    assert!(read.is_some(), "what was written is not read");
}

/// Returns how many bytes the peer has not read. A connection that was not accepted has them all.
fn unread_over_tcp(stream: &TcpStream) -> u32 {
    // Without a peer, the connection was reset.
    let Ok(peer) = stream.peer_addr() else { return 0 };
    let own = stream.local_addr().expect("a connected socket has an address");
    let connection = format!(" {} {} ", shown(peer), shown(own));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has this table");
    let socket = table.lines().find_map(|line| line.split_once(&connection));
    let Some((_, rest)) = socket else { return 0 };
    let queues = rest.split_whitespace().nth(1).expect("the queues");
    let (_, unread) = queues.split_once(':').expect("two queues");
    u32::from_str_radix(unread, 16).expect("a number")
}

/// Returns an address as in `/proc/net/tcp`.
fn shown(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("{address} is no IPv4 address") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
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
    use std::net::TcpListener;

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

    #[test]
    fn bytes_of_a_tcp_connection_count_as_read_when_they_are() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut writer = TcpStream::connect(address).expect("a connection");
        assert_eq!(unread_over_tcp(&writer), 0);
        writer.write_all(b"five!").expect("room");
        let came = poll_often(PATIENCE, || (unread_over_tcp(&writer) == 5).then_some(()));
        assert!(came.is_some());
        let (mut reader, _) = listener.accept().expect("it came");
        reader.read_exact(&mut [0; 3]).expect("three of them");
        assert_eq!(unread_over_tcp(&writer), 2);
        reader.read_exact(&mut [0; 2]).expect("the others");
        wait_until_read_over_tcp(&writer);
        writer.write_all(b"more").expect("room");
        drop(reader);
        wait_until_read_over_tcp(&writer);
    }
}
