//! io_uring for small messages, in its cheapest form. The sockets are the ring's own files. One
//! permanent request receives from each socket, into buffers of which the kernel takes the next
//! free one. The received bytes are sent from the same buffer. One system call per turn sends
//! everything and waits for events. It needs Linux 6.1.
//!
//! A ring and its memory are never freed: the program that makes one serves until killed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode};

/// The maximum number of tokens. A token is an index into the ring's files.
const TOKENS_MAX: u32 = 8_192;
const REQUESTS_MAX: u32 = 512;
/// The capacity of the completion queue. Beyond it the kernel uses a slower overflow list.
const NEWS_MAX: u32 = 8_192;
/// The number of buffers, a power of two.
const BUFFERS: u16 = 2_048;
/// The size of a buffer, enough for a message. It is not a power of two, so that the buffers do not
/// compete for the same few cache lines.
const BUFFER_BYTES: usize = 320;
const PAGE_BYTES: usize = 4_096;
/// The only group of buffers.
const GROUP: u16 = 0;
/// A bit in the user data of a request to send.
const SEND: u64 = 1 << 32;

pub(crate) struct Ring {
    submitter: Submitter<'static>,
    requests: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
    buffers: Buffers,
    /// The buffers that pending send requests refer to.
    sending: Vec<Buffer>,
    sending_copies: Vec<Vec<u8>>,
}

/// An event of a socket.
#[derive(Debug)]
pub(crate) enum News {
    Bytes(Buffer),
    /// The stream has ended. A reset counts as its end.
    End,
    /// A connection can be accepted.
    Newcomers,
}

impl Ring {
    pub(crate) fn new() -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(NEWS_MAX)
            .build(REQUESTS_MAX)?;
        let (mut submitter, requests, completions) = Box::leak(Box::new(ring)).split();
        submitter.register_ring_fd()?;
        submitter.register_files_sparse(TOKENS_MAX)?;
        let buffers = Buffers::new(&submitter)?;
        let (sending, sending_copies) = (Vec::new(), Vec::new());
        Ok(Self { submitter, requests, completions, buffers, sending, sending_copies })
    }

    /// Reports from now on when a connection can be accepted.
    pub(crate) fn add_listener(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.register(token, fd.as_raw_fd())?;
        let poll = opcode::PollAdd::new(Fixed(token as u32), libc::POLLIN as u32).multi(true);
        self.request(&poll.build().user_data(token as u64))
    }

    /// Receives from a socket from now on. The ring keeps the socket even if `fd` is closed.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        self.register(token, fd.as_raw_fd())?;
        self.receive(token)
    }

    /// Removes a socket whose stream has ended.
    pub(crate) fn remove(&mut self, token: usize) -> io::Result<()> {
        self.register(token, -1)
    }

    /// Sends the bytes of a buffer. The buffer becomes free afterwards.
    pub(crate) fn send(&mut self, token: usize, buffer: Buffer) -> io::Result<()> {
        let entry = send(token, self.buffers.bytes(&buffer));
        self.request(&entry)?;
        self.sending.push(buffer);
        Ok(())
    }

    pub(crate) fn send_copy(&mut self, token: usize, bytes: &[u8]) -> io::Result<()> {
        let bytes = bytes.to_vec();
        let entry = send(token, &bytes);
        self.request(&entry)?;
        self.sending_copies.push(bytes);
        Ok(())
    }

    /// Submits all requests and waits for an event.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.submit(1)?;
        self.completions.sync();
        Ok(())
    }

    /// Returns the next event with the socket's token, if there is one.
    pub(crate) fn next(&mut self) -> io::Result<Option<(usize, News)>> {
        while let Some(told) = self.completions.next() {
            let (result, token) = (told.result(), told.user_data() as usize);
            if told.user_data() & SEND != 0 {
                // Only failed requests to send are reported. If the peer has gone, that does not
                // matter.
                if result >= 0 || result == -libc::EAGAIN {
                    return Err(io::Error::other("a peer does not read its small messages"));
                }
                continue;
            }
            let news = match (result, cqueue::buffer_select(told.flags())) {
                (1.., Some(id)) => News::Bytes(Buffer { id, length: result as u32 }),
                (1.., None) => News::Newcomers,
                (0, _) => News::End,
                (error, _) if error == -libc::ECONNRESET => News::End,
                (error, _) => return Err(io::Error::from_raw_os_error(-error)),
            };
            let has_stayed = cqueue::more(told.flags());
            if !has_stayed && matches!(news, News::Bytes(_)) {
                self.receive(token)?;
            }
            return Ok(Some((token, news)));
        }
        Ok(None)
    }

    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.buffers.bytes(buffer)
    }

    pub(crate) fn free(&mut self, buffer: Buffer) {
        self.buffers.provide([buffer.id]);
    }

    fn register(&self, token: usize, fd: i32) -> io::Result<()> {
        self.submitter.register_files_update(token as u32, &[fd])?;
        Ok(())
    }

    fn receive(&mut self, token: usize) -> io::Result<()> {
        let receive = opcode::RecvMulti::new(Fixed(token as u32), GROUP);
        self.request(&receive.build().user_data(token as u64))
    }

    fn request(&mut self, entry: &Entry) -> io::Result<()> {
        if self.requests.is_full() {
            self.submit(0)?;
        }
        // SAFETY: the memory that a request sends is put into `sending` or `sending_copies` before
        // the next system call, and stays there until the request has been executed. Other requests
        // refer to no memory.
        unsafe { self.requests.push(entry) }.map_err(io::Error::other)
    }

    fn submit(&mut self, wanted: usize) -> io::Result<()> {
        self.requests.sync();
        match self.submitter.submit_and_wait(wanted) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => self.requests.sync(),
        }
        // A submitted request to send is complete, since it may not wait.
        if self.requests.is_empty() {
            self.sending_copies.clear();
            self.buffers.provide(self.sending.drain(..).map(|buffer| buffer.id));
        }
        Ok(())
    }
}

/// Returns a request that sends all bytes at once, which is possible for small messages. Only a
/// failure is reported.
fn send(token: usize, bytes: &[u8]) -> Entry {
    opcode::Send::new(Fixed(token as u32), bytes.as_ptr(), bytes.len() as u32)
        .flags(libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
        .build()
        .flags(Flags::SKIP_SUCCESS)
        .user_data(token as u64 | SEND)
}

/// A buffer that the kernel has filled. Nothing writes to it until it is provided again.
#[derive(Debug)]
pub(crate) struct Buffer {
    id: u16,
    length: u32,
}

/// The memory to receive into, and the list of its free buffers, which the kernel reads.
struct Buffers {
    list: *mut BufRingEntry,
    memory: *mut u8,
    /// The number of buffers ever put on the list, modulo 65,536.
    provided: u16,
}

impl Buffers {
    fn new(submitter: &Submitter<'_>) -> io::Result<Self> {
        let list_bytes =
            (usize::from(BUFFERS) * size_of::<BufRingEntry>()).next_multiple_of(PAGE_BYTES);
        let length = list_bytes + usize::from(BUFFERS) * BUFFER_BYTES;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: new memory at an address that the kernel chooses overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the list is page-aligned, has room for that many entries, and is never unmapped.
        unsafe { submitter.register_buf_ring_with_flags(start as u64, BUFFERS, GROUP, 0)? };
        // SAFETY: the mapping is longer than the list.
        let memory = unsafe { start.cast::<u8>().add(list_bytes) };
        let mut buffers = Self { list: start.cast(), memory, provided: 0 };
        buffers.provide(0..BUFFERS);
        Ok(buffers)
    }

    fn bytes(&self, buffer: &Buffer) -> &[u8] {
        // SAFETY: the kernel has written `length` bytes and does not touch them until the buffer is
        // provided again, which consumes `buffer`.
        unsafe { std::slice::from_raw_parts(self.start(buffer.id), buffer.length as usize) }
    }

    fn provide(&mut self, ids: impl IntoIterator<Item = u16>) {
        for id in ids {
            let place = usize::from(self.provided % BUFFERS);
            // SAFETY: the place is in the list, and the kernel does not read it yet: each buffer is
            // on the list at most once, and there is a place for each.
            let entry = unsafe { &mut *self.list.add(place) };
            entry.set_addr(self.start(id) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(id);
            self.provided = self.provided.wrapping_add(1);
        }
        // SAFETY: the tail is in the list's first entry, aligned and initialised, and only this
        // thread writes it.
        let end = unsafe { &*BufRingEntry::tail(self.list).cast::<AtomicU16>() };
        end.store(self.provided, Ordering::Release);
    }

    fn start(&self, id: u16) -> *mut u8 {
        // SAFETY: the kernel only returns ids that it was given.
        unsafe { self.memory.add(usize::from(id) * BUFFER_BYTES) }
    }
}
