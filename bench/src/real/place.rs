//! The place that clients connect to, and PostgreSQL's own programs.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use net::sys::Address;

use crate::run::Setting;

/// The port of 127.0.0.1, the user and the database with which clients connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) port: u16,
    user: &'static str,
    database: &'static str,
}

impl Place {
    pub(super) fn at(port: u16) -> Self {
        Self { port, user: Setting::USER, database: Setting::DATABASE }
    }

    pub(super) fn of(address: &Address) -> Result<Self> {
        match address {
            Address::Inet(address) => Ok(Self::at(address.port())),
            Address::Unix(_) | Address::Abstract(_) | Address::Unnamed => {
                bail!("{address} is no port")
            }
        }
    }

    /// Returns the other database at the same port, with its own user.
    pub(super) fn other(self) -> Self {
        Self { user: Setting::OTHER, database: Setting::OTHER, ..self }
    }

    /// Connects, and sends the startup packet. Answers are not read.
    pub(super) fn connect(self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let mut packet = Vec::new();
        wire::frontend::startup(
            &mut packet,
            0,
            &[("user", self.user), ("database", self.database)],
        );
        stream.write_all(&packet)?;
        Ok(stream)
    }

    pub(super) fn lead(&self, command: &mut Command) {
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", self.user)
            .env("PGDATABASE", self.database)
            .stdin(Stdio::null());
    }
}

/// Runs a program to its end and returns its standard output.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}{complaints}", output.status);
    Ok(said)
}

/// A program of the newest PostgreSQL that is installed.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let mut folders: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    folders.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path);
    folders
        .into_iter()
        .rev()
        .map(|(_, folder)| folder)
        .chain(others)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("PostgreSQL's {name} is not installed"))
}
