//! Debian's etcd with one or more members, on 127.0.0.1. All processes end with the test.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::pooler::send_signal;
use crate::wait::eventually;
use crate::{mortal_command, scratch};

const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    folder: PathBuf,
    arguments: Vec<String>,
    port: u16,
    process: Option<Child>,
}

impl Etcd {
    /// Starts so many members, and waits until they have a leader.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let ports: Vec<_> =
            (0..count).map(|_| (scratch::free_port(), scratch::free_port())).collect();
        let names = ports.iter().enumerate();
        let all: Vec<_> = names.map(|(at, (_, peer))| format!("m{at}={}", url(*peer))).collect();
        let member = |(at, (port, peer)): (usize, &(u16, u16))| {
            let (own, between) = (url(*port), url(*peer));
            let folder = scratch::folder("etcd");
            let data = folder.join("data").display().to_string();
            let pairs = [
                ("--name", format!("m{at}")),
                ("--data-dir", data),
                ("--listen-client-urls", own.clone()),
                ("--advertise-client-urls", own),
                ("--listen-peer-urls", between.clone()),
                ("--initial-advertise-peer-urls", between),
                ("--initial-cluster", all.join(",")),
            ];
            let arguments = pairs.into_iter().flat_map(|(key, value)| [key.to_owned(), value]);
            Member { folder, arguments: arguments.collect(), port: *port, process: None }
        };
        let mut etcd = Self { members: ports.iter().enumerate().map(member).collect() };
        (0..count).for_each(|at| etcd.spawn(at));
        eventually("etcd has a leader", PATIENCE, || etcd.is_healthy(0).then_some(()));
        etcd
    }

    fn spawn(&mut self, at: usize) {
        let member = &mut self.members[at];
        let log = scratch::log_file(&member.folder);
        let process = mortal_command("etcd")
            .args(&member.arguments)
            .current_dir(&member.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.process = Some(process.expect("etcd: see scripts/setup"));
    }

    /// Does this member know a leader?
    fn is_healthy(&self, at: usize) -> bool {
        use std::io::{Read as _, Write as _};
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.members[at].port)) else {
            return false;
        };
        let request = "GET /health HTTP/1.0\r\n\r\n";
        let mut answer = String::new();
        let told = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let told = told.and_then(|()| stream.write_all(request.as_bytes()));
        let told = told.and_then(|()| stream.read_to_string(&mut answer));
        told.is_ok() && answer.contains("true")
    }

    /// Returns the port of a member.
    #[must_use]
    pub fn port(&self, at: usize) -> u16 {
        self.members[at].port
    }

    /// Returns the addresses of all members, separated by commas.
    #[must_use]
    pub fn addresses(&self) -> String {
        let one = |member: &Member| format!("127.0.0.1:{}", member.port);
        self.members.iter().map(one).collect::<Vec<_>>().join(",")
    }

    /// Sends a signal to all members.
    pub fn signal_all(&self, signal: &str) {
        for process in self.members.iter().filter_map(|member| member.process.as_ref()) {
            send_signal(process.id(), signal);
        }
    }

    /// Kills a member with SIGKILL.
    pub fn kill9(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            process.kill().and_then(|()| process.wait()).expect("our own child");
        }
    }

    /// Starts a killed member again.
    pub fn restart(&mut self, at: usize) {
        self.spawn(at);
        eventually("the member is healthy", PATIENCE, || self.is_healthy(at).then_some(()));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill9(at));
    }
}
