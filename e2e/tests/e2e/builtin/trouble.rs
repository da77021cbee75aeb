//! What keeps the pooler from starting gets one line in the server's log, and hurts nobody.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use testkit::{
    Builtin, Postgres, Role, Version, altered_library, eventually, folder, give_away, library_file,
};

use crate::support;

/// How often a text is in the server's log.
fn count(server: &Builtin, text: &str) -> usize {
    server.log().matches(text).count()
}

/// Gives the supervisor time for some tries.
fn some_tries(server: &Builtin) {
    server.superuser("postgres").rows("SELECT pg_sleep(0.5)");
}

#[test]
fn programs_that_are_no_pooler_get_one_line() {
    if !support::only_weir() {
        return;
    }
    let scratch = folder("programs");
    let script = |name: &str, text: &str| {
        let path = scratch.join(name);
        fs::write(&path, text).expect("cannot write a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("cannot make it run");
        give_away(&path);
        path.display().to_string()
    };
    let speaker = script("other", "#!/bin/sh\neval \"echo 'weir 1 x' >&$2\"\nexec sleep 60\n");
    let nothing = script("nothing", "no program\n");
    let server = Builtin::start(Version::Installed, "weir.program = '/nonexistent/weir'");
    for (program, line) in [
        ("", "weir.program \"/nonexistent/weir\": No such file or directory"),
        (
            "/bin/true",
            "the pooler has ended before it served: child process exited with exit code 0",
        ),
        (
            "/bin/false",
            "the pooler has ended before it served: child process exited with exit code 1",
        ),
        (nothing.as_str(), "cannot start the pooler: Exec format error"),
        (speaker.as_str(), "it says \"weir 1 x\", not \"weir 2 ...\""),
        ("/etc/passwd", "weir.program \"/etc/passwd\": Permission denied"),
    ] {
        if !program.is_empty() {
            server.set("weir.program", program);
        }
        server.log_contains(&["weir: ", line]);
        // It is tried again and again, but said once. Between two of its tries, the last one of the
        // program before may end: then it is said once more.
        some_tries(&server);
        let log = server.log();
        let said: Vec<_> =
            log.lines().filter_map(|line| Some(line.split_once("weir: ")?.1)).collect();
        let count = said.iter().filter(|said| said.contains(line)).count();
        assert!(count <= 2, "{line} is said {count} times");
        assert!(said.windows(2).all(|pair| pair[0] != pair[1]), "{said:#?}");
    }
    assert!(!server.has_crashed());
    server.set("weir.program", &testkit::pooler_binary().display().to_string());
    assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
}

#[test]
fn clients_get_the_reason_at_once_while_the_pooler_cannot_start() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "weir.program = '/nonexistent/weir'");
        server.log_contains(&["weir.program \"/nonexistent/weir\": No such file or directory"]);
        // A client that sends nothing, and one that sends half a packet, keep nobody waiting.
        let address = ("127.0.0.1", server.pooler_port());
        let _silent = TcpStream::connect(address).expect("the port is open");
        let mut half = TcpStream::connect(address).expect("the port is open");
        half.write_all(&[0, 0, 0, 50, 0, 3]).expect("it is accepted");
        let began = Instant::now();
        let error = server.login(Role::APP, "postgres", Role::APP_PASSWORD).expect_err("no pooler");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let text = "the connection pooler cannot start";
        assert_eq!(error.summary(), ("FATAL", "57P03", text), "{version:?}");
        let why = "cannot start the pooler: weir.program \"/nonexistent/weir\": No such file";
        assert!(error.field('D').contains(why), "{error:?}");
        assert!(error.field('H').contains(&format!("serves port {}.", server.port())), "{error:?}");
        // psql asks for encryption first, and comes by the unix socket as well.
        let port = server.pooler_port();
        let mut psql = Postgres::client_program("psql", port, "postgres");
        let folder = server.socket_folder().display().to_string();
        for host in ["127.0.0.1", &folder] {
            let output = support::run_any(psql.env("PGHOST", host).args(["-XAtc", "SELECT 1"]));
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(text) && said.contains(why), "{host}: {said}");
        }
        // The SQL functions say so, too.
        server.create_functions("postgres");
        let state = server.superuser("postgres").query("SELECT * FROM pg_pooler_state()");
        assert!(state.error.expect("no pooler").message().contains(text), "{version:?}");
        server.set("weir.program", &testkit::pooler_binary().display().to_string());
        assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
        assert!(!server.has_crashed());
    }
}

/// The pause after a program that does not serve doubles, from 0.1 s on.
#[test]
fn a_program_that_ends_at_once_is_started_less_and_less_often() {
    if !support::only_weir() {
        return;
    }
    let scratch = folder("starts");
    let (program, starts) = (scratch.join("program"), scratch.join("starts"));
    let script = format!("#!/bin/sh\ndate +%s%N >>{}\n", starts.display());
    fs::write(&program, script).expect("our own folder");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("our own file");
    give_away(&program);
    let settings = format!("weir.program = '{}'", program.display());
    let server = Builtin::start(Version::Installed, &settings);
    let times = eventually("it was started seven times", Duration::from_secs(60), || {
        let text = fs::read_to_string(&starts).ok()?;
        let times: Vec<u64> = text.lines().map(|line| line.parse().expect("a time")).collect();
        (times.len() >= 7).then_some(times)
    });
    // The first pause is none. Each takes at least as long as it should, less the time of a start.
    let pauses = times.windows(2).map(|pair| pair[1] - pair[0]).skip(1);
    for (pause, least_ms) in pauses.zip([100, 200, 400, 800, 1600]) {
        assert!(pause >= least_ms * 1_000_000 / 2, "{times:?}");
    }
    // A reload may bring the remedy, so there is no pause.
    server.set("weir.program", &testkit::pooler_binary().display().to_string());
    assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
}

#[test]
fn a_busy_port_is_tried_again() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    server.stop_by("INT");
    let other = TcpListener::bind(("127.0.0.1", server.pooler_port())).expect("it is free");
    server.launch();
    server.log_contains(&["weir: cannot listen on", "Address already in use"]);
    assert_eq!(server.superuser("postgres").value("SELECT 1"), "1");
    assert_eq!(count(&server, "Address already in use"), 1);
    drop(other);
    assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
}

#[test]
fn a_file_of_settings_is_read_and_its_mistakes_are_named() {
    if !support::only_weir() {
        return;
    }
    let file = folder("settings").join("weir.ini");
    let path = file.display().to_string();
    let server = Builtin::start(Version::Installed, &format!("weir.config_file = '{path}'"));
    server.log_contains(&["weir: cannot read weir.config_file", &path, "No such file"]);
    let write = |text: &str| {
        fs::write(&file, text).expect("cannot write the file");
        give_away(&file);
        server.reload();
    };
    fs::write(&file, "query_wait_timeout = 7\n").expect("our own folder");
    give_away(&file);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("our own file");
    server.reload();
    server.log_contains(&["weir: cannot read weir.config_file", &path, "Permission denied"]);
    fs::remove_file(&file).expect("our own file");
    // It would undo the settings before it, such as those of the authentication.
    write("[pgbouncer]\nquery_wait_timeout = 7\n");
    server.log_contains(&["weir.config_file", "must not have the header [pgbouncer]"]);
    // Nor in a file that it names.
    let nested = file.with_file_name("nested.ini");
    fs::write(&nested, "query_wait_timeout = 7\n[users] [pgbouncer]\nauth_type = any\n")
        .expect("cannot write the file");
    give_away(&nested);
    write(&format!("query_wait_timeout = 7\n%include {}\n", nested.display()));
    server.log_contains(&[
        "the file that weir.config_file includes",
        "nested.ini",
        "must not have the header",
    ]);
    let other = format!("other = host=127.0.0.1 port={} dbname=postgres", server.port());
    write(&format!("query_wait_timeout = 7\n[databases]\n{other}\n"));
    server.wait_until_serving();
    let mut other = server.client("other");
    assert_eq!(other.value("SELECT current_database()"), "postgres");
    // A running pooler keeps what it has.
    let before = server.pooler_pid();
    fs::remove_file(&file).expect("it is there");
    let said = count(&server, "cannot read weir.config_file");
    server.reload();
    eventually("the file is missed", Duration::from_secs(10), || {
        (count(&server, "cannot read weir.config_file") > said).then_some(())
    });
    assert_eq!(other.value("SELECT current_database()"), "postgres");
    assert_eq!(server.pooler_pid(), before);
    // Logins do not depend on the file.
    server.sql("postgres", "CREATE ROLE late LOGIN PASSWORD 'one'");
    eventually("a role that is made meanwhile can log in", Duration::from_secs(10), || {
        server.login("late", "postgres", "one").ok().map(drop)
    });
    server.sql("postgres", "ALTER ROLE late NOLOGIN");
    eventually("it no longer can", Duration::from_secs(10), || {
        server.login("late", "postgres", "one").err().map(drop)
    });
}

#[test]
fn two_clusters_run_side_by_side() {
    if !support::only_weir() {
        return;
    }
    let (one, two) = (Builtin::serving(""), Builtin::serving(""));
    for server in [&one, &two] {
        let port = server.port().to_string();
        assert_eq!(server.client("postgres").value("SHOW port"), port);
    }
}

/// After a downgrade of one of them: a library and a program that do not fit.
#[test]
fn a_library_of_another_version_says_so_and_serves_when_it_fits_again() {
    if !support::only_weir() {
        return;
    }
    let other = altered_library(Version::Installed, "supervisor.h", |text| {
        text.replace("#define WEIR_HELLO \"weir 2 \"", "#define WEIR_HELLO \"weir 1 \"")
    });
    let load =
        |library: &std::path::Path| format!("shared_preload_libraries = '{}'", library.display());
    let server = Builtin::start(Version::Installed, &load(&other));
    let line = ["weir.program is not a pooler of this library's version", "it says \"weir 2 "];
    server.log_contains(&line);
    assert_eq!(server.superuser("postgres").value("SELECT 1"), "1");
    some_tries(&server);
    assert_eq!(count(&server, line[0]), 1);
    assert!(!server.has_crashed());
    server.stop_by("INT");
    server.configure(&load(library_file(Version::Installed)));
    server.launch();
    assert_eq!(server.wait_until_serving().value("SELECT 1"), "1");
}
