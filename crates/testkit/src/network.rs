//! A network of hosts, each in a network namespace of its own with an address of its own, and a router
//! between them. The router can drop all packets from one host to another, in one direction alone.
//! Senders notice nothing, as with a broken line. Each cut is proven by datagrams in both directions.
//!
//! It takes root. Namespaces end with this process, whatever ends it.

pub mod lan;

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::wait::poll_until;

/// Networks of this range are for tests of networks (RFC 2544). Each test has 256 addresses of it.
const RANGE: [u8; 2] = [198, 18];
/// Addresses of one line: the router's and the host's are in the middle.
const LINE: u8 = 4;

/// No process of a host listens here (discard). The kernel counts the datagrams that arrive.
const PROBED_PORT: u16 = 9;
/// A datagram arrives within this time, unless it is dropped.
const PROBE_PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

/// A network namespace. It exists as long as a process is in it.
#[derive(Debug)]
struct Namespace {
    holder: Child,
}

/// A host: processes that are started there have its address.
#[derive(Clone, Debug)]
pub struct Host {
    /// It counts from 1.
    number: u8,
    address: Ipv4Addr,
    namespace: Arc<Namespace>,
}

#[derive(Debug)]
pub struct Network {
    router: Namespace,
    /// The third byte of all addresses.
    number: u8,
    hosts: Vec<Host>,
    /// The directions that the router drops: from, to.
    cuts: Mutex<Vec<(Ipv4Addr, Ipv4Addr)>>,
}

impl Namespace {
    fn start() -> Result<Self, String> {
        // It ends when its standard input does.
        let script = "echo; exec cat >/dev/null";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder =
            command.stderr(Stdio::null()).spawn().map_err(|error| format!("unshare: {error}"))?;
        let begun = holder.stdout.as_mut().map(|output| output.read_exact(&mut [0]));
        match begun {
            Some(Ok(())) => Ok(Self { holder }),
            Some(Err(_)) | None => Err("no network namespace can be made here".to_owned()),
        }
    }

    fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    /// Returns a command that goes into this namespace and then runs what is added to it.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid())).arg("--");
        command
    }

    /// Returns the number of datagrams that have arrived for no socket.
    fn unclaimed_datagrams(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/net/snmp", self.pid())).ok()?;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, counts) = (lines.next()?, lines.next()?);
        let mut columns = names.split(' ').zip(counts.split(' '));
        columns.find(|(name, _)| *name == "NoPorts")?.1.parse().ok()
    }

    fn shell(&self, script: &str) -> Result<(), String> {
        let mut command = self.enter();
        command.args(["sh", "-c", script]);
        run(command, "")
    }

    fn ip(&self, words: &str) -> Result<(), String> {
        let mut command = self.enter();
        command.arg("ip");
        run(command, words)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

impl Network {
    /// Makes a router, with a line to this process.
    ///
    /// # Errors
    /// Why there can be none, in words.
    pub fn start() -> Result<Self, String> {
        if !crate::is_root() {
            return Err("network namespaces need root".to_owned());
        }
        let router = Namespace::start()?;
        // Other tests may have networks at the same time.
        let first = std::process::id() as u8;
        let mut why = String::new();
        for number in (0..=u8::MAX).map(|more| first.wrapping_add(more)) {
            let network = Self::address(number, 0);
            let (own, line) = (Self::address(number, 2), format!("weir{number}"));
            let words = format!("link add {line} type veth peer name line0 netns {}", router.pid());
            let mut ip = Command::new("ip");
            ip.stderr(Stdio::null());
            match run(ip, &words) {
                Ok(()) => {}
                Err(trouble) => {
                    why = trouble;
                    continue;
                }
            }
            for words in [
                format!("addr add {own}/30 dev {line}"),
                format!("link set {line} up"),
                format!("route add {network}/24 via {}", Self::address(number, 1)),
            ] {
                run(Command::new("ip"), &words)?;
            }
            router.ip(&format!("addr add {}/30 dev line0", Self::address(number, 1)))?;
            router.ip("link set line0 up")?;
            // A router that checks the way back would drop both directions for a cut of one.
            let script = "cd /proc/sys/net/ipv4 && echo 1 >ip_forward && \
                for own in conf/*/rp_filter; do echo 0 >$own; done";
            router.shell(script)?;
            return Ok(Self { router, number, hosts: Vec::new(), cuts: Mutex::default() });
        }
        Err(why)
    }

    fn address(number: u8, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(RANGE[0], RANGE[1], number, last)
    }

    /// Returns the address of this process.
    #[must_use]
    pub fn own_address(&self) -> Ipv4Addr {
        Self::address(self.number, 2)
    }

    /// Adds a host.
    ///
    /// # Panics
    /// If it cannot.
    #[must_use]
    pub fn host(&mut self) -> Host {
        let number = u8::try_from(self.hosts.len() + 1).expect("few hosts");
        let at = |more| Self::address(self.number, number * LINE + more);
        let (router, address) = (at(1), at(2));
        let made = || {
            let namespace = Namespace::start()?;
            let pid = namespace.pid();
            let line = format!("host{number}");
            self.router.ip(&format!("link add {line} type veth peer name eth0 netns {pid}"))?;
            self.router.ip(&format!("addr add {router}/30 dev {line}"))?;
            self.router.ip(&format!("link set {line} up"))?;
            namespace.ip("link set lo up")?;
            namespace.ip(&format!("addr add {address}/30 dev eth0"))?;
            namespace.ip("link set eth0 up")?;
            namespace.ip(&format!("route add default via {router}"))?;
            Ok::<_, String>(namespace)
        };
        let namespace = made().unwrap_or_else(|why| panic!("no host: {why}"));
        let host = Host { number, address, namespace: Arc::new(namespace) };
        self.hosts.push(host.clone());
        host
    }

    /// Drops all packets in this direction, until [`Self::heal`].
    ///
    /// # Panics
    /// If the router cannot, or if it drops another direction than it should.
    pub fn cut(&self, from: Ipv4Addr, to: Ipv4Addr) {
        self.rule("add", from, to);
        self.cuts().push((from, to));
        assert!(!self.passes(from, to), "packets from {from} to {to} still arrive");
        if !self.cuts().contains(&(to, from)) {
            self.until_passes(to, from);
        }
    }

    /// Drops nothing any more.
    ///
    /// # Panics
    /// If the router cannot, or still drops packets.
    pub fn heal(&self) {
        let cuts = std::mem::take(&mut *self.cuts());
        for (from, to) in &cuts {
            self.rule("del", *from, *to);
        }
        for (from, to) in cuts {
            self.until_passes(from, to);
        }
    }

    fn until_passes(&self, from: Ipv4Addr, to: Ipv4Addr) {
        let passes = poll_until(PATIENCE, || self.passes(from, to).then_some(()));
        assert!(passes.is_some(), "no packet from {from} arrives at {to}");
    }

    /// Does a datagram arrive?
    fn passes(&self, from: Ipv4Addr, to: Ipv4Addr) -> bool {
        if to == self.own_address() {
            let socket = UdpSocket::bind((to, 0)).expect("our own address");
            socket.set_read_timeout(Some(PROBE_PATIENCE)).expect("a time");
            let port = socket.local_addr().expect("it is bound").port();
            self.send(from, to, port);
            return socket.recv(&mut [0]).is_ok();
        }
        let count = || self.host_at(to).namespace.unclaimed_datagrams().expect("a count");
        let before = count();
        self.send(from, to, PROBED_PORT);
        poll_until(PROBE_PATIENCE, || (count() > before).then_some(())).is_some()
    }

    /// Sends a datagram.
    fn send(&self, from: Ipv4Addr, to: Ipv4Addr, port: u16) {
        if from == self.own_address() {
            let socket = UdpSocket::bind((from, 0)).expect("our own address");
            // An earlier datagram was refused.
            let _ = socket.send_to(b"x", (to, port));
            return;
        }
        let mut command = self.host_at(from).enter();
        // The redirection is the shell's own: no other program is needed.
        command.args(["bash", "-c", &format!("echo x >/dev/udp/{to}/{port}")]);
        run(command, "").unwrap_or_else(|why| panic!("no datagram from {from}: {why}"));
    }

    fn host_at(&self, address: Ipv4Addr) -> &Host {
        let host = self.hosts.iter().find(|host| host.address == address);
        host.unwrap_or_else(|| panic!("no host has {address}"))
    }

    fn rule(&self, what: &str, from: Ipv4Addr, to: Ipv4Addr) {
        let rule = format!("rule {what} from {from} to {to} blackhole pref 100");
        self.router.ip(&rule).unwrap_or_else(|why| panic!("{rule}: {why}"));
    }

    fn cuts(&self) -> std::sync::MutexGuard<'_, Vec<(Ipv4Addr, Ipv4Addr)>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns a command that goes to this host and then runs what is added to it.
    pub(crate) fn enter(&self) -> Command {
        self.namespace.enter()
    }
}

fn run(mut command: Command, words: &str) -> Result<(), String> {
    let output = command.args(words.split_whitespace()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or_else(|| format!("{words}: {}", said()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_direction_is_cut_alone() {
        let mut network = match Network::start() {
            Ok(network) => network,
            Err(why) => return eprintln!("left out: {why}"),
        };
        let [one, other] = [network.host(), network.host()];
        // The namespace alone refuses connections, so an answer comes back at once.
        let answers = |host: &Host| {
            let address = (host.address(), 1).into();
            let outcome = TcpStream::connect_timeout(&address, Duration::from_millis(300));
            let why = outcome.expect_err("nobody listens").kind();
            match why {
                std::io::ErrorKind::ConnectionRefused => true,
                std::io::ErrorKind::TimedOut => false,
                _ => panic!("{why:?}"),
            }
        };
        assert!(answers(&one) && answers(&other));
        for (from, to) in
            [(network.own_address(), one.address()), (one.address(), network.own_address())]
        {
            network.cut(from, to);
            assert!(!answers(&one) && answers(&other));
            network.heal();
            assert!(answers(&one));
        }
        network.cut(one.address(), other.address());
        assert!(answers(&one) && answers(&other), "both still answer others");
        network.cut(other.address(), one.address());
        assert!(answers(&one) && answers(&other), "both still answer others");
    }

    #[test]
    fn the_probe_notices_a_router_that_checks_the_way_back() {
        let mut network = match Network::start() {
            Ok(network) => network,
            Err(why) => return eprintln!("left out: {why}"),
        };
        let host = network.host();
        let (own, other) = (network.own_address(), host.address());
        network.cut(own, other);
        assert!(!network.passes(own, other) && network.passes(other, own));
        let script = "for own in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$own; done";
        network.router.shell(script).expect("root may");
        assert!(!network.passes(other, own), "the router finds no way back");
    }
}
