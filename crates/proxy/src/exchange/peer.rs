//! The other end of a client's connection, in 16 bytes.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::RawFd,
    sync::Arc,
};

use engine::{auth::Secured, shell::OtherProcess};

use net::sys::{Address, process, socket};

/// The other end of a client's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// A unix socket. The process id is 0 if the kernel does not tell it.
    Unix {
        pid: u32,
        /// The user of the process; None if the kernel does not tell it.
        uid: Option<u32>,
    },
    V4(Ipv4Addr, u16),
    /// Boxed, so that the common ones stay small.
    V6(Box<SocketAddr>),
    /// Another process of an online restart, which forwards a cancel request.
    Process(OtherProcess),
    #[default]
    Unknown,
}

/// The user that may act as any other.
const ROOT: u32 = 0;

impl Peer {
    pub(crate) fn new(fd: RawFd, address: &Address) -> Self {
        match address {
            Address::Inet(SocketAddr::V4(v4)) => Self::V4(*v4.ip(), v4.port()),
            Address::Inet(v6) => Self::V6(Box::new(*v6)),
            Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => {
                let credentials = socket::peer_credentials(fd);
                let uid = credentials.as_ref().ok().map(|(_, uid)| *uid);
                Self::Unix { pid: credentials.map_or(0, |(pid, _)| pid), uid }
            }
        }
    }

    /// Returns the part of it that matters for a client's rights. `seat` counts the login.
    pub(crate) fn to_auth(
        &self,
        secured: Option<Arc<Secured>>,
        seat: Arc<()>,
    ) -> engine::auth::Peer {
        let loopback = match self {
            Self::Unix { .. } => true,
            Self::V4(ip, _) => ip.is_loopback(),
            // Also an IPv4 loopback address that is mapped to IPv6.
            Self::V6(address) => address.ip().to_canonical().is_loopback(),
            Self::Process(_) | Self::Unknown => false,
        };
        let uid = match self {
            Self::Unix { uid, .. } => *uid,
            Self::V4(..) | Self::V6(_) | Self::Process(_) | Self::Unknown => None,
        };
        engine::auth::Peer {
            local: matches!(self, Self::Unix { .. }),
            same_user: uid.is_some_and(|uid| uid == process::effective_uid() || uid == ROOT),
            loopback,
            // Rules contain an IPv4-mapped address as IPv4.
            address: match self {
                Self::V4(ip, _) => Some(IpAddr::V4(*ip)),
                Self::V6(address) => Some(address.ip().to_canonical()),
                Self::Unix { .. } | Self::Process(_) | Self::Unknown => None,
            },
            uid,
            secured,
            seat,
        }
    }

    /// Returns address and port, of the socket or as announced by a proxy; `None` for a unix
    /// socket.
    pub(crate) fn announced(&self) -> Option<String> {
        match self {
            Self::Unix { .. } | Self::Process(_) | Self::Unknown => None,
            Self::V4(ip, port) => Some(format!("{ip}:{port}")),
            Self::V6(address) => Some(address.to_string()),
        }
    }

    /// Returns the address for `SHOW CLIENTS`; `unix` for a unix socket.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Unix { .. } | Self::Process(_) | Self::Unknown => "unix".to_owned(),
            Self::V4(ip, _) => ip.to_string(),
            Self::V6(address) => address.ip().to_string(),
        }
    }

    /// Returns the origin in the form that PgBouncer adds to an `application_name`. `port` is the
    /// number in the name of Weir's unix socket.
    pub(crate) fn origin(&self, port: u16) -> String {
        match self {
            Self::Unix { pid, .. } if *pid > 0 => {
                format!("unix({pid}@{}):{port}", process::host_name())
            }
            Self::Unix { .. } => format!("unix:{port}"),
            Self::V4(..) | Self::V6(_) | Self::Process(_) | Self::Unknown => self.to_string(),
        }
    }

    /// Returns the address and the port in the form of the library's `weir.client`.
    pub(crate) fn address_and_port(&self) -> String {
        match self {
            Self::Unix { .. } | Self::Process(_) | Self::Unknown => "unix".to_owned(),
            Self::V4(ip, port) => format!("{ip} {port}"),
            Self::V6(address) => format!("{} {}", address.ip().to_canonical(), address.port()),
        }
    }

    /// Returns the port; `None` for a unix socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Unix { .. } | Self::Process(_) | Self::Unknown => None,
            Self::V4(_, port) => Some(*port),
            Self::V6(address) => Some(address.port()),
        }
    }
}

/// As PgBouncer's log writes it: `unix(PID)`, `host:port`, IPv6 in brackets.
impl Peer {
    /// Returns the form for the log. A client of the unix socket has the port of that socket.
    #[must_use]
    pub fn label(&self, port: u16) -> String {
        match self {
            Self::Unix { .. } => format!("{self}:{port}"),
            Self::V4(..) | Self::V6(_) | Self::Process(_) | Self::Unknown => self.to_string(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { pid, .. } => write!(f, "unix({pid})"),
            Self::V4(ip, port) => write!(f, "{ip}:{port}"),
            Self::V6(address) => match address.ip() {
                IpAddr::V4(ip) => write!(f, "{ip}:{}", address.port()),
                IpAddr::V6(ip) => write!(f, "[{ip}]:{}", address.port()),
            },
            Self::Process(_) => f.write_str("another process"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_process_of_our_own_user_is_recognised() {
        let (ours, _theirs) = socket::pair();
        let peer = Peer::new(ours.as_raw_fd(), &Address::Unnamed);
        let own = engine::auth::Peer {
            local: true,
            same_user: true,
            loopback: true,
            uid: Some(process::effective_uid()),
            ..engine::auth::Peer::default()
        };
        assert_eq!(peer.to_auth(None, Arc::default()), own);
        assert_eq!(peer.to_string(), format!("unix({})", std::process::id()));
        let origin = peer.origin(6432);
        let begin = format!("unix({}@", std::process::id());
        assert!(origin.starts_with(&begin) && origin.ends_with("):6432"), "{origin}");
    }

    #[test]
    fn loopback_is_told_from_far_away() {
        for (address, loopback) in [
            ("127.0.0.1:5", true),
            ("10.0.0.1:5", false),
            ("[::1]:5", true),
            ("[fe80::1]:5", false),
        ] {
            let peer = Peer::new(-1, &Address::Inet(address.parse().unwrap()));
            assert_eq!(peer.to_auth(None, Arc::default()).loopback, loopback, "{address}");
            assert_eq!(peer.to_string(), address);
            assert_eq!(peer.origin(6432), address);
            assert!(!peer.to_auth(None, Arc::default()).local);
        }
        assert!(size_of::<Peer>() <= 16, "{} bytes", size_of::<Peer>());
    }
}
