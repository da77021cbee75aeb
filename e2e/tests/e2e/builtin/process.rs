//! The pooler's process has nothing of the server's: neither shared memory nor files. A background
//! worker would have both, and its crash would restart the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Builtin, Version};

use crate::support;

/// A library with a background worker that asks for no shared memory.
const LONER: &str = r#"
#include "postgres.h"
#include "fmgr.h"
#include "postmaster/bgworker.h"
PG_MODULE_MAGIC;
void _PG_init(void);
void _PG_init(void)
{
    BackgroundWorker worker = {.bgw_start_time = BgWorkerStart_PostmasterStart,
                               .bgw_restart_time = BGW_NEVER_RESTART};

    strcpy(worker.bgw_name, "loner");
    strcpy(worker.bgw_library_name, "loner");
    strcpy(worker.bgw_function_name, "loner_main");
    RegisterBackgroundWorker(&worker);
}
"#;

fn build(version: Version) -> PathBuf {
    let folder = testkit::open_folder("loner");
    let (source, library) = (folder.join("loner.c"), folder.join("loner.so"));
    fs::write(&source, LONER).expect("our own folder");
    let mut ask = Command::new(version.program("pg_config"));
    let headers = support::run(ask.arg("--includedir-server"));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-I", headers.trim(), "-o"]).args([&library, &source]);
    support::run(&mut compile);
    library
}

/// Experiment E-4, the reason why the pooler is no worker of the server.
#[test]
fn postgresql_refuses_a_worker_without_shared_memory() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        server.stop_by("INT");
        let both = format!(
            "shared_preload_libraries = '{}, {}'",
            build(version).display(),
            testkit::library_file(version).display()
        );
        server.configure(&both);
        server.launch();
        server.log_contains(&["\"loner\"", "without shared memory access are not supported"]);
        assert_eq!(server.wait_until_serving().value("SELECT 1"), "1", "{version:?}");
    }
}

/// The shared memory and the files of the server that a process has.
fn server_parts(server: &Builtin, pid: u32) -> Vec<String> {
    let process = Path::new("/proc").join(pid.to_string());
    let maps = fs::read_to_string(process.join("maps")).expect("it runs");
    // The big segment is anonymous memory, the small ones are of System V and POSIX.
    let shared = ["/dev/zero", "/SYSV", "/dev/shm/", "/PostgreSQL."];
    let mut parts: Vec<_> = maps
        .lines()
        .filter(|line| shared.iter().any(|name| line.contains(name)))
        .map(ToOwned::to_owned)
        .collect();
    let files = fs::read_dir(process.join("fd")).expect("it runs").flatten();
    let files = files.filter_map(|entry| fs::read_link(entry.path()).ok());
    parts.extend(
        files.filter(|file| file.starts_with(server.data())).map(|file| file.display().to_string()),
    );
    parts
}

#[test]
fn the_pooler_has_no_memory_and_no_file_of_the_server_core_strict() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving().rows("CREATE TEMP TABLE t AS SELECT 1");
        assert_eq!(server_parts(&server, server.pooler_pid()), [""; 0], "{version:?}");
        // The supervisor is a process of the server.
        let supervisor = server.supervisor_pid().expect("it runs");
        assert_ne!(server_parts(&server, supervisor), [""; 0], "{version:?}");
    }
}

/// It runs in a process of the server, which is not made for threads.
#[test]
fn the_supervisor_has_one_thread() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.connection_proxies = 4");
    let threads = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").count();
    assert_eq!(threads(server.supervisor_pid().expect("it runs")), 1);
    assert!(threads(server.pooler_pid()) > 4);
}
