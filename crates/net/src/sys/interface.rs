//! Addresses of this machine's network devices: adds one with a life time, removes it, and announces it
//! to the neighbours (netlink(7), packet(7)).
//!
//! The kernel answers at once, so no call waits for another machine.

#![expect(unsafe_code, reason = "direct system calls, each with its own reasoning")]

mod announcement;

use std::{
    io, mem,
    net::IpAddr,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use config::in_words;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, CacheInfo},
    link::{LinkAttribute, LinkFlags, LinkMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use self::announcement::Announcement;
use super::{checked, checked_len, process};

/// The needed capabilities, with their bits.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13)];
/// No answer of the kernel is longer.
const ANSWER_BYTES: usize = 64 * 1024;

/// The bytes of an Ethernet address.
type Hardware = [u8; 6];

/// A network device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    index: u32,
    /// None: it has no Ethernet address, and neighbours need none.
    hardware: Option<Hardware>,
    /// It is up, and its line carries packets.
    is_running: bool,
}

/// An address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    pub address: IpAddr,
    pub prefix: u8,
}

impl Device {
    /// Returns the device of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> io::Result<Self> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let answer = ask(RouteNetlinkMessage::GetLink(question), 0)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Err(io::Error::other("the kernel does not describe the device"));
        };
        let hardware = link.attributes.iter().find_map(|attribute| {
            let LinkAttribute::Address(bytes) = attribute else { return None };
            Hardware::try_from(&bytes[..]).ok()
        });
        let flags = link.header.flags;
        Ok(Self {
            index: link.header.index,
            hardware: hardware.filter(|_| !flags.contains(LinkFlags::Loopback)),
            is_running: flags.contains(LinkFlags::Up | LinkFlags::Running),
        })
    }

    /// Returns the device of this name if its line carries packets.
    ///
    /// # Errors
    /// A sentence that names the device.
    pub fn running(name: &str) -> Result<Self, String> {
        match Self::named(name) {
            Ok(device) if device.is_running => Ok(device),
            Ok(_) => Err(format!("device {name} has no link")),
            Err(error) => Err(format!("device {name} cannot be used: {}", in_words(&error))),
        }
    }

    /// Adds an address that the kernel removes after so many seconds, or renews that time. Connections
    /// that this machine opens do not begin at it. `seconds` is called directly before the order to the
    /// kernel; with None, there is no order.
    ///
    /// # Errors
    /// Those of the kernel, for example without CAP_NET_ADMIN.
    pub fn put(&self, own: DeviceAddress, seconds: impl FnOnce() -> Option<u32>) -> io::Result<()> {
        let (kernel, mut message) = (kernel()?, self.message(own));
        let Some(seconds) = seconds() else { return Ok(()) };
        let mut life = CacheInfo::default();
        (life.ifa_valid, life.ifa_preferred) = (seconds, 0);
        message.attributes.push(AddressAttribute::CacheInfo(life));
        if own.address.is_ipv6() {
            // It is used at once, and the route to its network is not removed with it.
            let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        ask_at(&kernel, RouteNetlinkMessage::NewAddress(message), flags).map(drop)
    }

    /// Removes an address. Returns false if the device does not have it.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn remove(&self, own: DeviceAddress) -> io::Result<bool> {
        match ask(RouteNetlinkMessage::DelAddress(self.message(own)), NLM_F_ACK) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn message(&self, DeviceAddress { address, prefix }: DeviceAddress) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = prefix;
        message.header.index = self.index;
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        message
    }

    /// Tells the neighbours that this device has the address now: by a gratuitous ARP request and answer
    /// for IPv4, by an unsolicited neighbour advertisement for IPv6.
    ///
    /// # Errors
    /// Those of the kernel, for example without CAP_NET_RAW.
    pub fn announce(&self, address: IpAddr) -> io::Result<()> {
        let Some(hardware) = self.hardware else { return Ok(()) };
        let all = Announcement::of(address, hardware);
        all.iter().try_for_each(|own| self.send(own))
    }

    /// Sends a packet. The kernel adds the Ethernet header.
    fn send(&self, announcement: &Announcement) -> io::Result<()> {
        // SAFETY: the call has no pointers.
        let socket = checked(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // SAFETY: all fields are integers, for which zero is valid.
        let mut to: libc::sockaddr_ll = unsafe { mem::zeroed() };
        to.sll_family = libc::AF_PACKET as libc::c_ushort;
        to.sll_protocol = announcement.protocol.to_be();
        to.sll_ifindex = libc::c_int::try_from(self.index).map_err(io::Error::other)?;
        to.sll_halen = announcement.to.len() as u8;
        to.sll_addr[..announcement.to.len()].copy_from_slice(&announcement.to);
        let packet = &announcement.packet;
        // SAFETY: the packet and the address are alive, with the lengths that are passed.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        checked_len(sent).map(drop)
    }
}

/// Sends a message to the kernel. Returns its answer; none for an acknowledgement.
fn ask(message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
    ask_at(&kernel()?, message, flags)
}

fn kernel() -> io::Result<Socket> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn ask_at(
    kernel: &Socket,
    message: RouteNetlinkMessage,
    flags: u16,
) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = NLM_F_REQUEST | flags;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    kernel.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    kernel.recv(&mut answer, 0)?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
    let answer = answer.map_err(io::Error::other)?.payload;
    if let NetlinkPayload::Error(error) = &answer {
        return error.code.map_or(Ok(None), |_| Err(error.to_io()));
    }
    let NetlinkPayload::InnerMessage(message) = answer else {
        return Err(io::Error::other("the kernel does not answer the question"));
    };
    Ok(Some(message))
}

/// Returns the names of the capabilities that addresses need and this process does not have.
#[must_use]
pub fn missing_capabilities() -> Vec<&'static str> {
    let missing = CAPABILITIES.iter().filter(|(_, bit)| !process::has_capability(*bit));
    missing.map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_found_and_another_one_is_not() {
        let device = Device::named("lo").expect("every machine has it");
        assert_eq!(device.hardware, None);
        let why = Device::running("nowhere0").expect_err("there is none");
        assert!(why.starts_with("device nowhere0 cannot be used: "), "{why}");
        let error = Device::named("nowhere0").expect_err("there is none");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn an_address_that_is_not_there_cannot_be_removed() {
        let device = Device::named("lo").expect("every machine has it");
        let own = DeviceAddress { address: [192, 0, 2, 99].into(), prefix: 32 };
        match device.remove(own) {
            Ok(was_there) => assert!(!was_there),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}
