//! The addresses of a host name, as the C library finds them: by `nsswitch.conf`, the hosts file,
//! `resolv.conf` and so on, each as it is at the moment of the call.

#![expect(unsafe_code, reason = "the list of addresses is read as what the C library says it is")]

use std::{
    ffi::{CStr, CString},
    fmt, io, mem,
    net::IpAddr,
    ptr,
};

use super::address::{Address, Raw};

/// Why a name has no address.
#[derive(Debug)]
pub enum NameError {
    /// The name does not exist, or has no address. Asking again would not help.
    Unknown(String),
    /// For example, no name server answers.
    Failed(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) | Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// A list of the C library's, which is freed when dropped.
struct List(*mut libc::addrinfo);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from `getaddrinfo`, and nothing refers to it any more.
        unsafe { libc::freeaddrinfo(self.0) };
    }
}

/// Returns the addresses of a host, in the order in which they should be tried. Blocks until the
/// name servers have answered, or have not answered for long.
///
/// # Errors
/// When the name has no address, or none could be found.
pub fn addresses(host: &str) -> Result<Vec<IpAddr>, NameError> {
    let name = CString::new(host).map_err(|error| NameError::Unknown(error.to_string()))?;
    // SAFETY: all fields are integers and pointers, for which zero is a valid value.
    let mut hints: libc::addrinfo = unsafe { mem::zeroed() };
    hints.ai_family = libc::AF_UNSPEC;
    // Otherwise each address comes once for each kind of socket.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut first = ptr::null_mut();
    // SAFETY: the name and the hints are alive, and `first` is the place for the result.
    let code =
        unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut first) };
    if code != 0 {
        return Err(error_of(code));
    }
    let list = List(first);
    let mut found = Vec::new();
    let mut at = list.0;
    while !at.is_null() {
        // SAFETY: it is an entry of the list, which is alive.
        let entry = unsafe { &*at };
        let mut raw = Raw::empty();
        let len = (entry.ai_addrlen as usize).min(size_of_val(&raw.storage));
        // SAFETY: the entry says how long its address is, and `raw` has room for `len` bytes.
        unsafe {
            ptr::copy_nonoverlapping(entry.ai_addr.cast(), raw.as_mut_ptr().cast::<u8>(), len)
        };
        if let Address::Inet(address) = raw.to_address()
            && !found.contains(&address.ip())
        {
            found.push(address.ip());
        }
        at = entry.ai_next;
    }
    Ok(found)
}

fn error_of(code: libc::c_int) -> NameError {
    if code == libc::EAI_SYSTEM {
        return NameError::Failed(io::Error::last_os_error().to_string());
    }
    // SAFETY: the C library has a text of its own for each number.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    let text = text.to_string_lossy().into_owned();
    match code {
        libc::EAI_NONAME | libc::EAI_NODATA => NameError::Unknown(text),
        _ => NameError::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn names_have_addresses_or_do_not_exist() {
        let local = addresses("localhost").unwrap();
        assert!(local.contains(&Ipv4Addr::LOCALHOST.into()), "{local:?}");
        assert_eq!(addresses("192.0.2.7").unwrap(), [IpAddr::from([192, 0, 2, 7])]);
        assert!(addresses("a\0b").is_err());
        assert!(addresses(&"x".repeat(300)).is_err());
    }
}
