//! The process of the pooler under test: its configuration files, its start and its end.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{PATIENCE, Pooler, Source};
use crate::binaries::{Flavour, flavour, pooler_binary};
use crate::signal::send_signal;
use crate::wait::poll_until;
use crate::{RawClient, guest};

/// Makes standard input the first socket of a service manager (sd_listen_fds(3)).
const INHERIT: &str = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";

impl Pooler {
    pub(super) fn write_configuration(&self) {
        let text = match self.setup.source {
            Source::Toml => self.setup.ini.toml(),
            Source::Ini | Source::Url(_) | Source::Environment => self.setup.ini.text(),
        };
        let files = [
            (self.configuration(), text),
            (self.folder.join("userlist.txt"), self.setup.ini.auth_file()),
        ];
        for (path, text) in files {
            fs::write(&path, text).expect("cannot write the configuration");
            guest::give_away(&path);
        }
    }

    pub(super) fn spawn(&mut self) {
        self.spawn_with(&[]);
    }

    pub(super) fn spawn_with(&mut self, more: &[&str]) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("cannot open the log");
        let mut command = match (&self.setup.listener, &self.setup.dev_log) {
            (None, None) if self.setup.host.is_some() => {
                let host = self.setup.host.as_ref().expect("just seen");
                guest::mortal_command_at(host, pooler_binary())
            }
            (None, None) if self.setup.from_root => Command::new(pooler_binary()),
            (None, None) if !self.setup.files.is_empty() => {
                guest::mortal_command_with_files(pooler_binary(), &self.setup.files)
            }
            (None, None) => match self.setup.open_files_max {
                None => guest::mortal_command(pooler_binary()),
                Some(count) => {
                    let mut command = guest::mortal_command("prlimit");
                    command.arg(format!("--nofile={count}:{count}")).arg(pooler_binary());
                    command
                }
            },
            (None, Some(socket)) => guest::mortal_command_with_log(pooler_binary(), socket),
            (Some(_), _) => {
                let mut command = guest::mortal_command("sh");
                command.args(["-c", INHERIT, "inherit"]).arg(pooler_binary());
                command
            }
        };
        let stdin = self.setup.listener.as_ref().map_or_else(Stdio::null, |listener| {
            OwnedFd::from(listener.try_clone().expect("a second handle of the socket")).into()
        });
        command.args(&self.setup.arguments).args(more);
        command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
        match &self.setup.source {
            Source::Url(url) => {
                // Tests side by side would fight for the default port of the metrics.
                let keys = format!("listen_port={}&metrics_port=0", self.port);
                command.args(["serve", &format!("{url}?{keys}")])
            }
            Source::Environment => {
                command.env("WEIR_LISTEN_PORT", self.port.to_string());
                command.env("WEIR_METRICS_PORT", "0").arg("serve")
            }
            Source::Ini | Source::Toml => command.arg(self.configuration()),
        };
        let child = command
            .current_dir(&self.folder)
            .stdin(stdin)
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log)
            .spawn()
            .expect("cannot start the pooler");
        self.child = Some(child);
    }

    /// Waits until it accepts connections. If it has ended instead, the error is its log.
    pub(super) fn wait_until_up(&mut self) -> Result<(), String> {
        let up = poll_until(PATIENCE, || {
            if !self.is_running() {
                return Some(false);
            }
            let client = match &self.setup.host {
                None => RawClient::try_connect(self.port),
                Some(_) => RawClient::connect_unix(&self.folder, self.port),
            };
            client.ok().map(|_| true)
        });
        match up {
            // Another process may listen there while ours is about to fail.
            Some(true) if self.is_running() => Ok(()),
            _ => Err(self.log()),
        }
    }

    pub(super) fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Stops it. The error tells how its end was wrong.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Ok(Some(status)) = child.try_wait() {
            let expected = self.expect_exit;
            return if expected { Ok(()) } else { Err(format!("it ended by itself: {status}")) };
        }
        // Both mean "at once". Before 1.23, PgBouncer did that on SIGTERM, with status 1.
        let (signal, code) = if flavour() == Flavour::Weir { ("QUIT", 0) } else { ("TERM", 1) };
        send_signal(child.id(), signal);
        let status = poll_until(PATIENCE, || child.try_wait().ok().flatten());
        match status {
            Some(status) if status.code() == Some(code) => Ok(()),
            Some(status) => Err(format!("SIG{signal} ended it with {status}")),
            None => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(format!("it did not end at SIG{signal}"))
            }
        }
    }
}
