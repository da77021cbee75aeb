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
    /// Somebody else listens on it as well, a service manager or the process that we take over
    /// from, and goes on when we do not.
    inherited: AtomicBool,
    /// By TCP: what its options were before [`tune`], and are again where the configuration has
    /// zero.
    defaults: Option<TcpDefaults>,
}

impl Listener {
    pub(crate) fn new(fd: OwnedFd, address: Address, inherited: bool) -> Self {
        let is_tcp = matches!(address, Address::Inet(_));
        let defaults = is_tcp.then(|| TcpDefaults::of(fd.as_raw_fd())).and_then(Result::ok);
        let (open, inherited) = (AtomicBool::new(true), AtomicBool::new(inherited));
        Self { fd, address, open, inherited, defaults }
    }

    /// One of the process that we take over from. That process has set its options, so a new socket
    /// tells the system's defaults.
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

    /// It is ours alone from now on.
    pub(crate) fn own(&self) {
        self.inherited.store(false, Ordering::Release);
    }

    /// Another process listens from now on: clients in the kernel's queue are that one's. The
    /// workers do not watch it any more.
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

    /// Refuses clients from now on, those in the kernel's queue included. The workers notice.
    /// On an inherited socket they stay in the queue, for whoever is started next.
    pub(crate) fn shut(&self) {
        if self.open.swap(false, Ordering::AcqRel) && !self.inherited.load(Ordering::Acquire) {
            socket::shutdown(self.fd(), false);
            if let Address::Unix(path) = &self.address {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Its socket file goes with it.
impl Drop for Listener {
    fn drop(&mut self) {
        self.shut();
    }
}

/// Closes the TCP listeners: what is left lets the console in.
pub(crate) fn shut_tcp(listeners: &[Listener]) {
    listeners.iter().filter(|listener| listener.is_tcp()).for_each(Listener::shut);
}

/// Sets what clients' sockets are to be like: the kernel hands the options of a listener down to
/// the connections it accepts, so nothing need be set for each of them. Done at start, and again
/// when the configuration was replaced, which may have zero now for what it has set before.
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

/// The configured options of every TCP connection.
pub(crate) fn set_tcp_options(fd: RawFd, global: &Global) -> io::Result<()> {
    socket::set_nodelay(fd)?;
    socket::set_keepalive(fd, global.tcp_keepalive)?;
    let (idle, interval) = (global.tcp_keepidle, global.tcp_keepintvl);
    socket::set_keepalive_times(fd, idle, interval, global.tcp_keepcnt)?;
    socket::set_user_timeout(fd, global.tcp_user_timeout)?;
    socket::set_buffers(fd, global.tcp_socket_buffer)
}
