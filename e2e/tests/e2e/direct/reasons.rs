//! Pools that cannot be direct: they are proxied, and say why.

use testkit::{Pooler, Postgres};

use super::Direct;
use crate::support;

#[test]
fn a_pool_that_cannot_be_direct_says_why_and_works() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::begin(2, |setup| setup.set("pool_mode", "session"));
    assert_eq!(direct.client().value("SELECT 5"), "5");
    assert_eq!(direct.column("why"), "session mode");
    drop(direct);
    let postgres = Postgres::start();
    let (database, folder) = (postgres.database(), postgres.socket_folder().to_owned());
    let pooler = Pooler::before(&postgres)
        .set("pool_mode", "transaction")
        .set("data_path", "direct")
        .set("direct_socket", folder.join("direct").display())
        .database(&database, "")
        .start();
    let direct = Direct { pooler, postgres, database };
    assert_eq!(direct.client().value("SELECT 6"), "6");
    assert_eq!(direct.column("why"), "no library");
}

#[test]
fn a_pool_without_room_for_its_clients_is_named_and_proxied() {
    if !support::only_weir() {
        return;
    }
    // A lobby needs descriptors with numbers above this limit.
    let direct = Direct::begin(1, |setup| setup.open_files_max(1_000));
    assert_eq!(direct.client().value("SELECT 1"), "1");
    assert_eq!(direct.column("data_path"), "proxy");
    assert_eq!(direct.column("why"), "no room");
    let pool = format!("the pool {}/app cannot be direct and is proxied", direct.database);
    let line = format!("{pool}: the limit of open files must be at least ");
    direct.pooler.log_contains(&line);
}

#[test]
fn a_pool_whose_servers_have_too_few_descriptors_is_proxied() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::begin(1, |setup| setup);
    let postmaster = direct.postgres.postmaster().to_string();
    let mut limit = direct.pooler.command_of_its_user("prlimit");
    support::run(limit.args(["--nofile=1000:1000", "--pid", &postmaster]));
    assert_eq!(direct.client().value("SELECT 9"), "9");
    assert_eq!(direct.column("why"), "too few descriptors");
    let log = direct.postgres.log();
    assert!(log.contains("the process may have too few descriptors"), "{log}");
}

#[test]
fn a_pool_whose_backends_do_not_come_is_proxied() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::begin(2, |setup| setup);
    direct.postgres.set("weir.control_socket", "/nowhere/direct");
    assert_eq!(direct.client().value("SELECT 8"), "8");
    assert_eq!(direct.column("why"), "no answer");
}

/// Its backends may not connect to Weir's socket, so they do not come either.
#[test]
fn a_pool_whose_server_runs_as_another_user_is_proxied() {
    if !support::only_weir() || !testkit::is_root() {
        return;
    }
    let folder = testkit::open_folder("other");
    let socket = folder.join("direct");
    let direct = Direct::begin(2, |setup| {
        let setup = setup.set("unix_socket_dir", folder.display());
        setup.set("direct_socket", socket.display()).from_root_as("nobody")
    });
    direct.postgres.set("weir.control_socket", &socket.to_string_lossy());
    assert_eq!(direct.client().value("SELECT 7"), "7");
    assert_eq!(direct.column("why"), "other system user");
}
