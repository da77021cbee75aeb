//! `check-config`: it finds mistakes that would prevent a start, and names their place.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{stderr, stdout};
use crate::support::{only_weir, run_any};
use testkit::{Postgres, Role, mortal_command, open_folder, pooler_binary};

/// Writes a configuration with these `[databases]` lines and further keys, in a folder of its own.
fn file(databases: &str, keys: &str) -> (PathBuf, PathBuf) {
    let folder = open_folder("checks");
    let text = format!(
        "[databases]\n{databases}\n[pgbouncer]\nunix_socket_dir =\nauth_type = trust\n\
         auth_file = FOLDER/users\n{keys}\n"
    );
    let path = folder.join("weir.ini");
    let text = text.replace("FOLDER", &folder.display().to_string());
    fs::write(&path, text).expect("our own folder");
    let users = format!("\"{}\" \"{}\"\n", Role::APP, Role::APP_PASSWORD);
    fs::write(folder.join("users"), users).expect("our own folder");
    fs::set_permissions(folder.join("users"), Permissions::from_mode(0o644)).expect("our own file");
    (folder, path)
}

fn check(flags: &[&str], path: &Path) -> Output {
    run_any(mortal_command(pooler_binary()).arg("check-config").args(flags).arg(path))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Each line is a mistake that prevents a start. The last word of it must be in the error.
#[test]
fn check_config_finds_what_would_stop_a_start() {
    if !only_weir() {
        return;
    }
    let port = free_port();
    for (keys, place, what) in [
        ("client_tls_sslmode = require", "client_tls_sslmode", "client_tls_key_file"),
        ("logfile = /nonexistent/log", "logfile", "No such file or directory"),
        ("pidfile = /nonexistent/pid", "pidfile", "No such file or directory"),
        ("unix_socket_dir = /nonexistent", "unix_socket_dir", "No such file or directory"),
        ("listen_addr = 192.0.2.1", "listen_addr", "192.0.2.1"),
        ("user = no-such-user", "user", "could not find user 'no-such-user'"),
    ] {
        let listen = if keys.contains("listen_addr") { "" } else { "listen_addr = 127.0.0.1\n" };
        let (_, path) =
            file("app = host=127.0.0.1 port=1", &format!("{listen}listen_port = {port}\n{keys}"));
        let output = check(&[], &path);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{keys}: {text}");
        let line = 1 + fs::read_to_string(&path)
            .expect("our own file")
            .lines()
            .position(|line| line == keys)
            .expect("the key");
        let expected = format!("error: {}:{line}: {place}: ", path.display());
        let found = text.lines().find(|line| line.starts_with(&expected));
        assert!(found.is_some_and(|found| found.contains(what)), "{keys}: {text}");
        assert!(text.contains("Weir does not start"), "{text}");
        // The mistake does prevent a start.
        let started = run_any(mortal_command(pooler_binary()).arg(&path));
        assert_eq!(started.status.code(), Some(1), "{keys}: {started:?}");
    }
}

#[test]
fn check_config_fails_at_a_warning_if_strict_is_given() {
    if !only_weir() {
        return;
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let (folder, path) = file(
        "app = host=127.0.0.1 port=1",
        &format!("listen_addr = 127.0.0.1\nlisten_port = {port}"),
    );
    let users = folder.join("users").display().to_string();
    let readable = format!("every user of this machine can read plain passwords in {users}");
    let busy = format!("127.0.0.1:{port} is in use");
    let output = check(&[], &path);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for expected in [&*readable, &busy, "2 warnings; Weir starts"] {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(check(&["--strict"], &path).status.code(), Some(1));

    drop(taken);
    fs::set_permissions(folder.join("users"), Permissions::from_mode(0o640)).expect("our own file");
    // Root can read the file; the unprivileged user of the test could not.
    let output = run_any(Command::new(pooler_binary()).arg("check-config").arg(&path));
    assert!(!stderr(&output).contains("every user"), "{output:?}");
    assert!(!stderr(&output).contains("is in use"), "{output:?}");
}

#[test]
fn rules_that_let_nobody_in_are_told() {
    if !only_weir() {
        return;
    }
    let keys = format!("listen_addr = 127.0.0.1\nlisten_port = {}", free_port());
    let (folder, path) = file("app = host=127.0.0.1 port=1", &keys);
    let text = fs::read_to_string(&path).expect("our own file");
    fs::write(&path, text.replace("auth_type = trust", "auth_type = hba")).expect("our own file");
    let told = |output: &Output| stderr(output).contains("auth_type is hba and there is no rule");
    assert!(told(&check(&[], &path)));
    let rules = folder.join("rules");
    fs::write(&rules, "host all all all scram-sha-256\n").expect("our own folder");
    let text = fs::read_to_string(&path).expect("our own file");
    fs::write(&path, format!("{text}auth_hba_file = {}\n", rules.display())).expect("our file");
    assert!(!told(&check(&[], &path)));
}

#[test]
fn check_config_logs_in_to_each_database() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let there = format!("host=127.0.0.1 port={}", postgres.port());
    let keys = format!("listen_addr = 127.0.0.1\nlisten_port = {}", free_port());
    let (_, path) = file(&format!("{database} = {there}"), &keys);
    let output = check(&["--connect"], &path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = format!("  {database}: logged in as {} at 127.0.0.1:", Role::APP);
    assert!(stdout(&output).contains(&expected), "{output:?}");
    let allows =
        format!("port {}: 1 pool with at most 20 connections; it allows ", postgres.port());
    assert!(stdout(&output).contains(&allows), "{output:?}");

    let gone = free_port();
    let lines = format!(
        "{database} = {there} pool_size=9000\nother = {there} dbname=no_such_database\n\
         gone = host=127.0.0.1 port={gone}"
    );
    let (_, path) = file(&lines, &keys);
    let output = check(&["--connect"], &path);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = |number: u32, name: &str| format!("{}:{number}: databases.{name}: ", path.display());
    for expected in [
        format!("{}connection to server at \"127.0.0.1\", port {gone} failed", line(4, "gone")),
        "database \"no_such_database\" does not exist".to_owned(),
        format!("port {}: 2 pools with at most 9020 connections; it allows ", postgres.port()),
    ] {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    // The word "error" is for mistakes that prevent a start.
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("failed: "), count("error: ")), (2, 0), "{text}");
    assert!(text.contains("2 failed, "), "{text}");
    assert!(text.contains("; Weir starts, but cannot use these databases"), "{text}");
}

/// Replaces the users of [`file`].
fn set_users(folder: &Path, users: &[(&str, &str)]) {
    let lines: String =
        users.iter().map(|(name, secret)| format!("\"{name}\" \"{secret}\"\n")).collect();
    fs::write(folder.join("users"), lines).expect("our own folder");
}

#[test]
fn check_config_tries_no_user_of_the_console() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let there = format!("host=127.0.0.1 port={}", postgres.port());
    let keys = format!(
        "listen_addr = 127.0.0.1\nlisten_port = {}\nadmin_users = aaa_admin\n\
         stats_users = aab_stats\ndefault_pool_size = 7",
        free_port()
    );
    let app = (Role::APP, Role::APP_PASSWORD);
    let console = [("aaa_admin", "never-sent"), ("aab_stats", "never-sent")];
    let said = |lines: &str, keys: &str, users: &[(&str, &str)]| {
        let (folder, path) = file(lines, keys);
        set_users(&folder, users);
        let output = check(&["--connect"], &path);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!stderr(&output).starts_with("failed: "), "{output:?}");
        (stdout(&output), stderr(&output))
    };
    let line = format!("{database} = {there}");

    // The console's users come first in the file, and need no servers.
    let (text, _) = said(&line, &keys, &[console[0], console[1], app]);
    assert!(text.contains(&format!("{database}: logged in as {} at ", Role::APP)), "{text}");
    assert!(text.contains(": 1 pool with at most 7 connections"), "{text}");

    // A user without rights at this server is passed over.
    let (text, _) = said(&line, &keys, &[("aac_other", "elsewhere"), app]);
    assert!(text.contains(&format!("{database}: logged in as {} at ", Role::APP)), "{text}");

    // There is no password to try.
    let (text, told) = said(&line, &keys, &console);
    assert!(text.contains(&format!("{database}: not tried: ")), "{text} {told}");

    // A program prints the password, and another one is in the file.
    let by_program = format!("{line} user={} password_command=/bin/false", Role::APP);
    let (text, _) = said(&by_program, &keys, &[(Role::APP, "never-sent")]);
    let expected = format!(
        "{database}: not tried: 127.0.0.1, port {} answers, but its password comes from a program, \
         which check-config does not run",
        postgres.port()
    );
    assert!(text.contains(&expected), "{text}");

    // The total of all servers.
    let keys = format!("{keys}\nmax_server_connections = 5");
    let (text, _) = said(&format!("{line} pool_size=9000"), &keys, &[app]);
    assert!(text.contains(": 1 pool with at most 5 connections"), "{text}");
}

#[test]
fn check_config_logs_in_as_the_user_of_auth_query() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let keys = format!(
        "listen_addr = 127.0.0.1\nlisten_port = {}\nauth_user = {}",
        free_port(),
        Role::APP
    );
    let line = format!("{database} = host=127.0.0.1 port={}", postgres.port());
    let (folder, path) = file(&line, &keys);
    set_users(&folder, &[("aaa_other", "elsewhere"), (Role::APP, Role::APP_PASSWORD)]);
    let output = check(&["--connect"], &path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = format!("{database}: logged in as {} at ", Role::APP);
    assert!(stdout(&output).contains(&expected), "{output:?}");
}

#[test]
fn mistakes_in_values_do_not_hide_start_checks() {
    if !only_weir() {
        return;
    }
    let keys = format!(
        "listen_addr = 127.0.0.1\nlisten_port = {}\npool_mode = transakt\n\
         pidfile = /nonexistent/pid",
        free_port()
    );
    let (_, path) = file("app = host=127.0.0.1 port=1", &keys);
    let output = check(&[], &path);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected in [": pool_mode: ", ": pidfile: ", "2 errors, 1 warning; Weir does not start"] {
        assert!(text.contains(expected), "no {expected:?} in {text}");
    }
}

#[test]
fn check_config_tries_the_queries_of_keys() {
    if !only_weir() {
        return;
    }
    let postgres = Postgres::shared();
    let database = postgres.database();
    let there = format!("host=127.0.0.1 port={}", postgres.port());
    let keys = format!("listen_addr = 127.0.0.1\nlisten_port = {}\n", free_port());
    let wrong = "server_check_query = CHEKK\nserver_reset_query = SELEKT\npool_mode = ";
    let told = |lines: &str, keys: &str| {
        let (_, path) = file(lines, keys);
        let output = check(&["--connect"], &path);
        assert_eq!(output.status.code(), Some(0), "they are warnings: {output:?}");
        let reasons =
            [("connect_query", "COMEKT"), ("check_query", "CHEKK"), ("reset_query", "SELEKT")];
        reasons.map(|(key, word)| {
            let expected = format!(
                "{key} fails in database {database}: ERROR:  syntax error at or near \"{word}\""
            );
            stderr(&output).contains(&expected)
        })
    };
    let plain = format!("{database} = {there}");
    let connecting = format!("{plain} connect_query='COMEKT'");
    assert_eq!(told(&connecting, &format!("{keys}{wrong}session")), [true, true, true]);
    assert_eq!(told(&plain, &format!("{keys}{wrong}transaction")), [false, true, false]);
    let always = "transaction\nserver_reset_query_always = 1";
    assert_eq!(told(&plain, &format!("{keys}{wrong}{always}")), [false, true, true]);
    assert_eq!(told(&plain, &keys), [false; 3]);
}
