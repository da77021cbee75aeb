//! Weir as a service: notifications to a service manager, sockets from it, and syslog.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support;
use testkit::{Pooler, RawClient, Role, mortal_command, open_folder, pooler_binary};

/// A datagram socket that the pooler may send to.
struct DatagramSocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl DatagramSocket {
    fn new(name: &str) -> Self {
        let path = open_folder(name).join("socket");
        let socket = UnixDatagram::bind(&path).expect("a new socket");
        let anybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&path, anybody).expect("our own socket");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
        Self { socket, path }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    #[track_caller]
    fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let len = self.socket.recv(&mut buffer).expect("something was to be heard");
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    /// Returns the next message that is not a line about the statistics.
    #[track_caller]
    fn receive_state(&self) -> String {
        loop {
            let heard = self.receive();
            if !heard.starts_with("STATUS=") {
                return heard;
            }
        }
    }
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_end_core() {
    if !support::only_weir() {
        return;
    }
    let manager = DatagramSocket::new("notify");
    let (setup, database) = support::setup("transaction");
    let mut pooler =
        setup.set("stats_period", 1).environment("NOTIFY_SOCKET", manager.path().display()).start();
    assert_eq!(manager.receive_state(), "READY=1");

    pooler.signal("HUP");
    let reloading = manager.receive_state();
    let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the time as well");
    assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{reloading}");
    assert_eq!(manager.receive_state(), "READY=1");

    let status = manager.receive();
    assert!(status.starts_with("STATUS=stats: 0 xacts/s, "), "{status}");

    let client = pooler.client(&database);
    pooler.signal("TERM");
    assert_eq!(manager.receive_state(), "STOPPING=1");
    drop(client);
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
}

#[test]
fn sockets_of_the_service_manager_are_served_in_place_of_the_configured_ones_core() {
    if !support::only_weir() {
        return;
    }
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup.inherit(listener).start();
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    for text in [
        "socket passed from service manager (fd 3)",
        "sockets passed from service manager, listen_addr ignored",
        "sockets passed from service manager, unix_socket_dir ignored",
    ] {
        pooler.log_contains(text);
    }
    let own = pooler.socket_folder().join(format!(".s.PGSQL.{}", pooler.port()));
    assert!(!own.exists(), "it listens on its own unix socket as well");

    // A client that comes while no process runs waits in the manager's socket for the next one.
    pooler.wait_until_quiet(&database, 1);
    pooler.signal("TERM");
    assert_eq!(pooler.wait_for_exit().code(), Some(0));
    let port = pooler.port();
    let early = std::thread::spawn(move || {
        RawClient::login(port, Role::APP, &database, Role::APP_PASSWORD)
            .map(|mut client| client.value("SELECT 'served later'"))
    });
    pooler.restart();
    let served = early.join().expect("no panic");
    assert_eq!(served.expect("the next process serves it"), "served later");
}

/// The socket unit has a socket in `unix_socket_dir`, too. It accepts connections before the process
/// starts, so it looks like the socket of a running process.
#[test]
fn a_socket_of_the_service_manager_is_not_one_of_a_running_process() {
    if !support::only_weir() {
        return;
    }
    for argument in ["-v", "-R"] {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let port = listener.local_addr().expect("bound").port();
        let (folder, _listener) = unix_listener(port);
        let (setup, database) = support::setup("transaction");
        let setup = setup.inherit(listener).set("unix_socket_dir", folder.display());
        let pooler = setup.argument(argument).start();
        assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    }
}

#[test]
fn a_socket_that_no_process_serves_cannot_be_taken_over() {
    if !support::only_weir() {
        return;
    }
    let (setup, database) = support::setup("transaction");
    let port = testkit::free_port();
    let (folder, listener) = unix_listener(port);
    let setup = setup.port(port);
    let mut pooler = setup.start();
    assert_eq!(pooler.client(&database).value("SELECT 'served'"), "served");
    pooler.reconfigure(|ini| ini.set("unix_socket_dir", folder.display()));
    let mut command = mortal_command(pooler_binary());
    let began = Instant::now();
    let output = support::run_any(command.args(["-R"]).arg(pooler.configuration()));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // Later answers of a process that hands over have 20 s.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot take over: no process answers on unix:"), "{said}");
    drop(listener);
}

/// Returns a folder and a listening socket in it, at the place of the pooler's own unix socket.
fn unix_listener(port: u16) -> (PathBuf, UnixListener) {
    let folder = open_folder("managed");
    let path = folder.join(format!(".s.PGSQL.{port}"));
    let listener = UnixListener::bind(&path).expect("our own folder");
    let anybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&path, anybody).expect("our own socket");
    (folder, listener)
}

#[test]
fn a_log_on_a_pipe_that_nobody_reads_stops_nobody() {
    if !support::only_weir() {
        return;
    }
    let pipe = open_folder("unread").join("log");
    let make = Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status();
    assert!(make.expect("mkfifo").success());
    // The test opens the pipe and reads nothing.
    let reader = File::options().read(true).write(true).open(&pipe).expect("our own pipe");
    let (setup, database) = support::setup("transaction");
    let pooler = setup.set("logfile", pipe.display()).set("verbose", 2).start();
    let mut longest = Duration::ZERO;
    // Writes more lines than a pipe of 64 KiB holds.
    for n in 0..600 {
        let began = Instant::now();
        assert_eq!(pooler.client(&database).value(&format!("SELECT {n}")), n.to_string());
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    assert_eq!(pooler.console().query("SHOW VERSION").tags, ["SHOW"]);
    assert!(pooler.log().len() > 2 * 64 * 1024, "too little was said to fill the pipe");
    drop(reader);
    assert_eq!(pooler.client(&database).value("SELECT 'no reader'"), "no reader");
}

/// `/dev/log` is the same for all processes, so the pooler gets a `/dev` of its own. That needs
/// root.
#[test]
fn syslog_gets_the_lines_and_those_from_before_the_configuration_was_read_core() {
    if !support::only_weir() || !testkit::is_root() {
        return;
    }
    let daemon = DatagramSocket::new("syslog");
    let (setup, database) = support::setup("transaction");
    let mut pooler = setup
        .set("syslog", 1)
        .set("syslog_ident", "weir-test")
        .set("syslog_facility", "local5")
        // This line is written before the log is configured.
        .set("job_name", "another")
        .dev_log(daemon.path())
        .start();
    let pid = pooler.pid();
    let find = |priority: u8, text: &str| loop {
        let line = daemon.receive();
        assert!(line.starts_with('<') && line.contains(&format!(" weir-test[{pid}]: ")), "{line}");
        if line.contains(text) {
            assert!(line.starts_with(&format!("<{priority}>")), "{line}");
            return line;
        }
    };
    find(172, "job_name is set, and has no effect: ");
    let up = find(174, "process up: PgBouncer");
    assert!(up.contains("]: process up"), "the message alone is sent: {up}");
    drop(pooler.client(&database));
    find(174, "login attempt: db=");
    find(174, "closing because: client");

    pooler.reconfigure(|ini| ini.set("syslog", 0));
    pooler.reload();
    find(172, "job_name is set");
    drop(pooler.client(&database));
    pooler.log_contains("closing because: client");
    daemon.socket.set_nonblocking(true).expect("our own socket");
    let mut buffer = [0; 4096];
    while let Ok(len) = daemon.socket.recv(&mut buffer) {
        let line = String::from_utf8_lossy(&buffer[..len]);
        assert!(!line.contains("closing because: client"), "syslog is off: {line}");
    }
}

#[test]
fn each_log_key_switches_its_lines_off_and_on() {
    if !support::only_weir() {
        return;
    }
    let manager = DatagramSocket::new("statistics");
    let (setup, database) = support::setup("transaction");
    let keys = ["log_connections", "log_disconnections", "log_pooler_errors", "log_stats"];
    let setup = keys.iter().fold(setup, |setup, key| setup.set(key, 0));
    let mut pooler =
        setup.set("stats_period", 1).environment("NOTIFY_SOCKET", manager.path().display()).start();
    let marks = ["login attempt", "closing because", "pooler error", "stats: "];
    let come_and_go = |pooler: &Pooler| {
        drop(pooler.client(&database));
        pooler.login(Role::APP, "no-such-database", "").expect_err("there is none");
        pooler.wait_until_quiet(&database, 1);
    };
    come_and_go(&pooler);
    // The statistics are logged before the service manager gets them.
    while !manager.receive().starts_with("STATUS=stats: ") {}
    let log = pooler.log();
    for mark in marks {
        assert!(!log.contains(mark), "{mark:?} in\n{log}");
    }
    pooler.reconfigure(|ini| keys.iter().for_each(|key| ini.set(key, 1)));
    pooler.reload();
    come_and_go(&pooler);
    for mark in marks {
        pooler.log_contains(mark);
    }
}
