//! The process of the pooler under test.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use net::sys::Address;

use super::binary::{Binary, Make};
use super::setting::{Cores, Setting};
use super::workplace::{Identity, Tls, Workplace};
use crate::process::threads_named;
use crate::socket::{self, Socket};
use crate::sys;

const START_MAX: Duration = Duration::from_secs(5);
/// The last lines of the pooler's log, which an error shows.
const LOG_LINES: usize = 15;
/// The beginning of the names of the threads of Weir's workers.
const WORKER_THREADS: &str = "weir-worker-";

/// A running pooler. It is ended when dropped.
#[derive(Debug)]
pub(crate) struct Pooler {
    child: Child,
    pub(crate) address: Address,
    log: PathBuf,
}

impl Pooler {
    /// Starts the pooler, on its cores if it has any, and waits until it accepts connections. From
    /// then on this thread runs on the peers' cores.
    pub(crate) fn start(
        workplace: &Workplace,
        binary: &Binary,
        setting: &Setting,
        server: &Address,
    ) -> Result<Self> {
        let port = free_port()?;
        let users = workplace.file("userlist.txt");
        fs::write(&users, setting.users())?;
        workplace.certify(setting.tls)?;
        let configuration = workplace.file("pgbouncer.ini");
        fs::write(&configuration, setting.configuration(binary.make, server, port, &users))?;
        let log = workplace.file("log");
        let output = File::create(&log)?;

        let mut command = workplace.command(&binary.path);
        command.args(arguments(binary, setting, server, port, &configuration));
        command.current_dir(workplace.folder());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        if let Some(cores) = &setting.cores {
            sys::pin_to(&cores.pooler)?;
        }
        let started = command.spawn();
        if let Some(cores) = &setting.cores {
            sys::pin_to(&cores.peers)?;
        }
        let child = started.with_context(|| format!("cannot start {}", binary.label))?;
        let mut pooler = Self { child, address: socket::local(port), log };
        let up = pooler.wait_until_up();
        match up.and_then(|()| pooler.deal_out(setting.cores.as_ref())) {
            Ok(()) => Ok(pooler),
            Err(error) => Err(pooler.explain(&error)),
        }
    }

    /// Binds each worker to one core, in turn.
    fn deal_out(&self, cores: Option<&Cores>) -> Result<()> {
        let Some(Cores { pooler, .. }) = cores else { return Ok(()) };
        let workers = threads_named(self.pid(), WORKER_THREADS)?;
        for (worker, core) in workers.into_iter().zip(pooler.iter().cycle()) {
            sys::pin_thread(worker, &[*core])?;
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Adds the pooler's exit status and log to an error.
    pub(crate) fn explain(&mut self, error: &Error) -> Error {
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => format!("the pooler ended with {status}; "),
            _ => String::new(),
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        anyhow!("{error:#}\n{ended}the end of its log:\n{tail}")
    }

    fn wait_until_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while Socket::connect(&self.address).is_err() {
            ensure!(self.child.try_wait()?.is_none(), "the pooler does not stay up");
            if Instant::now() > deadline {
                bail!("the pooler does not listen within {} s", START_MAX.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It may have ended already; then killing it fails, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the arguments of a pooler's program. The relays do not read a configuration file.
fn arguments(
    binary: &Binary,
    setting: &Setting,
    server: &Address,
    port: u16,
    configuration: &Path,
) -> Vec<OsString> {
    let ring = match binary.make {
        Make::PgBouncer(..) | Make::Weir => return vec![configuration.into()],
        Make::Relay => None,
        Make::Ring => Some("--ring"),
    };
    let listen = format!("127.0.0.1:{port}");
    let (server, servers) = (socket::text(server), setting.servers.to_string());
    let words = ["relay", "--listen", &listen, "--connect", &server, "--servers", &servers];
    let mut all: Vec<_> = words.into_iter().chain(ring).map(OsString::from).collect();
    if setting.tls != Tls::None {
        let Identity { certificate, key } = Identity::beside(configuration);
        all.extend(["--certificate".into(), certificate.into()]);
        all.extend(["--key".into(), key.into()]);
    }
    all
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
