//! Debian's etcd with one or more members, usually on 127.0.0.1. All processes end with the test.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::pki::Authority;
use crate::signal::send_signal;
use crate::wait::eventually;
use crate::{mortal_command, scratch};

const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd.
#[derive(Debug)]
pub struct Etcd {
    address: Ipv4Addr,
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
        Self::start_at(Ipv4Addr::LOCALHOST, count)
    }

    /// Does the same at another address of this machine.
    #[must_use]
    pub fn start_at(address: Ipv4Addr, count: usize) -> Self {
        let etcd = Self::launch(address, count, "http", &[]);
        eventually("etcd has a leader", PATIENCE, || etcd.is_healthy(0).then_some(()));
        etcd
    }

    /// Starts one member that has TLS, and wants a certificate of its clients.
    #[must_use]
    pub fn start_with_tls(authority: &Authority) -> Self {
        let own = authority.server();
        let arguments = [
            ("--cert-file", own.certificate()),
            ("--key-file", own.key()),
            ("--trusted-ca-file", authority.file()),
            ("--client-cert-auth", "true"),
        ];
        let etcd = Self::launch(Ipv4Addr::LOCALHOST, 1, "https", &arguments);
        let connect = || TcpStream::connect(("127.0.0.1", etcd.port(0))).ok();
        eventually("etcd listens", PATIENCE, connect);
        etcd
    }

    /// Starts one member in which this user may use the keys below `/weir/`, and nobody else anything.
    #[must_use]
    pub fn start_with_login(user: &str, password: &str) -> Self {
        let etcd = Self::start(1);
        let base64 = |text: &str| STANDARD.encode(text);
        let keys = format!(
            r#"{{"permType":"READWRITE","key":"{}","range_end":"{}"}}"#,
            base64("/weir/"),
            base64("/weir0")
        );
        for (path, body) in [
            ("role/add", r#"{"name":"root"}"#.to_owned()),
            ("user/add", r#"{"name":"root","password":"root-secret"}"#.to_owned()),
            ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
            ("role/add", r#"{"name":"weir"}"#.to_owned()),
            ("role/grant", format!(r#"{{"name":"weir","perm":{keys}}}"#)),
            ("user/add", format!(r#"{{"name":"{user}","password":"{password}"}}"#)),
            ("user/grant", format!(r#"{{"user":"{user}","role":"weir"}}"#)),
            ("enable", "{}".to_owned()),
        ] {
            let request = format!(
                "POST /v3/auth/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = etcd.ask(0, &request).expect("etcd answers");
            assert!(answer.contains(" 200 "), "{path}: {answer}");
        }
        etcd
    }

    fn launch(address: Ipv4Addr, count: usize, scheme: &str, more: &[(&str, &str)]) -> Self {
        let url = |port: u16| format!("http://{address}:{port}");
        let ports: Vec<_> =
            (0..count).map(|_| (scratch::free_port(), scratch::free_port())).collect();
        let names = ports.iter().enumerate();
        let all: Vec<_> = names.map(|(at, (_, peer))| format!("m{at}={}", url(*peer))).collect();
        let member = |(at, (port, peer)): (usize, &(u16, u16))| {
            let (own, between) = (format!("{scheme}://{address}:{port}"), url(*peer));
            let folder = scratch::folder("etcd");
            let data = folder.join("data").display().to_string();
            let mut pairs = vec![
                ("--name", format!("m{at}")),
                ("--data-dir", data),
                ("--listen-client-urls", own.clone()),
                ("--advertise-client-urls", own),
                ("--listen-peer-urls", between.clone()),
                ("--initial-advertise-peer-urls", between),
                ("--initial-cluster", all.join(",")),
            ];
            pairs.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
            let arguments = pairs.into_iter().map(|(key, value)| format!("{key}={value}"));
            Member { folder, arguments: arguments.collect(), port: *port, process: None }
        };
        let mut etcd = Self { address, members: ports.iter().enumerate().map(member).collect() };
        (0..count).for_each(|at| etcd.spawn(at));
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

    /// Sends an HTTP request to a member. Returns the whole answer, if there is one.
    fn ask(&self, at: usize, request: &str) -> Option<String> {
        let mut stream = TcpStream::connect((self.address, self.members[at].port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Does this member know a leader?
    fn is_healthy(&self, at: usize) -> bool {
        let answer = self.ask(at, "GET /health HTTP/1.0\r\n\r\n");
        answer.is_some_and(|answer| answer.contains("true"))
    }

    /// Returns the port of a member.
    #[must_use]
    pub fn port(&self, at: usize) -> u16 {
        self.members[at].port
    }

    /// Returns the addresses of all members, separated by commas.
    #[must_use]
    pub fn addresses(&self) -> String {
        let one = |member: &Member| format!("{}:{}", self.address, member.port);
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
