//! Debian's Pgpool-II, with its own default settings except for the nodes and ports.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::poll_until;

use super::nodes::Nodes;
use crate::process;
use crate::real::place::output;

const PROGRAM: &str = "/usr/sbin/pgpool";
const STOP_MAX: Duration = Duration::from_secs(5);

pub(super) struct Pgpool {
    child: Child,
    port: u16,
}

/// Returns its name and version.
pub(super) fn label() -> Result<String> {
    let mut command = Command::new(PROGRAM);
    // It prints the version on standard error.
    let said = command.arg("--version").output().context("Debian's pgpool2: see scripts/setup")?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let version = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_numeric()));
    Ok(format!("Pgpool-II {}", version.unwrap_or("of an unknown version")))
}

impl Pgpool {
    /// Starts it; `more` are further lines of its configuration.
    pub(super) fn start(nodes: &Nodes, more: &str) -> Result<Self> {
        let folder = testkit::folder("pgpool");
        let port = testkit::free_port();
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            Ok(path)
        };
        let place = folder.display();
        let pcp_port = testkit::free_port();
        let mut text = format!(
            "backend_clustering_mode = 'streaming_replication'\n\
             listen_addresses = '127.0.0.1'\nport = {port}\nsocket_dir = '{place}'\n\
             pcp_listen_addresses = '127.0.0.1'\npcp_port = {pcp_port}\n\
             pcp_socket_dir = '{place}'\npid_file_name = '{place}/pid'\nlogdir = '{place}'\n\
             load_balance_mode = on\npool_passwd = ''\n\
             sr_check_user = 'weir'\nsr_check_password = 'weir-secret'\n\
             health_check_user = 'weir'\nhealth_check_password = 'weir-secret'\n{more}"
        );
        for (number, node) in nodes.0.iter().enumerate() {
            let _ = write!(
                text,
                "backend_hostname{number} = '127.0.0.1'\nbackend_port{number} = {}\n\
                 backend_weight{number} = 1\nbackend_flag{number} = 'ALLOW_TO_FAILOVER'\n",
                node.port()
            );
        }
        let log = File::create(folder.join("log"))?;
        let child = testkit::mortal_command(PROGRAM)
            .arg("-n")
            .arg("-f")
            .arg(file("pgpool.conf", &text)?)
            .arg("-F")
            .arg(file("pcp.conf", "")?)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start Pgpool-II")?;
        Ok(Self { child, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Pgpool {
    /// Asks it to stop at once, and kills the processes that do not.
    fn drop(&mut self) {
        let family = process::family(self.pid());
        let signal = |signal: &str, pid: u32| {
            // It may have ended already.
            let _ = output(Command::new("kill").args(["-s", signal, &pid.to_string()]));
        };
        signal("QUIT", self.pid());
        if poll_until(STOP_MAX, || self.child.try_wait().ok().flatten()).is_none() {
            family.into_iter().for_each(|pid| signal("KILL", pid));
            let _ = self.child.wait();
        }
    }
}
