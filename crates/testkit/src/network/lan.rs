//! One Ethernet for all hosts of a network, so that an address can move from one to another. Its switch is
//! a bridge of the router.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use super::{Host, Network, run};

/// The device of each host.
pub const DEVICE: &str = "lan0";
/// The last byte of an address that no host has.
const VIRTUAL: u8 = 100;

impl Network {
    /// Connects all hosts that there are to one Ethernet, by a second device.
    ///
    /// # Panics
    /// If it cannot.
    pub fn make_lan(&self) {
        self.router.ip("link add switch type bridge").expect("root may");
        self.router.ip("link set switch up").expect("root may");
        for host in &self.hosts {
            let (number, pid) = (host.number, host.namespace.pid());
            let (four, six) = (self.lan_v4(number), self.lan_v6(number));
            let own = |words: &str| host.namespace.ip(words);
            let router = |words: &str| self.router.ip(words);
            let made =
                router(&format!("link add lan{number} type veth peer name {DEVICE} netns {pid}"))
                    .and_then(|()| router(&format!("link set lan{number} master switch up")))
                    .and_then(|()| own(&format!("addr add {four}/24 dev {DEVICE}")))
                    .and_then(|()| own(&format!("addr add {six}/64 dev {DEVICE} nodad")))
                    .and_then(|()| own(&format!("link set {DEVICE} up")));
            made.unwrap_or_else(|why| panic!("no Ethernet: {why}"));
        }
    }

    fn lan_v4(&self, number: u8) -> Ipv4Addr {
        // The other half of the networks for tests.
        Ipv4Addr::new(198, 19, self.number, number)
    }

    fn lan_v6(&self, number: u8) -> Ipv6Addr {
        // Networks of 2001:2::/48 are for tests of networks (RFC 5180).
        Ipv6Addr::new(0x2001, 2, 0, self.number.into(), 0, 0, 0, number.into())
    }

    /// Returns addresses of the Ethernet that no host has: one of IPv4 and one of IPv6.
    #[must_use]
    pub fn free_addresses(&self) -> (Ipv4Addr, Ipv6Addr) {
        (self.lan_v4(VIRTUAL), self.lan_v6(VIRTUAL))
    }

    /// Pulls the cable of a host out of the switch, or puts it in again.
    ///
    /// # Panics
    /// If the router cannot.
    pub fn plug(&self, host: &Host, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        self.router.ip(&format!("link set lan{} {state}", host.number)).expect("root may");
    }
}

impl Host {
    /// Returns a command that root runs at this host.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.enter();
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Adds an address to a device, or removes it.
    ///
    /// # Panics
    /// If it cannot.
    pub fn ip(&self, words: &str) {
        let mut command = self.enter();
        command.arg("ip");
        run(command, words).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Has one of its devices the address now? As `ip address` would show it.
    ///
    /// # Panics
    /// If the kernel does not say.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        let file = |name| {
            let path = format!("/proc/{}/net/{name}", self.namespace.pid());
            fs::read_to_string(path).expect("the namespace exists")
        };
        match address {
            IpAddr::V4(address) => {
                let (text, leaf) = (file("fib_trie"), format!("|-- {address}"));
                let mut lines = text.lines();
                let mut is_leaf = || lines.by_ref().any(|line| line.trim() == leaf);
                is_leaf() && lines.next().is_some_and(|line| line.contains("host LOCAL"))
            }
            IpAddr::V6(address) => {
                let digits = address.octets().map(|byte| format!("{byte:02x}")).concat();
                file("if_inet6").lines().any(|line| line.starts_with(&digits))
            }
        }
    }

    /// Returns the Ethernet address of its device.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn hardware_address(&self) -> String {
        let shown = self.output("ip", &["-o", "link", "show", "dev", DEVICE]);
        let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).expect("an Ethernet address").to_owned()
    }

    /// Returns the Ethernet address under which it knows a neighbour, if it does.
    #[must_use]
    pub fn neighbour(&self, address: IpAddr) -> Option<String> {
        let shown = self.output("ip", &["neigh", "show", &address.to_string(), "dev", DEVICE]);
        let mut words = shown.split_whitespace().skip_while(|word| *word != "lladdr");
        words.nth(1).map(str::to_owned)
    }

    fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("it can be run");
        String::from_utf8(output.stdout).expect("text")
    }
}
