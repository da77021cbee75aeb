//! Checks whether a certificate is for a host, by libpq's rules.

use core::net::IpAddr;

use crate::{Certificate, extensions::SubjectName};

/// The name or address that the client connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    Name(&'a str),
    Address(IpAddr),
}

impl Certificate {
    /// Is the certificate for this host? The common name counts only if there is no alternative
    /// name of the host's kind.
    #[must_use]
    pub fn is_for(&self, host: Host<'_>) -> bool {
        let names = &self.extensions.names;
        match host {
            Host::Name(host) => {
                let is_dns = |name: &&SubjectName| {
                    matches!(name, SubjectName::Dns(_) | SubjectName::Unreadable(2))
                };
                let mut dns = names.iter().filter(is_dns).peekable();
                if dns.peek().is_none() {
                    return self.common_name().is_some_and(|name| covers(name, host));
                }
                dns.any(|name| matches!(name, SubjectName::Dns(name) if covers(name, host)))
            }
            Host::Address(address) => {
                let text = address.to_string();
                let mut has_address = false;
                for name in names {
                    match name {
                        SubjectName::Address(bytes) if is_address(bytes, address) => return true,
                        SubjectName::Address(_) => has_address = true,
                        SubjectName::Dns(name) if *name == text => return true,
                        _ => {}
                    }
                }
                !has_address && self.common_name() == Some(&text)
            }
        }
    }

    /// Returns the first common name, as PostgreSQL does.
    fn common_name(&self) -> Option<&str> {
        self.common_names.first().map(String::as_str)
    }
}

/// Is `name` the host's name, or a pattern for it? A star stands for the first label, of at least
/// three.
fn covers(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    let Some(parent) = name.strip_prefix("*.") else { return false };
    let Some((first, rest)) = host.split_once('.') else { return false };
    let is_deep = parent.contains('.') && parent.split('.').all(|label| !label.is_empty());
    is_deep && !first.is_empty() && rest.eq_ignore_ascii_case(parent)
}

fn is_address(bytes: &[u8], address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => bytes == address.octets(),
        IpAddr::V6(address) => bytes == address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        for (name, host, covered) in [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.com", "example.com", false),
            ("*..com", "a..com", false),
            ("d*.example.com", "db.example.com", false),
            ("*", "db", false),
        ] {
            assert_eq!(covers(name, host), covered, "{name} for {host}");
        }
    }
}
