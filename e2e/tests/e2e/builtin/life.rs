//! The pooler's process, the supervisor and the server end and start in any order.

use std::time::{Duration, Instant};

use testkit::{Builtin, RawClient, Version, eventually};

use super::{on_both, set_heard};
use crate::support;

/// Waits until the pooler serves again, in another process than `before`.
pub(super) fn until_replaced(server: &Builtin, before: u32) -> RawClient {
    eventually("another pooler serves", Duration::from_secs(20), || {
        (server.pooler_pid() != before).then_some(())
    });
    server.wait_until_serving()
}

/// Has this process ended? In a container without an init process, an orphan stays as a zombie.
pub(super) fn has_ended(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn a_killed_pooler_is_back_within_a_second_and_no_session_notices_core() {
    on_both("", |server| {
        let mut direct = server.superuser("postgres");
        let backend = direct.value("SELECT pg_backend_pid()");
        for _ in 0..3 {
            let before = server.pooler_pid();
            support::kill9(before);
            let began = Instant::now();
            until_replaced(&server, before);
            let took = began.elapsed();
            assert!(took < Duration::from_secs(1), "it took {took:?}");
        }
        assert_eq!(direct.value("SELECT pg_backend_pid()"), backend);
        assert!(!server.has_crashed());
        server.log_contains(&["weir: the pooler has ended", "signal 9"]);
    });
}

#[test]
fn a_client_that_connects_while_there_is_no_pooler_waits_for_the_next_one() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let program = server.sql("postgres", "SHOW weir.program")[0][0].clone().expect("a path");
    set_heard(&server, "weir.program", "/nonexistent/weir");
    support::kill9(server.pooler_pid());
    server.log_contains(&["/nonexistent/weir", "No such file"]);
    let client = RawClient::connect(server.pooler_port());
    server.set("weir.program", &program);
    let mut client = client;
    client
        .authenticate(&[("user", "app"), ("database", "postgres")], "app-secret")
        .expect("the next pooler lets it in");
    assert_eq!(client.value("SELECT 1"), "1");
}

#[test]
fn a_terminated_supervisor_starts_again() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let before = server.pooler_pid();
    server.sql(
        "postgres",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                            WHERE backend_type = 'weir supervisor'",
    );
    assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
    assert!(!server.has_crashed());
}

#[test]
fn no_pooler_is_left_when_the_postmaster_is_killed() {
    on_both("", |server| {
        let before = server.pooler_pid();
        server.kill9();
        eventually("the pooler has ended", Duration::from_secs(10), || {
            has_ended(before).then_some(())
        });
        server.launch();
        assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
    });
}

#[test]
fn a_fast_stop_takes_no_time_with_many_clients() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.max_sessions = 2000");
    let mut clients: Vec<_> = (0..1_000).map(|_| server.client("postgres")).collect();
    for client in clients.iter_mut().take(5) {
        client.rows("BEGIN");
    }
    let took = server.stop_by("INT");
    assert!(took < Duration::from_secs(2), "it took {took:?}");
    assert!(!server.has_crashed());
}

#[test]
fn a_fast_stop_does_not_wait_for_a_stopped_pooler() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("");
    let pid = server.pooler_pid().to_string();
    support::run(std::process::Command::new("sh").args(["-c", "kill -STOP \"$1\"", "kill", &pid]));
    // Its clients' backends are those of the server and end with it.
    assert_eq!(server.superuser("postgres").value("SELECT 1"), "1");
    let took = server.stop_by("INT");
    assert!(took < Duration::from_secs(2), "it took {took:?}");
}

#[test]
fn a_smart_stop_does_not_wait_for_idle_clients() {
    on_both("", |server| {
        let mut clients: Vec<_> = (0..50).map(|_| server.client("postgres")).collect();
        clients.iter_mut().for_each(|client| drop(client.rows("SELECT 1")));
        let took = server.stop_by("TERM");
        assert!(took < Duration::from_secs(5), "it took {took:?}");
    });
}

#[test]
fn the_server_starts_twice_with_the_same_port() {
    on_both("", |server| {
        let before = server.pooler_pid();
        server.stop_by("INT");
        assert!(RawClient::try_connect(server.pooler_port()).is_err(), "it listens still");
        server.launch();
        assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
    });
}

#[test]
fn a_standby_serves_and_goes_on_through_its_promotion() {
    if !support::only_weir() {
        return;
    }
    let primary = Builtin::serving("");
    let standby = primary.standby();
    let mut client = standby.wait_until_serving();
    let pooler = standby.pooler_pid();
    assert_eq!(client.value("SELECT pg_is_in_recovery()"), "t");
    // Roles are those of the primary.
    primary.sql("postgres", "CREATE ROLE late LOGIN PASSWORD 'x'");
    eventually("the standby's pooler knows the role", Duration::from_secs(10), || {
        standby.login("late", "postgres", "x").ok()
    });
    standby.sql("postgres", "SELECT pg_promote()");
    client.rows("CREATE TEMP TABLE written (a int)");
    assert_eq!(standby.pooler_pid(), pooler);
}

#[test]
fn a_reload_closes_the_servers_if_it_should() {
    if !support::only_weir() {
        return;
    }
    let server = Builtin::serving("weir.restart_pooler_on_reload = on");
    let mut client = server.client("postgres");
    let before = client.value("SELECT pg_backend_pid()");
    server.reload();
    eventually("another backend serves", Duration::from_secs(10), || {
        (client.value("SELECT pg_backend_pid()") != before).then_some(())
    });
}

/// No way in which a process can end is one of the server's.
#[test]
fn no_end_of_the_pooler_is_a_crash_of_the_server_core_strict() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        server.create_functions("postgres");
        let mut direct = server.superuser("postgres");
        for signal in ["SEGV", "ABRT", "TERM", "INT", "KILL", "BUS"] {
            let before = server.pooler_pid();
            // Again and again: the first SIGSEGV only ends the handler of stack overflows.
            let command = format!("while kill -{signal} \"$1\" 2>&1; do sleep 0.1; done");
            let pid = before.to_string();
            support::run(std::process::Command::new("sh").args(["-c", &command, "kill", &pid]));
            until_replaced(&server, before);
            let pid = direct.value("SELECT min(pid) FROM pg_pooler_state()");
            assert_eq!(pid, server.pooler_pid().to_string(), "{version:?} {signal}");
        }
        assert!(!server.has_crashed(), "{version:?}");
    }
}

#[test]
fn of_many_reloads_the_last_one_counts() {
    on_both("", |server| {
        server.create_functions("postgres");
        let mut client = server.client("postgres");
        for size in 1..=50 {
            server.sql("postgres", &format!("ALTER SYSTEM SET weir.session_pool_size = {size}"));
            server.reload();
        }
        let proxies: u32 = server
            .superuser("postgres")
            .value("SHOW weir.connection_proxies")
            .parse()
            .expect("a number");
        let size = "SELECT value FROM weir_show('CONFIG') AS t(key text, value text) \
                    WHERE key = 'default_pool_size'";
        let mut superuser = server.superuser("postgres");
        eventually("the last size", Duration::from_secs(10), || {
            (superuser.value(size) == (50 * proxies).to_string()).then_some(())
        });
        assert_eq!(client.value("SELECT 1"), "1");
        let took = server.stop_by("INT");
        assert!(took < Duration::from_secs(2), "it took {took:?}");
    });
}

#[test]
fn a_parameter_without_the_prefix_is_unknown() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "weir.connection_proxies = 0");
        let error = server.superuser("postgres").query("ALTER SYSTEM SET proxy_port = 6543").error;
        let error = error.expect("it is unknown");
        assert_eq!(error.message(), "unrecognized configuration parameter \"proxy_port\"");
    }
}

#[test]
fn a_library_that_is_replaced_on_disk_is_used_from_the_next_start_on() {
    if !support::only_weir() {
        return;
    }
    let folder = testkit::open_folder("library");
    let library = folder.join("weir.so");
    let original = testkit::library_file(Version::Installed).with_extension("so");
    std::fs::copy(&original, &library).expect("our own folder");
    let setting = format!("shared_preload_libraries = '{}'", library.display());
    let server = Builtin::serving(&setting);
    let pooler = server.pooler_pid();
    let mut client = server.client("postgres");
    // As a package does: a new file takes the name of the old one.
    let broken = folder.join("weir.so.new");
    std::fs::write(&broken, "no library").expect("our own folder");
    std::fs::rename(&broken, &library).expect("our own folder");
    support::kill9(server.supervisor_pid().expect("it runs"));
    server.log_contains(&["has kept its clients"]);
    eventually("the server serves", Duration::from_secs(20), || server.is_ready());
    assert_eq!(client.value("SELECT 1"), "1");
    support::kill9(pooler);
    assert_eq!(until_replaced(&server, pooler).value("SELECT 1"), "1");
    server.stop_by("INT");
    std::fs::copy(&original, &broken).expect("our own folder");
    std::fs::rename(&broken, &library).expect("our own folder");
    let before = server.pooler_pid();
    server.launch();
    assert_eq!(until_replaced(&server, before).value("SELECT 1"), "1");
}

#[test]
fn without_the_library_the_server_starts_and_the_port_is_closed() {
    if !support::only_weir() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = Builtin::start(version, "");
        server.wait_until_serving();
        server.create_functions("postgres");
        server.stop_by("INT");
        // The other parameters stay in the file.
        server.configure("shared_preload_libraries = ''");
        server.launch();
        assert_eq!(server.supervisor_pid(), None);
        assert!(RawClient::try_connect(server.pooler_port()).is_err(), "{version:?}");
        let mut superuser = server.superuser("postgres");
        let error = superuser.query("SELECT * FROM pg_pooler_state()").error.expect("none runs");
        assert!(error.message().contains("the pooler does not run"), "{version:?}: {error:?}");
        assert!(!server.data().join("pg_stat_tmp/weir.door").exists(), "{version:?}");
    }
}
