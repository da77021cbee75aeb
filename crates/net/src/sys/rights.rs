//! Sends descriptors to another process over a unix socket (SCM_RIGHTS, unix(7)), with a text or
//! with the single byte that such a message needs. The sockets used here block.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

use std::{
    io, mem,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    ptr,
};

use super::checked_len;

/// Maximal number of descriptors in one message; the kernel accepts at most 253.
pub const FDS_MAX: usize = 200;

/// Room for one control message with this many descriptors, aligned for the kernel.
type Control = [u64; (FDS_MAX * size_of::<RawFd>()).div_ceil(8) + 4];

/// # Errors
/// When the other end is closed, or does not read in time.
///
/// # Panics
/// With no descriptors or more than [`FDS_MAX`].
pub fn send(socket: RawFd, fds: &[RawFd]) -> io::Result<()> {
    assert!(!fds.is_empty(), "no descriptors");
    send_message(socket, &[0], fds)
}

/// Sends a text with these descriptors, which may be none.
///
/// # Errors
/// As for [`send`].
///
/// # Panics
/// With more than [`FDS_MAX`] descriptors.
pub fn send_message(socket: RawFd, text: &[u8], fds: &[RawFd]) -> io::Result<()> {
    assert!(fds.len() <= FDS_MAX, "{} descriptors at once", fds.len());
    let mut control: Control = [0; _];
    let mut part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let len = size_of_val(fds) as libc::c_uint;
    // SAFETY: all fields are integers or pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: arithmetic on the length. The first header lies in `control`, which has room for
        // it and for all descriptors, as the assertion above and its type say.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(len) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(len) as usize;
            ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast(), fds.len());
        }
    }
    // SAFETY: everything the message points to is alive, and the text is only read.
    checked_len(unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) }).map(drop)
}

/// Returns the descriptors of the next message.
///
/// # Errors
/// When the other end is closed or silent, or some descriptors could not be received.
pub fn receive(socket: RawFd) -> io::Result<Vec<OwnedFd>> {
    match receive_message(socket, &mut [0])? {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, fds) => Ok(fds),
    }
}

/// Receives a text into `buffer` and returns its length and its descriptors. The length is 0 when
/// the other end is closed.
///
/// # Errors
/// When the other end is silent, or some descriptors could not be received.
pub fn receive_message(socket: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control: Control = [0; _];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all fields are integers or pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: everything the message points to is alive and as long as it says.
    let count =
        checked_len(unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) })?;
    let mut fds = Vec::new();
    // SAFETY: the kernel has written whole control messages into `control`. Each descriptor in
    // them is new in this process and nobody else's.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let len = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for at in 0..len / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if count != 0 && message.msg_flags & libc::MSG_CTRUNC != 0 {
        // The usual cause is the limit on open files.
        return Err(io::Error::other("some descriptors could not be received"));
    }
    Ok((count, fds))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::{fd::AsRawFd as _, unix::net::UnixStream},
    };

    use super::*;

    #[test]
    fn sent_descriptors_arrive_in_order_and_work() {
        let (near, far) = UnixStream::pair().unwrap();
        let pipes: Vec<_> = (0..FDS_MAX).map(|_| UnixStream::pair().unwrap()).collect();
        let fds: Vec<_> = pipes.iter().map(|(end, _)| end.as_raw_fd()).collect();
        send(near.as_raw_fd(), &fds).unwrap();
        send(near.as_raw_fd(), &fds[..1]).unwrap();
        let received = receive(far.as_raw_fd()).unwrap();
        assert_eq!(received.len(), FDS_MAX);
        for (at, (fd, (_, other))) in received.into_iter().zip(&pipes).enumerate() {
            UnixStream::from(fd).write_all(&[at as u8]).unwrap();
            let mut byte = [0];
            (&*other).read_exact(&mut byte).unwrap();
            assert_eq!(byte, [at as u8]);
        }
        assert_eq!(receive(far.as_raw_fd()).unwrap().len(), 1);
        drop(near);
        assert_eq!(receive(far.as_raw_fd()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_text_arrives_with_its_descriptors_and_without_any() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut buffer = [0; 16];
        send_message(near.as_raw_fd(), b"two", &[near.as_raw_fd(), far.as_raw_fd()]).unwrap();
        let (len, fds) = receive_message(far.as_raw_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..len], fds.len()), (&b"two"[..], 2));
        drop(fds);
        send_message(near.as_raw_fd(), b"none", &[]).unwrap();
        let (len, fds) = receive_message(far.as_raw_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..len], fds.len()), (&b"none"[..], 0));
        drop(near);
        assert_eq!(receive_message(far.as_raw_fd(), &mut buffer).unwrap().0, 0);
    }
}
