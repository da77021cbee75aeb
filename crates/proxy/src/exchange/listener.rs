//! A socket that clients connect to. All workers watch it and accept from it.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use config::Global;

use crate::warning;
use net::sys::{
    Address, process,
    socket::{self, TcpDefaults},
};

#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    address: Address,
    open: AtomicBool,
    /// A service manager has the socket too. It stays open when this process closes it.
    managed: bool,
    /// The process that we take over from still has the socket, too.
    predecessor: AtomicBool,
    /// For TCP: its options before [`tune`], which are restored where the configuration has zero.
    defaults: Option<TcpDefaults>,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd, address: Address, managed: bool) -> Self {
        let is_tcp = matches!(address, Address::Inet(_));
        let defaults = is_tcp.then(|| TcpDefaults::of(fd.as_raw_fd())).and_then(Result::ok);
        let (open, predecessor) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { fd, address, open, managed, predecessor, defaults }
    }

    /// Returns a listening socket of the process that we take over from. That process has changed
    /// its options, so the defaults are read from a new socket.
    pub(crate) fn taken_over(fd: OwnedFd, address: Address, managed: bool) -> Self {
        let fresh = socket::open(&address).and_then(|fresh| TcpDefaults::of(fresh.as_raw_fd()));
        let mut listener = Self::new(fd, address, managed);
        listener.predecessor = AtomicBool::new(true);
        listener.defaults = listener.defaults.and(fresh.ok());
        listener
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Inet(_))
    }

    /// Does a service manager have it, too?
    pub(crate) fn is_managed(&self) -> bool {
        self.managed
    }

    /// Marks it as left by the process that we take over from.
    pub(crate) fn own(&self) {
        self.predecessor.store(false, Ordering::Release);
    }

    /// Leaves the socket to another process, including the clients in the kernel's queue. The
    /// workers stop watching it.
    pub(crate) fn abandon(&self) {
        if self.open.swap(false, Ordering::AcqRel)
            && let Err(error) = process::blank(self.fd())
        {
            warning!("cannot stop listening on {} for the new process: {error}", self.address);
        }
    }

    #[cfg(test)]
    pub(crate) fn duplicate(&self) -> OwnedFd {
        self.fd.try_clone().unwrap()
    }

    /// Refuses clients from now on, including those in the kernel's queue. The workers notice it.
    /// If another process has the socket too, they stay in the queue for the next process.
    pub(crate) fn shut(&self) {
        let was_open = self.open.swap(false, Ordering::AcqRel);
        if was_open && !self.managed && !self.predecessor.load(Ordering::Acquire) {
            socket::shutdown(self.fd(), false);
            if let Address::Unix(path) = &self.address {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Removes the socket file.
impl Drop for Listener {
    fn drop(&mut self) {
        self.shut();
    }
}

/// Closes the TCP sockets and all sockets of a service manager, in which clients wait for the next
/// process. The console remains reachable through a unix socket of Weir's own.
pub(crate) fn stop_accepting(listeners: &[Listener]) {
    let closed = |listener: &&Listener| listener.is_tcp() || listener.managed;
    listeners.iter().filter(closed).for_each(Listener::shut);
}

/// Sets the TCP options of clients on their listening sockets, because accepted connections inherit
/// them. Called at start and after a reload, which may have zero for a value that was set before.
pub(crate) fn tune(listeners: &[Listener], global: &Global) {
    for listener in listeners.iter().filter(|listener| listener.is_tcp() && listener.is_open()) {
        let fd = listener.fd();
        let tuned = socket::set_defer_accept(fd, global.tcp_defer_accept)
            .and_then(|()| listener.defaults.map_or(Ok(()), |defaults| defaults.restore(fd)))
            .and_then(|()| set_tcp_options(fd, global));
        if let Err(error) = tuned {
            warning!("cannot set the options of {}: {error}", listener.address);
        }
    }
}

/// Sets the configured options of a TCP connection.
pub(crate) fn set_tcp_options(fd: RawFd, global: &Global) -> io::Result<()> {
    socket::set_nodelay(fd)?;
    socket::set_keepalive(fd, global.tcp_keepalive)?;
    let (idle, interval) = (global.tcp_keepidle, global.tcp_keepintvl);
    socket::set_keepalive_times(fd, idle, interval, global.tcp_keepcnt)?;
    socket::set_user_timeout(fd, global.tcp_user_timeout)?;
    socket::set_buffers(fd, global.tcp_socket_buffer)
}
