//! One of the two poolers as a process: its folder, files, log and end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::script::{Case, Group};
use testkit::{Postgres, RawClient, folder, free_port, give_away, mortal_command, poll_until};

const PATIENCE: Duration = Duration::from_secs(20);
/// The path of Debian's package.
pub(super) const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

const SECRETS: &str = "\
\"app\" \"app-secret\"
\"admin\" \"admin-secret\"
\"stats\" \"stats-secret\"
\"other\" \"other-secret\"
";

/// The kind of pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    PgBouncer,
    Weir,
}

/// A pooler's folder, its files, and its process if it runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) flavour: Flavour,
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) database: String,
    closed: u16,
    child: Option<Child>,
}

impl Process {
    /// Writes the files, without starting the pooler.
    pub(super) fn new(
        flavour: Flavour,
        database: &str,
        group: &Group,
        case: Option<&Case>,
    ) -> Self {
        let (folder, port, closed) = (folder("side"), free_port(), free_port());
        let database = database.to_owned();
        let process = Self { flavour, folder, port, database, closed, child: None };
        // The lines of a case begin in the main section again.
        let main = "[pgbouncer]".to_owned();
        let own = case.iter().flat_map(|case| &case.files);
        process.write_files(group.files.iter().chain([&main]).chain(own));
        process
    }

    /// Replaces the placeholders by their values.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut text = text
            .replace("{db}", &self.database)
            .replace("{pg}", &Postgres::shared().port().to_string())
            .replace("{port}", &self.port.to_string())
            .replace("{closed}", &self.closed.to_string())
            .replace("{dir}", &self.folder.display().to_string())
            .replace("{ini}", &self.ini().display().to_string());
        while let Some(start) = text.find("{x*") {
            let end = start + text[start..].find('}').expect("a closing brace");
            let count = text[start + 3..end].parse().expect("a number");
            text.replace_range(start..=end, &"x".repeat(count));
        }
        text
    }

    /// Replaces the values by their placeholders, as the reverse of [`Self::fill`].
    pub(super) fn blank(&self, text: &str) -> String {
        text.replace(&self.folder.display().to_string(), "{dir}")
            .replace(&self.database, "{db}")
            .replace(&Postgres::shared().port().to_string(), "{pg}")
            .replace(&self.port.to_string(), "{port}")
            .replace(&self.closed.to_string(), "{closed}")
    }

    /// Returns the path of the program.
    pub(super) fn program(&self) -> &'static Path {
        match self.flavour {
            Flavour::PgBouncer => Path::new(PGBOUNCER),
            Flavour::Weir => testkit::pooler_binary(),
        }
    }

    /// Returns a command that runs the program.
    pub(super) fn command(&self) -> Command {
        let mut command = mortal_command(self.program());
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    pub(super) fn ini(&self) -> PathBuf {
        self.folder.join("pooler.ini")
    }

    /// Starts the pooler. Returns true when it listens, and false if it has ended instead.
    pub(super) fn start(&mut self) -> bool {
        let log = fs::File::options().create(true).append(true).open(self.log_path());
        let log = log.expect("our own folder");
        let mut command = self.command();
        let stderr = log.try_clone().expect("a second handle");
        command.arg(self.ini()).stdout(log).stderr(stderr);
        self.child = Some(command.spawn().expect("the package pgbouncer is installed"));
        poll_until(PATIENCE, || {
            let ended =
                self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                return Some(false);
            }
            let up = self.log().contains("process up");
            (up && RawClient::try_connect(self.port).is_ok()).then_some(true)
        })
        .unwrap_or(false)
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let arguments = ["-c", "kill -s \"$1\" \"$2\"", "kill", name, &pid];
        let status = Command::new("sh").args(arguments).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send {name}");
    }

    /// Waits for the end of the process. Returns `None` if it continues to run.
    pub(super) fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        poll_until(Duration::from_secs(10), || child.try_wait().expect("our own child"))
    }

    pub(super) fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    fn write_files<'a>(&self, lines: impl Iterator<Item = &'a String>) {
        let mut sections: BTreeMap<String, String> = BTreeMap::new();
        let base = format!(
            "listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir = {}\nauth_file = {}\n\
             auth_type = trust\nadmin_users = admin\nstats_users = stats\nstats_period = 600\n",
            self.port,
            self.folder.display(),
            self.folder.join("userlist.txt").display(),
        );
        sections.insert("[pgbouncer]".to_owned(), base);
        sections.insert("[auth_file]".to_owned(), SECRETS.to_owned());
        let mut section = "[pgbouncer]".to_owned();
        for line in lines {
            if line.starts_with('[') && line.ends_with(']') {
                section.clone_from(line);
                continue;
            }
            let text = sections.entry(section.clone()).or_default();
            let _ = writeln!(text, "{}", self.fill(line));
        }
        let (mut ini, mut files) = (String::new(), BTreeMap::new());
        let names = ["[databases]", "[users]", "[pgbouncer]"];
        for name in names {
            if let Some(text) = sections.remove(name) {
                let _ = write!(ini, "{name}\n{text}");
            }
        }
        for (name, text) in sections {
            match name.strip_prefix("[file ").and_then(|name| name.strip_suffix(']')) {
                Some(file) => drop(files.insert(file.to_owned(), text)),
                None if name == "[auth_file]" => {
                    drop(files.insert("userlist.txt".to_owned(), text))
                }
                None => {
                    let _ = write!(ini, "{name}\n{text}");
                }
            }
        }
        files.entry("pooler.ini".to_owned()).or_insert(ini);
        for (name, text) in files {
            let path = self.folder.join(name);
            fs::write(&path, text).expect("our own folder");
            give_away(&path);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill().and_then(|()| child.wait());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
