//! A server whose postmaster is the first process of a container: a process id namespace of its own
//! (`unshare --pid`), as `docker run` makes one.
//!
//! The server then names its processes by their ids in there. So a test must not use the ids of
//! `postmaster.pid`, of the log or of SQL; it finds the processes with [`Container::process`].

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Builtin;
use crate::guest;
use crate::signal::send_signal;
use crate::wait::eventually;

/// It ends when this value is dropped.
#[derive(Debug)]
pub struct Container<'a> {
    server: &'a Builtin,
    launcher: Child,
}

/// A process of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id here.
    pub pid: u32,
    /// Its id in the container.
    pub inner: u32,
    /// Its title, or its arguments.
    pub title: String,
}

impl<'a> Container<'a> {
    /// Can this user make one here?
    pub fn can_be() -> bool {
        let mut tries = Command::new("unshare");
        let tries = tries.args(["--pid", "--fork", "--mount-proc", "true"]).stderr(Stdio::null());
        guest::is_root() && tries.status().is_ok_and(|status| status.success())
    }

    /// Starts a server that does not run, and waits until the superuser can log in.
    pub fn launch(server: &'a Builtin) -> Self {
        let log = fs::File::options().append(true).open(server.log_path()).expect("it has run");
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--mount-proc"])
            .args(["setpriv", "--pdeathsig", "KILL", "--reuid", guest::ACCOUNT])
            .args(["--regid", guest::ACCOUNT, "--init-groups"])
            .arg(server.version.program("postgres"))
            .arg("-D")
            .arg(server.data())
            .current_dir(server.socket_folder())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        let launcher = command.spawn().expect("cannot run unshare");
        let own = Self { server, launcher };
        eventually("PostgreSQL is up", Duration::from_secs(60), || server.is_ready());
        own
    }

    /// Returns the postmaster.
    pub fn postmaster(&self) -> Process {
        self.processes().into_iter().find(|one| one.inner == 1).expect("the server runs")
    }

    /// Returns the process whose title begins so.
    pub fn process(&self, title: &str) -> Option<Process> {
        self.processes().into_iter().find(|one| one.title.starts_with(title))
    }

    /// Sends a signal to one of its processes.
    pub fn signal(&self, process: &Process, signal: &str) {
        let known = self.processes().into_iter().find(|one| one.pid == process.pid);
        assert_eq!(known.map(|one| one.inner), Some(process.inner), "{process:?} has ended");
        send_signal(process.pid, signal);
    }

    /// Waits until it has ended.
    pub fn wait_until_gone(&mut self) {
        eventually("the container has ended", Duration::from_secs(30), || {
            self.launcher.try_wait().expect("our own child")
        });
        self.server.wait_until_gone();
    }

    /// All of them have the data folder as working folder.
    fn processes(&self) -> Vec<Process> {
        let data = self.server.data();
        let all = fs::read_dir("/proc").expect("the list of processes").flatten();
        all.filter(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder == data)
        })
        .filter_map(|process| read(&process.path()))
        .collect()
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // With its first process, all others of the container end.
        if let Some(postmaster) = self.processes().into_iter().find(|one| one.inner == 1) {
            send_signal(postmaster.pid, "KILL");
        }
        let _ = self.launcher.wait();
    }
}

fn read(process: &Path) -> Option<Process> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let inner = ids.split_whitespace().last()?.parse().ok()?;
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let title = fs::read_to_string(process.join("cmdline")).ok()?.replace('\0', " ");
    Some(Process { pid, inner, title })
}
