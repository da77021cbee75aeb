//! The postmaster is the first process of a container, as in PostgreSQL's own image. The kernel makes
//! it the parent of every orphan, and it restarts the server when a child of its own is killed.

use std::time::Duration;

use testkit::{Builtin, Container, Version, eventually};

use crate::support;

const PATIENCE: Duration = Duration::from_secs(20);
const SUPERVISOR: &str = "postgres: weir supervisor";
const POOLER: &str = "weir --supervised";

fn can_be() -> bool {
    let can_be = support::only_weir() && Container::can_be();
    if !can_be {
        eprintln!("left out: only root can make a container, by unshare");
    }
    can_be
}

/// A server that has run and does not run now.
fn stopped(version: Version) -> Builtin {
    let server = Builtin::start(version, "");
    server.wait_until_serving();
    server.stop_by("INT");
    server
}

fn said(server: &Builtin, text: &str) -> usize {
    server.log().matches(text).count()
}

const ADOPTED: &str = "has kept its clients and serves port";
const RESTARTS: &str = "terminating any other active server processes";

#[test]
fn idle_clients_survive_crashes_of_the_supervisor_and_the_server() {
    if !can_be() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = stopped(version);
        let container = Container::launch(&server);
        let mut client = server.wait_until_serving();
        client.rows("SET work_mem = '7MB'");
        let pooler = container.process(POOLER).expect("it runs");
        for victim in [SUPERVISOR, "postgres: checkpointer", SUPERVISOR] {
            let before = said(&server, ADOPTED);
            let victim = container.process(victim).expect("it runs");
            container.signal(&victim, "KILL");
            eventually("the pooler is adopted", PATIENCE, || {
                (said(&server, ADOPTED) > before).then_some(())
            });
            assert_eq!(client.value("SHOW work_mem"), "7MB", "{version:?} {victim:?}");
            assert_eq!(container.process(POOLER).as_ref().map(|one| one.pid), Some(pooler.pid));
        }
        // The supervisor is heard.
        server.sql("postgres", "CREATE ROLE late LOGIN PASSWORD 'x'");
        eventually("a new role", PATIENCE, || server.login("late", "postgres", "x").ok());
    }
}

/// Neither a pooler that its supervisor has started nor one that was adopted is a process of the
/// server, whatever becomes of it.
#[test]
fn no_end_of_the_pooler_restarts_the_server_strict() {
    if !can_be() {
        return;
    }
    for version in [Version::Installed, Version::Eighteen] {
        let server = stopped(version);
        let container = Container::launch(&server);
        server.wait_until_serving();
        for is_adopted in [false, true] {
            for signal in ["KILL", "ABRT"] {
                if is_adopted {
                    let before = said(&server, ADOPTED);
                    let supervisor = container.process(SUPERVISOR).expect("it runs");
                    container.signal(&supervisor, "KILL");
                    eventually("the pooler is adopted", PATIENCE, || {
                        (said(&server, ADOPTED) > before).then_some(())
                    });
                    eventually("the server serves", PATIENCE, || server.is_ready());
                }
                let restarts = said(&server, RESTARTS);
                let mut direct = server.superuser("postgres");
                let pooler = container.process(POOLER).expect("it runs");
                container.signal(&pooler, signal);
                eventually("another pooler serves", PATIENCE, || {
                    container.process(POOLER).filter(|next| next.pid != pooler.pid)
                });
                server.wait_until_serving();
                assert_eq!(direct.value("SELECT 1"), "1", "{version:?} {is_adopted} {signal}");
                assert_eq!(said(&server, RESTARTS), restarts, "{version:?} {is_adopted} {signal}");
            }
        }
    }
}

#[test]
fn a_container_ends_with_its_server() {
    if !can_be() {
        return;
    }
    let server = stopped(Version::Installed);
    for signal in ["INT", "TERM", "QUIT", "KILL"] {
        for is_adopted in [false, true] {
            let mut container = Container::launch(&server);
            let mut client = server.wait_until_serving();
            client.rows("SELECT 1");
            if is_adopted {
                let before = said(&server, ADOPTED);
                let supervisor = container.process(SUPERVISOR).expect("it runs");
                container.signal(&supervisor, "KILL");
                eventually("the pooler is adopted", PATIENCE, || {
                    (said(&server, ADOPTED) > before).then_some(())
                });
                eventually("the server serves", PATIENCE, || server.is_ready());
            }
            container.signal(&container.postmaster(), signal);
            container.wait_until_gone();
        }
    }
}
