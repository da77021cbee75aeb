//! The addresses that one of several Weirs has for clients, as `10.0.0.100/24 dev eth0`.

use core::net::IpAddr;
use std::fmt;

use crate::endpoint::{list, shown};
use crate::value::{Kind, Value, ValueError};

/// A name of a device has fewer bytes (`IFNAMSIZ`).
const DEVICE_BYTES: usize = 16;

/// An address of a device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualAddress {
    pub address: IpAddr,
    /// The number of bits that the addresses of its network have in common.
    pub prefix: u8,
    pub device: String,
}

impl VirtualAddress {
    fn new(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (network, dev, device) = (words.next()?, words.next()?, words.next()?);
        let (address, prefix) = network.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| is_number)?;
        let (width, is_usual) = match address {
            IpAddr::V4(own) => (32, !own.is_broadcast() && !own.is_link_local()),
            IpAddr::V6(own) => {
                (128, !own.is_unicast_link_local() && own.to_ipv4_mapped().is_none())
            }
        };
        let is_usual = is_usual
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast();
        let is_device = device.len() < DEVICE_BYTES && !device.contains(['/', ':']);
        let is_valid = dev == "dev" && words.next().is_none() && (1..=width).contains(&prefix);
        (is_valid && is_usual && is_device).then(|| Self {
            address,
            prefix,
            device: device.to_owned(),
        })
    }
}

impl fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix, device } = self;
        write!(f, "{address}/{prefix} dev {device}")
    }
}

impl Value for Vec<VirtualAddress> {
    const KIND: Kind = Kind::List;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let all = list(text, VirtualAddress::new).ok_or(ValueError::VirtualAddresses)?;
        let is_twice = |(at, own): (usize, &VirtualAddress)| {
            all[..at].iter().any(|before| before.address == own.address)
        };
        match all.iter().enumerate().any(is_twice) {
            true => Err(ValueError::VirtualAddresses),
            false => Ok(all),
        }
    }

    fn show(&self) -> Option<String> {
        shown(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_prefix_and_a_device() {
        let text = "10.0.0.100/24 dev eth0,  2001:db8::100/64  dev bond0.7 ";
        let all = Vec::<VirtualAddress>::parse(text).unwrap();
        let shown = all.show().unwrap();
        assert_eq!(shown, "10.0.0.100/24 dev eth0,2001:db8::100/64 dev bond0.7");
        assert_eq!(Vec::<VirtualAddress>::parse(&shown).unwrap(), all);
        for text in [
            "",
            "10.0.0.100",
            "10.0.0.100/24",
            "10.0.0.100/24 eth0",
            "10.0.0.100/24 dev",
            "10.0.0.100 dev eth0",
            "10.0.0.300/24 dev eth0",
            "10.0.0.100/33 dev eth0",
            "10.0.0.100/0 dev eth0",
            "10.0.0.100/+8 dev eth0",
            "2001:db8::1/129 dev eth0",
            "fe80::1/64 dev eth0",
            "127.0.0.1/8 dev lo",
            "0.0.0.0/8 dev eth0",
            "224.0.0.1/8 dev eth0",
            "::ffff:10.0.0.1/128 dev eth0",
            "10.0.0.100/24 dev a/b",
            "10.0.0.100/24 dev eth0:1",
            "10.0.0.100/24 dev a234567890123456",
            "10.0.0.100/24 dev eth0 up",
            "10.0.0.100/24 dev eth0, 10.0.0.100/32 dev eth1",
            "name/24 dev eth0",
        ] {
            let outcome = Vec::<VirtualAddress>::parse(text);
            assert_eq!(outcome, Err(ValueError::VirtualAddresses), "{text:?}");
        }
    }
}
