//! Three servers: a primary and two standbys, each in a temporary directory of its own.

use std::{ffi::OsStr, fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use super::super::{
    binaries::Binaries,
    child,
    cluster::{SUPERUSER, Server, data, free_port, init, psql},
    names::{DEMO, LOOPBACK},
    scratch::Scratch,
    secret,
    terminal::say,
};

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// Commits wait for one standby, so a failover loses none. With `*` in the place of the names, a
/// program that is no node could confirm commits, too.
const SYNCHRONOUS: &str = "synchronous_standby_names = 'ANY 1 (a, b, c)'\n";

const SETTINGS: &str = "\
wal_keep_size = '256MB'
hot_standby = on
wal_receiver_status_interval = '1s'
wal_retrieve_retry_interval = '200ms'
";

pub(in crate::demo) struct Nodes {
    binaries: Binaries,
    password: String,
    all: Vec<Node>,
}

struct Node {
    // Dropped before the directory.
    server: Option<Server>,
    scratch: Scratch,
    port: u16,
}

impl Nodes {
    /// Creates and starts the nodes; the first one is the primary.
    pub(super) fn create(binaries: Binaries, is_synchronous: bool) -> anyhow::Result<Self> {
        let password = secret::random()?;
        let node =
            || anyhow::Ok(Node { server: None, scratch: Scratch::create()?, port: free_port()? });
        let all = NAMES.iter().map(|_| node()).collect::<anyhow::Result<_>>()?;
        let mut nodes = Self { binaries, password, all };
        say("creating a PostgreSQL cluster of three nodes");
        let scratch = &nodes.all[0].scratch;
        init(&nodes.binaries, scratch, &nodes.password)?;
        let auto = data(scratch).join("postgresql.auto.conf");
        let more = if is_synchronous { SYNCHRONOUS } else { "" };
        fs::write(&auto, format!("{SETTINGS}{more}"))
            .context("could not write postgresql.auto.conf")?;
        nodes.start(0)?;
        // Without a standby, commits would wait.
        let statements = format!(
            "SET synchronous_commit = local;\n\
             CREATE ROLE {DEMO} LOGIN PASSWORD '{}';\nCREATE DATABASE {DEMO} OWNER {DEMO};\n",
            nodes.password
        );
        nodes.sql(0, "postgres", &statements)?;
        let statements = "SET synchronous_commit = local;\n\
             CREATE TABLE writes (client int, number bigint);\n\
             GRANT ALL ON writes TO demo;\n";
        nodes.sql(0, DEMO, statements)?;
        for at in 1..NAMES.len() {
            nodes.copy(at, 0)?;
        }
        Ok(nodes)
    }

    pub(in crate::demo) fn scratch(&self) -> &Path {
        self.all[0].scratch.path()
    }

    /// Returns the password of all users.
    pub(in crate::demo) fn password(&self) -> &str {
        &self.password
    }

    /// Returns the list of nodes for the configuration.
    pub(in crate::demo) fn list(&self) -> String {
        let nodes = NAMES.iter().zip(&self.all);
        let nodes = nodes.map(|(name, node)| format!("{name}={LOOPBACK}:{}", node.port));
        nodes.collect::<Vec<_>>().join(", ")
    }

    /// Writes a file that no other user can read.
    pub(in crate::demo) fn write(
        &self,
        name: &str,
        content: &str,
    ) -> anyhow::Result<std::path::PathBuf> {
        self.all[0].scratch.write(name, content)
    }

    /// Returns one of PostgreSQL's client programs that connects as `demo`.
    pub(super) fn client(&self, program: &str, host: impl AsRef<OsStr>, port: u16) -> Command {
        let mut command = child::command(&self.binaries.path(program), self.scratch());
        command.env("PGHOST", host).env("PGPORT", port.to_string());
        command.env("PGUSER", DEMO).env("PGPASSWORD", &self.password).env("PGDATABASE", DEMO);
        command
    }

    /// Runs statements as superuser on a node. Returns their rows as bare text.
    pub(super) fn sql(&self, at: usize, database: &str, text: &str) -> anyhow::Result<String> {
        let mut command = self.client("psql", LOOPBACK, self.all[at].port);
        command.env("PGUSER", SUPERUSER).env("PGDATABASE", database);
        psql(command, text)
    }

    /// Starts a node as what its directory says.
    pub(super) fn start(&mut self, at: usize) -> anyhow::Result<()> {
        let node = &mut self.all[at];
        if node.server.is_none() {
            node.server = Some(Server::start(&self.binaries, &node.scratch, node.port)?);
        }
        Ok(())
    }

    /// Stops a node by a fast shutdown.
    pub(super) fn stop(&mut self, at: usize) -> anyhow::Result<()> {
        drop(self.all[at].server.take());
        Ok(())
    }

    /// Kills a node, if it runs.
    pub(super) fn kill(&mut self, at: usize) -> anyhow::Result<()> {
        if let Some(server) = self.all[at].server.take() {
            server.kill()?;
        }
        Ok(())
    }

    /// Makes a node that does not run a standby of `new`. After a shutdown it only has to follow. A
    /// node that was killed may have WAL that no other has, so it is copied anew.
    pub(super) fn rejoin(&mut self, at: usize, new: Option<usize>) -> anyhow::Result<()> {
        let Some(new) = new else { bail!("no new primary is named") };
        if self.all[at].server.is_some() {
            bail!("node {} runs", NAMES[at]);
        }
        let directory = data(&self.all[at].scratch);
        if directory.join("postmaster.pid").exists() {
            fs::remove_dir_all(&directory).context("could not remove the old data")?;
            return self.copy(at, new);
        }
        fs::write(directory.join("standby.signal"), "").context("standby.signal")?;
        let auto = directory.join("postgresql.auto.conf");
        let before = fs::read_to_string(&auto).context("postgresql.auto.conf")?;
        let kept = before.lines().filter(|line| !line.starts_with("primary_conninfo"));
        let mut text = kept.collect::<Vec<_>>().join("\n");
        text += &format!("\nprimary_conninfo = '{}'\n", self.source(at, new));
        fs::write(&auto, text).context("postgresql.auto.conf")?;
        self.start(at)
    }

    /// Copies a running node and starts the copy as its standby.
    fn copy(&mut self, at: usize, from: usize) -> anyhow::Result<()> {
        let scratch = &self.all[at].scratch;
        let mut command = child::command(&self.binaries.path("pg_basebackup"), scratch.path());
        command.arg("-D").arg(data(scratch)).args(["-d", &self.source(at, from), "-R"]);
        command.args(["-X", "stream", "-c", "fast", "--no-sync"]);
        child::run(command, "")?.success("pg_basebackup")?;
        self.start(at)
    }

    /// Returns the connection string with which a standby follows another node.
    fn source(&self, standby: usize, at: usize) -> String {
        let (name, port, password) = (NAMES[standby], self.all[at].port, &self.password);
        let login = format!("user={SUPERUSER} password={password}");
        format!("host={LOOPBACK} port={port} {login} application_name={name}")
    }
}
