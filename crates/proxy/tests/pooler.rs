//! A whole pooler from outside: start, clients, console, shutdown. The tests in `e2e` use a real
//! PostgreSQL; these need none.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use config::Config;
use weir_proxy::{
    Address, ConsoleConnection, ConsoleRequest, Controller, Exit, Pooler, Shutdown, StartOptions,
};

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-pooler-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a pooler without a running server, with the console for user `admin`.
fn start(
    folder: &Folder,
    workers: u32,
    console: Option<mpsc::Sender<ConsoleConnection>>,
) -> Pooler {
    let dir = folder.0.display();
    folder.write("users.txt", "\"admin\" \"secret\"\n");
    let ini = folder.write(
        "weir.ini",
        &format!(
            "[databases]\napp = host={dir} port=1\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = 0\nunix_socket_dir = {dir}\nauth_type = trust\nworkers = {workers}\n\
             tcp_defer_accept = 0\n\
             auth_file = {dir}/users.txt\nadmin_users = admin\nmax_client_conn = 1000\n",
        ),
    );
    let options = StartOptions {
        signals: false,
        console: console.map(|sender| -> weir_proxy::ConsoleHandler {
            Box::new(move |_: &Controller, request| {
                if let ConsoleRequest::Connection(connection) = request {
                    drop(sender.send(connection));
                }
            })
        }),
        ..StartOptions::default()
    };
    Pooler::start(Config::load(&ini).unwrap(), options).unwrap()
}

fn tcp_address(pooler: &Pooler) -> SocketAddr {
    let tcp = pooler.addresses().into_iter().find_map(|address| match address {
        Address::Inet(address) => Some(address),
        _ => None,
    });
    tcp.unwrap()
}

fn log_in(pooler: &Pooler, database: &str) -> TcpStream {
    let mut body = 196_608u32.to_be_bytes().to_vec();
    for part in ["user", "admin", "database", database, ""] {
        body.extend_from_slice(part.as_bytes());
        body.push(0);
    }
    let mut stream = TcpStream::connect(tcp_address(pooler)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    stream
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::yield_now();
    }
}

/// Returns the number of clients of each worker, logged in or not.
fn clients_by_worker(pooler: &Pooler, workers: usize) -> Vec<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let snapshot = runtime.block_on(pooler.controller().snapshot());
    let mut counts = vec![0; workers];
    snapshot.clients.iter().for_each(|client| counts[usize::from(client.worker.0)] += 1);
    counts
}

#[test]
fn it_ends_when_it_is_told_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let pooler = start(&folder, 2, None);
    let address = tcp_address(&pooler);
    let socket = folder.0.join(".s.PGSQL.0");
    assert!(socket.exists());
    let mut client = TcpStream::connect(address).unwrap();
    pooler.shutdown();
    assert_eq!(pooler.wait(), Exit::Immediate);
    assert!(!socket.exists(), "the socket file stayed behind");
    assert!(TcpStream::connect(address).is_err(), "the port is open still");
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn clients_are_spread_over_the_workers() {
    let folder = Folder::new();
    let pooler = start(&folder, 2, None);
    let clients: Vec<_> =
        (0..100).map(|_| TcpStream::connect(tcp_address(&pooler)).unwrap()).collect();
    until("all are accepted", || clients_by_worker(&pooler, 2).iter().sum::<usize>() == 100);
    let counts = clients_by_worker(&pooler, 2);
    assert!(counts.iter().all(|count| *count >= 35), "{counts:?}");
    drop(clients);
    until("all are gone", || clients_by_worker(&pooler, 2) == [0, 0]);
}

#[test]
fn the_console_gets_its_clients() {
    let folder = Folder::new();
    let (sender, consoles) = mpsc::channel();
    let pooler = start(&folder, 2, Some(sender));
    let mut client = log_in(&pooler, "pgbouncer");
    let connection = consoles.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(connection.login.admin && connection.login.user == "admin");
    assert_eq!(connection.peer.port(), Some(client.local_addr().unwrap().port()));
    // The console owns the socket.
    let mut theirs = TcpStream::from(connection.fd);
    theirs.set_nonblocking(false).unwrap();
    theirs.write_all(b"hello").unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"hello") {
        let mut next = [0];
        client.read_exact(&mut next).unwrap();
        got.extend(next);
    }
    assert_eq!(clients_by_worker(&pooler, 2), [0, 0]);
}

/// The first client waits for the next attempt; later clients get the error.
#[test]
fn a_server_that_is_not_there_is_an_error_for_later_clients() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let first = log_in(&pooler, "app");
    let mut got = Vec::new();
    log_in(&pooler, "app").read_to_end(&mut got).unwrap();
    assert!(got.windows(14).any(|part| part == b"connect failed"), "{got:?}");
    drop(first);
    until("the slots are free", || clients_by_worker(&pooler, 1) == [0]);
}

#[test]
fn draining_waits_for_clients_and_accepts_no_new_ones() {
    let folder = Folder::new();
    let pooler = start(&folder, 2, None);
    let address = tcp_address(&pooler);
    let client = TcpStream::connect(address).unwrap();
    until("it is accepted", || clients_by_worker(&pooler, 2).iter().sum::<usize>() == 1);
    let controller = pooler.controller();
    controller.shutdown(Shutdown::WaitForClients);
    until("the port is closed", || TcpStream::connect(address).is_err());
    assert!(folder.0.join(".s.PGSQL.0").exists(), "the console cannot be reached");
    drop(client);
    assert_eq!(pooler.wait(), Exit::ClientsLeft);
    // A controller that outlives its pooler gets no answers, but does not hang either.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(controller.snapshot()).pools.is_empty());
}

#[test]
fn draining_without_servers_ends_at_once() {
    let folder = Folder::new();
    let pooler = start(&folder, 2, None);
    let _client = TcpStream::connect(tcp_address(&pooler)).unwrap();
    pooler.controller().shutdown(Shutdown::WaitForServers);
    assert_eq!(pooler.wait(), Exit::ServersReleased);
}

#[test]
fn a_reload_takes_over_what_may_change_and_refuses_mistakes_as_a_whole() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let path = folder.0.join("weir.ini");
    let ini = fs::read_to_string(&path).unwrap();

    let changed = ini.replace("max_client_conn = 1000", "max_client_conn = 5");
    folder.write("weir.ini", &changed.replace("workers = 1", "workers = 7"));
    controller.reload().unwrap();
    assert_eq!(controller.config().global.max_client_conn, 5);
    assert_eq!(controller.config().global.workers, 1, "changed without a restart");

    folder.write("weir.ini", &ini.replace("auth_type = trust", "auth_type = nonsense"));
    assert!(controller.reload().is_err());
    assert_eq!(controller.config().global.max_client_conn, 5, "half of it was taken over");
}

#[test]
fn a_reload_that_finds_no_auth_file_keeps_the_users() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let users = || controller.config().auth_file.users.keys().cloned().collect::<Vec<_>>();
    fs::remove_file(folder.0.join("users.txt")).unwrap();
    for _ in 0..2 {
        assert_eq!(
            controller.reload().unwrap_err().to_string(),
            "auth_file could not be read, keeping its users"
        );
        assert_eq!(users(), ["admin"]);
    }
    folder.write("users.txt", "\"other\" \"secret\"\n");
    controller.reload().unwrap();
    assert_eq!(users(), ["other"]);
}

#[test]
fn rules_hold_on_while_their_files_cannot_be_read() {
    let folder = Folder::new();
    let rules = folder.write("hba.conf", "local @names all peer map=known\n");
    let names = folder.write("names", "app\n");
    let maps = folder.write("ident.conf", "known root admin\n");
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let ini = fs::read_to_string(folder.0.join("weir.ini")).unwrap();
    let [rules, maps, names] = [rules, maps, names].map(|path| path.display().to_string());
    folder.write(
        "weir.ini",
        &format!("{ini}auth_type = hba\nauth_hba_file = {rules}\nauth_ident_file = {maps}\n"),
    );
    controller.reload().unwrap();
    let before = controller.config().hba.clone();
    assert_eq!(before.rules.len(), 1);

    for name in [&rules, &maps, &names] {
        let content = fs::read_to_string(name).unwrap();
        fs::remove_file(name).unwrap();
        let told = controller.reload().unwrap_err().to_string();
        let expected = "auth_hba_file or auth_ident_file could not be read, keeping the rules";
        assert_eq!(told, expected, "{name}");
        assert_eq!(controller.config().hba, before, "{name}");
        fs::write(name, content).unwrap();
    }
    for key in ["auth_hba_file", "auth_ident_file"] {
        let running = controller.config();
        let refused = controller.set(key, "/no/such/file").unwrap_err();
        assert!(refused.contains(key), "{refused}");
        assert_eq!(controller.config().global, running.global);
        assert_eq!(controller.config().hba, before);
    }

    fs::write(&rules, "local all all reject\nhost all all 127.0.0.1/32 reject\n").unwrap();
    controller.reload().unwrap();
    assert_eq!(controller.config().hba.rules.len(), 2);
}

#[test]
fn a_reload_whose_files_cannot_be_used_keeps_the_way_to_log_in() {
    let folder = Folder::new();
    let odd = folder.write("odd.conf", "host all all nonsense md5\n").display().to_string();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let ini = fs::read_to_string(folder.0.join("weir.ini")).unwrap();
    let reloaded = |lines: &str| {
        folder.write("weir.ini", &format!("{ini}{lines}"));
        controller.reload().map(|_| ()).map_err(|error| error.to_string())
    };
    // A reload never keeps clients from being asked.
    let told = reloaded("auth_type = hba\nauth_hba_file = /no/such/file\n");
    assert_eq!(told, Err(config::HBA_KEPT.to_owned()));
    assert_eq!(controller.config().global.auth_type.word(), "hba");
    assert_eq!(reloaded("auth_type = plain\n"), Ok(()));
    let still = "auth_type is still plain";
    for (auth_type, key, value, kept) in [
        ("hba", "auth_hba_file", "/no/such/file", Some(config::HBA_KEPT)),
        ("hba", "auth_hba_file", odd.as_str(), Some(config::HBA_KEPT)),
        ("ldap", "auth_ldap_options", "nonsense", Some(config::LDAP_KEPT)),
        ("md5", "auth_file", "/no/such", Some("auth_file could not be read, keeping its users")),
        // Files that the new way does not need are no reason to keep the old one.
        ("md5", "auth_hba_file", "/no/such/file", None),
    ] {
        let told = reloaded(&format!("auth_type = {auth_type}\n{key} = {value}\n"));
        assert_eq!(told, kept.map_or(Ok(()), |kept| Err(format!("{kept}, {still}"))));
        let now = controller.config().global.auth_type.word();
        assert_eq!(now, if kept.is_some() { "plain" } else { auth_type }, "{key} = {value}");
    }
    // The file could not be read, and no rule is known.
    let refused = controller.set("auth_type", "hba").unwrap_err();
    assert_eq!(refused, config::HBA_KEPT);
    assert_eq!(controller.config().global.auth_type.word(), "md5");
    let refused = controller.set("auth_ldap_options", "nonsense").unwrap_err();
    assert_eq!(refused, config::LDAP_KEPT);
    fs::write(&odd, "host all all nonsense md5\nlocal all all trust\n").unwrap();
    controller.set("auth_hba_file", &odd).unwrap();
    controller.set("auth_type", "hba").unwrap();
    assert_eq!(controller.config().hba.rules.len(), 1);
}

#[test]
fn a_reload_with_mistakes_still_reads_the_users() {
    let folder = Folder::new();
    let users = folder.write("own.txt", "\"alice\" \"one\"\n").display().to_string();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let ini = fs::read_to_string(folder.0.join("weir.ini")).unwrap();
    folder.write("weir.ini", &format!("{ini}auth_type = md5\nauth_file = {users}\n"));
    controller.reload().unwrap();
    assert!(controller.config().auth_file.users.contains_key("alice"));
    folder.write("own.txt", "\"bob\" \"two\"\n");
    folder.write("weir.ini", &format!("{ini}auth_file = /no/such/file\nnonsense = 1\n"));
    assert!(controller.reload().is_err());
    let names: Vec<_> = controller.config().auth_file.users.keys().cloned().collect();
    assert_eq!(names, ["bob"]);
}

#[test]
fn unusable_tls_values_are_not_set() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let before = controller.config();
    for (key, value) in [("client_tls_sslmode", "require"), ("server_tls_ciphers", "NONE-SUCH")] {
        assert!(controller.set(key, value).is_err(), "{key}");
    }
    assert_eq!(controller.config().global, before.global);
    controller.set("server_tls_protocols", "tlsv1.3").unwrap();
    assert_eq!(controller.config().global.server_tls_protocols, "tlsv1.3");
}

#[test]
fn each_set_tells_what_it_has_found_odd_and_no_more() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let odd = folder.write("hba.conf", "nonsense\nlocal all all trust\n").display().to_string();
    for _ in 0..2 {
        controller.set("auth_hba_file", &odd).unwrap();
        assert_eq!(controller.config().warnings.len(), 1);
    }
    controller.set("max_client_conn", "7").unwrap();
    assert_eq!(controller.config().warnings, []);
}

#[test]
fn a_shorter_stats_period_counts_for_the_one_that_has_begun() {
    let folder = Folder::new();
    let pooler = start(&folder, 1, None);
    let controller = pooler.controller();
    let began = controller.averages();
    controller.set("stats_period", "1").unwrap();
    until("a period has ended", || !Arc::ptr_eq(&began, &controller.averages()));
}
