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
    /// Another process has the socket too: a service manager, or the process that we take over
    /// from. It stays open when this process closes it.
    inherited: AtomicBool,
    /// For TCP: its options before [`tune`], which are restored where the configuration has zero.
    defaults: Option<TcpDefaults>,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd, address: Address, inherited: bool) -> Self {
        let is_tcp = matches!(address, Address::Inet(_));
        let defaults = is_tcp.then(|| TcpDefaults::of(fd.as_raw_fd())).and_then(Result::ok);
        let (open, inherited) = (AtomicBool::new(true), AtomicBool::new(inherited));
        Self { fd, address, open, inherited, defaults }
    }

    /// Returns a listening socket of the process that we take over from. That process has changed
    /// its options, so the defaults are read from a new socket.
    pub(crate) fn taken_over(fd: OwnedFd, address: Address) -> Self {
        let fresh = socket::open(&address).and_then(|fresh| TcpDefaults::of(fresh.as_raw_fd()));
        let mut listener = Self::new(fd, address, true);
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

    /// Marks it as owned by this process alone.
    pub(crate) fn own(&self) {
        self.inherited.store(false, Ordering::Release);
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
    /// The clients of an inherited socket stay in the queue for the next process.
    pub(crate) fn shut(&self) {
        if self.open.swap(false, Ordering::AcqRel) && !self.inherited.load(Ordering::Acquire) {
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

/// Closes the TCP listening sockets. The console remains reachable through unix sockets.
pub(crate) fn shut_tcp(listeners: &[Listener]) {
    listeners.iter().filter(|listener| listener.is_tcp()).for_each(Listener::shut);
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
