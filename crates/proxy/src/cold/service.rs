//! The service manager (systemd): it passes listening sockets, and gets messages about Weir's
//! state. Environment variables show whether there is one; without them nothing is done. The
//! protocols are those of sd_listen_fds(3) and sd_notify(3).

use std::{
    env, fs, io,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::warning;
use net::sys::{process as system, socket};

/// The first descriptor of a service manager; the others follow without a gap.
const FIRST_FD: i32 = 3;

/// The sockets of the service manager, and the messages to it.
#[derive(Debug, Default)]
pub struct Service {
    /// Listening sockets; if there are any, no others are opened.
    pub(crate) listeners: Vec<OwnedFd>,
    pub(crate) notifier: Notifier,
}

impl Service {
    /// Does a service manager pass listening sockets to this process? Then it has no other process
    /// that serves them.
    pub fn passes_sockets() -> bool {
        socket_count() > 0
    }

    /// Has a service manager started this process, and does it accept messages about it?
    pub fn is_managed() -> bool {
        notify_socket().is_some()
    }

    /// Takes what the environment offers to this process. Call it once, since descriptors have one
    /// owner, and after the process has gone to the background: the sockets are for a process of a
    /// certain number.
    ///
    /// # Errors
    /// When a descriptor is not a listening socket.
    pub fn from_environment() -> io::Result<Self> {
        let notifier = Notifier { address: notify_socket(), retired: AtomicBool::new(false) };
        let listeners = (FIRST_FD..FIRST_FD.saturating_add(socket_count())).map(|fd| {
            socket::adopt_listener(fd).map_err(|error| {
                let why = format!(
                    "failed to set up socket passed from service manager (fd {fd}): {error}"
                );
                io::Error::new(error.kind(), why)
            })
        });
        Ok(Self { listeners: listeners.collect::<io::Result<_>>()?, notifier })
    }
}

fn notify_socket() -> Option<String> {
    env::var("NOTIFY_SOCKET").ok()
}

fn socket_count() -> i32 {
    let meant_for_us = number("LISTEN_PID") == Some(process::id());
    let count = number("LISTEN_FDS").filter(|_| meant_for_us);
    count.and_then(|count| i32::try_from(count).ok()).unwrap_or(0)
}

fn number(variable: &str) -> Option<u32> {
    env::var(variable).ok()?.parse().ok()
}

/// Reports Weir's state to the service manager, if there is one that accepts messages.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    /// A path, or a name in Linux's abstract name space after an `@`.
    address: Option<String>,
    /// Another process is the main one now.
    retired: AtomicBool,
}

impl Notifier {
    /// Returns the unit of this process if the process with this id is not part of it. The service
    /// manager accepts no main process from outside of the unit.
    pub(crate) fn unit_without(&self, pid: u32) -> Option<String> {
        self.address.as_ref()?;
        let own = cgroups("self")?;
        let is_outside = cgroups(&pid.to_string()).is_some_and(|other| other != own);
        let mut names = own.iter().filter_map(|path| path.rsplit('/').next());
        let unit = names.rfind(|name| name.ends_with(".service"));
        is_outside.then(|| unit.unwrap_or("a service manager").to_owned())
    }

    /// Reports that clients are served.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports the same for a process that has taken over and is the main one now.
    pub(crate) fn succeeded(&self) {
        self.tell(&format!("MAINPID={}\nREADY=1", process::id()));
    }

    /// Reports that the successor is the main process now; messages of this one are ignored
    /// afterwards.
    pub(crate) fn retire(&self, successor: u32) {
        self.tell(&format!("MAINPID={successor}"));
        self.retired.store(true, Ordering::Release);
    }

    /// Reports that the configuration is being read; [`Self::ready`] reports the end. The time
    /// tells systemd which of its requests is meant (`Type=notify-reload`).
    pub(crate) fn reloading(&self) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", system::monotonic_us()));
    }

    /// Reports that only the last clients are served.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Sets the line that `systemctl status` shows.
    pub(crate) fn status(&self, line: &str) {
        self.tell(&format!("STATUS={line}"));
    }

    fn tell(&self, message: &str) {
        if let Some(address) = &self.address
            && !self.retired.load(Ordering::Acquire)
            && let Err(error) = send(address, message)
        {
            warning!("cannot notify the service manager at {address}: {error}");
        }
    }
}

/// Returns the control groups of a process in the hierarchies that systemd may use.
fn cgroups(process: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let path = |line: &str| {
        let is_one = line.starts_with("0::") || line.contains(":name=systemd:");
        line.splitn(3, ':').nth(2).filter(|_| is_one).map(str::to_owned)
    };
    Some(text.lines().filter_map(path).collect())
}

fn send(address: &str, message: &str) -> io::Result<()> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let len = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn a_process_of_the_same_unit_may_be_the_main_one() {
        let managed = Notifier { address: Some("@x".to_owned()), ..Notifier::default() };
        assert_eq!(managed.unit_without(process::id()), None);
        assert_eq!(managed.unit_without(u32::MAX), None, "there is no such process");
    }

    #[test]
    fn states_are_told_by_path_and_by_abstract_name() {
        let path = env::temp_dir().join(format!("weir-notify-{}", process::id()));
        let name = format!("weir-notify-{}", process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, address) in
            [(by_path, path.display().to_string()), (by_name, format!("@{name}"))]
        {
            let notifier = Notifier { address: Some(address), ..Notifier::default() };
            notifier.ready();
            assert_eq!(heard(&socket), "READY=1");
            notifier.reloading();
            let text = heard(&socket);
            let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(time.parse::<u64>().unwrap() > 0);
            notifier.status("all is well");
            assert_eq!(heard(&socket), "STATUS=all is well");
            notifier.stopping();
            assert_eq!(heard(&socket), "STOPPING=1");
        }
        fs::remove_file(path).unwrap();
    }
}
