//! Ranges of IP addresses, as `10.0.0.0/8` or a single address.

use core::net::IpAddr;
use std::fmt;

use crate::value::{Kind, Value, ValueError};

/// All addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// The number of bits.
    prefix: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let width = width(address);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let prefix = match prefix {
            Some(text) if is_number(text) => text.parse().ok()?,
            Some(_) => return None,
            None => width,
        };
        (prefix <= width).then_some(Self { address, prefix })
    }

    /// An IPv4 address that is mapped to IPv6 (`::ffff:10.0.0.1`) counts as the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let differing = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(own.to_bits() ^ other.to_bits()) << (128 - 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= self.prefix
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < width(self.address) { write!(f, "/{}", self.prefix) } else { Ok(()) }
    }
}

impl Value for Vec<Network> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        texts.map(|text| Network::parse(text).ok_or(ValueError::Networks)).collect()
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<_> = self.iter().map(Network::to_string).collect();
        Some(texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_a_network_if_its_first_bits_are_the_same() {
        for (network, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("10.0.0.0/9", "10.128.0.0", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::/0", "2001::", true),
            ("::1", "::1", true),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), is_in, "{address} in {network}");
        }
    }

    #[test]
    fn a_list_of_networks_and_each_mistake() {
        let all = <Vec<Network>>::parse(" 10.0.0.0/8,::1 , 192.0.2.1/32,").unwrap();
        assert_eq!(all.show().unwrap(), "10.0.0.0/8, ::1, 192.0.2.1");
        assert_eq!(<Vec<Network>>::parse("").unwrap(), []);
        for bad in ["10.0.0.0/33", "::/129", "10.0.0/8", "localhost", "10.0.0.0/", "10.0.0.0/+8"] {
            assert!(<Vec<Network>>::parse(bad).is_err(), "{bad}");
        }
    }
}
