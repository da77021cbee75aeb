//! Opens the sockets that clients connect to.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
};

use config::{Global, in_words};

use crate::{
    exchange::listener::{Listener, tune},
    log, warning,
};
use net::sys::{Address, process, socket};

/// Why the pooler cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("unix socket is in use, cannot continue")]
    InUse,
    #[error("failed to listen on any address in listen_addr list: {0}")]
    NoAddress(String),
    #[error("failed to create unix socket {0}: {1}")]
    Unix(PathBuf, String),
    #[error("could not find group '{0}'")]
    Group(String),
    #[error("nowhere to listen on")]
    Nowhere,
}

/// Takes the sockets of a service manager. Without any, opens all sockets of the configuration.
pub(crate) fn open_all(
    global: &Global,
    inherited: Vec<OwnedFd>,
) -> Result<Vec<Listener>, ListenError> {
    if !inherited.is_empty() {
        return Ok(take_inherited(global, inherited));
    }
    // The unix socket first: a client that can connect to the port may expect all sockets to exist.
    let mut all = Vec::new();
    if !global.unix_socket_dir.is_empty() {
        all.push(open_unix(global)?);
    }
    all.extend(open_tcp(global)?);
    if all.is_empty() {
        return Err(ListenError::Nowhere);
    }
    tune(&all, global);
    for listener in &all {
        log!("listening on {}", listener.address());
    }
    Ok(all)
}

/// Listens on the sockets of the process that we take over from. Addresses in the configuration
/// take effect at the next start.
pub(crate) fn take_over(global: &Global, fds: Vec<OwnedFd>, managed: bool) -> Vec<Listener> {
    let taken = fds.into_iter().map(|fd| {
        let address = socket::local_address(fd.as_raw_fd()).unwrap_or_default();
        log!("listening on {address}, taken over");
        Listener::taken_over(fd, address, managed)
    });
    let all: Vec<_> = taken.collect();
    tune(&all, global);
    all
}

fn take_inherited(global: &Global, inherited: Vec<OwnedFd>) -> Vec<Listener> {
    if !global.listen_addr.is_empty() {
        warning!("sockets passed from service manager, listen_addr ignored");
    }
    if ![String::new(), Global::default().unix_socket_dir].contains(&global.unix_socket_dir) {
        warning!("sockets passed from service manager, unix_socket_dir ignored");
    }
    let taken = inherited.into_iter().map(|fd| {
        let address = socket::local_address(fd.as_raw_fd()).unwrap_or_default();
        log!("socket passed from service manager (fd {}): {address}", fd.as_raw_fd());
        Listener::new(fd, address, true)
    });
    let all: Vec<_> = taken.collect();
    tune(&all, global);
    all
}

/// As in PgBouncer, an address that cannot be opened is a warning if another one can.
fn open_tcp(global: &Global) -> Result<Vec<Listener>, ListenError> {
    let mut all = Vec::new();
    for name in &global.listen_addr {
        for address in addresses_or_warn(name, global.listen_port) {
            match open_inet(address, global) {
                Ok(listener) => all.push(listener),
                Err((step, error)) => {
                    warning!("cannot listen on {address}: {step}(): {}", in_words(&error));
                }
            }
        }
    }
    if all.is_empty() && !global.listen_addr.is_empty() {
        return Err(ListenError::NoAddress(global.listen_addr.join(", ")));
    }
    Ok(all)
}

/// Returns the same as [`addresses`]; a name that is not found is logged.
fn addresses_or_warn(name: &str, port: u16) -> Vec<SocketAddr> {
    addresses(name, port).unwrap_or_else(|error| {
        warning!("getaddrinfo('{name}', '{port}') = {}", in_words(&error));
        Vec::new()
    })
}

/// Returns the addresses of an item of `listen_addr` or `metrics_addr`.
pub(crate) fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name == "*" {
        let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        return Ok(all.map(|ip| (ip, port).into()).to_vec());
    }
    (name, port).to_socket_addrs().map(Iterator::collect)
}

fn open_inet(address: SocketAddr, global: &Global) -> Result<Listener, (&'static str, io::Error)> {
    let (socket, address) = bind_inet(address, global.so_reuseport, global.listen_backlog)?;
    Ok(Listener::new(socket, address, false))
}

/// Returns a listening socket and its address. An error includes the step that failed, by the name
/// of its system call.
pub(crate) fn bind_inet(
    address: SocketAddr,
    reuse_port: bool,
    backlog: u32,
) -> Result<(OwnedFd, Address), (&'static str, io::Error)> {
    let at = |step| move |error| (step, error);
    let wanted = Address::Inet(address);
    let socket = socket::open(&wanted).map_err(at("socket"))?;
    let fd = socket.as_raw_fd();
    socket::set_reuse_address(fd).map_err(at("setsockopt"))?;
    if reuse_port {
        socket::set_reuse_port(fd).map_err(at("setsockopt"))?;
    }
    if address.is_ipv6() {
        socket::set_v6_only(fd).map_err(at("setsockopt"))?;
    }
    socket::bind(fd, &wanted).map_err(at("bind"))?;
    socket::listen(fd, backlog).map_err(at("listen"))?;
    // Port 0 stands for any free one: get its number.
    let address = socket::local_address(fd).map_err(at("getsockname"))?;
    Ok((socket, address))
}

/// Returns the address of the unix socket; `None` if none is configured.
pub(crate) fn unix_address(global: &Global) -> Option<Address> {
    let name = format!(".s.PGSQL.{}", global.listen_port);
    match (global.unix_socket_dir.as_str(), global.unix_socket_dir.strip_prefix('@')) {
        ("", _) => None,
        (_, Some(space)) => Some(Address::Abstract(format!("{space}/{name}").into_bytes())),
        (folder, None) => Some(Address::Unix(Path::new(folder).join(name))),
    }
}

/// Checks whether another process serves our unix socket.
///
/// # Errors
/// When one does.
pub fn refuse_second_process(global: &Global) -> Result<(), ListenError> {
    let answered = unix_address(global).is_some_and(|address| is_answered(&address));
    if answered { Err(ListenError::InUse) } else { Ok(()) }
}

fn open_unix(global: &Global) -> Result<Listener, ListenError> {
    let address = unix_address(global).unwrap_or_default();
    let path = match &address {
        Address::Unix(path) => path.clone(),
        other => PathBuf::from(other.to_string()),
    };
    let failed = |error| ListenError::Unix(path.clone(), in_words(&error));

    let socket = socket::open(&address).map_err(failed)?;
    if is_answered(&address) {
        return Err(ListenError::InUse);
    }
    if let Address::Unix(path) = &address {
        // A socket file on which no process listens was left by a process that was killed.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    socket::bind(socket.as_raw_fd(), &address).map_err(failed)?;
    // From here on the file belongs to us, and dropping the listener removes it.
    let listener = Listener::new(socket, address, false);
    if let Address::Unix(path) = listener.address() {
        admit(path, global)?;
    }
    socket::listen(listener.fd(), global.listen_backlog).map_err(failed)?;
    Ok(listener)
}

/// Does a running process listen there?
fn is_answered(address: &Address) -> bool {
    let Ok(socket) = socket::open(address) else { return false };
    match socket::connect(socket.as_raw_fd(), address) {
        Ok(_) => true,
        // Its backlog is full, but the process exists.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Sets the permissions of the socket file.
fn admit(path: &Path, global: &Global) -> Result<(), ListenError> {
    let failed = |error| ListenError::Unix(path.to_owned(), in_words(&error));
    let group = global.unix_socket_group.as_str();
    if !group.is_empty() {
        let known = process::group_by_name(group).map_err(failed)?;
        let gid = known.or_else(|| group.parse().ok());
        let gid = gid.ok_or_else(|| ListenError::Group(group.to_owned()))?;
        chown(path, None, Some(gid)).map_err(failed)?;
    }
    let mode = fs::Permissions::from_mode(global.unix_socket_mode);
    fs::set_permissions(path, mode).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::{fd::RawFd, unix::fs::MetadataExt as _};

    use net::sys::socket::TcpDefaults;

    use super::*;
    use crate::exchange::listener::stop_accepting;

    fn unix_only(dir: &Path) -> Global {
        Global {
            unix_socket_dir: dir.display().to_string(),
            unix_socket_mode: 0o700,
            ..Global::default()
        }
    }

    #[test]
    fn a_socket_in_use_is_left_alone_and_a_stale_one_is_replaced() {
        let dir = std::env::temp_dir().join(format!("weir-listen-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let global = unix_only(&dir);
        let path = dir.join(".s.PGSQL.6432");

        let first = open_all(&global, Vec::new()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(open_all(&global, Vec::new()), Err(ListenError::InUse)));
        assert!(path.exists(), "the socket of a running pooler was removed");
        drop(first);
        assert!(!path.exists(), "the socket file stayed behind");

        // A file that a killed process left behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(open_all(&global, Vec::new()).unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_socket_file_is_of_the_group_of_the_configuration() {
        let dir = std::env::temp_dir().join(format!("weir-group-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        // Root may give files to any group, other users to their own.
        let (own, named) = (fs::metadata(&dir).unwrap().gid(), process::group_by_name("daemon"));
        let (name, gid) = match (process::effective_uid(), named.unwrap()) {
            (0, Some(gid)) => ("daemon".to_owned(), gid),
            _ => (own.to_string(), own),
        };
        let global = Global { unix_socket_group: name, ..unix_only(&dir) };
        let listeners = open_all(&global, Vec::new()).unwrap();
        assert_eq!(fs::metadata(dir.join(".s.PGSQL.6432")).unwrap().gid(), gid);
        drop(listeners);
        let global = Global { unix_socket_group: "no such group".into(), ..global };
        assert!(matches!(open_all(&global, Vec::new()), Err(ListenError::Group(_))));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_shut_listener_refuses() {
        let global = Global {
            listen_addr: vec!["127.0.0.1".into()],
            listen_port: 0,
            unix_socket_dir: String::new(),
            ..Global::default()
        };
        let all = open_all(&global, Vec::new()).unwrap();
        let Address::Inet(address) = *all[0].address() else { panic!("not TCP") };
        assert_ne!(address.port(), 0);
        std::net::TcpStream::connect(address).unwrap();
        stop_accepting(&all);
        assert!(std::net::TcpStream::connect(address).is_err());
    }

    /// A numeric socket option, read from the kernel.
    fn option(fd: RawFd, level: libc::c_int, name: libc::c_int) -> i32 {
        socket::option(fd, level, name).unwrap()
    }

    #[test]
    fn clients_inherit_the_options_of_a_listening_socket() {
        let global = Global {
            listen_addr: vec!["127.0.0.1".into()],
            listen_port: 0,
            unix_socket_dir: String::new(),
            listen_backlog: 17,
            tcp_keepcnt: 4,
            tcp_keepintvl: 6,
            tcp_user_timeout: 7000,
            tcp_socket_buffer: 40_000,
            ..Global::default()
        };
        let all = open_all(&global, Vec::new()).unwrap();
        let Address::Inet(address) = *all[0].address() else { panic!("not TCP") };
        let fd = all[0].fd();
        assert!(option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) >= 45);
        let waits = Global { tcp_defer_accept: false, ..global.clone() };
        tune(&all, &waits);
        assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT), 0);

        // For a listening socket, this field is its backlog.
        let about: libc::tcp_info = socket::option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap();
        assert_eq!(about.tcpi_sacked, 17);

        let _client = std::net::TcpStream::connect(address).unwrap();
        let (client, _) = socket::accept(fd).unwrap();
        let accepted = client.as_raw_fd();
        assert_eq!(option(accepted, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), 7000);
        assert_eq!(option(accepted, libc::IPPROTO_TCP, libc::TCP_KEEPCNT), 4);
        assert_eq!(option(accepted, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), 6);
        // The kernel includes its own overhead.
        assert_eq!(option(accepted, libc::SOL_SOCKET, libc::SO_RCVBUF), 80_000);
        assert_eq!(option(accepted, libc::SOL_SOCKET, libc::SO_SNDBUF), 80_000);
    }

    #[test]
    fn where_the_configuration_has_zero_again_a_listener_is_like_a_new_one() {
        let global = Global {
            listen_addr: vec!["127.0.0.1".into()],
            listen_port: 0,
            unix_socket_dir: String::new(),
            tcp_defer_accept: false,
            ..Global::default()
        };
        let set = Global {
            tcp_keepidle: 11,
            tcp_keepintvl: 6,
            tcp_keepcnt: 4,
            tcp_socket_buffer: 40_000,
            ..global.clone()
        };
        let all = open_all(&set, Vec::new()).unwrap();
        let fresh = socket::open(all[0].address()).unwrap();
        let fresh = TcpDefaults::of(fresh.as_raw_fd()).unwrap();
        assert_ne!(TcpDefaults::of(all[0].fd()).unwrap(), fresh);
        tune(&all, &global);
        assert_eq!(TcpDefaults::of(all[0].fd()).unwrap(), fresh);

        // The values of another process are not kept either.
        tune(&all, &set);
        let taken = take_over(&global, vec![all[0].duplicate()], false);
        assert_eq!(TcpDefaults::of(taken[0].fd()).unwrap(), fresh);
        taken[0].abandon();
    }

    #[test]
    fn nowhere_is_an_error() {
        let global = Global { unix_socket_dir: String::new(), ..Global::default() };
        assert!(matches!(open_all(&global, Vec::new()), Err(ListenError::Nowhere)));
        let global = Global { listen_addr: vec!["192.0.2.1".into()], ..global };
        assert!(matches!(open_all(&global, Vec::new()), Err(ListenError::NoAddress(_))));
    }
}
