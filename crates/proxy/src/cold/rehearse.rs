//! Finds what would keep a start from listening, logging or opening its files, without doing any of
//! it. A start does these things itself and reports the same; `weir check-config` asks here.
//!
//! Nothing is bound to a port, created or removed.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
};

use config::{Config, Global, in_words};

use super::{
    doors::Service,
    files,
    listen::{self, ListenError, unix_address},
};
use crate::log;
use net::sys::{Address, process};

/// A reason why a start would fail, or would do less than it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The key that leads there.
    pub key: &'static str,
    pub reason: String,
    /// Would the start fail?
    pub stops: bool,
}

impl Obstacle {
    fn new(key: &'static str, reason: impl ToString, stops: bool) -> Self {
        Self { key, reason: reason.to_string(), stops }
    }
}

/// Returns all that is in the way of a start of this configuration by this user.
#[must_use]
pub fn obstacles(config: &Config) -> Vec<Obstacle> {
    let global = &config.global;
    let mut found = Vec::new();
    if let Err(error) = log::rehearse(global) {
        found.push(Obstacle::new("logfile", error, true));
    }
    found.extend(unix(global));
    found.extend(tcp(global));
    if global.listen_addr.is_empty() && global.unix_socket_dir.is_empty() {
        let reason = format!("{}: listen_addr and unix_socket_dir are empty", ListenError::Nowhere);
        found.push(Obstacle::new("listen_addr", reason, true));
    }
    found.extend(Service::ALL.into_iter().flat_map(|service| door(service, global)));
    found.extend(shared_ports(global));
    found.extend(descriptors(config));
    found
}

/// Returns what keeps a start from serving this, which it does not need for its clients.
fn door(service: Service, global: &Global) -> Vec<Obstacle> {
    let (addresses, port) = service.values(global);
    let (address_key, port_key) = service.keys();
    if port == 0 {
        return Vec::new();
    }
    let (mut found, busy) = (Vec::new(), listening_now());
    for name in addresses {
        let addresses = match listen::addresses(name, port) {
            Ok(addresses) => addresses,
            Err(error) => {
                let reason = format!("{name}: {}", in_words(&error));
                found.push(Obstacle::new(address_key, reason, false));
                continue;
            }
        };
        for address in addresses {
            if busy.iter().any(|other| collides(*other, address)) {
                let reason = format!(
                    "{address} is in use; if that is not the Weir to be reloaded or taken over \
                     (-R), Weir starts without {}",
                    service.name()
                );
                found.push(Obstacle::new(port_key, reason, false));
            } else if let Some(reason) = unbindable(address) {
                found.push(Obstacle::new(address_key, reason, false));
            }
        }
    }
    found
}

/// Returns the services that want an address which a part of Weir before them has.
fn shared_ports(global: &Global) -> Vec<Obstacle> {
    let resolve = |names: &[String], port: u16| -> Vec<SocketAddr> {
        names.iter().filter_map(|name| listen::addresses(name, port).ok()).flatten().collect()
    };
    let mut found = Vec::new();
    let clients = resolve(&global.listen_addr, global.listen_port);
    let mut taken: Vec<_> = clients.into_iter().map(|address| (address, "listen_port")).collect();
    for service in Service::ALL {
        let ((names, port), (_, key)) = (service.values(global), service.keys());
        let wanted = resolve(names, port);
        let clash = wanted.iter().find_map(|address| {
            let (_, other) = taken.iter().find(|(other, _)| collides(*other, *address))?;
            Some(format!("{address} is also that of {other}; give each a port of its own"))
        });
        found.extend(clash.map(|reason| Obstacle::new(key, reason, false)));
        taken.extend(wanted.into_iter().map(|address| (address, key)));
    }
    found
}

/// Returns why this process cannot bind a socket to the address, whether it is in use or not.
fn unbindable(address: SocketAddr) -> Option<String> {
    if let Err(error) = UdpSocket::bind((address.ip(), 0)) {
        return Some(format!("cannot listen on {address}: {}", in_words(&error)));
    }
    (!may_bind(address.port())).then(|| {
        format!(
            "cannot listen on {address}: a port below {} needs root or CAP_NET_BIND_SERVICE",
            first_free_port()
        )
    })
}

fn unix(global: &Global) -> Option<Obstacle> {
    let key = "unix_socket_dir";
    let address = unix_address(global)?;
    if listen::refuse_second_process(global).is_err() {
        let reason = format!("{address} is in use; {UNLESS_OURS}");
        return Some(Obstacle::new(key, reason, false));
    }
    let Address::Unix(path) = address else { return None };
    let folder = path.parent().unwrap_or(Path::new("/"));
    if let Err(error) = process::may_create_in(folder) {
        let error = ListenError::Unix(path, in_words(&error));
        return Some(Obstacle::new(key, error, true));
    }
    let group = global.unix_socket_group.as_str();
    let known = || process::group_by_name(group).ok().flatten().or_else(|| group.parse().ok());
    if !group.is_empty() && known().is_none() {
        let error = ListenError::Group(group.to_owned());
        return Some(Obstacle::new("unix_socket_group", error, true));
    }
    None
}

/// The end of a sentence about an address in use.
const UNLESS_OURS: &str = "end the process that uses it before Weir starts, unless it is systemd \
     with a socket unit, or the Weir to be reloaded or taken over (-R)";

fn tcp(global: &Global) -> Vec<Obstacle> {
    let key = "listen_addr";
    let (mut found, mut usable) = (Vec::new(), false);
    let busy = listening_now();
    for name in &global.listen_addr {
        let addresses = match listen::addresses(name, global.listen_port) {
            Ok(addresses) => addresses,
            Err(error) => {
                found.push(Obstacle::new(key, format!("{name}: {}", in_words(&error)), false));
                continue;
            }
        };
        for address in addresses {
            if let Some(reason) = unbindable(address) {
                found.push(Obstacle::new(key, reason, false));
            } else {
                usable = true;
                if !global.so_reuseport && busy.iter().any(|other| collides(*other, address)) {
                    let reason = format!("{address} is in use; {UNLESS_OURS}");
                    found.push(Obstacle::new("listen_port", reason, false));
                }
            }
        }
    }
    if !usable && !global.listen_addr.is_empty() {
        let error = ListenError::NoAddress(global.listen_addr.join(", "));
        found.push(Obstacle::new(key, error, true));
    }
    found
}

fn collides(taken: SocketAddr, wanted: SocketAddr) -> bool {
    let same_family = taken.is_ipv4() == wanted.is_ipv4();
    let both = |address: SocketAddr| address.ip().is_unspecified();
    let overlaps = taken.ip() == wanted.ip() || both(taken) || both(wanted);
    wanted.port() != 0 && taken.port() == wanted.port() && same_family && overlaps
}

/// The TCP addresses at which some process of this machine listens (proc_net_tcp(5)).
fn listening_now() -> Vec<SocketAddr> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.map(|table| fs::read_to_string(table).unwrap_or_default());
    texts.iter().flat_map(|text| text.lines().skip(1)).filter_map(listener).collect()
}

/// The address of a line `sl local_address rem_address st …`, if it is in the state LISTEN.
fn listener(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, state) = (words.next()?, words.nth(1)?);
    if state != "0A" {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits as they are in memory, printed as numbers of this machine.
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some((ip, port).into())
}

/// The first port that needs no privilege (ip(7), `ip_unprivileged_port_start`).
fn first_free_port() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

fn may_bind(port: u16) -> bool {
    /// The bit of the capability (capabilities(7)).
    const NET_BIND_SERVICE: u32 = 10;
    port == 0 || port >= first_free_port() || process::has_capability(NET_BIND_SERVICE)
}

fn descriptors(config: &Config) -> Option<Obstacle> {
    let (_, hard) = process::file_limit().ok()?;
    let reason = files::bound_clients(&mut config.clone(), hard)?;
    Some(Obstacle::new("max_client_conn", reason, false))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn at(listen_addr: &str, listen_port: u16) -> Global {
        Global {
            listen_addr: vec![listen_addr.into()],
            listen_port,
            unix_socket_dir: String::new(),
            ..Global::default()
        }
    }

    #[test]
    fn an_address_in_use_is_found_without_binding() {
        for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
            let taken = TcpListener::bind(bind).unwrap();
            let port = taken.local_addr().unwrap().port();
            let found = tcp(&at("127.0.0.1", port));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(!found[0].stops && found[0].reason.contains("is in use"), "{found:?}");
            drop(taken);
            assert_eq!(tcp(&at("127.0.0.1", port)), []);
        }
        let Ok(taken) = TcpListener::bind("[::1]:0") else { return };
        let port = taken.local_addr().unwrap().port();
        assert_eq!(tcp(&at("::1", port)).len(), 1);
    }

    #[test]
    fn a_busy_port_for_metrics_does_not_stop_a_start() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics_port = taken.local_addr().unwrap().port();
        let global = Global { metrics_port, ..at("127.0.0.1", 0) };
        let found = door(Service::Metrics, &global);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(!found[0].stops && found[0].key == "metrics_port", "{found:?}");
        drop(taken);
        assert_eq!(door(Service::Metrics, &global), []);
        let global = Global { metrics_port: 0, ..global };
        assert_eq!(door(Service::Metrics, &global), []);
    }

    #[test]
    fn two_services_cannot_have_one_port() {
        let global = Global {
            metrics_port: 9_127,
            health_port: 9_127,
            pcp_port: 6_432,
            ..at("127.0.0.1", 6_432)
        };
        let found = shared_ports(&global);
        let found: Vec<_> = found.iter().map(|one| (one.key, one.reason.as_str())).collect();
        let one = |address: &str, other: &str| {
            format!("{address} is also that of {other}; give each a port of its own")
        };
        let health = one("0.0.0.0:9127", "metrics_port");
        let pcp = one("127.0.0.1:6432", "listen_port");
        assert_eq!(found, [("health_port", &*health), ("pcp_port", &*pcp)]);
        let own = Global { metrics_port: 9_128, pcp_port: 0, ..global };
        assert_eq!(shared_ports(&own), []);
    }

    #[test]
    fn an_address_of_another_machine_stops_a_start() {
        let found = tcp(&at("192.0.2.1", 6432));
        let [address, whole] = &found[..] else { panic!("{found:?}") };
        assert!(!address.stops && address.reason.contains("192.0.2.1:6432"), "{found:?}");
        assert!(whole.stops, "{found:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_stops_a_start() {
        let global = Global { unix_socket_dir: "/nonexistent/run".into(), ..Global::default() };
        let found = unix(&global).unwrap();
        assert!(found.stops && found.reason.contains("No such file or directory"), "{found:?}");
        let global = Global { logfile: "/nonexistent/log".into(), ..global };
        let config = Config { global, ..Config::default() };
        let stops = obstacles(&config).into_iter().filter(|obstacle| obstacle.stops);
        let keys: Vec<_> = stops.map(|obstacle| obstacle.key).collect();
        assert_eq!(keys, ["logfile", "unix_socket_dir"]);
    }
}
