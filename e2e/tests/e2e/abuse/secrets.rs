//! Used passwords and keys appear in no output: neither in the log at any verbosity, nor on the
//! console, in errors to clients, or in messages about a broken configuration.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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

/// Collects what other users of the machine see of the process, and what the page of metrics says.
fn look_from_outside(search: &mut Search, pooler: &Pooler, metrics: u16) {
    let arguments = fs::read(format!("/proc/{}/cmdline", pooler.pid())).expect("it runs");
    search.search_text(&String::from_utf8_lossy(&arguments));
    search.search_text(&crate::metrics::page(metrics));
    show_everything(search, pooler);
    search.search_text(&pooler.log());
}

#[test]
fn a_secret_given_in_each_way_is_shown_nowhere_core_strict() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let mut search = Search::default();
    let folder = testkit::open_folder("ways");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("our own folder");
        let mode = if name == "command" { 0o755 } else { 0o600 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
        testkit::give_away(&path);
        path.display().to_string()
    };
    let [in_file, in_variable, printed, listed] =
        [(); 4].map(|()| postgres.role(ServerAuth::Scram));
    for role in [&in_file, &in_variable, &printed, &listed] {
        search.hide("a role's password", &role.password);
    }
    write("password", &format!("{}\n", in_file.password));
    let command = write("command", &format!("#!/bin/sh\necho '{}'\n", printed.password));
    let metrics = testkit::free_port();
    let database = postgres.database();
    let at = |more: String| format!("dbname={database} {more}");
    let pooler = Pooler::before(postgres)
        .in_toml()
        .set("verbose", 3)
        .set("pool_mode", "transaction")
        .set("metrics_port", metrics)
        .secret(&listed.name, &listed.password)
        .environment("CREDENTIALS_DIRECTORY", folder.display())
        .environment("WEIR_TEST_PASSWORD", &in_variable.password)
        .database(
            "in_file",
            &at(format!("user={} password_file=$CREDENTIALS_DIRECTORY/password", in_file.name)),
        )
        .database(
            "in_variable",
            &at(format!("user={} password=${{WEIR_TEST_PASSWORD}}", in_variable.name)),
        )
        .database("printed", &at(format!("user={} password_command={command}", printed.name)))
        .database("listed", &at(format!("user={}", listed.name)))
        .start();
    for (database, role) in [
        ("in_file", &in_file),
        ("in_variable", &in_variable),
        ("printed", &printed),
        ("listed", &listed),
    ] {
        assert_eq!(pooler.client(database).value("SELECT session_user"), role.name);
    }
    look_from_outside(&mut search, &pooler, metrics);
    search.search_command(pooler_command().arg("check-config").arg(pooler.configuration()));
    search.search_command(pooler_command().arg("convert").arg(pooler.configuration()));
    drop(pooler);
    // A password that PostgreSQL refuses, and a program that fails, are told without the secret.
    let wrong = write("command", "#!/bin/sh\necho printed-by-the-program\n");
    search.hide("the output of a program", "printed-by-the-program");
    let pooler = Pooler::before(postgres)
        .set("verbose", 3)
        .set("metrics_port", metrics)
        .database(&database, &format!("user={} password_command={wrong}", printed.name))
        .start();
    let error = pooler.login(Role::APP, &database, "").expect_err("a wrong password");
    assert_eq!(error.code(), "28P01");
    search.search_in(error);
    look_from_outside(&mut search, &pooler, metrics);
    search.finds_nothing();
}

#[test]
fn serve_takes_the_password_from_libpqs_variables_and_shows_it_nowhere_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let mut search = Search::default();
    let role = postgres.role(ServerAuth::Scram);
    search.hide("a role's password", &role.password);
    let (database, port) = (postgres.database(), postgres.port());
    let passfile = testkit::open_folder("passfile").join("pass");
    fs::write(&passfile, format!("127.0.0.1:{port}:*:{}:{}\n", role.name, role.password))
        .expect("our own folder");
    fs::set_permissions(&passfile, fs::Permissions::from_mode(0o600)).expect("our own file");
    testkit::give_away(&passfile);
    let passfile = passfile.display().to_string();
    let url = format!("postgresql://{}@127.0.0.1:{port}/{database}", role.name);
    for own in [("PGPASSWORD", role.password.as_str()), ("PGPASSFILE", &passfile)] {
        for pooler in [
            Pooler::serve_in(postgres, &url, &[own]),
            Pooler::serve_environment(postgres, &[("DATABASE_URL", &url), own]),
        ] {
            let mut client = pooler.login(&role.name, &database, &role.password).expect(own.0);
            assert_eq!(client.value("SELECT session_user"), role.name);
            let arguments = fs::read(format!("/proc/{}/cmdline", pooler.pid())).expect("it runs");
            search.search_text(&String::from_utf8_lossy(&arguments));
            search.search_text(&pooler.log());
        }
    }
    search.finds_nothing();
}
