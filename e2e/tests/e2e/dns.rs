//! Host names, resolved by a real name server: dnsmasq, on a loopback address of its own. Only root
//! can use port 53, so without root these tests are skipped.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::support;
use testkit::{Pooler, Postgres, RawClient, Setup, eventually, is_root, open_folder};

pub(crate) const NAME: &str = "db.weir.test";
const PATIENCE: Duration = Duration::from_secs(20);

/// A name server for `weir.test`. It is ended when dropped.
pub(crate) struct NameServer {
    address: Ipv4Addr,
    pub(crate) resolv_conf: PathBuf,
    process: Option<Child>,
}

impl NameServer {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU8 = AtomicU8::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, high | 0x80, low, NUMBER.fetch_add(1, Ordering::Relaxed));
        let resolv_conf = open_folder("dns").join("resolv.conf");
        std::fs::write(&resolv_conf, format!("nameserver {address}\n")).expect("our own folder");
        Self { address, resolv_conf, process: None }
    }

    /// Answers from now on with these addresses, and with this serial number of the zone.
    pub(crate) fn answer(&mut self, serial: u32, hosts: &[Ipv4Addr]) {
        self.stop();
        let mut command = Command::new("dnsmasq");
        command.args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces"]);
        command.args(["--conf-file=/dev/null", "--pid-file=", "--user=root", "--cache-size=0"]);
        command.arg(format!("--listen-address={}", self.address));
        command.arg(format!("--auth-server=ns.weir.test,{}", self.address));
        command.arg("--auth-zone=weir.test,127.0.0.0/8");
        command.arg(format!("--auth-soa={serial}"));
        for host in hosts {
            command.arg(format!("--host-record={NAME},{host}"));
        }
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        self.process = Some(process.expect("dnsmasq: see scripts/setup"));
        eventually("the name server listens", PATIENCE, || {
            TcpStream::connect((self.address, 53)).ok()
        });
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).expect("our own child");
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Forwards one port on several loopback addresses to the PostgreSQL of the tests.
fn addresses(count: u8) -> (u16, Vec<Ipv4Addr>) {
    let server = Postgres::shared().port();
    let port = testkit::free_port();
    let addresses: Vec<_> = (2..2 + count).map(|last| Ipv4Addr::new(127, 0, 0, last)).collect();
    for address in &addresses {
        let listener = TcpListener::bind((*address, port)).expect("a free port");
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server)).expect("PostgreSQL");
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
    }
    (port, addresses)
}

fn setup(names: &NameServer, port: u16) -> (Setup, String) {
    let (setup, database) = support::setup("transaction");
    let setup = setup.database_at(&database, &format!("host={NAME} port={port}"));
    (setup.set("resolv_conf", names.resolv_conf.display()).workers(1), database)
}

/// Returns clients that each hold a server.
fn holding(pooler: &Pooler, database: &str, count: usize) -> Vec<RawClient> {
    let mut clients: Vec<_> = (0..count).map(|_| pooler.client(database)).collect();
    clients.iter_mut().for_each(|client| drop(client.rows("BEGIN")));
    clients
}

/// Returns the addresses of the servers, sorted.
fn places(pooler: &Pooler, database: &str) -> Vec<IpAddr> {
    let servers = pooler.admin("SHOW SERVERS").with("database", database);
    let mut places: Vec<IpAddr> =
        servers.column("addr").iter().map(|addr| addr.parse().expect("an address")).collect();
    places.sort();
    places
}

pub(crate) fn possible() -> bool {
    support::only_weir() && is_root()
}

#[test]
fn several_addresses_take_turns_and_one_that_is_dead_is_passed_over() {
    if !possible() {
        return;
    }
    let (port, addresses) = addresses(2);
    let dead = Ipv4Addr::new(127, 0, 0, 9);
    let mut names = NameServer::new();
    names.answer(1, &[addresses[0], addresses[1], dead]);
    let (setup, database) = setup(&names, port);
    let pooler = setup.set("dns_max_ttl", 100).start();
    let clients = holding(&pooler, &database, 6);
    let places = places(&pooler, &database);
    for door in &addresses {
        let count = places.iter().filter(|place| **place == IpAddr::from(*door)).count();
        assert!(count >= 2, "{door} got {count} of {places:?}");
    }
    drop(clients);

    let hosts = pooler.admin("SHOW DNS_HOSTS");
    assert_eq!(hosts.columns, ["hostname", "ttl", "addrs"]);
    assert_eq!(hosts.only("hostname"), NAME);
    let mut shown: Vec<_> = hosts.only("addrs").split(',').collect();
    shown.sort_unstable();
    assert_eq!(shown, ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.9:0"]);
    let ttl: u64 = hosts.only("ttl").parse().expect("a number");
    assert!((1..=100).contains(&ttl), "{ttl}");
    assert_eq!(pooler.admin("SHOW DNS_ZONES").only("zonename"), "weir.test");
    assert_eq!(pooler.admin("SHOW DNS_ZONES").only("count"), "1");
    assert_eq!(pooler.admin("SHOW LISTS").with("list", "dns_names").only("items"), "1");
}

#[test]
fn a_changed_answer_closes_the_servers_that_are_elsewhere() {
    if !possible() {
        return;
    }
    let (port, addresses) = addresses(2);
    let mut names = NameServer::new();
    names.answer(7, &addresses[..1]);
    let (setup, database) = setup(&names, port);
    // Only the zone's serial number shows the change.
    let pooler = setup.set("dns_max_ttl", 1000).set("dns_zone_check_period", "0.3").start();
    let mut clients = holding(&pooler, &database, 2);
    let mut busy = clients.pop().expect("two clients");
    drop(clients.pop().expect("two clients").rows("COMMIT"));
    assert_eq!(places(&pooler, &database), [addresses[0], addresses[0]].map(IpAddr::from));
    pooler.log_contains("zone 'weir.test' serial changed: old=0 new=7");

    names.answer(8, &addresses[1..]);
    pooler.log_contains("zone 'weir.test' serial changed: old=7 new=8");
    pooler.log_contains("closing because: obsolete connection");
    // The server in a transaction stays until its end.
    assert_eq!(places(&pooler, &database), [IpAddr::from(addresses[0])]);
    assert_eq!(busy.query("COMMIT").tags, ["COMMIT"]);
    pooler.log_contains("closing because: close_needed");
    assert_eq!(busy.value("SELECT 'served'"), "served");
    assert_eq!(places(&pooler, &database), [IpAddr::from(addresses[1])]);
}

#[test]
fn a_name_is_asked_for_again_when_its_time_is_over() {
    if !possible() {
        return;
    }
    let (port, addresses) = addresses(2);
    let mut names = NameServer::new();
    names.answer(1, &[]);
    let (setup, database) = setup(&names, port);
    let pooler = setup
        .set("dns_max_ttl", "0.2")
        .set("dns_nxdomain_ttl", "0.2")
        .set("server_login_retry", "0.2")
        .start();
    // The name cannot be resolved yet, so the client waits.
    let mut first = std::thread::scope(|scope| {
        let login = scope.spawn(|| pooler.client(&database));
        pooler.log_contains("DNS lookup failed: db.weir.test");
        assert_eq!(pooler.admin("SHOW DNS_HOSTS").only("addrs"), "");
        names.answer(1, &addresses[..1]);
        login.join().expect("it is let in at last")
    });
    first.rows("BEGIN");
    assert_eq!(places(&pooler, &database), [IpAddr::from(addresses[0])]);
    names.answer(1, &addresses[1..]);
    // Each new server resolves the name again, once the last answer is too old.
    eventually("a server at the new address", PATIENCE, || {
        let _more = holding(&pooler, &database, 2);
        places(&pooler, &database).contains(&IpAddr::from(addresses[1])).then_some(())
    });
}

/// The system's files about names, as one pooler finds them.
struct Files {
    hosts: PathBuf,
    resolv_conf: PathBuf,
}

impl Files {
    fn new(hosts: &str, resolv_conf: &str) -> Self {
        let folder = open_folder("names");
        let files = Self { hosts: folder.join("hosts"), resolv_conf: folder.join("resolv.conf") };
        files.set(hosts, resolv_conf);
        files
    }

    fn set(&self, hosts: &str, resolv_conf: &str) {
        for (path, text) in [(&self.hosts, hosts), (&self.resolv_conf, resolv_conf)] {
            std::fs::write(path, text).expect("our own folder");
        }
    }

    /// `by_key`: the key `resolv_conf` names the file, so Weir asks the name servers itself.
    fn setup(&self, port: u16, by_key: bool) -> (Setup, String) {
        let (setup, database) = support::setup("transaction");
        let setup = setup.database_at(&database, &format!("host={NAME} port={port}")).workers(1);
        let setup = setup.in_place_of("/etc/hosts", &self.hosts);
        let setup = match by_key {
            true => setup.set("resolv_conf", self.resolv_conf.display()),
            false => setup.in_place_of("/etc/resolv.conf", &self.resolv_conf),
        };
        (setup.set("dns_max_ttl", "0.2"), database)
    }
}

/// Waits until a new server is at this address.
fn until_at(pooler: &Pooler, database: &str, address: Ipv4Addr) {
    eventually("a server at the address", PATIENCE, || {
        pooler.admin("RECONNECT");
        let _client = holding(pooler, database, 1);
        (places(pooler, database) == [IpAddr::from(address)]).then_some(())
    });
}

#[test]
fn the_files_about_names_count_as_they_are_now() {
    if !possible() {
        return;
    }
    let (port, addresses) = addresses(3);
    let (mut first, mut second) = (NameServer::new(), NameServer::new());
    first.answer(1, &addresses[..1]);
    second.answer(1, &addresses[1..2]);
    // A word that is no domain, and a line that nobody knows, change nothing.
    let rest = format!("search a..b {}.test\nfrobnicate\n", "x".repeat(70));
    let local = "127.0.0.1 localhost\n";
    for by_key in [false, true] {
        let by_first = format!("{rest}nameserver {}\n", first.address);
        let files = Files::new(local, &by_first);
        let (setup, database) = files.setup(port, by_key);
        let pooler = setup.start();
        until_at(&pooler, &database, addresses[0]);
        let by_second = format!("{rest}# another one\nnameserver {}\n", second.address);
        files.set(local, &by_second);
        until_at(&pooler, &database, addresses[1]);
        files.set(&format!("{local}{} other {NAME}\n", addresses[2]), &by_second);
        until_at(&pooler, &database, addresses[2]);
        files.set(local, &by_first);
        until_at(&pooler, &database, addresses[0]);
    }
}

#[test]
fn a_name_of_the_hosts_file_waits_for_no_name_server() {
    if !possible() {
        return;
    }
    let (port, addresses) = addresses(1);
    // It gets all questions and answers none.
    let silent = NameServer::new();
    let _door = UdpSocket::bind((silent.address, 53)).expect("an address of our own");
    for by_key in [false, true] {
        let hosts = format!("{} {NAME}\n", addresses[0]);
        let files = Files::new(&hosts, &format!("nameserver {}\n", silent.address));
        let (setup, database) = files.setup(port, by_key);
        let pooler = setup.start();
        let began = Instant::now();
        drop(pooler.client(&database));
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

#[test]
fn several_hosts_are_used_in_turn_or_one_until_it_fails() {
    if !support::only_weir() {
        return;
    }
    let (port, addresses) = addresses(2);
    let hosts = format!("host={},{} port={port}", addresses[0], addresses[1]);
    for (more, counts) in [("", [3, 3]), ("load_balance_hosts=disable", [6, 0])] {
        let (setup, database) = support::setup("transaction");
        let pooler = setup.database_at(&database, &format!("{hosts} {more}")).start();
        let _clients = holding(&pooler, &database, 6);
        let places = places(&pooler, &database);
        let got = [0, 1]
            .map(|at| places.iter().filter(|place| **place == IpAddr::from(addresses[at])).count());
        assert_eq!(got, counts, "{more}");
    }
    // The first host is dead. After one failure it is not tried again.
    let (setup, database) = support::setup("transaction");
    let hosts = format!("host=127.0.0.9,{} port={port} load_balance_hosts=disable", addresses[1]);
    let setup = setup.database_at(&database, &hosts).set("server_login_retry", "0.2");
    let pooler = setup.start();
    eventually("a login by the second host", PATIENCE, || {
        pooler.login(testkit::Role::APP, &database, "").ok()
    });
    let _clients = holding(&pooler, &database, 4);
    assert!(places(&pooler, &database).iter().all(|place| *place == IpAddr::from(addresses[1])));
}
