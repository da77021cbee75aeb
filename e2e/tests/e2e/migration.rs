//! Weir replaces PgBouncer, with operators' configurations for five generations of PgBouncer.
//! Clients work all the time. They may get an error only while no process listens.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::auth::ldap::directory::{self, Directory};
use crate::support;
use testkit::{
    Authority, Identity, ManualAuthority, Postgres, RawClient, Role, eventually, folder, free_port,
    give_away, mortal_command, poll_until,
};

const PYTHON: &str = "/usr/bin/python3";
const PATIENCE: Duration = Duration::from_secs(20);
/// Runs a program with a socket of systemd's: the environment must contain its process id.
const INHERIT: &str = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
/// A transaction for pgbench.
const TRANSACTION: &str = "\\set number random(1, 1000000)\n\
    BEGIN;\nSELECT :number + 1;\nSELECT current_user;\nCOMMIT;\n";

/// The beginnings of lines that Debian's PgBouncer, 1.18, does not know.
const NEWER_LINES: [&str; 16] = [
    "alice = pool_size=6",
    "auth_dbname",
    "auth_ldap_options",
    "bob = reserve_pool_size=2",
    "client_tls13_ciphers",
    "max_db_client_connections",
    "max_prepared_statements",
    "max_user_client_connections",
    "peer_id",
    "query_wait_notify",
    "scram_iterations",
    "track_extra_parameters",
    "transaction_timeout",
    "[peers]",
    "1 = ",
    "2 = ",
];
/// Words that it does not know.
const NEWER_WORDS: [&str; 2] = [" load_balance_hosts=round-robin", " query_wait_timeout=5"];
/// Its method of login instead of LDAP.
const OLDER_LOGIN: &str = "auth_type = scram-sha-256\nauth_file = {dir}/userlist.txt";

/// A host with PostgreSQL, and the configuration of a pooler.
struct Site {
    postgres: Postgres,
    database: String,
    folder: PathBuf,
    port: u16,
    /// The socket that systemd would listen on.
    socket: Option<TcpListener>,
    authority: Authority,
    directory: Directory,
}

impl Site {
    fn new(configuration: &str) -> Self {
        let postgres = Postgres::start();
        let root = ManualAuthority::new("root.example.org");
        let own = root.issue("localhost");
        postgres.offer_tls(&own);
        let database = postgres.database();
        let roles = [("alice", "scram-sha-256"), ("bob", "md5"), ("pgb", "scram-sha-256")];
        for (name, kind) in roles.into_iter().chain([("carol", "scram-sha-256")]) {
            postgres.sql("postgres", &with_password(name, kind));
        }
        postgres.sql("postgres", "GRANT auth_md5 TO bob");
        for statement in [
            "CREATE SCHEMA pgbouncer AUTHORIZATION pgb",
            "CREATE FUNCTION pgbouncer.get_auth(u text) RETURNS TABLE (usename name, passwd text) \
             LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS \
             'SELECT usename, passwd FROM pg_shadow WHERE usename = u'",
            "REVOKE ALL ON FUNCTION pgbouncer.get_auth(text) FROM public",
            "GRANT EXECUTE ON FUNCTION pgbouncer.get_auth(text) TO pgb",
        ] {
            postgres.sql(&database, statement);
        }
        let (name, password) = ("alice".to_owned(), "alicepw".to_owned());
        let alice = Role { name, password, verifier: String::new() };
        let authority = Authority::new("directory");
        // The directory accepts no password without TLS.
        let directory = Directory::start(&[&alice], &authority.server(), true);
        let (folder, port) = (folder("migration"), free_port());
        let socket = None;
        let site = Self { postgres, database, folder, port, socket, authority, directory };
        site.write_files(configuration, root.file(), &own);
        site
    }

    fn write_files(&self, configuration: &str, root: &str, own: &Identity) {
        let read = |file: &str| fs::read_to_string(file).expect("a file of the test's own");
        let (key, certificate) = (read(own.key()), read(own.certificate()));
        let hba = "local all all scram-sha-256\n\
                   hostssl all all 127.0.0.1/32 md5\n\
                   host all all 127.0.0.1/32 md5\n\
                   host all all ::1/128 md5\n";
        let users = "\"alice\" \"alicepw\"\n\"bob\" \"bobpw\"\n\"carol\" \"carolpw\"\n";
        let databases = "[databases]\n{db} = host=127.0.0.1,127.0.0.1 port={pg} dbname={db}\n";
        for (name, text) in [
            ("pgbouncer.ini", configuration),
            ("databases.ini", databases),
            ("hba.conf", hba),
            ("userlist.txt", users),
            ("userlist.pgb", "\"pgb\" \"pgbpw\"\n"),
            ("root.crt", &read(root)),
            ("server.key", &key),
            ("server.crt", &certificate),
            ("pgbench.sql", TRANSACTION),
            ("self.key", &key),
            ("self.crt", &certificate),
        ] {
            let text = text
                .replace("{db}", &self.database)
                .replace("{pg}", &self.postgres.port().to_string())
                .replace("{port}", &self.port.to_string())
                .replace("{dir}", &self.folder.display().to_string())
                .replace("{ldap}", &format!("{} ldaptls=1", directory::url(self.directory.port)));
            let path = self.folder.join(name);
            fs::write(&path, text).expect("our own folder");
            give_away(&path);
        }
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("pgbouncer.ini")
    }

    /// Makes the pooler inherit its socket from now on, as with a socket unit.
    fn listen(&mut self) {
        self.socket = Some(TcpListener::bind(("127.0.0.1", self.port)).expect("a free port"));
    }

    /// Writes what Debian's PgBouncer knows of the configuration.
    fn write_older(&self) -> PathBuf {
        let whole = fs::read_to_string(self.configuration()).expect("our own file");
        let is_known = |line: &&str| !NEWER_LINES.iter().any(|newer| line.starts_with(newer));
        let mut older = whole.lines().filter(is_known).collect::<Vec<_>>().join("\n");
        for word in NEWER_WORDS {
            older = older.replace(word, "");
        }
        let login = OLDER_LOGIN.replace("{dir}", &self.folder.display().to_string());
        let older = older.replace("auth_type = ldap", &login);
        let path = self.folder.join("older.ini");
        fs::write(&path, older + "\n").expect("our own folder");
        give_away(&path);
        path
    }

    /// Starts a pooler and waits until it listens.
    fn start(&self, program: &Path) -> Running {
        self.start_with(program, &self.configuration())
    }

    fn start_with(&self, program: &Path, configuration: &Path) -> Running {
        let (mut command, stdin) = match &self.socket {
            None => (mortal_command(program), Stdio::null()),
            Some(socket) => {
                let mut command = mortal_command("sh");
                command.args(["-c", INHERIT, "inherit"]).arg(program);
                let socket = socket.try_clone().expect("a second handle of the socket");
                (command, OwnedFd::from(socket).into())
            }
        };
        let child = command.current_dir(&self.folder).arg("-q").arg(configuration);
        child.env("LDAPTLS_CACERT", self.authority.file());
        let child = child.stdin(stdin).spawn().expect("the package pgbouncer is installed");
        let mut running = Running { child };
        eventually("the pooler listens", PATIENCE, || {
            let ended = running.child.try_wait().expect("our own child");
            assert_eq!(ended, None, "{}", program.display());
            RawClient::try_connect(self.port).ok()
        });
        running
    }

    fn start_load(&self, user: &str, prepared: &str) -> Load {
        let (port, database) = (self.port, &self.database);
        let url = format!("postgresql://{user}:{user}pw@127.0.0.1:{port}/{database}");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/migrating.py");
        let mut child = Command::new(PYTHON)
            .arg("-B")
            .arg(script)
            .args([&url, prepared])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let protocol = if prepared == "named" { "prepared" } else { "extended" };
        let mut pgbench = Postgres::client_program("pgbench", port, database);
        pgbench.env("PGUSER", user).env("PGPASSWORD", format!("{user}pw"));
        pgbench.args(["-n", "-c", "4", "-j", "2", "-t", "50", "-M", protocol, "-f"]);
        pgbench.arg(self.folder.join("pgbench.sql"));
        Load { user: user.to_owned(), child, answers, pgbench }
    }
}

fn with_password(name: &str, kind: &str) -> String {
    // All statements are in one query, so they run in one session.
    format!("SET password_encryption = '{kind}'; CREATE ROLE {name} LOGIN PASSWORD '{name}pw'")
}

/// A running pooler.
struct Running {
    child: Child,
}

impl Running {
    /// Ends the pooler as systemd does, and waits for its end.
    fn stop(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        support::run(Command::new("kill").args(["-s", "TERM", &pid]));
        poll_until(PATIENCE, || self.child.try_wait().expect("our own child")).expect("its end")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Clients at work: `migrating.py`, and pgbench in each phase in which no pooler is replaced.
struct Load {
    user: String,
    child: Child,
    answers: BufReader<ChildStdout>,
    pgbench: Command,
}

impl Load {
    /// Begins a phase, and waits until each client has worked in it.
    fn phase(&mut self, name: &str) {
        writeln!(self.child.stdin.as_ref().expect("a pipe"), "{name}").expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        assert_eq!(answer.trim_end(), name);
        if name != "moving" {
            let report = support::run(&mut self.pgbench);
            assert!(report.contains("actually processed: 200/200"), "{name}: {report}");
        }
    }

    /// Ends the load. Returns the errors outside of phases "moving".
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let errors = self.answers.by_ref().lines().map_while(Result::ok).collect::<Vec<_>>();
        let status = self.child.wait().expect("our own child");
        assert_eq!(status.success(), errors.is_empty(), "{errors:?}");
        errors.join("\n")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Replaces a running PgBouncer by Weir, and Weir by PgBouncer, whose configuration is `older`.
#[track_caller]
fn move_and_return(site: &Site, older: &Path, old: Running, mut load: Load) {
    load.phase("moving");
    old.stop();
    let new = site.start(testkit::pooler_binary());
    load.phase("Weir");
    let mut others = site.start_load(&load.user, "named");
    others.phase("Weir, named statements");
    assert_eq!(others.end(), "");
    load.phase("moving");
    assert!(new.stop().success());
    let old = site.start_with(Path::new("/usr/sbin/pgbouncer"), older);
    load.phase("PgBouncer again");
    assert_eq!(load.end(), "");
    old.stop();
}

/// Runs PgBouncer, Weir and PgBouncer in turn, with the same file.
#[track_caller]
fn there_and_back(configuration: &str, user: &str) {
    let site = Site::new(configuration);
    check_config(&site);
    let weir = testkit::pooler_binary();
    let old = site.start(Path::new("/usr/sbin/pgbouncer"));
    // Debian's PgBouncer does not support prepared statements in this mode.
    let mut load = site.start_load(user, "unnamed");
    load.phase("PgBouncer");

    let mut refused = mortal_command(weir);
    refused.current_dir(&site.folder).args(["-R", "-q"]).arg(site.configuration());
    assert_eq!(refused.status().expect("weir").code(), Some(1));
    let log = fs::read_to_string(site.folder.join("pgbouncer.log")).expect("the log");
    assert!(log.contains("FATAL the running process is not Weir"), "{log}");
    load.phase("PgBouncer goes on");

    move_and_return(&site, &site.configuration(), old, load);
    assert!(!site.folder.join("pgbouncer.pid").exists());
}

/// Runs PgBouncer, Weir and PgBouncer in turn with a socket of systemd's. No connection is refused:
/// if no process accepts, connections wait in the socket.
#[track_caller]
fn there_and_back_by_socket(configuration: &str, user: &str) {
    let mut site = Site::new(configuration);
    site.listen();
    let old = site.start(Path::new("/usr/sbin/pgbouncer"));
    let mut load = site.start_load(user, "unnamed");
    load.phase("PgBouncer");
    move_and_return(&site, &site.configuration(), old, load);
}

/// Runs PgBouncer, Weir and PgBouncer in turn. Debian's PgBouncer is too old for the file, and runs
/// with what it knows of it.
#[track_caller]
fn there_and_back_from_an_older_one(configuration: &str, user: &str) {
    let site = Site::new(configuration);
    let pgbouncer = "/usr/sbin/pgbouncer";
    let mut too_old = mortal_command(pgbouncer);
    too_old.current_dir(&site.folder).arg("-q").arg(site.configuration());
    assert_ne!(support::run_any(&mut too_old).status.code(), Some(0), "it reads the file");
    check_config(&site);
    let older = site.write_older();
    let old = site.start_with(Path::new(pgbouncer), &older);
    let mut load = site.start_load(user, "unnamed");
    load.phase("PgBouncer");
    move_and_return(&site, &older, old, load);
}

#[track_caller]
fn check_config(site: &Site) {
    let mut command = mortal_command(testkit::pooler_binary());
    command.current_dir(&site.folder).arg("check-config").arg(site.configuration());
    let output = command.output().expect("weir");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&site.database), "{output:?}");
}

#[test]
fn a_file_of_pgbouncer_1_12() {
    if support::only_weir() {
        there_and_back(include_str!("migration/1.12.ini"), "alice");
    }
}

#[test]
fn a_file_of_pgbouncer_1_16_with_rules_and_tls() {
    if support::only_weir() {
        there_and_back(include_str!("migration/1.16.ini"), "bob");
    }
}

#[test]
fn a_socket_that_systemd_listens_on() {
    if support::only_weir() {
        there_and_back_by_socket(include_str!("migration/1.16.ini"), "bob");
    }
}

#[test]
fn a_file_of_pgbouncer_1_19_with_peers_and_an_included_file() {
    if support::only_weir() {
        there_and_back_from_an_older_one(include_str!("migration/1.19.ini"), "alice");
    }
}

#[test]
fn a_file_of_pgbouncer_1_23_with_auth_query_and_tls_from_end_to_end() {
    if support::only_weir() {
        there_and_back_from_an_older_one(include_str!("migration/1.23.ini"), "alice");
    }
}

#[test]
fn a_file_of_the_newest_pgbouncer_with_ldap() {
    if support::only_weir() {
        there_and_back_from_an_older_one(include_str!("migration/newest.ini"), "alice");
    }
}
