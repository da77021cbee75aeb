//! The virtual address of several Weirs. Each Weir is in a network namespace of its own, and all are in
//! one Ethernet with their clients. It takes root.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::{
    Etcd, Host, Network, Pooler, Postgres, eventually, free_port, give_away, lan::DEVICE,
    open_folder, poll_until, send_signal,
};

use super::{PATIENCE as SHORT, cluster, setup};
use crate::{lan, support};

/// The lease of a silent member ends within it, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// The records of a lost member live so long, and etcd notices their end half a second later.
const RECORDS: Duration = Duration::from_millis(12_500);
/// The next member takes the address, and the client is served, on a busy machine.
const TAKING: Duration = Duration::from_secs(4);

/// Three Weirs with an address, etcd with three members, a server and a client, each at its own host.
struct Fleet {
    weirs: Vec<Pooler>,
    /// The keys of each one's cluster without the address.
    basic: Vec<String>,
    hosts: Vec<Host>,
    client: Host,
    address: IpAddr,
    port: u16,
    watch: Watch,
    etcd: Etcd,
    network: Network,
    _nodes: Vec<Postgres>,
}

/// Looks at all hosts again and again.
struct Watch {
    is_over: Arc<AtomicBool>,
    /// The report of the first moment at which two hosts had the address.
    broken: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<u64>>,
}

impl Watch {
    fn begin(hosts: &[Host], addresses: &[IpAddr]) -> Self {
        let (is_over, broken) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (hosts, addresses) = (hosts.to_vec(), addresses.to_vec());
        let (over, found) = (Arc::clone(&is_over), Arc::clone(&broken));
        let thread = thread::spawn(move || {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                for address in &addresses {
                    let holders = |hosts: &[Host]| -> Vec<Host> {
                        hosts.iter().filter(|own| own.has_address(*address)).cloned().collect()
                    };
                    let first = holders(&hosts);
                    // The address may have moved between the looks at two hosts.
                    if first.len() > 1 && holders(&first).len() > 1 {
                        let names: Vec<_> = first.iter().map(Host::address).collect();
                        let report = format!("{names:?} have {address} at one time");
                        found.lock().expect("no panic").get_or_insert(report);
                    }
                }
                looks += 1;
                thread::sleep(Duration::from_millis(1));
            }
            looks
        });
        Self { is_over, broken, thread: Some(thread) }
    }

    /// Ends it. Two hosts must never have had the address.
    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let looks = self.thread.take().expect("once").join().expect("no panic");
        assert!(looks > 100, "{looks} looks");
        assert_eq!(*self.broken.lock().expect("no panic"), None);
    }
}

impl Fleet {
    /// `keys`: more keys of the cluster. None without root.
    fn start(keys: &str) -> Option<Self> {
        let mut network = lan::network()?;
        let hosts: Vec<_> = (0..3).map(|_| network.host()).collect();
        let [client, server] = [network.host(), network.host()];
        network.make_lan();
        let nodes = Postgres::start_cluster_at(std::slice::from_ref(&server));
        let etcd = Etcd::start_at(network.own_address(), 3);
        let (four, six) = network.free_addresses();
        let list = format!("{four}/24 dev {DEVICE}, {six}/64 dev {DEVICE}");
        let node = format!("nodes='a={}:{}'", nodes[0].address(), nodes[0].port());
        let keys = format!("{node} password=weir-secret etcd='{}' {keys}", etcd.addresses());
        let basic = |at: usize| format!("{keys} member=w{}", at + 1);
        let port = free_port();
        let addresses = [four.into(), six.into()];
        let watch = Watch::begin(&hosts, &addresses);
        let weirs = hosts.iter().enumerate();
        let weirs = weirs.map(|(at, host)| {
            let keys = format!("{} virtual_address='{list}'", basic(at));
            let setup = Pooler::before(&nodes[0]).set("pool_mode", "auto").port(port).at(host);
            setup.cluster("main", &keys).database_at("app", "cluster=main dbname=postgres").start()
        });
        let weirs = weirs.collect();
        let basic = (0..3).map(basic).collect();
        let address = four.into();
        let fleet = Self {
            weirs,
            basic,
            hosts,
            client,
            address,
            port,
            watch,
            etcd,
            network,
            _nodes: nodes,
        };
        fleet.await_holder(None);
        Some(fleet)
    }

    /// Returns the place of the Weir whose machine has the address.
    fn holder(&self) -> Option<usize> {
        self.hosts.iter().position(|host| host.has_address(self.address))
    }

    /// Waits until another Weir than this one has the address.
    #[track_caller]
    fn await_holder(&self, other_than: Option<usize>) -> usize {
        let is_other = || self.holder().filter(|holder| Some(*holder) != other_than);
        eventually("a Weir has the address", PATIENCE, is_other)
    }

    /// Runs a query over the address, as a client of another machine. Returns false if it fails.
    fn ask(&self, address: IpAddr) -> bool {
        lan::ask(&self.client, (&address.to_string(), self.port), &[]).is_some()
    }

    /// Waits until a client is served over the address. Returns how long that took.
    #[track_caller]
    fn await_service(&self) -> Duration {
        let begun = Instant::now();
        let served = poll_until(PATIENCE, || self.ask(self.address).then_some(()));
        assert!(served.is_some(), "no client is served over the address");
        begun.elapsed()
    }

    /// Waits until the client's kernel knows the new place of the address.
    #[track_caller]
    fn await_neighbour(&self, holder: usize) {
        let hardware = self.hosts[holder].hardware_address();
        eventually("the client knows the new machine", SHORT, || {
            (self.client.neighbour(self.address)? == hardware).then_some(())
        });
    }

    /// Waits until the console of this Weir names the holder of the address.
    #[track_caller]
    fn check_members(&self, at: usize, holder: usize) {
        eventually("SHOW MEMBERS names the holder", SHORT, || {
            let members = self.weirs[at].admin("SHOW MEMBERS");
            let shown = members.with("virtual_address", "yes");
            (shown.column("member") == [format!("w{}", holder + 1)]).then_some(())
        });
    }
}

/// A client that connects again over the address is served by another Weir, also over IPv6.
#[test]
fn the_address_moves_from_a_weir_that_is_killed() {
    let Some(mut fleet) = Fleet::start("failover=own fence_command=true") else { return };
    fleet.await_service();
    let first = fleet.holder().expect("a Weir has it");
    fleet.check_members(first, first);
    fleet.await_neighbour(first);
    let killed = Instant::now();
    fleet.weirs[first].kill9();
    let next = fleet.await_holder(Some(first));
    fleet.await_service();
    let took = killed.elapsed();
    eprintln!("clients are served again after {took:?}");
    assert!(took < RECORDS + TAKING, "{took:?}");
    fleet.await_neighbour(next);
    fleet.check_members(next, next);
    fleet.weirs[next].log_contains("this Weir has the virtual address");
    let (_, six) = fleet.network.free_addresses();
    let served = poll_until(PATIENCE, || fleet.ask(six.into()).then_some(()));
    assert!(served.is_some(), "no client is served over IPv6");
    // The next process of the killed one leaves the address where it is.
    fleet.weirs[first].restart();
    fleet.check_members(first, next);
    assert_eq!(fleet.holder(), Some(next));
    fleet.watch.end();
}

/// The kernel removes the address from a Weir that is stopped, before another one takes it. The neighbours
/// learn the new place without asking.
#[test]
fn the_kernel_removes_the_address_from_a_weir_that_is_stopped() {
    let Some(mut fleet) = Fleet::start("") else { return };
    fleet.await_service();
    let first = fleet.holder().expect("a Weir has it");
    fleet.await_neighbour(first);
    let stopped = Instant::now();
    fleet.weirs[first].signal("STOP");
    let is_gone = || (!fleet.hosts[first].has_address(fleet.address)).then_some(());
    eventually("the kernel removes it", PATIENCE, is_gone);
    let took = stopped.elapsed();
    eprintln!("the kernel has removed the address after {took:?}");
    // The lease holds for ten seconds.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let next = fleet.await_holder(Some(first));
    // No client has asked for the address meanwhile.
    fleet.await_neighbour(next);
    assert!(stopped.elapsed() < RECORDS + TAKING, "{:?}", stopped.elapsed());
    fleet.weirs[first].signal("CONT");
    fleet.check_members(first, next);
    assert_eq!(fleet.holder(), Some(next));
    fleet.await_service();
    fleet.watch.end();
}

/// A Weir without etcd, or without a line to the clients, leaves the address to another one.
#[test]
fn a_weir_that_is_cut_off_has_the_address_no_more() {
    let Some(mut fleet) = Fleet::start("") else { return };
    let first = fleet.holder().expect("a Weir has it");
    let (host, own) = (fleet.hosts[first].address(), fleet.network.own_address());
    let cut = Instant::now();
    fleet.network.cut(host, own);
    fleet.network.cut(own, host);
    let next = fleet.await_holder(Some(first));
    assert!(cut.elapsed() < RECORDS + TAKING, "{:?}", cut.elapsed());
    fleet.weirs[first].log_contains("no more: etcd does not renew the lease of this Weir");
    fleet.await_service();
    fleet.network.heal();
    fleet.check_members(first, next);
    assert_eq!(fleet.holder(), Some(next));

    fleet.network.plug(&fleet.hosts[next], false);
    let unplugged = Instant::now();
    fleet.await_holder(Some(next));
    assert!(unplugged.elapsed() < Duration::from_secs(6), "{:?}", unplugged.elapsed());
    fleet.weirs[next].log_contains(&format!("virtual_address: device {DEVICE} has no link"));
    fleet.await_service();
    fleet.network.plug(&fleet.hosts[next], true);

    // Without etcd, nobody has it.
    fleet.etcd.signal_all("STOP");
    eventually("nobody has it", PATIENCE, || fleet.holder().is_none().then_some(()));
    fleet.etcd.signal_all("CONT");
    fleet.await_holder(None);
    fleet.watch.end();
}

/// An online restart keeps the address where it is. A reload without the key and an orderly stop leave it
/// to another Weir at once.
#[test]
fn a_restart_keeps_the_address_and_a_stop_hands_it_over() {
    let Some(mut fleet) = Fleet::start("") else { return };
    let first = fleet.holder().expect("a Weir has it");
    let (host, address) = (fleet.hosts[first].clone(), fleet.address);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let looking = thread::spawn(move || {
        let mut was_missing = false;
        while !over.load(Ordering::Relaxed) {
            was_missing |= !host.has_address(address);
            thread::sleep(Duration::from_millis(1));
        }
        was_missing
    });
    assert!(fleet.weirs[first].take_over().success());
    fleet.check_members(first, first);
    // The life time that the old process has given ends meanwhile.
    let until = Instant::now() + Duration::from_secs(11);
    eventually("the new process renews it", PATIENCE, || (Instant::now() > until).then_some(()));
    is_over.store(true, Ordering::Relaxed);
    assert!(!looking.join().expect("no panic"), "the address was missing");
    fleet.await_service();

    let reloaded = Instant::now();
    let keys = fleet.basic[first].clone();
    fleet.weirs[first].reconfigure(|ini| ini.cluster("main", &keys));
    fleet.weirs[first].reload();
    let next = fleet.await_holder(Some(first));
    assert!(reloaded.elapsed() < Duration::from_secs(3), "{:?}", reloaded.elapsed());
    fleet.weirs[first].log_contains("no more: the configuration has changed");
    fleet.await_service();
    let third = 3 - first - next;
    let stopped = Instant::now();
    send_signal(fleet.weirs[next].pid(), "INT");
    assert!(fleet.weirs[next].wait_for_exit().success());
    assert_eq!(fleet.await_holder(Some(next)), third);
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
    fleet.await_service();
    fleet.check_members(third, third);
    fleet.watch.end();
}

/// Commands of the operator bring the address and remove it. One that fails leaves it to another Weir.
#[test]
fn commands_bring_the_address_and_remove_it() {
    if !support::only_weir() {
        return;
    }
    let (nodes, etcd) = (cluster(0), Etcd::start(1));
    let folder = open_folder("address");
    let own = |at: u32| folder.join(format!("w{at}"));
    let weir = |at: u32| {
        let file = own(at).display().to_string();
        let keys = format!(
            "member=w{at} etcd='{}' \
             virtual_address_up_command='test ! -e {file}.broken && test $WEIR_MEMBER = w{at} && \
             echo $WEIR_CLUSTER >{file}' virtual_address_down_command='rm -f {file}'",
            etcd.addresses()
        );
        setup(&[&nodes[0]], &keys)
    };
    // An earlier process has left the address.
    std::fs::write(own(1), "old").expect("our own folder");
    give_away(&own(1));
    std::fs::write(folder.join("w1.broken"), "").expect("our own folder");
    let first = weir(1).start();
    eventually("it is removed", SHORT, || (!own(1).exists()).then_some(()));
    first.log_contains("virtual_address_up_command: ");
    let second = weir(2).start();
    let has_it = |at: u32| std::fs::read_to_string(own(at)).is_ok_and(|text| text == "main\n");
    eventually("the second one has it", PATIENCE, || has_it(2).then_some(()));
    let error = first.admin("SHOW MEMBERS").with("self", "yes").only("error").to_owned();
    assert!(error.contains("virtual_address_up_command"), "{error}");
    std::fs::remove_file(folder.join("w1.broken")).expect("it is there");
    drop(second);
    assert!(!own(2).exists(), "it is removed at the end");
    eventually("the first one has it", PATIENCE, || has_it(1).then_some(()));
    eventually("SHOW MEMBERS says so", SHORT, || {
        let shown = first.admin("SHOW MEMBERS").with("self", "yes");
        (shown.only("virtual_address") == "yes" && shown.only("error").is_empty()).then_some(())
    });
}
