//! Used passwords and keys appear in no output: neither in the log at any verbosity, nor on the
//! console, in errors to clients, or in messages about a broken configuration.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::support;
use testkit::{Authority, Pooler, Postgres, RawClient, Role, ServerAuth, Verifier, frontend};

/// Every SHOW command of the console.
const SHOWS: [&str; 26] = [
    "ACTIVE_SOCKETS",
    "CLIENTS",
    "CONFIG",
    "DATABASES",
    "DNS_HOSTS",
    "DNS_ZONES",
    "FDS",
    "HELP",
    "LISTS",
    "MEM",
    "PEERS",
    "PEER_POOLS",
    "POOLS",
    "SERVERS",
    "SOCKETS",
    "STATE",
    "STATS",
    "STATS_AVERAGES",
    "STATS_TOTALS",
    "TOTALS",
    "USERS",
    "VERSION",
    "PREPARED_STATEMENTS",
    "EVERYTHING",
    "PASSWORDS",
    "KEYS",
];

/// Secrets that must not be found, each with a name that may be printed, and all output.
#[derive(Default)]
struct Search {
    secrets: Vec<(String, String)>,
    said: String,
}

impl Search {
    fn hide(&mut self, name: &str, secret: &str) {
        assert!(secret.len() > 7, "{name} would be found by chance");
        self.secrets.push((name.to_owned(), secret.to_owned()));
    }

    /// Adds the parts of a stored secret that reveal more than its format.
    fn hide_verifier(&mut self, name: &str, verifier: &str) {
        let parts = verifier.trim_start_matches("md5").split(['$', ':']);
        for part in parts.filter(|part| part.len() > 15 && !part.starts_with("SCRAM")) {
            self.hide(name, part);
        }
    }

    fn search_in(&mut self, said: impl std::fmt::Debug) {
        self.search_text(&format!("{said:?}"));
    }

    fn search_text(&mut self, said: &str) {
        self.said.push_str(said);
        self.said.push('\n');
    }

    fn search_command(&mut self, command: &mut Command) {
        let output = support::run_any(command);
        self.search_text(&String::from_utf8_lossy(&output.stdout));
        self.search_text(&String::from_utf8_lossy(&output.stderr));
    }

    #[track_caller]
    fn finds_nothing(&self) {
        for (name, secret) in &self.secrets {
            if let Some(line) = self.said.lines().find(|line| line.contains(secret)) {
                panic!("{name} came out:\n{line}");
            }
        }
    }
}

fn pooler_command() -> Command {
    testkit::mortal_command(testkit::pooler_binary())
}

fn log_in(search: &mut Search, pooler: &Pooler, user: &str, database: &str, password: &str) {
    match pooler.login(user, database, password) {
        Ok(mut client) => {
            search.search_in(client.query("SELECT current_user, 1/0"));
            search.search_in(client.query("SHOW ALL"));
        }
        Err(error) => search.search_in(error),
    }
}

/// Collects all tables of the console, as an administrator sees them.
fn show_everything(search: &mut Search, pooler: &Pooler) {
    let mut console = pooler.console();
    for show in SHOWS {
        search.search_in(console.query(&format!("SHOW {show}")));
    }
    for command in ["SET auth_ldap_options = 'ldapbindpasswd=\"open sesame 7\"'", "RELOAD"] {
        search.search_in(console.query(command));
    }
    search.search_in(console.query("SHOW CONFIG"));
}

#[test]
fn logs_and_errors_of_logins_contain_no_password_and_no_key_core_strict() {
    // PgBouncer's log contains them at the highest verbosity.
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let mut search = Search::default();
    search.hide("a setting of the console", "open sesame 7");
    search.hide("the password of app", Role::APP_PASSWORD);
    search.hide("the password of admin", "admin-secret");
    search.hide("a wrong password", "not-the-right-one");
    let authority = Authority::new("weir test");
    let own = authority.server();
    let key = fs::read_to_string(own.key()).expect("our own file");
    for line in key.lines().filter(|line| !line.starts_with('-')) {
        search.hide("the TLS key", line);
    }
    for auth_type in ["plain", "md5", "scram-sha-256", "trust"] {
        let md5 = postgres.role(ServerAuth::Md5);
        let scram = postgres.role_with(ServerAuth::Scram, Verifier::Scram);
        let clear = postgres.role(ServerAuth::Password);
        let forced = postgres.role(ServerAuth::Scram);
        let asked = postgres.role(ServerAuth::Scram);
        let (setup, database) = crate::auth::query::setup(auth_type);
        let mut setup = setup
            .set("verbose", 3)
            // Some clients wait for a server that cannot be opened with the data that they gave.
            .set("client_login_timeout", 2)
            .set("auth_failure_delay", 0)
            .set("client_tls_sslmode", "allow")
            .set("client_tls_cert_file", own.certificate())
            .set("client_tls_key_file", own.key())
            .secret(&clear.name, &clear.password)
            .database_at(
                "forced",
                &format!(
                    "host=127.0.0.1 port={} dbname={database} user={} password='{}'",
                    postgres.port(),
                    forced.name,
                    forced.password
                ),
            );
        for role in [&md5, &scram] {
            setup = setup.secret(&role.name, &role.verifier);
        }
        let pooler = setup.start();
        for role in [&md5, &scram, &clear, &asked] {
            search.hide("a role's password", &role.password);
            search.hide_verifier("a role's verifier", &role.verifier);
            log_in(&mut search, &pooler, &role.name, &database, &role.password);
            log_in(&mut search, &pooler, &role.name, &database, "not-the-right-one");
            log_in(&mut search, &pooler, &role.name, "no_such_db", &role.password);
            log_in(&mut search, &pooler, &role.name, "forced", &role.password);
        }
        search.hide("the forced user's password", &forced.password);
        log_in(&mut search, &pooler, "nobody", &database, "not-the-right-one");
        send_misplaced_passwords(&mut search, &pooler, &clear, &database);
        show_everything(&mut search, &pooler);
        search.search_command(
            pooler
                .client_program("psql", &database)
                .env("PGHOST", "localhost")
                .env("PGSSLMODE", "require")
                .args(["-XAtc", "SELECT 1"]),
        );
        search.search_text(&pooler.log());
    }
    search.finds_nothing();
}

/// Sends passwords in messages where they do not belong, and in the wrong order.
fn send_misplaced_passwords(search: &mut Search, pooler: &Pooler, role: &Role, database: &str) {
    let startup = frontend::startup(&[("user", &role.name), ("database", database)]);
    let password = frontend::password(&role.password);
    let early = password.clone();
    let twice = [startup.clone(), password.clone(), password.clone()].concat();
    let as_query = [startup.clone(), frontend::query(&role.password)].concat();
    for bytes in [early, twice, as_query] {
        let mut client = RawClient::connect(pooler.port());
        let _ = client.try_send(&bytes);
        client.shutdown_write();
        search.search_text(&client.read_raw_to_end().escape_ascii().to_string());
    }
}

#[test]
fn messages_about_a_broken_configuration_contain_no_password_core_strict() {
    if !support::only_weir() {
        return;
    }
    let mut search = Search::default();
    search.hide("a password", "open-sesame-1");
    search.hide("what stands behind a blank of one", "behind-the-blank-1");
    search.hide("a line of the auth_file", "in-the-file-1");
    let folder = testkit::open_folder("secrets");
    let ini = |lines: &str| {
        let path = folder.join("broken.ini");
        fs::write(&path, lines).expect("our own folder");
        path
    };
    let userlist = folder.join("userlist.txt");
    let check = |search: &mut Search, path: &Path| {
        search.search_command(pooler_command().arg("check-config").arg(path));
        search.search_command(pooler_command().arg(path));
    };
    for connection in [
        "host=x password=open-sesame-1 behind-the-blank-1",
        "host=x password=open-sesame-1 behind-the-blank-1=y",
        "host=x password='open-sesame-1",
        "host=x password='open-sesame-1' nonsense=1",
        "host=x pasword=open-sesame-1",
        "host=x port=nowhere password=open-sesame-1",
        "open-sesame-1",
    ] {
        let text = format!("[databases]\nd = {connection}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n");
        check(&mut search, &ini(&text));
    }
    for key in [
        "auth_ldap_options = ldapbindpasswd=open-sesame-1 nonsense",
        "auth_type = open",
        "nonsense",
    ] {
        check(&mut search, &ini(&format!("[pgbouncer]\nlisten_port = nowhere\n{key}\n")));
    }
    for line in [
        "\"u\" \"in-the-file-1",
        "\"u\" in-the-file-1",
        "u in-the-file-1",
        "\"u\"\"in-the-file-1\"",
    ] {
        fs::write(&userlist, format!("{line}\n")).expect("our own folder");
        let text = format!(
            "[databases]\nd = host=x nonsense=1\n[pgbouncer]\nauth_file = {}\n",
            userlist.display()
        );
        check(&mut search, &ini(&text));
    }
    for url in [
        "postgresql://u:open-sesame-1@127.0.0.1:99999/",
        "postgresql://u:open-sesame-1@127.0.0.1/?nonsense=1",
        "postgres://u:open-sesame-1@@:nowhere/",
        "http://u:open-sesame-1@127.0.0.1/",
        "u:open-sesame-1@127.0.0.1",
    ] {
        search.search_command(pooler_command().args(["serve", url]));
    }
    let toml = folder.join("weir.toml");
    for text in [
        "[databases.d]\nhost = \"x\"\npassword = 'open-sesame-1\n",
        "[databases.d]\nhost = \"x\"\npassword = [\"open-sesame-1\"]\n",
        "[databases.d]\nhost = \"x\"\npasword = \"open-sesame-1\"\n",
        "[databases.d]\nhost = \"x\"\npassword = \"open-sesame-1\" behind-the-blank-1\n",
    ] {
        fs::write(&toml, text).expect("our own folder");
        check(&mut search, &toml);
    }
    search.finds_nothing();
}

#[test]
fn a_tls_key_that_cannot_be_used_is_not_shown_strict() {
    if !support::only_weir() {
        return;
    }
    let authority = Authority::new("weir test");
    let own = authority.server();
    let key = fs::read_to_string(own.key()).expect("our own file");
    let secret = key.lines().nth(1).expect("a key has lines").to_owned();
    let damaged = key.replace("-----BEGIN PRIVATE KEY-----\n", "-----BEGIN PRIVATE KEY-----\n!");
    fs::write(own.key(), damaged).expect("our own file");
    let (setup, _) = support::setup("transaction");
    let setup = setup
        .set("client_tls_sslmode", "require")
        .set("client_tls_cert_file", own.certificate())
        .set("client_tls_key_file", own.key());
    let refused = std::panic::catch_unwind(|| drop(setup.start())).expect_err("it starts");
    let why = refused.downcast_ref::<String>().expect("it says why");
    assert!(why.contains("client_tls_key_file") && !why.contains(&secret), "{why}");
}

#[test]
fn only_root_can_read_the_memory_of_the_process_core_strict() {
    if !support::only_weir() {
        return;
    }
    let owner = |pooler: &Pooler| {
        fs::metadata(format!("/proc/{}/environ", pooler.pid())).expect("it runs").uid()
    };
    // /proc files of a process that the kernel does not allow to be dumped belong to root
    // (proc(5)).
    let (setup, database) = support::setup("transaction");
    let closed = setup.start();
    assert_eq!(owner(&closed), 0);
    assert_eq!(closed.client(&database).value("SELECT 1"), "1");
    let (setup, _) = support::setup("transaction");
    let open = setup.set("core_dumps", 1).start();
    assert_ne!(owner(&open), 0, "the operator wanted it open");
}
