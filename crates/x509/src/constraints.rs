//! Name constraints: a CA may certify only certain names, or all except certain names.

use crate::{
    Certificate,
    extensions::{Constraints, SubjectName},
    verify::Refusal,
};

/// The maximal number of comparisons of names and constraints for one certificate; OpenSSL's limit.
const PAIRS_MAX: usize = 1 << 20;

/// Do all names of a chain respect the constraints of the CAs above them?
pub(crate) fn check(chain: &[&Certificate]) -> Result<(), Refusal> {
    for (at, certificate) in chain.iter().enumerate() {
        if at > 0 && certificate.is_self_issued() {
            continue;
        }
        let above = chain.iter().skip(at + 1);
        let mut constraints = above.filter_map(|ca| ca.extensions.constraints.as_ref()).peekable();
        if constraints.peek().is_none() {
            continue;
        }
        let names = names(certificate, at == 0);
        if !constraints.all(|constraints| constraints.permit_all(&names)) {
            return Err(Refusal::Constraint);
        }
    }
    Ok(())
}

/// Returns all names of a certificate's subject. A peer's common name counts if it could be a
/// host's and there is no other name.
fn names(certificate: &Certificate, is_peer: bool) -> Vec<SubjectName> {
    let mut names = certificate.extensions.names.clone();
    let has_dns = names.iter().any(|name| matches!(name, SubjectName::Dns(_)));
    if is_peer && !has_dns {
        let hosts = certificate.common_names.iter().filter(|name| could_be_host(name));
        names.extend(hosts.cloned().map(SubjectName::Dns));
    }
    names.extend(certificate.emails.iter().cloned().map(SubjectName::Email));
    if !certificate.subject.is_empty() {
        names.push(SubjectName::Directory(certificate.subject.clone()));
    }
    names
}

/// Returns whether the name has several parts of letters, digits, hyphens and underscores, with
/// single dots between them.
fn could_be_host(name: &str) -> bool {
    let name = name.trim_end_matches('\0');
    let is_label = |label: &str| {
        let bytes = label.bytes();
        let is_inner = bytes.clone().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        is_inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    name.contains('.') && name.split('.').all(is_label)
}

impl Constraints {
    fn permit_all(&self, names: &[SubjectName]) -> bool {
        let pairs = names.len().saturating_mul(self.permitted.len() + self.excluded.len());
        pairs <= PAIRS_MAX && names.iter().all(|name| self.permit(name))
    }

    fn permit(&self, name: &SubjectName) -> bool {
        let mut permitted = self.permitted.iter().filter(|base| base.kind() == name.kind());
        let mut excluded = self.excluded.iter().filter(|base| base.kind() == name.kind());
        let is_listed = match permitted.clone().next() {
            None => true,
            Some(_) => permitted.any(|base| name.is_within(base) == Some(true)),
        };
        // A name that cannot be compared is not permitted.
        is_listed && excluded.all(|base| name.is_within(base) == Some(false))
    }
}

impl SubjectName {
    /// The tag of this kind of name.
    fn kind(&self) -> u32 {
        match self {
            Self::Email(_) => 1,
            Self::Dns(_) => 2,
            Self::Directory(_) => 4,
            Self::Uri(_) => 6,
            Self::Address(_) => 7,
            Self::Other(kind) | Self::Unreadable(kind) => *kind,
        }
    }

    /// Is the name within this base? `None` if they cannot be compared.
    fn is_within(&self, base: &Self) -> Option<bool> {
        match (self, base) {
            (Self::Email(name), Self::Email(base)) => email_is_within(name, base),
            (Self::Dns(name), Self::Dns(base)) => Some(dns_is_within(name, base)),
            (Self::Directory(name), Self::Directory(base)) => Some(name.is_within(base)),
            (Self::Uri(name), Self::Uri(base)) => uri_is_within(name, base),
            (Self::Address(name), Self::Address(base)) => address_is_within(name, base),
            _ => None,
        }
    }
}

/// Returns whether the name is the base, or has more labels before it. A base that begins with a
/// dot requires more labels.
fn dns_is_within(name: &str, base: &str) -> bool {
    if base.is_empty() {
        return true;
    }
    let Some(front) = without_suffix(name, base) else { return false };
    front.is_empty() || base.starts_with('.') || front.ends_with(b".")
}

/// Returns the part before the suffix, whose case does not matter.
fn without_suffix<'a>(text: &'a str, suffix: &str) -> Option<&'a [u8]> {
    let (front, back) = text.as_bytes().split_at_checked(text.len().checked_sub(suffix.len())?)?;
    back.eq_ignore_ascii_case(suffix.as_bytes()).then_some(front)
}

/// A base is one mailbox (`a@b.c`), all of a host (`b.c` or `@b.c`), or all hosts within (`.b.c`).
fn email_is_within(name: &str, base: &str) -> Option<bool> {
    let (mailbox, host) = name.rsplit_once('@')?;
    Some(match base.rsplit_once('@') {
        None if base.starts_with('.') => {
            without_suffix(name, base).is_some_and(|front| !front.is_empty())
        }
        None => host.eq_ignore_ascii_case(base),
        Some(("", wanted)) => host.eq_ignore_ascii_case(wanted),
        Some((one, wanted)) => mailbox == one && host.eq_ignore_ascii_case(wanted),
    })
}

/// The host of a URI must be the base, or within it if the base begins with a dot.
fn uri_is_within(uri: &str, base: &str) -> Option<bool> {
    let (_, rest) = uri.split_once("://")?;
    let host = rest.split([':', '/']).next().filter(|host| !host.is_empty())?;
    if base.starts_with('.') {
        return Some(without_suffix(host, base).is_some_and(|front| !front.is_empty()));
    }
    Some(host.eq_ignore_ascii_case(base))
}

/// A base is an address and a mask of the same length.
fn address_is_within(address: &[u8], base: &[u8]) -> Option<bool> {
    if !matches!(address.len(), 4 | 16) || !matches!(base.len(), 8 | 32) {
        return None;
    }
    let Some((network, mask)) = base.split_at_checked(address.len()) else { return Some(false) };
    if mask.len() != address.len() {
        return Some(false);
    }
    let mut bytes = address.iter().zip(network).zip(mask);
    Some(bytes.all(|((byte, network), mask)| byte & mask == network & mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (name, base, within) in [
            ("a.example", "", true),
            ("a.example", "example", true),
            ("a.EXAMPLE", "example", true),
            ("example", "example", true),
            ("aexample", "example", false),
            ("a.example", ".example", true),
            ("example", ".example", false),
            ("le", "example", false),
        ] {
            assert_eq!(dns_is_within(name, base), within, "{name} in {base}");
        }
        assert!(could_be_host("a.b-c.d") && could_be_host("a_b.c"));
        for name in ["app", "a..b", ".a.b", "a b.c", "-a.b", "a-.b", "*.a.b"] {
            assert!(!could_be_host(name), "{name}");
        }
    }

    #[test]
    fn mailboxes_uris_and_addresses() {
        for (name, base, within) in [
            ("a@b.c", "B.c", Some(true)),
            ("a@b.c", "@b.c", Some(true)),
            ("a@b.c", "a@b.C", Some(true)),
            ("A@b.c", "a@b.c", Some(false)),
            ("a@x.b.c", ".b.c", Some(true)),
            ("a@x.b.c", "b.c", Some(false)),
            ("nobody", "b.c", None),
        ] {
            assert_eq!(email_is_within(name, base), within, "{name} in {base}");
        }
        for (name, base, within) in [
            ("https://a.b:80/c", "a.b", Some(true)),
            ("https://a.b/c", ".b", Some(true)),
            ("https://b/", ".b", Some(false)),
            ("mailto:x", "b", None),
        ] {
            assert_eq!(uri_is_within(name, base), within, "{name} in {base}");
        }
        let net = [10, 0, 0, 0, 255, 0, 0, 0];
        assert_eq!(address_is_within(&[10, 1, 2, 3], &net), Some(true));
        assert_eq!(address_is_within(&[11, 1, 2, 3], &net), Some(false));
        assert_eq!(address_is_within(&[0; 16], &net), Some(false));
        assert_eq!(address_is_within(&[0; 3], &net), None);
    }
}
