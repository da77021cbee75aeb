//! `password_command`: short-lived passwords to servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support;
use testkit::{
    Pooler, Postgres, RawClient, Role, ServerAuth, Setup, eventually, frontend, give_away,
    open_folder, postgres_program,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that changes the password of a role in PostgreSQL and prints the new one, for some
/// seconds. Files in its folder say what it does, and count its runs.
struct Issuer {
    folder: PathBuf,
    role: Role,
}

impl Issuer {
    fn new(postgres: &Postgres, seconds: u32) -> Self {
        let (folder, role) = (open_folder("issuer"), postgres.role(ServerAuth::Scram));
        let own = Self { folder, role };
        let psql = postgres_program("psql");
        let (psql, socket, port) =
            (psql.display(), postgres.socket_folder().display(), postgres.port());
        let (home, name) = (own.folder.display(), &own.role.name);
        let script = format!(
            "#!/bin/sh\n\
             cd '{home}'\n\
             n=$(($(cat runs) + 1))\n\
             echo $n > runs.new && mv runs.new runs\n\
             case $(cat mode) in\n\
             fails) echo secret-of-the-output; echo secret-of-the-errors >&2; exit 3;;\n\
             hangs) sleep 600;;\n\
             waits) until [ -e go ]; do sleep 0.05; done;;\n\
             chatters) yes secret-of-the-output;;\n\
             silent) exit 0;;\n\
             esac\n\
             '{psql}' -X -q -h '{socket}' -p {port} -U postgres -d postgres >/dev/null 2>&1 <<END || exit 4\n\
             SELECT format('ALTER ROLE {name} PASSWORD %L VALID UNTIL %L', 'token-$n', \
             now() + '{seconds} s') \\gexec\n\
             END\n\
             echo token-$n\n"
        );
        own.write("runs", "0");
        own.does("works");
        own.program("issue", &script);
        own
    }

    fn program(&self, name: &str, script: &str) {
        self.write(name, script);
        let permissions = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.folder.join(name), permissions).expect("our own file");
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("our own folder");
        give_away(&path);
    }

    /// Sets what the next runs do.
    fn does(&self, mode: &str) {
        self.write("mode", mode);
    }

    fn runs(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("runs"));
        text.expect("its file").trim().parse().expect("a number")
    }

    fn until_run(&self, count: u64) {
        eventually("the program has run", PATIENCE, || (self.runs() >= count).then_some(()));
    }

    /// Returns the settings of a database.
    fn entry(&self, lifetime: u32) -> String {
        let (role, path) = (&self.role.name, self.folder.display());
        format!("user={role} password_command='{path}/issue' password_lifetime={lifetime}")
    }
}

/// A database whose password the issuer prints.
fn setup(postgres: &Postgres, issuer: &Issuer, lifetime: u32) -> (Setup, String) {
    let database = postgres.database();
    let setup = Pooler::before(postgres)
        .set("pool_mode", "transaction")
        .set("server_login_retry", 1)
        .database(&database, &issuer.entry(lifetime));
    (setup, database)
}

/// Clients that never rest: half of them keep their connections, and half log in for each query. Each
/// error is a panic.
fn under_load(pooler: &Pooler, database: &str, meanwhile: impl FnOnce(&AtomicU64)) {
    let (ends, queries) = (AtomicBool::new(false), AtomicU64::new(0));
    let (ends, queries) = (&ends, &queries);
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let mut client = pooler.client(database);
                while !ends.load(Ordering::Acquire) {
                    if number % 2 == 0 {
                        client = pooler.client(database);
                    }
                    assert_eq!(client.query("BEGIN").tags, ["BEGIN"]);
                    assert_eq!(client.value("SELECT 1"), "1");
                    assert_eq!(client.query("COMMIT").tags, ["COMMIT"]);
                    queries.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        // A failure must end the clients, too.
        struct AtEnd<'a>(&'a AtomicBool);
        impl Drop for AtEnd<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _end = AtEnd(ends);
        meanwhile(queries);
    });
}

/// Opens transactions until the pool needs another server, which logs in with the latest password.
fn needs_a_server(pooler: &Pooler, postgres: &Postgres, database: &str) {
    let before = postgres.backends(database);
    let mut clients = Vec::new();
    eventually("another server is open", PATIENCE, || {
        let mut client = pooler.client(database);
        assert_eq!(client.query("BEGIN").tags, ["BEGIN"]);
        assert_eq!(client.value("SELECT 1"), "1");
        clients.push(client);
        postgres.backends(database).iter().any(|server| !before.contains(server)).then_some(())
    });
    for mut client in clients {
        assert_eq!(client.query("COMMIT").tags, ["COMMIT"]);
    }
}

/// Waits until these servers are closed, whose password ends. Servers are replaced when a later
/// password is known to be right, so each run is followed by a login.
fn until_replaced(
    pooler: &Pooler,
    postgres: &Postgres,
    issuer: &Issuer,
    database: &str,
    servers: &[u32],
) {
    let mut runs = 0;
    eventually("the servers of the old password are closed", PATIENCE, || {
        if std::mem::replace(&mut runs, issuer.runs()) < issuer.runs() {
            needs_a_server(pooler, postgres, database);
        }
        let now = postgres.backends(database);
        (!servers.iter().any(|server| now.contains(server))).then_some(())
    });
}

#[test]
fn tokens_of_five_seconds_are_renewed_under_load_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 5);
    let (setup, database) = setup(postgres, &issuer, 5);
    let pooler = setup.start();
    issuer.until_run(1);
    under_load(&pooler, &database, |queries| {
        for generation in 2..5 {
            let before = postgres.backends(&database);
            issuer.until_run(generation);
            until_replaced(&pooler, postgres, &issuer, &database, &before);
        }
        let done = queries.load(Ordering::Acquire);
        eventually("clients go on", PATIENCE, || {
            (queries.load(Ordering::Acquire) > done + 100).then_some(())
        });
    });
    // Some hundred logins of clients and some dozen of servers.
    assert!(issuer.runs() < 30, "{} runs", issuer.runs());
    let log = pooler.log();
    assert!(!log.contains("password_command of"), "a run has failed:\n{log}");
    assert!(!log.contains("takes too long"), "a login has waited in vain:\n{log}");
}

#[test]
fn one_run_serves_all_logins_that_wait_for_it() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    issuer.does("waits");
    let (setup, database) = setup(postgres, &issuer, 600);
    let pooler = setup.start();
    issuer.until_run(1);
    let mut clients: Vec<RawClient> = (0..8).map(|_| RawClient::connect(pooler.port())).collect();
    for client in &mut clients {
        client.send(frontend::startup(&[("user", Role::APP), ("database", &database)]));
    }
    eventually("the clients wait", PATIENCE, || {
        (pooler.pool_sums(&database, ["cl_waiting"]) == [8]).then_some(())
    });
    assert!(postgres.backends(&database).is_empty());
    issuer.write("go", "");
    for client in &mut clients {
        client.read_to_ready();
        assert_eq!(client.value("SELECT session_user"), issuer.role.name);
    }
    assert_eq!(issuer.runs(), 1);
}

#[test]
fn logins_go_on_with_the_last_password_while_the_program_fails_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    let (setup, database) = setup(postgres, &issuer, 2);
    let port = testkit::free_port();
    let pooler = setup.set("metrics_port", port).start();
    let mut client = pooler.client(&database);
    for (mode, why) in [
        ("fails", "exit status: 3"),
        ("silent", "it has printed no password"),
        ("chatters", "its output is longer than 16384 bytes"),
        ("hangs", "it did not end within 2 s"),
    ] {
        issuer.does(mode);
        pooler.log_contains(&format!("password_command of {database} failed: {why}"));
        // The end of the last password does not matter as long as there is no other one.
        let before = postgres.backends(&database);
        pooler.admin("RECONNECT");
        assert_eq!(client.value("SELECT 1"), "1");
        // A backend ends a little later than its connection.
        eventually("new servers only", PATIENCE, || {
            let now = postgres.backends(&database);
            (!now.iter().any(|server| before.contains(server))).then_some(())
        });
    }
    pooler.log_contains("servers log in with the last password, which has ended");
    let page = crate::metrics::page(port);
    let failures = format!("weir_password_command_failures_total{{database=\"{database}\"}} ");
    let failures = page.lines().find_map(|line| line.strip_prefix(&failures));
    assert!(failures.expect("a row").parse::<u64>().expect("a number") >= 4, "{page}");
    issuer.does("works");
    pooler.log_contains(&format!("password_command of {database} works again"));
    assert_eq!(client.value("SELECT 1"), "1");
    let told = pooler.log() + &page;
    assert!(!told.contains("secret-of") && !told.contains("token-"), "{told}");
}

#[test]
fn without_a_first_password_clients_wait_and_new_ones_are_told() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    issuer.does("fails");
    let (setup, database) = setup(postgres, &issuer, 600);
    let pooler = setup.start();
    let mut client = RawClient::connect(pooler.port());
    client.send(frontend::startup(&[("user", Role::APP), ("database", &database)]));
    pooler.log_contains("no server can be opened until it works");
    eventually("another client is told", PATIENCE, || {
        let mut late = RawClient::connect(pooler.port());
        late.set_timeout(Duration::from_millis(200));
        let error = late.authenticate(&[("user", Role::APP), ("database", &database)], "");
        let said = error.err()?.message().to_owned();
        said.contains("password_command failed").then_some(())
    });
    issuer.does("works");
    client.read_to_ready();
    assert_eq!(client.value("SELECT session_user"), issuer.role.name);
}

#[test]
fn a_reload_takes_the_program_away_and_brings_it_back() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    let (setup, database) = setup(postgres, &issuer, 1);
    let mut pooler = setup.start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT session_user"), issuer.role.name);
    let port = postgres.port();
    let fixed = format!("host=127.0.0.1 port={port} user={} password=app-secret", Role::APP);
    let fixed = fixed.replace("app-secret", Role::APP_PASSWORD);
    let first = postgres.backends(&database);
    pooler.reconfigure(|ini| ini.database(&database, &fixed));
    pooler.reload();
    eventually("the servers of the program are closed", PATIENCE, || {
        let now = postgres.backends(&database);
        (!first.iter().any(|server| now.contains(server))).then_some(())
    });
    let runs = issuer.runs();
    pooler.reconfigure(|ini| {
        let entry = format!("host=127.0.0.1 port={port} {}", issuer.entry(1));
        ini.database(&database, &entry);
    });
    pooler.reload();
    issuer.until_run(runs + 1);
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn the_program_gets_a_clean_environment_and_no_shell_core() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    let folder = issuer.folder.display();
    // The shell of this script sets PWD, SHLVL and _.
    issuer.program(
        "issue",
        &format!(
            "#!/bin/sh\ncd '{folder}'\ntr '\\0' '\\n' </proc/self/environ >environment\n\
             printf '%s\\n' \"$@\" >arguments\nls -l /proc/self/fd >descriptors\n\
             echo '{}'\n",
            issuer.role.password
        ),
    );
    let database = postgres.database();
    let role = &issuer.role.name;
    let entry = format!("user={role} password_command='{folder}/issue \"a  b\" $HOME;x'");
    let setup = Pooler::before(postgres).database(&database, &entry);
    let pooler = setup.environment("WEIR_TEST_SECRET", "of the pooler").start();
    let mut client = pooler.client(&database);
    assert_eq!(&client.value("SELECT session_user"), role);
    let read = |name| fs::read_to_string(issuer.folder.join(name)).expect("the program has run");
    assert_eq!(read("arguments"), "a  b\n$HOME;x\n");
    for line in read("environment").lines() {
        let name = line.split('=').next().expect("a name");
        let known = ["PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_"];
        assert!(known.contains(&name), "{line}");
    }
    for line in read("descriptors").lines() {
        assert!(!line.contains("socket:") && !line.contains("anon_inode:"), "{line}");
    }
}

#[test]
fn an_online_restart_keeps_clients_of_short_lived_passwords() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 5);
    let (setup, database) = setup(postgres, &issuer, 5);
    let mut pooler = setup.start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    let before = postgres.backends(&database);
    assert!(pooler.take_over().success());
    until_replaced(&pooler, postgres, &issuer, &database, &before);
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn an_online_restart_keeps_the_password_while_the_program_fails() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    let (setup, database) = setup(postgres, &issuer, 600);
    let mut pooler = setup.start();
    let mut client = pooler.client(&database);
    assert_eq!(client.value("SELECT 1"), "1");
    issuer.does("fails");
    assert!(pooler.take_over().success());
    pooler.log_contains("servers log in with the last password, which ends in 5");
    let before = postgres.backends(&database);
    needs_a_server(&pooler, postgres, &database);
    assert_eq!(client.value("SELECT 1"), "1");
    let now = postgres.backends(&database);
    assert!(before.iter().all(|server| now.contains(server)), "they need not be replaced");
    assert!(!pooler.log().contains("token-"), "{}", pooler.log());
}

#[test]
fn databases_with_one_program_do_not_make_each_other_try_again() {
    if !support::only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let issuer = Issuer::new(postgres, 600);
    let folder = issuer.folder.display();
    let script = format!(
        "#!/bin/sh\ncd '{folder}'\nn=$(($(cat runs) + 1))\necho $n > runs.new && mv runs.new runs\n\
         echo wrong-$n\n"
    );
    issuer.program("issue", &script);
    let databases = [postgres.database(), postgres.database()];
    let mut setup = Pooler::before(postgres).set("server_login_retry", 60);
    for database in &databases {
        setup = setup.database(database, &issuer.entry(600));
    }
    let pooler = setup.start();
    let begin = Instant::now();
    let mut refused = 0;
    // Clients come all the time.
    while begin.elapsed() < Duration::from_secs(5) {
        for database in &databases {
            let mut client = RawClient::connect(pooler.port());
            let error = client.authenticate(&[("user", Role::APP), ("database", database)], "");
            let said = error.expect_err("no password is right").message().to_owned();
            refused += u32::from(said.contains("password authentication failed"));
        }
    }
    assert!(refused > 10, "{refused}");
    // The first one, and one for the repeated login of each database.
    assert!(issuer.runs() <= 3, "{} runs", issuer.runs());
}

#[test]
fn the_console_sets_no_key_that_runs_a_program_or_reads_a_file_core() {
    if !support::only_weir() {
        return;
    }
    let (pooler, _) = support::pooler("transaction");
    for key in ["password_command", "password_file", "fence_command", "patroni_key_file"] {
        assert!(pooler.try_admin(&format!("SET {key} = '/bin/true'")).error.is_some());
        pooler.log_contains(&format!(
            "{key} runs a program or reads a file: it is set in the configuration file only"
        ));
    }
}
