//! Debian's haproxy in front of poolers.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::{eventually, free_port, open_folder};

const PATIENCE: Duration = Duration::from_secs(20);

/// A haproxy that serves TCP. It is ended when dropped.
pub(crate) struct Haproxy {
    pub(crate) port: u16,
    process: Child,
}

impl Haproxy {
    /// Starts one with these lines in its only section.
    pub(crate) fn before(lines: &[&str]) -> Self {
        let port = free_port();
        let configuration = open_folder("haproxy").join("haproxy.cfg");
        let text = format!(
            "defaults\n mode tcp\n timeout connect 10s\n timeout client 1m\n timeout server 1m\n\
             listen poolers\n bind 127.0.0.1:{port}\n {}\n",
            lines.join("\n ")
        );
        fs::write(&configuration, text).expect("our own folder");
        let mut command = Command::new("/usr/sbin/haproxy");
        command.arg("-db").arg("-f").arg(configuration);
        let process = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let haproxy = Self { port, process: process.expect("haproxy: see scripts/setup") };
        eventually("haproxy listens", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).ok());
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("our own child");
    }
}
