//! Two Weirs at hosts of their own, and the two ways to them that need such hosts: an address that
//! keepalived moves, and a name with two addresses. It takes root.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::lan::DEVICE;
use testkit::{
    Host, Network, Pooler, Postgres, eventually, free_port, open_folder, poll_until, pooler_binary,
    send_signal,
};

use super::PATIENCE;
use crate::lan;

/// The name of both Weirs.
const NAME: &str = "weir.test";
/// A client that reconnects is served within it, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// The Weirs, and a client at another host of the same Ethernet.
struct Two {
    weirs: [Pooler; 2],
    hosts: [Host; 2],
    client: Host,
    port: u16,
    network: Network,
    _nodes: Vec<Postgres>,
}

/// A process of root at a host. It is ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // keepalived ends its own children.
        send_signal(self.0.id(), "TERM");
        let _ = self.0.wait();
    }
}

impl Two {
    /// None without root.
    fn start() -> Option<Self> {
        let mut network = lan::network()?;
        let hosts = [network.host(), network.host()];
        let [client, server] = [network.host(), network.host()];
        network.make_lan();
        let nodes = Postgres::start_cluster_at(std::slice::from_ref(&server));
        let port = free_port();
        let target =
            format!("host={} port={} dbname=postgres", nodes[0].address(), nodes[0].port());
        let start = |host: &Host| {
            let setup = Pooler::before(&nodes[0]).set("pool_mode", "auto").port(port).at(host);
            setup.database_at("app", &target).start()
        };
        let weirs = [start(&hosts[0]), start(&hosts[1])];
        Some(Self { weirs, hosts, client, port, network, _nodes: nodes })
    }

    fn ask(&self, host: &str, before: &[&str]) -> Option<Duration> {
        lan::ask(&self.client, (host, self.port), before)
    }

    /// Starts keepalived beside a Weir, with the recipe of docs/high-availability.md.
    fn keepalived(&self, at: usize, address: IpAddr) -> Running {
        let folder = open_folder("keepalived");
        let file = |name: &str| folder.join(name);
        let text = format!(
            "global_defs {{ \n script_user root \n}}\n\
             vrrp_script weir {{\n script \"{} ctl -c {} health ready\"\n\
             interval 1\n timeout 3\n fall 2\n rise 1\n}}\n\
             vrrp_instance clients {{\n state BACKUP\n nopreempt\n interface {DEVICE}\n\
             virtual_router_id 51\n priority 100\n advert_int 1\n\
             virtual_ipaddress {{\n {address}/24\n}}\n track_script {{\n weir\n}}\n}}\n",
            pooler_binary().display(),
            self.weirs[at].configuration().display(),
        );
        let configuration = file("keepalived.conf");
        fs::write(&configuration, text).expect("our own folder");
        let mut command = self.hosts[at].command("keepalived");
        command.args(["--dont-fork", "--log-console", "--vrrp"]);
        let names = [("--use-file", configuration), ("--pid", file("pid"))];
        for (flag, path) in names.into_iter().chain([("--vrrp_pid", file("vrrp"))]) {
            command.arg(flag).arg(path);
        }
        Running::start(command, &file("log"))
    }

    fn has_address(&self, at: usize, address: IpAddr) -> bool {
        self.hosts[at].has_address(address)
    }
}

impl Running {
    fn start(mut command: Command, log: &Path) -> Self {
        let log = fs::File::create(log).expect("our own folder");
        let errors = log.try_clone().expect("a handle");
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        Self(command.spawn().expect("it can be run: see scripts/setup"))
    }
}

/// keepalived takes the address from a Weir that is paused or killed.
#[test]
fn keepalived_moves_the_address_to_a_weir_that_is_ready() {
    let Some(mut two) = Two::start() else { return };
    let address = IpAddr::from(two.network.free_addresses().0);
    let _both = [two.keepalived(0, address), two.keepalived(1, address)];
    let holder = || {
        let has = [two.has_address(0, address), two.has_address(1, address)];
        has.iter().position(|has| *has).filter(|_| has != [true, true])
    };
    let first = eventually("one has the address", PATIENCE, holder);
    let host = address.to_string();
    let served = || poll_until(PATIENCE, || two.ask(&host, &[]));
    assert!(served().is_some());

    // A paused Weir is not ready.
    let mut console = two.weirs[first].console();
    console.query("PAUSE");
    let next = 1 - first;
    eventually("the other one has it", PATIENCE, || (holder()? == next).then_some(()));
    assert!(served().is_some());
    console.query("RESUME");

    let killed = Instant::now();
    two.weirs[next].kill9();
    let two = &two;
    let served = poll_until(PATIENCE, || two.ask(&host, &[]));
    assert!(served.is_some() && killed.elapsed() < 3 * SOON, "{:?}", killed.elapsed());
    assert!(two.has_address(first, address));
}

/// libpq tries all addresses of a name.
#[test]
fn a_name_with_two_addresses_leads_to_the_weir_that_lives() {
    let Some(mut two) = Two::start() else { return };
    let own = two.client.address();
    let folder = open_folder("names");
    let resolv_conf: PathBuf = folder.join("resolv.conf");
    fs::write(&resolv_conf, format!("nameserver {own}\n")).expect("our own folder");
    let mut command = two.client.command("dnsmasq");
    command.args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
    command.args(["--conf-file=/dev/null", "--pid-file=", "--user=root"]);
    command.arg(format!("--listen-address={own}"));
    for host in &two.hosts {
        command.arg(format!("--host-record={NAME},{}", host.address()));
    }
    let _names = Running::start(command, &folder.join("log"));
    let file = resolv_conf.display().to_string();
    let script = "mount --bind \"$1\" /etc/resolv.conf; shift; exec \"$@\"";
    let with_names = ["unshare", "--mount", "sh", "-ec", script, "sh", &file];
    let ask = |two: &Two| two.ask(NAME, &with_names);
    eventually("the name leads to a Weir", PATIENCE, || ask(&two));

    two.weirs[0].kill9();
    // Some of these clients get the address of the killed one first.
    for _ in 0..6 {
        let took = ask(&two).expect("the other one lives");
        assert!(took < SOON, "{took:?}");
    }
    two.weirs[0].restart();
    // A machine that does not answer costs `connect_timeout`.
    let (client, lost) = (two.client.address(), two.hosts[1].address());
    two.network.cut(client, lost);
    two.network.cut(lost, client);
    for _ in 0..6 {
        let took = ask(&two).expect("the first one lives again");
        assert!(took < SOON, "{took:?}");
    }
}
