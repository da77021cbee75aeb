//! The address of a socket, in the kernel's form and in ours.

#![expect(unsafe_code, reason = "the kernel's address structures are read as what they are")]

use std::{
    ffi::OsStr,
    fmt, io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The address of one end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Address {
    Inet(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
    /// A name in Linux's abstract name space, without its leading zero byte.
    Abstract(Vec<u8>),
    /// A unix socket without a name, such as a client's; or an unknown address.
    #[default]
    Unnamed,
}

impl Address {
    pub fn family(&self) -> libc::c_int {
        match self {
            Self::Inet(SocketAddr::V4(_)) => libc::AF_INET,
            Self::Inet(SocketAddr::V6(_)) => libc::AF_INET6,
            Self::Unix(_) | Self::Abstract(_) | Self::Unnamed => libc::AF_UNIX,
        }
    }
}

/// As PgBouncer's log writes it.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
            Self::Unnamed => f.write_str("unix"),
        }
    }
}

/// An address in the kernel's form.
pub(crate) struct Raw {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) len: libc::socklen_t,
}

/// The bytes of a unix address before its path.
const UNIX_PATH_OFFSET: usize = mem::offset_of!(libc::sockaddr_un, sun_path);
const UNIX_PATH_MAX: usize = size_of::<libc::sockaddr_un>() - UNIX_PATH_OFFSET;

impl Raw {
    /// Room for any address.
    pub(crate) fn empty() -> Self {
        // SAFETY: all fields are integers, for which zero is a valid value.
        let storage = unsafe { mem::zeroed() };
        Self { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// # Errors
    /// When a path is too long for a socket's name, or empty.
    pub(crate) fn new(address: &Address) -> io::Result<Self> {
        match address {
            Address::Inet(SocketAddr::V4(v4)) => Ok(Self::of(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            })),
            Address::Inet(SocketAddr::V6(v6)) => Ok(Self::of(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            })),
            Address::Unix(path) => Self::unix(path.as_os_str().as_bytes(), false),
            Address::Abstract(name) => Self::unix(name, true),
            Address::Unnamed => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn of<T: Copy>(address: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        let mut raw = Self::empty();
        // SAFETY: `sockaddr_storage` is larger than `T` and aligned for every address type.
        unsafe { raw.as_mut_ptr().cast::<T>().write(address) };
        raw.len = size_of::<T>() as libc::socklen_t;
        raw
    }

    fn unix(name: &[u8], is_abstract: bool) -> io::Result<Self> {
        // A path ends with a zero byte, an abstract name begins with one.
        if name.is_empty() || name.len() + 1 > UNIX_PATH_MAX || name.contains(&0) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut sun_path = [0; UNIX_PATH_MAX];
        for (to, from) in sun_path[usize::from(is_abstract)..].iter_mut().zip(name) {
            // Signed on x86-64, unsigned on ARM.
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        let sun_family = libc::AF_UNIX as libc::sa_family_t;
        let mut raw = Self::of(libc::sockaddr_un { sun_family, sun_path });
        raw.len = (UNIX_PATH_OFFSET + name.len() + 1) as libc::socklen_t;
        Ok(raw)
    }

    pub(crate) fn to_address(&self) -> Address {
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that the kernel wrote a `sockaddr_in`.
                let v4 = unsafe { self.as_ptr().cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Address::Inet(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above, a `sockaddr_in6`.
                let v6 = unsafe { self.as_ptr().cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                let (flow, scope) = (v6.sin6_flowinfo, v6.sin6_scope_id);
                Address::Inet(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            libc::AF_UNIX => self.to_unix(),
            _ => Address::Unnamed,
        }
    }

    fn to_unix(&self) -> Address {
        // SAFETY: as above, a `sockaddr_un`; what the kernel did not write is zero.
        let un = unsafe { self.as_ptr().cast::<libc::sockaddr_un>().read() };
        let path = un.sun_path.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
        let len = (self.len as usize).saturating_sub(UNIX_PATH_OFFSET).min(path.len());
        match &path[..len] {
            [] => Address::Unnamed,
            [0, name @ ..] => Address::Abstract(name.to_vec()),
            name => {
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                Address::Unix(Path::new(OsStr::from_bytes(&name[..end])).to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_survives_the_kernels_form() {
        let all = [
            Address::Inet("127.0.0.1:6432".parse().unwrap()),
            Address::Inet("[::1]:5432".parse().unwrap()),
            Address::Unix("/tmp/.s.PGSQL.5432".into()),
            Address::Abstract(b"weir/.s.PGSQL.5432".to_vec()),
        ];
        for address in all {
            assert_eq!(Raw::new(&address).unwrap().to_address(), address);
        }
    }

    #[test]
    fn a_path_must_fit() {
        assert!(Raw::new(&Address::Unix("x".repeat(108).into())).is_err());
        assert!(Raw::new(&Address::Unix("x".repeat(107).into())).is_ok());
        assert!(Raw::new(&Address::Unix("".into())).is_err());
    }
}
