//! The binary as a process: exit statuses, texts, the pidfile, the background, and a demo that is
//! interrupted. Pooling is tested elsewhere.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test as well")]

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _},
    net::{TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
    process::{self, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap()
}

/// The shell has `kill` of its own, while some machines lack the program.
fn signal(pid: &str, name: &str) {
    let mut kill = Command::new("sh");
    assert!(kill.args(["-c", &format!("kill -{name} {pid}")]).status().unwrap().success());
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn poll(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A user and group the pooler may run as, when the tests run as root.
fn unprivileged() -> Option<(&'static str, u32, u32)> {
    // The owner of our own entry there is who we are.
    let root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
    root.then(|| {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let line = passwd.lines().find(|line| line.starts_with("nobody:")).unwrap();
        let fields: Vec<_> = line.split(':').collect();
        ("nobody", fields[2].parse().unwrap(), fields[3].parse().unwrap())
    })
}

/// A directory with a configuration in it, for one test.
struct Folder(PathBuf);

impl Folder {
    fn new(more: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-cli-{}-{number}", process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        if let Some((_, uid, gid)) = unprivileged() {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
        let folder = Self(path);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let more = more.replace("DIR", folder.0.to_str().unwrap());
        let ini = format!(
            "[databases]\napp = host=127.0.0.1 port=1\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\n{more}\n"
        );
        fs::write(folder.0.join("weir.ini"), ini).unwrap();
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Runs the pooler with this configuration, as a user that may run it.
    fn weir(&self, flags: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        if let Some((name, ..)) = unprivileged() {
            command.args(["-u", name]);
        }
        command.args(flags).arg(self.path("weir.ini")).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_missing_file_gets_pgbouncers_words() {
    let output = weir(&[]);
    assert_eq!(output.status.code(), Some(1));
    let name = env!("CARGO_BIN_EXE_weir");
    let text = stderr(&output);
    assert!(text.starts_with(&format!("{name}: no configuration file specified\n")), "{text}");
    assert!(text.ends_with(&format!("Try \"{name} --help\" for more information.\n")), "{text}");
}

#[test]
fn the_version_begins_as_pgbouncers() {
    let output = weir(&["-V"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.starts_with(b"PgBouncer 1.25.2\nWeir "));
}

#[test]
fn a_mistake_in_the_file_is_named_with_its_place() {
    let folder = Folder::new("pool_mood = session");
    for output in [folder.weir(&[]), weir(&["check-config", &folder.path("weir.ini")])] {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains("weir.ini:8: pool_mood") && text.contains("pool_mode"), "{text}");
    }
}

#[test]
fn keys_without_effect_are_told_at_start() {
    let folder = Folder::new("stats_period = 60\njob_name = mine\nuser = no-such-user");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg(folder.path("weir.ini")).output();
    let text = stderr(&output.unwrap());
    assert!(text.contains("WARNING job_name is set, and has no effect"), "{text}");
    assert!(text.contains("FATAL could not find user 'no-such-user' to switch to"), "{text}");
}

#[test]
fn root_is_refused() {
    if unprivileged().is_none() {
        return;
    }
    let folder = Folder::new("");
    let file = folder.path("weir.ini");
    // An empty name is none.
    let unnamed = Folder::new("user =");
    let nobody = unnamed.path("weir.ini");
    for arguments in [&[&*file][..], &[&*nobody], &["serve", "postgresql://127.0.0.1:1/"]] {
        let output = weir(arguments);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("FATAL Weir should not run as root; name the user"), "{text}");
        assert!(text.contains("-u USER"), "{text}");
    }
}

#[test]
fn the_background_needs_a_pidfile() {
    let output = Folder::new("").weir(&["-d"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("FATAL daemon needs pidfile configured"));
}

#[test]
fn the_status_of_a_daemon_tells_whether_clients_are_served() {
    let folder = Folder::new("pidfile = DIR/pid\nlogfile = DIR/log");
    let ini = fs::read_to_string(folder.path("weir.ini")).unwrap();
    let port = ini.lines().find_map(|line| line.strip_prefix("listen_port = ")).unwrap();
    let taken = TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    let failed = folder.weir(&["-d"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    drop(taken);
    let started = folder.weir(&["-d"]);
    assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
    drop(TcpStream::connect(format!("127.0.0.1:{port}")).unwrap());
    let pid = fs::read_to_string(folder.path("pid")).unwrap().trim().to_owned();
    signal(&pid, "INT");
    poll("the pidfile is gone", || !Path::new(&folder.path("pid")).exists());
}

/// As systemd does it, with a pipe in place of the journal's socket.
#[test]
fn lines_in_the_journal_have_its_priorities() {
    let folder = Folder::new("pool_mode = sesion");
    let run = |journal: bool| {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let stream = File::from(OwnedFd::from(writer.try_clone().unwrap())).metadata().unwrap();
        let stream = format!("{}:{}", stream.dev(), stream.ino() + u64::from(!journal));
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg(folder.path("weir.ini")).env("JOURNAL_STREAM", stream).stderr(writer);
        assert_eq!(command.status().unwrap().code(), Some(1));
        drop(command);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    };
    let lines = run(true);
    let begins: Vec<_> = lines.lines().map(|line| &line[..5]).collect();
    assert_eq!(begins, ["<3>20", "<2>20"], "{lines}");
    assert!(run(false).starts_with("20"), "another stream is the journal's");
}

#[test]
fn what_keeps_other_machines_out_is_told() {
    let text = "auth_type = server\nlisten_addr = 0.0.0.0";
    let folder = Folder::new(text);
    let check = |flags: &[&str]| {
        let file = folder.path("weir.ini");
        let output = weir(&[&["check-config"], flags, &[file.as_str()]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
    };
    let (shown, problems) = check(&[]);
    assert!(
        shown.contains("every user that can log in to the server with its password"),
        "{shown}"
    );
    assert!(problems.contains("at 0.0.0.0, clients of other machines are refused"), "{problems}");
    assert!(problems.contains("Add TLS (client_tls_sslmode = require"), "{problems}");
    let (shown, errors) = check(&["-q"]);
    assert_eq!((shown.as_str(), errors.lines().count()), ("", 1), "{errors}");
    fs::write(folder.path("weir.ini"), "[pgbouncer]\nauth_type = server\nlisten_addr = ::1\n")
        .unwrap();
    assert!(!check(&[]).1.contains("are refused"));
}

#[test]
fn a_daemon_keeps_a_second_one_out_and_cleans_up() {
    let folder = Folder::new("pidfile = DIR/pid\nlogfile = DIR/log");
    let started = folder.weir(&["-d"]);
    assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
    let log = || fs::read_to_string(folder.path("log")).unwrap_or_default();
    poll("the daemon is up", || log().contains("process up"));
    let pid = fs::read_to_string(folder.path("pid")).unwrap().trim().to_owned();
    assert!(log().contains(&format!(" [{pid}] LOG ")), "{}", log());

    let second = folder.weir(&["-d"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("exists, another instance running?"), "{}", stderr(&second));

    signal(&pid, "INT");
    poll("the pidfile is gone", || !Path::new(&folder.path("pid")).exists());
}

/// Runs the pooler until its log file says that it is up, and ends it. Returns its output on
/// stderr, the content of its log file, and its user.
fn run_with(flags: &[&str], more: &str) -> (String, String, u32) {
    let folder = Folder::new(&format!("logfile = DIR/log\n{more}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    if let Some((name, ..)) = unprivileged().filter(|_| !more.contains("user = ")) {
        command.args(["-u", name]);
    }
    command.args(flags).arg(folder.path("weir.ini")).stderr(Stdio::piped());
    let mut weir = command.spawn().unwrap();
    let log = || fs::read_to_string(folder.path("log")).unwrap_or_default();
    poll("it is up", || log().contains("process up"));
    let status = fs::read_to_string(format!("/proc/{}/status", weir.id())).unwrap();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    // The real, the effective and the saved one.
    let uids: Vec<u32> = uids.split_whitespace().map(|uid| uid.parse().unwrap()).collect();
    assert!(uids.iter().all(|uid| *uid == uids[0]), "{uids:?}");
    weir.kill().unwrap();
    let output = weir.wait_with_output().unwrap();
    (stderr(&output), log(), uids[0])
}

#[test]
fn it_logs_to_stderr_as_well_unless_told_to_be_quiet() {
    let (stderr, log, _) = run_with(&[], "job_name = x");
    assert_eq!(stderr, log);
    assert!(log.contains("WARNING job_name is set"), "{log}");
    for flag in ["-q", "--quiet"] {
        let (stderr, log, _) = run_with(&[flag], "job_name = x");
        assert_eq!(stderr, "");
        assert!(log.contains("WARNING job_name is set"), "lost before the file was open: {log}");
    }
}

#[test]
fn a_start_that_fails_is_in_the_log_file() {
    for (mistake, reason) in [
        ("pool_mode = sesion", "ERROR DIR/weir.ini:9: pool_mode: invalid value \"sesion\""),
        ("user = nobody-here", "FATAL could not find user 'nobody-here' to switch to"),
        ("client_tls_sslmode = require", "FATAL TLS setup failed"),
    ] {
        let folder = Folder::new(&format!("logfile = DIR/log\n{mistake}"));
        let is_of_user = mistake.starts_with("user");
        if is_of_user {
            // Root makes no new log file.
            fs::write(folder.path("log"), "").unwrap();
        }
        let reason = reason.replace("DIR", folder.path("").trim_end_matches('/'));
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let user = unprivileged().filter(|_| !is_of_user);
        command.args(user.iter().flat_map(|(name, ..)| ["-u", name]));
        let output = command.arg("-q").arg(folder.path("weir.ini")).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""), "{mistake}");
        let log = fs::read_to_string(folder.path("log")).unwrap();
        assert!(log.contains(&reason), "{reason}: {log}");
    }
}

#[test]
fn root_makes_no_log_file_that_the_pooler_could_not_open() {
    let Some((name, uid, _)) = unprivileged() else { return };
    for (flags, owner) in [(&["-u", name][..], Some(uid)), (&[][..], None)] {
        let folder = Folder::new("logfile = DIR/log\npool_mode = sesion");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(flags).arg(folder.path("weir.ini")).output().unwrap();
        assert!(stderr(&output).contains("pool_mode: invalid value"), "{output:?}");
        let log = fs::metadata(folder.path("log")).ok();
        assert_eq!(log.map(|log| std::os::unix::fs::MetadataExt::uid(&log)), owner, "{flags:?}");
    }
}

#[test]
fn a_rotated_log_is_let_go_also_by_a_reload_that_fails() {
    let folder = Folder::new("logfile = DIR/log\npidfile = DIR/pid");
    let started = folder.weir(&["-d"]);
    assert_eq!(started.status.code(), Some(0), "{}", stderr(&started));
    let log = || fs::read_to_string(folder.path("log")).unwrap_or_default();
    poll("it is up", || log().contains("process up"));
    let pid = fs::read_to_string(folder.path("pid")).unwrap().trim().to_owned();
    fs::rename(folder.path("log"), folder.path("log.1")).unwrap();
    fs::write(folder.path("weir.ini"), "nonsense").unwrap();
    signal(&pid, "HUP");
    poll("the new file tells why", || log().contains("config file loading failed"));
    assert!(log().contains("syntax error in configuration"), "{}", log());
    signal(&pid, "INT");
    poll("the pidfile is gone", || !Path::new(&folder.path("pid")).exists());
}

#[test]
fn it_logs_more_the_more_often_it_is_told_to() {
    let debug = |flags: &[&str], more: &str| run_with(flags, more).1.contains(" DEBUG ");
    assert!(!debug(&[], ""));
    assert!(debug(&["-v"], "") && debug(&["-vv"], "") && debug(&["--verbose"], ""));
    assert!(debug(&[], "verbose = 1"));
}

#[test]
fn root_becomes_the_user_of_the_command_line_or_else_of_the_file() {
    let Some((name, uid, _)) = unprivileged() else { return };
    assert_eq!(run_with(&[], "").2, uid);
    assert_eq!(run_with(&[], &format!("user = {name}")).2, uid);
    let folder = Folder::new(&format!("user = {name}"));
    let wrong = folder.path("weir.ini");
    let output = weir(&["-u", "no-such-user", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("FATAL could not find user 'no-such-user' to switch to"), "{text}");
}

#[test]
fn a_stale_pidfile_is_replaced() {
    let folder = Folder::new("pidfile = DIR/pid\nlogfile = DIR/log");
    // The highest number a process may have is smaller.
    fs::write(folder.path("pid"), "2000000000\n").unwrap();
    if let Some((_, uid, gid)) = unprivileged() {
        chown(folder.path("pid"), Some(uid), Some(gid)).unwrap();
    }
    assert_eq!(folder.weir(&["--daemon"]).status.code(), Some(0));
    let log = || fs::read_to_string(folder.path("log")).unwrap_or_default();
    poll("the daemon is up", || log().contains("process up"));
    assert!(log().contains("LOG stale pidfile, removing"), "{}", log());
    let pid = fs::read_to_string(folder.path("pid")).unwrap().trim().to_owned();
    signal(&pid, "QUIT");
    poll("the pidfile is gone", || !Path::new(&folder.path("pid")).exists());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    // A short path, since sockets go below it.
    let parent = std::env::temp_dir().join(format!("weir-cli-demo-{}", process::id()));
    fs::create_dir(&parent).unwrap();
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o1777)).unwrap();
    for progress in ["creating", "starting", "Ctrl-C"] {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("demo")
            .env("TMPDIR", &parent)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut printed = Vec::new();
        for line in lines {
            if line.starts_with(progress) {
                let pid = demo.id().to_string();
                signal(&pid, "TERM");
            }
            printed.push(line);
        }
        // Its output has ended, so nothing it started is left to write there either.
        demo.wait().unwrap();
        assert!(printed.iter().any(|line| line.starts_with(progress)), "{printed:#?}");
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0, "{progress}: {printed:#?}");
    }
    fs::remove_dir(&parent).unwrap();
}

#[test]
fn a_misspelt_command_and_a_command_of_the_console_are_explained() {
    let top = weir(&["top"]);
    assert_eq!(top.status.code(), Some(1));
    assert!(stderr(&top).contains("\"top\" is no command"), "{}", stderr(&top));
    let file = weir(&["/nonexistent/weir.ini"]);
    assert!(stderr(&file).contains("cannot load config file\n"), "{}", stderr(&file));
    let help = weir(&["help", "show", "pools"]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("  cl_waiting (int4): "), "{text}");
    assert_eq!(weir(&["help", "no such topic"]).status.code(), Some(1));
}

/// Nothing listens there, so the login fails.
#[test]
fn a_failed_login_to_the_console_names_its_user() {
    let ctl = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ctl", "-h", "/nonexistent", "-U", "operator", "SHOW", "POOLS"])
        .env("PGPASSWORD", "secret")
        .output()
        .unwrap();
    assert_eq!(ctl.status.code(), Some(2));
    let said = stderr(&ctl);
    assert!(said.ends_with("(as user operator, with PGPASSWORD)\n"), "{said}");
}
