//! The packets that tell neighbours where an address is: ARP (RFC 826, RFC 5227) and neighbour
//! advertisements (RFC 4861), without an Ethernet header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Hardware;

const BROADCAST: Hardware = [0xFF; 6];
/// The group of all IPv6 nodes of a network, and its Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HARDWARE: Hardware = [0x33, 0x33, 0, 0, 0, 1];

const ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Neighbours replace what they know about the address.
const OVERRIDE: u8 = 0x20;
/// An option with the sender's Ethernet address, in units of eight bytes.
const TARGET_HARDWARE: [u8; 2] = [2, 1];
/// Routers do not pass the packet on, so it comes from the network itself.
const HOPS: u8 = 255;

/// A packet for all neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// Of Ethernet.
    pub(super) protocol: u16,
    pub(super) to: Hardware,
    pub(super) packet: Vec<u8>,
}

impl Announcement {
    pub(super) fn of(address: IpAddr, hardware: Hardware) -> Vec<Self> {
        match address {
            // Some machines heed only the request, others only the answer.
            IpAddr::V4(address) => {
                let arp = |operation| Self {
                    protocol: libc::ETH_P_ARP as u16,
                    to: BROADCAST,
                    packet: arp(operation, address, hardware),
                };
                vec![arp(1), arp(2)]
            }
            IpAddr::V6(address) => vec![Self {
                protocol: libc::ETH_P_IPV6 as u16,
                to: ALL_NODES_HARDWARE,
                packet: advertisement(address, hardware),
            }],
        }
    }
}

fn arp(operation: u8, address: Ipv4Addr, hardware: Hardware) -> Vec<u8> {
    let (address, target) = (address.octets(), if operation == 1 { [0; 6] } else { BROADCAST });
    // Ethernet, IPv4, and the lengths of their addresses.
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation];
    for part in [&hardware[..], &address[..], &target[..], &address[..]] {
        packet.extend(part);
    }
    packet
}

fn advertisement(address: Ipv6Addr, hardware: Hardware) -> Vec<u8> {
    let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    for part in [&address.octets()[..], &TARGET_HARDWARE[..], &hardware[..]] {
        body.extend(part);
    }
    let length = body.len() as u16;
    let sum = checksum(address, ALL_NODES, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([ICMPV6, HOPS]);
    for part in [&address.octets()[..], &ALL_NODES.octets()[..], &body[..]] {
        packet.extend(part);
    }
    packet
}

/// Returns the checksum of an ICMPv6 message (RFC 4443) of an even length.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, body: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum()
    };
    let header =
        words(&from.octets()) + words(&to.octets()) + body.len() as u32 + u32::from(ICMPV6);
    let sum = header + words(body);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Hardware = [2, 0, 0, 0, 0, 7];

    #[test]
    fn an_arp_names_the_address_as_that_of_the_sender() {
        let all = Announcement::of([10, 0, 0, 100].into(), OURS);
        let [request, answer] = &all[..] else { panic!("{all:?}") };
        let hex = |own: &Announcement| {
            own.packet.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(request), "00010800060400010200000000070a0000640000000000000a000064");
        assert_eq!(hex(answer), "00010800060400020200000000070a000064ffffffffffff0a000064");
        assert_eq!((request.to, request.protocol), (BROADCAST, 0x0806));
    }

    #[test]
    fn an_advertisement_has_a_valid_checksum() {
        let address: Ipv6Addr = "2001:db8::64".parse().expect("an address");
        let all = Announcement::of(address.into(), OURS);
        let [own] = &all[..] else { panic!("{all:?}") };
        assert_eq!((own.packet.len(), own.packet[4..8].to_vec()), (72, vec![0, 32, 58, 255]));
        // A receiver sums the message with its checksum, and gets zero.
        assert_eq!(checksum(address, ALL_NODES, &own.packet[40..]), 0);
        assert_eq!(own.packet[40..48], [136, 0, own.packet[42], own.packet[43], 0x20, 0, 0, 0]);
        assert_eq!(own.packet[64..], [2, 1, 2, 0, 0, 0, 0, 7]);
    }
}
