//! The rig against itself: the load generator directly at the canned server, as two processes, and with
//! a relay between them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-bench"))
            .args(["server", "--listen", listen])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// Starts a relay before this one, with fewer servers than the tests have clients. The error is
    /// its message if it cannot start.
    fn relay(&self, options: &[&str]) -> Result<Self, String> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-bench"))
            .args(["relay", "--servers", "3", "--connect", &self.address])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address).unwrap();
        if address.is_empty() {
            let mut said = String::new();
            stderr.read_to_string(&mut said).unwrap();
            child.wait().unwrap();
            return Err(said);
        }
        Ok(Self { child, address: address.trim().to_owned() })
    }

    fn client(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weir-bench"))
            .args(["client", "--connect", &self.address, "--warm-up", "0"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn figures(&self, arguments: &[&str]) -> Value {
        let output = self.client(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn every_protocol_works_over_tcp() {
    let server = Server::start("127.0.0.1:0");
    for protocol in ["simple", "extended", "prepared"] {
        let count = ["--transactions", "500", "--clients", "20", "--protocol", protocol];
        let figures = server.figures(&count);
        assert!(figures["transactions"].as_u64().unwrap() >= 500, "{protocol}: {figures}");
        assert!(figures["p99_us"].as_u64() >= figures["p50_us"].as_u64());
    }
}

#[test]
fn a_large_result_and_logins_work_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("weir-bench-rig-{}", std::process::id()));
    let server = Server::start(path.to_str().unwrap());
    let figures = server.figures(&["--bulk", "100", "--transactions", "1", "--clients", "1"]);
    assert!(figures["bytes"].as_u64().unwrap() > 99_000_000, "{figures}");
    let figures = server.figures(&["--login-only", "--transactions", "100"]);
    assert!(figures["logins"].as_u64().unwrap() >= 100, "{figures}");
    drop(server);
    std::fs::remove_file(path).unwrap();
}

/// Checks a relay. The client looks at each answer, so the answer to another client ends the run.
fn relays_right(relay: &Server) {
    for clients in ["1", "40"] {
        let figures = relay.figures(&["--transactions", "5000", "--clients", clients]);
        assert!(figures["transactions"].as_u64().unwrap() >= 5_000, "{figures}");
        assert_eq!(figures["starved_clients"], 0, "{figures}");
    }
}

#[test]
fn the_relay_gives_each_client_its_own_answers() {
    let server = Server::start("127.0.0.1:0");
    relays_right(&server.relay(&[]).unwrap());
}

#[test]
fn the_relay_on_io_uring_gives_each_client_its_own_answers() {
    let path = std::env::temp_dir().join(format!("weir-bench-ring-{}", std::process::id()));
    for listen in ["127.0.0.1:0", path.to_str().unwrap()] {
        let server = Server::start(listen);
        match server.relay(&["--ring"]) {
            Ok(relay) => relays_right(&relay),
            // A container may forbid it, with either error.
            Err(said) if said.contains("(os error 1)") || said.contains("(os error 38)") => {
                eprintln!("left out: {said}");
            }
            Err(said) => panic!("{said}"),
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn idle_clients_are_held_until_standard_input_ends() {
    let server = Server::start("127.0.0.1:0");
    assert_eq!(server.figures(&["--idle", "--clients", "300"])["clients"], 300);
}

#[test]
fn a_run_reads_the_cpu_time_of_the_process_it_watches() {
    let server = Server::start("127.0.0.1:0");
    let pid = server.child.id().to_string();
    let figures = server.figures(&["--transactions", "2000", "--watch", &pid]);
    assert!(figures["pooler_cpu_ns"].as_u64().unwrap() > 100_000, "{figures}");
}

#[test]
fn no_pooler_is_a_failure_not_a_figure() {
    let output = {
        let server = Server::start("127.0.0.1:0");
        let address = server.address.clone();
        drop(server);
        Server::start("127.0.0.1:0").client(&["--connect", &address, "--seconds", "0.1"])
    };
    assert!(!output.status.success() && output.stdout.is_empty());
}
