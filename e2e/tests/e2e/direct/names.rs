//! The name of the socket to which PostgreSQL's backends connect.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    panic::{AssertUnwindSafe, catch_unwind},
};

use testkit::{Pooler, eventually};

use super::{Direct, PATIENCE};
use crate::support;

/// The servers of the first one would come to the second one.
#[test]
fn a_second_weir_with_the_same_socket_does_not_start_core() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut client = direct.client();
    client.rows("SET work_mem = '7MB'");
    let second = Pooler::before(&direct.postgres)
        .set("data_path", "direct")
        .set("direct_socket", direct.socket().display())
        .database(&direct.database, "");
    // It may have opened its port for clients before.
    let why = match catch_unwind(AssertUnwindSafe(|| second.start())) {
        Ok(mut second) => {
            assert_eq!(second.wait_for_exit().code(), Some(1));
            second.log()
        }
        Err(refused) => refused.downcast_ref::<String>().expect("a text").clone(),
    };
    assert!(why.contains("another process listens there"), "{why}");
    direct.pooler.admin("RECONNECT");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    assert_eq!(direct.client().value("SELECT 1"), "1");
    assert_eq!(direct.column("data_path"), "direct");
}

#[test]
fn a_killed_weirs_socket_is_replaced() {
    if !support::only_weir() {
        return;
    }
    let mut direct = Direct::start(2);
    direct.pooler.kill9();
    assert!(direct.socket().exists());
    direct.pooler.restart();
    assert_eq!(direct.client().value("SELECT 1"), "1");
    assert_eq!(direct.column("data_path"), "direct");
}

#[test]
fn a_name_that_is_removed_is_made_anew_and_one_that_is_taken_is_reported() {
    if !support::only_weir() {
        return;
    }
    let direct = Direct::start(2);
    let mut client = direct.client();
    client.rows("SET work_mem = '7MB'");
    let socket = direct.socket();
    fs::remove_file(&socket).expect("our own file");
    eventually("the socket is there again", PATIENCE, || socket.exists().then_some(()));
    direct.pooler.admin("RECONNECT");
    assert_eq!(client.value("SHOW work_mem"), "7MB");
    direct.pooler.log_contains("was gone, and is made anew");
    let other = socket.with_extension("other");
    let _listener = UnixListener::bind(&other).expect("our own folder");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o777)).expect("our own socket");
    fs::rename(&other, &socket).expect("our own folder");
    eventually("it is reported", PATIENCE, || {
        direct.pooler.log().contains("is not this process's any more").then_some(())
    });
}
