//! `kill -9` of each process, in each phase of the pooler's life.
//!
//! | phase | the pooler |
//! |---|---|
//! | at rest | serves, and its client is between transactions |
//! | in a transaction | serves, and its client is in a transaction |
//! | starting | does not serve yet |
//! | recovering | has lost its supervisor, since the server restarts its processes after a crash |
//! | adopted | serves under another supervisor than the one that has started it |
//! | stopping | waits for its client's transaction, since a smart stop has begun |

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Builtin, RawClient, Version, eventually};

use super::adoption::{crash, until_adopted};
use super::life::{has_ended, until_replaced};
use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Pooler,
    Supervisor,
    Backend,
    Postmaster,
}

use Victim::{Backend, Pooler, Postmaster, Supervisor};

const VICTIMS: [Victim; 4] = [Pooler, Supervisor, Backend, Postmaster];

impl Victim {
    /// Does the pooler live on, with its clients?
    fn leaves_pooler(self) -> bool {
        matches!(self, Supervisor | Backend)
    }

    /// Kills it, and waits until port 6543 is served. The backend is the one with this process id.
    #[track_caller]
    fn strike(self, server: &Builtin, backend: u32) {
        let pooler = server.pooler_pid();
        match self {
            Pooler => support::kill9(pooler),
            Supervisor => until_adopted(server, || support::kill9(supervisor(server))),
            Backend => until_adopted(server, || support::kill9(backend)),
            Postmaster => {
                server.kill9();
                server.launch();
            }
        }
        match self.leaves_pooler() {
            true => assert_eq!(server.pooler_pid(), pooler, "{self:?}"),
            false => drop(until_replaced(server, pooler)),
        }
    }
}

fn supervisor(server: &Builtin) -> u32 {
    eventually("there is a supervisor", PATIENCE, || server.supervisor_pid())
}

fn backend(client: &mut RawClient) -> u32 {
    client.value("SELECT pg_backend_pid()").parse().expect("a number")
}

/// Has the client's connection ended, without an answer?
fn is_lost(client: &mut RawClient) -> bool {
    client.read_to_end().iter().all(|message| message.tag != b'Z')
}

#[track_caller]
fn at_rest(server: &Builtin, victim: Victim) {
    let mut client = server.client("postgres");
    client.rows("SET work_mem = '7MB'");
    let backend = backend(&mut client);
    victim.strike(server, backend);
    match victim.leaves_pooler() {
        true => assert_eq!(client.value("SHOW work_mem"), "7MB", "{victim:?}"),
        false => assert!(is_lost(&mut client), "{victim:?}"),
    }
    assert_eq!(server.client("postgres").value("SHOW work_mem"), "4MB", "{victim:?}");
}

#[test]
fn at_rest_a_client_is_lost_only_with_the_pooler() {
    if !support::only_weir() || !support::only_proxied("a direct client stays") {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        VICTIMS.into_iter().for_each(|victim| at_rest(&server, victim));
    }
}

#[test]
fn an_adopted_pooler_is_like_the_first_one() {
    if !support::only_weir() || !support::only_proxied("a direct client stays") {
        return;
    }
    let server = Builtin::serving("");
    for victim in VICTIMS {
        until_adopted(&server, || support::kill9(supervisor(&server)));
        at_rest(&server, victim);
    }
}

#[test]
fn in_a_transaction_the_client_is_lost_and_nothing_is_committed_strict() {
    if !support::only_proxied("a transaction outlives the pooler") {
        return;
    }
    let server = Builtin::serving("");
    // The table must survive the crashes below.
    let table = "CREATE TABLE facts (a int); GRANT ALL ON facts TO app";
    server.sql("postgres", &format!("SET synchronous_commit = on; {table}"));
    for victim in VICTIMS {
        let mut client = server.client("postgres");
        client.rows("BEGIN; INSERT INTO facts VALUES (1)");
        let backend = backend(&mut client);
        victim.strike(&server, backend);
        assert!(is_lost(&mut client), "{victim:?}");
        let mut other = server.client("postgres");
        assert_eq!(other.value("SELECT count(*) FROM facts"), "0", "{victim:?}");
        // No lock is left either.
        other.rows("BEGIN; LOCK facts; COMMIT");
    }
}

/// A program that becomes the pooler when a file is there.
struct Slow {
    program: PathBuf,
    pids: PathBuf,
    go: PathBuf,
}

impl Slow {
    fn new() -> Self {
        let folder = testkit::open_folder("slow");
        let own =
            Self { program: folder.join("slow"), pids: folder.join("pids"), go: folder.join("go") };
        let script = format!(
            "#!/bin/sh\necho $$ >>{}\nwhile [ ! -e {} ]; do sleep 0.02; done\nexec {} \"$@\"\n",
            own.pids.display(),
            own.go.display(),
            testkit::pooler_binary().display(),
        );
        fs::write(&own.program, script).expect("our own folder");
        fs::set_permissions(&own.program, fs::Permissions::from_mode(0o755)).expect("our own file");
        testkit::give_away(&folder);
        own
    }

    /// Waits until there is a process that is not the pooler yet, another one than `before`.
    fn starting(&self, before: Option<u32>) -> u32 {
        eventually("the program is started", PATIENCE, || {
            let pids = fs::read_to_string(&self.pids).ok()?;
            let last = pids.lines().last()?.parse().ok()?;
            (Some(last) != before && is_shell(last)).then_some(last)
        })
    }
}

fn is_shell(pid: u32) -> bool {
    fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe"))
        .is_ok_and(|program| program.ends_with("dash") || program.ends_with("sh"))
}

#[test]
fn a_pooler_that_is_starting_is_started_again() {
    if !support::only_weir() {
        return;
    }
    let slow = Slow::new();
    let program = format!("weir.program = '{}'", slow.program.display());
    let server = Builtin::start(Version::Installed, &program);
    let mut before = slow.starting(None);
    for victim in VICTIMS {
        match victim {
            Pooler => support::kill9(before),
            Supervisor => support::kill9(supervisor(&server)),
            Backend => crash(&server),
            Postmaster => {
                server.kill9();
                server.launch();
            }
        }
        eventually("it has ended", PATIENCE, || has_ended(before).then_some(()));
        let next = slow.starting(Some(before));
        fs::write(&slow.go, "").expect("our own folder");
        assert_eq!(server.wait_until_serving().value("SELECT 1"), "1", "{victim:?}");
        assert_eq!(server.pooler_pid(), next, "{victim:?}");
        fs::remove_file(&slow.go).expect("our own folder");
        support::kill9(next);
        before = slow.starting(Some(next));
    }
}

#[test]
fn while_the_server_recovers_the_pooler_is_kept_or_replaced() {
    if !support::only_weir() || !support::only_proxied("a direct client stays") {
        return;
    }
    let server = Builtin::serving("");
    for victim in VICTIMS {
        let pooler = server.pooler_pid();
        let mut client = server.client("postgres");
        client.rows("SET work_mem = '7MB'");
        let until_ready = || eventually("the server is ready", PATIENCE, || server.is_ready());
        let reinitialised = || server.log().matches("reinitializing").count();
        let before = reinitialised();
        crash(&server);
        eventually("it recovers", PATIENCE, || (reinitialised() > before).then_some(()));
        match victim {
            Pooler => support::kill9(pooler),
            // The next one, at once: it may not have adopted the pooler yet.
            Supervisor => {
                until_ready();
                support::kill9(supervisor(&server));
            }
            Backend => {
                until_ready();
                crash(&server);
            }
            Postmaster => {
                server.kill9();
                server.launch();
            }
        }
        if victim.leaves_pooler() {
            eventually("it recovers", PATIENCE, || (reinitialised() > before + 1).then_some(()));
            until_ready();
            assert_eq!(client.value("SHOW work_mem"), "7MB", "{victim:?}");
            assert_eq!(server.pooler_pid(), pooler, "{victim:?}");
            // The next round begins with a supervisor that has the pooler.
            let role = server.name("late");
            server.sql("postgres", &format!("CREATE ROLE {role} LOGIN PASSWORD 'x'"));
            eventually("the supervisor is heard", PATIENCE, || {
                server.login(&role, "postgres", "x").ok()
            });
        } else {
            assert!(is_lost(&mut client), "{victim:?}");
            assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1", "{victim:?}");
        }
    }
}

#[test]
fn a_smart_stop_ends_everything_whatever_is_killed() {
    if !support::only_proxied("a transaction outlives the pooler") {
        return;
    }
    let server = Builtin::serving("");
    for victim in VICTIMS {
        let (pooler, supervisor) = (server.pooler_pid(), supervisor(&server));
        let mut client = server.client("postgres");
        client.rows("BEGIN");
        let backend = backend(&mut client);
        let waits = || server.log().matches("the pooler closes its idle connections").count();
        let before = waits();
        server.signal("TERM");
        eventually("the pooler is told", PATIENCE, || (waits() > before).then_some(()));
        assert_eq!(client.value("SELECT 1"), "1", "{victim:?}");
        match victim {
            Pooler => support::kill9(pooler),
            Supervisor => support::kill9(supervisor),
            Backend => support::kill9(backend),
            Postmaster => server.kill9(),
        }
        server.wait_until_gone();
        assert!(is_lost(&mut client), "{victim:?}");
        server.stop();
        server.launch();
        assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1", "{victim:?}");
    }
}
