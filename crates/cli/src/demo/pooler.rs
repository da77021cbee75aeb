//! Runs Weir in front of the demo's cluster, in this process, with an ordinary configuration.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use config::Config;
use proxy::{Pooler, StartOptions, log};

use super::{
    cluster::{Cluster, SUPERUSER},
    names::{DEMO, LOOPBACK, MODES},
    terminal::say,
    trio::{Hooks, Nodes},
};
use crate::console;

const PORT: u16 = 6432;
/// The number of ports to try after the usual one, if that is in use.
const PORTS_TRIED: u16 = 100;

/// A running pooler. It ends when dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pooler: Pooler,
    pub(super) port: u16,
}

/// The connection method of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayIn {
    /// By TCP on the loopback interface, with the password of `demo`.
    Tcp,
    /// By a socket in the cluster's private directory, which needs no password. So a login has only
    /// the pooler's cost, and not the client's for computing its proof.
    Socket,
}

/// Starts the pooler on its usual port, or on the next one that is free.
pub(super) fn start(cluster: &Cluster, way_in: WayIn) -> anyhow::Result<Running> {
    let users = cluster.write("userlist.txt", &format!("\"{DEMO}\" \"{}\"\n", cluster.password))?;
    let logfile = cluster.scratch().join("weir.log");
    let databases: String = MODES
        .iter()
        .map(|(name, mode)| {
            let server = cluster.port;
            format!("{name} = host={LOOPBACK} port={server} dbname={DEMO} pool_mode={mode}\n")
        })
        .collect();
    let start = |listen: &str, port| {
        let ini = format!(
            "[databases]\n{databases}\n[pgbouncer]\n{listen}\nlisten_port = {port}\n\
             auth_file = {}\nadmin_users = {DEMO}\nlogfile = {}\n",
            users.display(),
            logfile.display(),
        );
        launch(cluster.write("weir.ini", &ini)?, port)
    };
    match way_in {
        WayIn::Tcp => {
            let listen =
                format!("listen_addr = {LOOPBACK}\nunix_socket_dir =\nauth_type = scram-sha-256");
            start_on_a_free_port(|port| start(&listen, port))
        }
        WayIn::Socket => {
            let directory = cluster.socket_directory()?.display();
            let listen = format!("listen_addr =\nunix_socket_dir = {directory}\nauth_type = trust");
            start(&listen, PORT)
        }
    }
}

/// Starts the pooler before the nodes of a cluster, by TCP.
pub(super) fn start_before_nodes(
    nodes: &Nodes,
    hooks: &Hooks,
    max_loss: Option<u64>,
) -> anyhow::Result<Running> {
    let password = nodes.password();
    let users = nodes.write("userlist.txt", &format!("\"{DEMO}\" \"{password}\"\n"))?;
    let logfile = nodes.scratch().join("weir.log");
    start_on_a_free_port(|port| {
        let ini = format!(
            "[clusters]\nmain = nodes='{}' user={SUPERUSER} password={password} failover=own \
             sample_interval=0.5 health_timeout=1 {}{}\n\
             [databases]\n{DEMO} = cluster=main pool_mode=auto\n\n\
             [pgbouncer]\nlisten_addr = {LOOPBACK}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nlisten_port = {port}\nauth_file = {}\n\
             admin_users = {DEMO}\nlogfile = {}\nquery_wait_notify = 0\n",
            nodes.list(),
            hooks.keys(),
            max_loss.map_or_else(String::new, |bytes| format!(" max_loss={bytes}")),
            users.display(),
            logfile.display(),
        );
        launch(nodes.write("weir.ini", &ini)?, port)
    })
}

/// Starts a pooler on its usual port, or on the next one that is free. Another process may take a
/// free port before the pooler listens there.
fn start_on_a_free_port(start: impl Fn(u16) -> anyhow::Result<Running>) -> anyhow::Result<Running> {
    for port in PORT..PORT + PORTS_TRIED {
        if !is_free(port) {
            continue;
        }
        let started = start(port);
        if started.is_err() && !is_free(port) {
            continue;
        }
        if started.is_ok() && port != PORT {
            say(&format!("port {PORT} is taken, so Weir listens on {port}"));
        }
        return started;
    }
    bail!("the ports from {PORT} to {} are all taken", PORT + PORTS_TRIED - 1)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn launch(path: PathBuf, port: u16) -> anyhow::Result<Running> {
    let config = Config::load(&path)?;
    // Log lines on the terminal would interrupt the live line.
    log::init(false, 0);
    log::configure(&config.global)?;
    // The demo handles Ctrl-C itself, since it must end the server as well.
    let options = StartOptions {
        config_path: Some(path),
        signals: false,
        console: Some(console::handler()),
        ..StartOptions::default()
    };
    let pooler = Pooler::start(config, options).context("Weir did not start")?;
    Ok(Running { pooler, port })
}
