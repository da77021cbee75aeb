//! Messages between Weir and a backend. Each packet is one message; descriptors come with it
//! (SCM_RIGHTS). `extension/control.c` has the other side.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd, RawFd},
        unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use net::sys::{Address, rights, socket};

const MESSAGE_LEN: usize = 16;
const TICKET_LEN: usize = 64;
const HELLO_LEN: usize = MESSAGE_LEN + TICKET_LEN + 64 + 64 + 16;
const BACKLOG: u32 = 128;

/// The first message of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) ticket: String,
    /// The process id of the backend, as PostgreSQL tells it to clients.
    pub(super) process: u32,
    pub(super) layout: u32,
}

/// A message of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FromBackend {
    Hello(Hello),
    /// It needs the descriptor of a client.
    Need {
        place: u32,
        generation: u32,
    },
    Returned {
        place: u32,
        generation: u32,
        reason: Reason,
    },
    Left,
}

/// Why a backend returns a client. The numbers are part of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The client has said goodbye, or its connection has ended.
    Ended,
    /// Its first message is not whole yet.
    Partial,
    /// It has sent bytes that are no message.
    Bad,
    /// Its settings or statements cannot be restored.
    State,
    Recalled,
    /// It leaves the lobby with its backend, because it listens.
    Listens,
}

/// A message of Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToBackend {
    /// With the file in memory and the epoll set.
    Welcome {
        line: u32,
        base: u32,
    },
    Leave,
    Wake,
    /// Weir has the client with which the backend leaves.
    Go,
}

impl ToBackend {
    fn encode(self) -> [u8; MESSAGE_LEN] {
        let words = match self {
            Self::Welcome { line, base } => [16, line, 0, base],
            Self::Leave => [19, 0, 0, 0],
            Self::Wake => [20, 0, 0, 0],
            Self::Go => [21, 0, 0, 0],
        };
        encode(words)
    }
}

fn encode(words: [u32; 4]) -> [u8; MESSAGE_LEN] {
    let mut bytes = [0; MESSAGE_LEN];
    for (word, into) in words.iter().zip(bytes.chunks_exact_mut(4)) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// A client in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) place: u32,
    pub(super) generation: u32,
}

/// Most descriptors that go with the one that a backend needs.
pub(super) const MORE_MAX: usize = 31;

/// Sends the descriptors of clients: the one that the backend needs, and up to [`MORE_MAX`] others.
/// `descriptors` are in the same order. Returns false as [`send`] does.
pub(super) fn send_descriptors(
    fd: RawFd,
    needed: Seat,
    more: &[Seat],
    descriptors: &[RawFd],
) -> bool {
    let mut text = encode([17, needed.place, needed.generation, more.len() as u32]).to_vec();
    for seat in more {
        text.extend_from_slice(&seat.place.to_ne_bytes());
        text.extend_from_slice(&seat.generation.to_ne_bytes());
    }
    rights::send_message(fd, &text, descriptors).is_ok()
}

/// Returns the message in a packet; `None` if it is none.
pub(super) fn decode(packet: &[u8]) -> Option<FromBackend> {
    let word = |at: usize| {
        let bytes = packet.get(at * 4..at * 4 + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (kind, place, generation, value) = (word(0)?, word(1)?, word(2)?, word(3)?);
    match (kind, packet.len()) {
        (1, HELLO_LEN) => {
            let ticket = &packet[MESSAGE_LEN..MESSAGE_LEN + TICKET_LEN];
            let ticket = ticket.split(|byte| *byte == 0).next()?;
            let ticket = String::from_utf8(ticket.to_vec()).ok()?;
            Some(FromBackend::Hello(Hello { ticket, process: place, layout: value }))
        }
        (2, MESSAGE_LEN) => Some(FromBackend::Need { place, generation }),
        (3, MESSAGE_LEN) => {
            let reason = match value {
                1 => Reason::Ended,
                2 => Reason::Partial,
                3 => Reason::Bad,
                4 => Reason::State,
                5 => Reason::Recalled,
                6 => Reason::Listens,
                _ => return None,
            };
            Some(FromBackend::Returned { place, generation, reason })
        }
        (4, MESSAGE_LEN) => Some(FromBackend::Left),
        _ => None,
    }
}

/// The result of a read.
pub(super) enum Received {
    Message(FromBackend),
    /// Nothing more at present.
    Nothing,
    /// The other side has ended, or does not keep to the rules.
    End,
}

pub(super) fn read(fd: RawFd) -> Received {
    let mut packet = [0; HELLO_LEN + 1];
    match rights::receive_message(fd, &mut packet) {
        Ok((0, _)) => Received::End,
        // A backend sends no descriptors. They are closed here.
        Ok((len, _)) => decode(&packet[..len]).map_or(Received::End, Received::Message),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Nothing,
        Err(_) => Received::End,
    }
}

/// Sends a message. Returns false if the queue is full or the other side has ended.
pub(super) fn send(fd: RawFd, message: ToBackend, descriptors: &[RawFd]) -> bool {
    rights::send_message(fd, &message.encode(), descriptors).is_ok()
}

/// The socket under its temporary name. Another process may still have the name that backends know.
#[derive(Debug)]
pub(crate) struct Unnamed {
    temporary: PathBuf,
    path: PathBuf,
}

impl Unnamed {
    /// Gives the socket its name. Backends come here from now on.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub(crate) fn publish(&self) -> io::Result<()> {
        check_replaceable(&self.path)?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Unnamed {
    /// Returns the number of its file, which a new name does not change.
    ///
    /// # Errors
    /// When there is no such file any more.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        fs::symlink_metadata(&self.temporary).map(|found| found.ino())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Does a process listen at this path? Another kind of socket counts, too.
pub(super) fn is_listened_at(path: &Path) -> bool {
    let connects = || {
        let own = socket::open_packets()?;
        socket::connect(own.as_raw_fd(), &Address::Unix(path.to_owned()))
    };
    match connects() {
        Ok(_) => true,
        // Its queue is full.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) => error.raw_os_error() == Some(libc::EPROTOTYPE),
    }
}

impl Drop for Unnamed {
    /// A socket that was not published is of no use.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Only a socket may be replaced: another file may be the operator's.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(()),
        Ok(_) => {
            let why = format!("{} exists and is not a socket", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens the socket to which backends connect. Only this user's processes may.
///
/// # Errors
/// When the path cannot be used.
pub(super) fn listen(path: &Path) -> io::Result<(OwnedFd, Unnamed)> {
    listen_by(socket::open_packets()?, path)
}

/// Opens a socket for streams. Only this user's processes may connect.
///
/// # Errors
/// When the path cannot be used.
pub(crate) fn listen_for_streams(path: &Path) -> io::Result<(OwnedFd, Unnamed)> {
    listen_by(socket::open(&Address::Unix(path.to_owned()))?, path)
}

fn listen_by(listener: OwnedFd, path: &Path) -> io::Result<(OwnedFd, Unnamed)> {
    check_replaceable(path)?;
    // Paths of sockets are short (107 bytes).
    let mut temporary = path.as_os_str().to_owned();
    temporary.push("~");
    let temporary = PathBuf::from(temporary);
    check_replaceable(&temporary)?;
    // A process that was killed may have left it.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    socket::bind(listener.as_raw_fd(), &Address::Unix(temporary.clone()))?;
    let unnamed = Unnamed { temporary, path: path.to_owned() };
    fs::set_permissions(&unnamed.temporary, fs::Permissions::from_mode(0o700))?;
    socket::listen(listener.as_raw_fd(), BACKLOG)?;
    Ok((listener, unnamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(words: [u32; 4], more: &[u8]) -> Vec<u8> {
        let mut packet: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        packet.extend_from_slice(more);
        packet
    }

    #[test]
    fn messages_are_decoded_and_others_refused() {
        let mut hello = packet([1, 4711, 0, 1], b"abc");
        hello.resize(HELLO_LEN, 0);
        let ticket = "abc".to_owned();
        let expected = Hello { ticket, process: 4711, layout: 1 };
        assert_eq!(decode(&hello), Some(FromBackend::Hello(expected)));
        let need = FromBackend::Need { place: 5, generation: 6 };
        assert_eq!(decode(&packet([2, 5, 6, 0], b"")), Some(need));
        let returned = FromBackend::Returned { place: 5, generation: 6, reason: Reason::State };
        assert_eq!(decode(&packet([3, 5, 6, 4], b"")), Some(returned));
        assert_eq!(decode(&packet([4, 0, 0, 0], b"")), Some(FromBackend::Left));
        for bad in [
            packet([3, 5, 6, 9], b""),
            packet([9, 0, 0, 0], b""),
            packet([2, 5, 6, 0], b"x"),
            vec![1; 3],
            hello[..HELLO_LEN - 1].to_vec(),
        ] {
            assert_eq!(decode(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_socket_is_listened_at_while_its_process_has_it() {
        let folder = std::env::temp_dir().join(format!("weir-listened-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("direct");
        assert!(!is_listened_at(&path));
        let (listener, unnamed) = listen(&path).unwrap();
        unnamed.publish().unwrap();
        assert!(is_listened_at(&path));
        drop(listener);
        assert!(path.exists() && !is_listened_at(&path));
        let (_streams, unnamed) = listen_for_streams(&path).unwrap();
        unnamed.publish().unwrap();
        assert!(is_listened_at(&path));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_socket_gets_its_name_when_it_is_published() {
        let folder = std::env::temp_dir().join(format!("weir-named-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("direct");
        let (_old, unnamed) = listen(&path).unwrap();
        unnamed.publish().unwrap();
        drop(unnamed);
        let old = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        // A process that does not take over takes nothing away.
        drop(listen(&path).unwrap());
        assert_eq!(inode(), old);
        let (_new, unnamed) = listen(&path).unwrap();
        assert_eq!(inode(), old);
        unnamed.publish().unwrap();
        drop(unnamed);
        assert_ne!(inode(), old);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // Another file is not replaced.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_dir_all(&folder).unwrap();
    }
}
