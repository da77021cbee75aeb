//! Debian's tools `pcp_*`, and the Pgpool-II that they are made for.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{Pooler, Postgres, eventually, free_port, mortal_command, open_folder, send_signal};

const PATIENCE: Duration = Duration::from_secs(30);
/// The MD5 of `secret`.
pub(super) const MD5: &str = "5ebe2294ecd0e0f08eab7690d2a6ee69";

/// The tools, as users of one server.
pub(super) struct Tools {
    port: u16,
    passfile: PathBuf,
}

/// The output of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) out: String,
    pub(super) errors: String,
    /// Is the exit status 0? It is so after a refused request, too.
    pub(super) succeeded: bool,
}

impl Tools {
    /// The user `viewer` has the password `secret`, too; `guesser` has a wrong one.
    pub(super) fn at(port: u16) -> Self {
        let passfile = testkit::folder("pcppass").join("pcppass");
        let line = |(user, password)| format!("127.0.0.1:{port}:{user}:{password}\n");
        let users = [("pcpadmin", "secret"), ("viewer", "secret"), ("guesser", "wrong")];
        fs::write(&passfile, users.map(line).concat()).expect("our own folder");
        fs::set_permissions(&passfile, fs::Permissions::from_mode(0o600)).expect("our own file");
        Self { port, passfile }
    }

    pub(super) fn run_as(&self, user: &str, tool: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(format!("/usr/sbin/pcp_{tool}"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", user, "-w"]);
        command.args(arguments).env("PCPPASSFILE", &self.passfile).stdin(Stdio::null());
        let output = command.output().expect("Debian's pgpool2: see scripts/setup");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Output {
            out: text(&output.stdout),
            errors: text(&output.stderr),
            succeeded: output.status.success(),
        }
    }

    pub(super) fn run(&self, tool: &str, arguments: &[&str]) -> Output {
        self.run_as("pcpadmin", tool, arguments)
    }

    /// Returns what a tool prints that is not refused.
    #[track_caller]
    pub(super) fn ask(&self, tool: &str, arguments: &[&str]) -> String {
        let output = self.run(tool, arguments);
        assert!(output.succeeded && output.errors.is_empty(), "{tool}: {output:?}");
        output.out
    }

    /// Has a tool do something.
    #[track_caller]
    pub(super) fn order(&self, tool: &str, arguments: &[&str]) {
        assert_eq!(self.ask(tool, arguments), format!("pcp_{tool} -- Command Successful\n"));
    }

    /// Returns why a request is refused.
    #[track_caller]
    pub(super) fn refusal(&self, user: &str, tool: &str, arguments: &[&str]) -> String {
        let output = self.run_as(user, tool, arguments);
        assert!(output.out.is_empty(), "{tool}: {output:?}");
        output.errors
    }
}

/// A Pgpool-II before a primary and a standby. It is ended when dropped.
pub(super) struct Pgpool {
    child: Child,
    pub(super) port: u16,
    pub(super) tools: Tools,
}

impl Pgpool {
    pub(super) fn before(nodes: &[Postgres]) -> Self {
        let folder = open_folder("pgpool");
        let (port, pcp_port) = (free_port(), free_port());
        let place = folder.display();
        let mut text = format!(
            "backend_clustering_mode = 'streaming_replication'\n\
             listen_addresses = '127.0.0.1'\nport = {port}\nsocket_dir = '{place}'\n\
             pcp_listen_addresses = '127.0.0.1'\npcp_port = {pcp_port}\n\
             pcp_socket_dir = '{place}'\npid_file_name = '{place}/pid'\nlogdir = '{place}'\n\
             load_balance_mode = on\npool_passwd = ''\nnum_init_children = 4\n\
             sr_check_user = 'weir'\nsr_check_password = 'weir-secret'\nsr_check_period = 1\n\
             health_check_user = 'weir'\nhealth_check_password = 'weir-secret'\n\
             health_check_period = 1\nfailover_on_backend_error = off\n"
        );
        for (number, node) in nodes.iter().enumerate() {
            let (port, name) = (node.port(), ["a", "b"][number]);
            let _ = write!(
                text,
                "backend_hostname{number} = '127.0.0.1'\nbackend_port{number} = {port}\n\
                 backend_weight{number} = {number}\nbackend_application_name{number} = '{name}'\n"
            );
        }
        fs::write(folder.join("pgpool.conf"), text).expect("our own folder");
        fs::write(folder.join("pcp.conf"), format!("pcpadmin:{MD5}\n")).expect("our own folder");
        let child = mortal_command("/usr/sbin/pgpool")
            .args(["-n", "-f"])
            .arg(folder.join("pgpool.conf"))
            .arg("-F")
            .arg(folder.join("pcp.conf"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).expect("our own folder"))
            .spawn()
            .expect("Debian's pgpool2: see scripts/setup");
        let pgpool = Self { child, port, tools: Tools::at(pcp_port) };
        for port in [port, pcp_port] {
            eventually("Pgpool-II listens", PATIENCE, || {
                TcpStream::connect(("127.0.0.1", port)).ok()
            });
        }
        pgpool
    }
}

impl Drop for Pgpool {
    fn drop(&mut self) {
        send_signal(self.child.id(), "QUIT");
        let ended = testkit::poll_until(PATIENCE, || self.child.try_wait().ok().flatten());
        if ended.is_none() {
            let _ = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}

/// Returns the words of each line.
pub(super) fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// Returns the tools of a pooler whose `pcp_port` is this one.
#[track_caller]
pub(super) fn tools_of(pooler: &Pooler, port: u16) -> Tools {
    eventually("PCP is served", PATIENCE, || {
        let place = format!("serving PCP on 127.0.0.1:{port}");
        pooler.log().contains(&place).then_some(())
    });
    Tools::at(port)
}
