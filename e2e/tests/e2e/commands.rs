//! Weir's own commands: `serve URL`, `check-config`, `convert`, `help`, `demo`, and PgBouncer's flags.

mod checks;
mod ctl;
mod defaults;
mod demo;

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{self, only_weir, run, run_any};
use testkit::{Pooler, Postgres, Role, ServerAuth, pooler_binary, postgres_program};

fn weir(arguments: &[&str]) -> Output {
    run_any(Command::new(pooler_binary()).args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_version_is_told_in_pgbouncers_way() {
    for flag in ["-V", "--version"] {
        let output = weir(&[flag]);
        assert!(output.status.success());
        assert!(stdout(&output).starts_with("PgBouncer 1."), "{output:?}");
    }
}

#[test]
fn help_exits_with_success() {
    for flag in ["-h", "--help"] {
        let output = weir(&[flag]);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout(&output).contains("CONFIG"), "{output:?}");
    }
}

#[test]
fn a_missing_argument_is_an_error_with_a_hint() {
    if !only_weir() {
        return;
    }
    let output = weir(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no configuration file specified"), "{output:?}");
    assert!(stderr(&output).contains("--help\" for more information."), "{output:?}");
}

#[test]
fn a_configuration_that_is_not_there_is_a_clear_error() {
    if !only_weir() {
        return;
    }
    let output = weir(&["check-config", "/no/such/file.ini"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/no/such/file.ini"), "{output:?}");
}

#[test]
fn check_config_prints_what_it_understood_core() {
    if !only_weir() {
        return;
    }
    let (pooler, database) = support::pooler("transaction");
    let output = weir(&["check-config", &pooler.configuration().to_string_lossy()]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("Pool mode") && text.contains("transaction"), "{text}");
    assert!(text.contains(&database), "{text}");
    assert!(!text.contains(Role::APP_PASSWORD), "a password is printed: {text}");
}

#[test]
fn check_config_names_place_and_nearest_key_of_a_mistake_core() {
    if !only_weir() {
        return;
    }
    let (mut pooler, _) = support::pooler("transaction");
    pooler.reconfigure(|ini| ini.set("pool_mod", "session"));
    let file = pooler.configuration();
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let line = 1 + text.lines().position(|line| line.starts_with("pool_mod ")).expect("the key");
    let output = weir(&["check-config", &file.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    let place = format!("{}:{line}: pool_mod", file.display());
    assert!(stderr(&output).contains(&place), "{output:?}");
    assert!(stderr(&output).contains("pool_mode"), "{output:?}");
}

#[test]
fn check_config_warns_of_a_query_that_depends_on_the_search_path() {
    if !only_weir() {
        return;
    }
    let (mut pooler, _) = support::pooler("transaction");
    let check = |pooler: &Pooler| {
        let output = weir(&["check-config", &pooler.configuration().to_string_lossy()]);
        assert!(output.status.success(), "{output:?}");
        [stdout(&output), stderr(&output)].concat()
    };
    assert!(!check(&pooler).contains("auth_query: names a relation"));
    pooler.reconfigure(|ini| ini.set("auth_query", "SELECT name, secret FROM lookup($1)"));
    assert!(check(&pooler).contains("auth_query: names a relation without its schema"));
}

/// Tests pipes, devices, and files that include each other endlessly.
#[test]
fn a_configuration_that_never_ends_is_refused_at_once() {
    if !only_weir() {
        return;
    }
    let folder = testkit::open_folder("endless");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let tree = folder.join("tree.ini");
    let line = format!("%include {}\n", tree.display());
    std::fs::write(&tree, format!("[pgbouncer]\n{}", line.repeat(100))).expect("our own folder");
    let zero = Path::new("/dev/zero");
    let irregular = "not a regular file";
    // Weir reads thousands of files of the tree before it reaches the limit, here with a debug
    // build.
    for (path, why, limit) in
        [(&*pipe, irregular, 1), (zero, irregular, 1), (&tree, "too many files are included", 5)]
    {
        // Takes the fastest of three runs, since the machine may be busy with other tests.
        let run = || {
            let begun = std::time::Instant::now();
            (weir(&["check-config", &path.to_string_lossy()]), begun.elapsed())
        };
        let runs = [(); 3].map(|()| run());
        let took = runs.iter().map(|(_, took)| *took).min();
        assert!(took.is_some_and(|took| took < std::time::Duration::from_secs(limit)), "{path:?}");
        let [(output, _), ..] = runs;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(why), "{output:?}");
        assert!(stderr(&output).contains(&*path.to_string_lossy()), "{output:?}");
    }
    let keys = ["auth_file", "auth_hba_file", "auth_ident_file"];
    let (mut pooler, database) = support::pooler("transaction");
    for key in keys {
        for path in [&*pipe, zero] {
            let named = folder.join("named.ini");
            let of_key = format!("{key} = {}\n", path.display());
            std::fs::write(&named, format!("[pgbouncer]\nauth_type = hba\n{of_key}"))
                .expect("ours");
            let output = weir(&["check-config", &named.to_string_lossy()]);
            let path = path.to_string_lossy();
            let told = stderr(&output);
            let said = told.lines().find(|line| line.contains(&format!("could not open {key}")));
            let says = |word: &str| said.is_some_and(|line| line.contains(word));
            assert!(says(irregular) && says(&path), "{output:?}");
        }
    }
    let mut console = pooler.console();
    for key in keys {
        for path in [&*pipe, zero] {
            console.query(&format!("SET {key} = '{}'", path.display()));
            assert_eq!(pooler.client(&database).value("SELECT 1"), "1", "{key} {path:?}");
        }
    }
    let unread = pipe.display().to_string();
    pooler.reconfigure(|ini| ini.set("auth_file", &unread));
    pooler.signal("HUP");
    pooler.log_contains(&format!("open auth_file {unread}"));
    assert_eq!(console.query("SHOW VERSION").tags, ["SHOW"]);
}

#[test]
fn convert_prints_a_file_with_which_weir_does_the_same_core() {
    if !only_weir() {
        return;
    }
    let (pooler, _) = support::pooler("transaction");
    let before = pooler.configuration();
    let ini = std::fs::read_to_string(&before).expect("the configuration");
    let main = "[pgbouncer]\n; Who may do what.\nconffile = other.ini\n";
    std::fs::write(&before, ini.replace("[pgbouncer]\n", main)).expect("our own file");
    let output = weir(&["convert", &before.to_string_lossy()]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\n# Who may do what.\n"), "{output:?}");
    let line = 1 + ini.lines().position(|line| line == "[pgbouncer]").expect("the section") + 2;
    let place = format!("{}:{line}: conffile is left out", before.display());
    assert!(stderr(&output).contains(&place), "{output:?}");
    let after = testkit::open_folder("converted").join("weir.toml");
    std::fs::write(&after, &output.stdout).expect("our own folder");
    let meanings = [before, after].map(|file| {
        let output = weir(&["check-config", &file.to_string_lossy()]);
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    });
    assert_eq!(meanings[0], meanings[1]);
    assert_eq!(weir(&["convert", "/no/such/file.ini"]).status.code(), Some(1));
}

#[test]
fn help_explains_a_key_core() {
    if !only_weir() {
        return;
    }
    let output = weir(&["help", "pool_mode"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("transaction"), "{output:?}");
    assert_eq!(weir(&["help", "no_such_key"]).status.code(), Some(1));
}

#[test]
fn serve_with_a_user_lets_only_that_user_in_core_strict() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let pooler = Pooler::serve(postgres, &postgres.url(&database));
    let mut client =
        pooler.login(Role::APP, &database, Role::APP_PASSWORD).expect("the URL's own user");
    assert_eq!(client.value("SELECT current_user"), Role::APP);
    assert!(pooler.login(Role::APP, &database, "wrong").is_err());
    assert!(pooler.login(Role::APP, &database, "").is_err());
    let other = postgres.role(ServerAuth::Trust);
    assert!(pooler.login(&other.name, &database, &other.password).is_err());
    assert!(pooler.login("postgres", &database, "").is_err());
}

#[test]
fn serve_without_a_user_lets_the_server_judge_the_password_core() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let url = format!("postgresql://127.0.0.1:{}/{database}", postgres.port());
    let pooler = Pooler::serve(postgres, &url);
    for role in [ServerAuth::Scram, ServerAuth::Md5].map(|method| postgres.role(method)) {
        // The second login is checked with the salted verifier that was stored at the first.
        for _ in 0..2 {
            let mut client = pooler
                .login(&role.name, &database, &role.password)
                .unwrap_or_else(|e| panic!("{} is refused: {e:?}\n{}", role.name, pooler.log()));
            assert_eq!(client.value("SELECT current_user"), role.name);
            for wrong in ["wrong", ""] {
                assert!(pooler.login(&role.name, &database, wrong).is_err());
            }
        }
    }
    assert!(pooler.login("nobody", &database, "wrong").is_err());
}

#[test]
fn serve_refuses_clients_whose_password_the_server_did_not_ask_for_core_strict() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let url = format!("postgresql://127.0.0.1:{}/{database}", postgres.port());
    let pooler = Pooler::serve(postgres, &url);
    // One server asks for no password. The other asks for it as clear text, and Weir keeps only a
    // salted verifier of it.
    for role in [ServerAuth::Trust, ServerAuth::Password].map(|method| postgres.role(method)) {
        for password in [role.password.as_str(), "wrong", ""] {
            let error = pooler.login(&role.name, &database, password).expect_err("a refusal");
            assert_eq!(error.severity(), "FATAL");
        }
    }
}

#[test]
fn serve_tells_how_to_connect_and_whether_the_server_answers() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let pooler = Pooler::serve(postgres, &postgres.url(&database));
    let answers = format!("server 127.0.0.1, port {} answers: logged in as app", postgres.port());
    pooler.log_contains(&answers);
    // The printed commands work as they are.
    let log = pooler.log();
    let lines: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("    psql ")).collect();
    let [to_database, to_console] = lines[..] else { panic!("{log}") };
    for (line, sql, expected) in [
        (to_database, "SELECT current_database()", &*database),
        (to_console, "SHOW VERSION", "PgBouncer 1."),
        // The user in the URL is an administrator.
        (to_console, "SET query_wait_timeout = 7", "SET"),
    ] {
        let mut psql = Command::new(postgres_program("psql"));
        psql.args(line.split(' ')).args(["-X", "-A", "-t", "-c", sql]);
        let answer = run(psql.env("PGPASSWORD", Role::APP_PASSWORD));
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    assert!(pooler.login(Role::APP, "pgbouncer", "wrong").is_err());
}

#[test]
fn serve_is_told_the_server_by_the_variables_of_a_container_core() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let (url, port) = (postgres.url(&database), postgres.port().to_string());
    let by_parts = [
        ("DB_HOST", "127.0.0.1"),
        ("DB_PORT", &port),
        ("DB_USER", Role::APP),
        ("DB_PASSWORD", Role::APP_PASSWORD),
        ("DB_NAME", &database),
        ("POOL_MODE", "session"),
        ("AUTH_TYPE", "any"),
        ("WEIR_POOL_MOD", "auto"),
    ];
    for (variables, mode) in [(&[("DATABASE_URL", &*url)][..], "auto"), (&by_parts, "session")] {
        let pooler = Pooler::serve_environment(postgres, variables);
        let mut client = pooler.client(&database);
        assert_eq!(client.value("SELECT current_user"), Role::APP);
        assert!(pooler.login(Role::APP, &database, "wrong").is_err());
        let console = pooler.login(Role::APP, "pgbouncer", Role::APP_PASSWORD);
        let rows = console.expect("an admin").rows("SHOW CONFIG");
        let shown = rows.iter().find(|row| row[0].as_deref() == Some("pool_mode"));
        assert_eq!(shown.expect("a key")[1].as_deref(), Some(mode), "{variables:?}");
        if mode == "session" {
            pooler.log_contains("AUTH_TYPE has no effect");
            pooler.log_contains("WEIR_POOL_MOD is not known (did you mean \"WEIR_POOL_MODE\"?)");
        }
    }
}

#[test]
fn health_says_whether_a_pooler_accepts_connections() {
    if !only_weir() {
        return;
    }
    let pooler = Pooler::serve(Postgres::shared(), &Postgres::shared().url("postgres"));
    let port = pooler.port().to_string();
    let health = |host: &str, port: &str| weir(&["health", "-h", host, "-p", port]);
    let answer = health("127.0.0.1", &port);
    assert!(answer.status.success(), "{answer:?}");
    assert_eq!(stdout(&answer), format!("127.0.0.1, port {port}: accepts connections\n"));
    // It is neither a login nor a mistake. The log of a later client comes after all that was logged.
    let _client = pooler.client("postgres");
    pooler.log_contains("login attempt");
    assert_eq!(pooler.log().matches("login attempt").count(), 1, "{}", pooler.log());
    assert!(!pooler.log().contains("closing because"), "{}", pooler.log());
    let closed = testkit::free_port().to_string();
    let missing = testkit::open_folder("health").display().to_string();
    for (host, port) in [("127.0.0.1", &closed), (&*missing, &port)] {
        let answer = health(host, port);
        assert_eq!(answer.status.code(), Some(1), "{answer:?}");
        assert!(stderr(&answer).contains("cannot connect"), "{answer:?}");
    }
}

#[test]
fn serve_says_why_its_server_cannot_be_used() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let closed = testkit::free_port();
    let refused = format!("postgresql://app:wrong@127.0.0.1:{}/postgres", postgres.port());
    for (url, why) in [
        (format!("postgresql://127.0.0.1:{closed}/app"), "Connection refused"),
        (refused, "password authentication failed for user"),
    ] {
        let pooler = Pooler::serve(postgres, &url);
        pooler.log_contains("Weir tries again when a client connects");
        let log = pooler.log();
        let line = log.lines().find(|line| line.contains("cannot be used: connection to server"));
        assert!(line.is_some_and(|line| line.contains(why)), "{log}");
    }
}

#[test]
fn serve_lets_the_server_judge_who_uses_the_console() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let url = format!("postgresql://127.0.0.1:{}/{database}", postgres.port());
    let pooler = Pooler::serve(postgres, &url);
    pooler.log_contains("answers, and asks clients for their passwords");
    let [usual, superuser] = [(); 2].map(|()| postgres.role(ServerAuth::Scram));
    postgres.sql("postgres", &format!("ALTER ROLE {} SUPERUSER", superuser.name));
    let console = |role: &Role, password: &str| pooler.login(&role.name, "pgbouncer", password);
    let mut client = console(&usual, &usual.password).expect("the password is right");
    assert_eq!(client.query("SHOW POOLS").tags, ["SHOW"]);
    let refused = client.query("SET query_wait_timeout = 7").error.expect("SHOW only");
    assert_eq!(refused.message(), "admin access needed");
    let mut client = console(&superuser, &superuser.password).expect("the password is right");
    assert_eq!(client.query("SET query_wait_timeout = 7").tags, ["SET query_wait_timeout=7"]);
    for wrong in ["wrong", "", &superuser.password] {
        assert!(console(&usual, wrong).is_err());
    }
    let (old, new) = (&superuser.password, "changed");
    let change = format!("ALTER ROLE {} NOSUPERUSER PASSWORD '{new}'", superuser.name);
    postgres.sql("postgres", &change);
    assert!(console(&superuser, old).is_err(), "the password was right before");
    let mut client = console(&superuser, new).expect("the new password is right");
    let refused = client.query("SET query_wait_timeout = 7").error.expect("SHOW only");
    assert_eq!(refused.message(), "admin access needed");
}
